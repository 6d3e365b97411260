"""Which member sends which parts of the state to which other, and which server keeps what."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Shards = dict[str, tuple[int, ...]]
"""Numbers of the parameters that each server keeps."""
Transfers = dict[tuple[str, str], tuple[int, ...] | None]
"""By (sender, receiver): numbers of parameters, or None for the whole state."""


def copies(senders: Sequence[str], receivers: Sequence[str]) -> Transfers:
    """The whole state to all receivers, from the senders in turn."""
    return {(senders[k % len(senders)], name): None for k, name in enumerate(receivers)}


def rebalance(
    sizes: Sequence[int], before: Mapping[str, Sequence[int]], servers: Sequence[str]
) -> Shards:
    """Spread the parameters evenly over `servers`, and move few of them.

    Parameters without a server go to the least loaded one, the largest first. Then, as in DL2,
    the most loaded server gives the least loaded one the parameter whose size is closest to half
    of their difference, as long as that makes the difference smaller.
    """
    held = {name: list(before.get(name, ())) for name in servers}
    load = {name: sum(sizes[k] for k in keys) for name, keys in held.items()}
    kept = {k for keys in held.values() for k in keys}
    for key in sorted(set(range(len(sizes))) - kept, key=lambda k: (-sizes[k], k)):
        name = min(servers, key=load.__getitem__)
        held[name].append(key)
        load[name] += sizes[key]
    while True:
        most, least = max(servers, key=load.__getitem__), min(servers, key=load.__getitem__)
        gap = load[most] - load[least]
        fitting = [key for key in held[most] if 0 < sizes[key] < gap]
        if not fitting:
            return {name: tuple(sorted(keys)) for name, keys in held.items()}
        key = min(fitting, key=lambda k: (abs(gap - 2 * sizes[k]), k))
        held[most].remove(key)
        held[least].append(key)
        load[most] -= sizes[key]
        load[least] += sizes[key]


def moves(
    before: Mapping[str, Sequence[int]],
    after: Mapping[str, Sequence[int]],
    spare: str,
    new: Sequence[str],
) -> Transfers:
    """Parameters that change their server.

    `spare` sends those whose server is gone. A new server without parameters is sent the rest of
    the state, so that it knows at which step the training is.
    """
    owner = {key: name for name, keys in before.items() for key in keys}
    found: dict[tuple[str, str], list[int]] = {}
    for name, keys in after.items():
        for key in keys:
            sender = owner.get(key, spare)
            if sender != name:
                found.setdefault((sender, name), []).append(key)
    transfers: Transfers = {pair: tuple(keys) for pair, keys in found.items()}
    for name in new:
        if not any(receiver == name for _, receiver in found):
            transfers[next(iter(before), spare), name] = ()
    return transfers
