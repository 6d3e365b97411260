"""Who gives what to whom in a change, and which server keeps which parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Shards = dict[str, tuple[int, ...]]
"""Numbers of the parameters that each server keeps."""
Gifts = dict[tuple[str, str], tuple[int, ...] | None]
"""From giver to taker: some parameters, or None for everything."""


def copies(givers: Sequence[str], takers: Sequence[str]) -> Gifts:
    """Everything, to all takers, the givers in turn."""
    return {(givers[k % len(givers)], taker): None for k, taker in enumerate(takers)}


def rebalance(
    sizes: Sequence[int], before: Mapping[str, Sequence[int]], servers: Sequence[str]
) -> Shards:
    """Spread the parameters over `servers`, moving few.

    Parameters without a server go to the least loaded one, the largest first. Then, as in DL2,
    the most loaded server gives to the least loaded the parameter closest to half of what lies
    between them, as long as that brings them nearer.
    """
    held = {name: list(before.get(name, ())) for name in servers}
    load = {name: sum(sizes[k] for k in keys) for name, keys in held.items()}
    kept = {k for keys in held.values() for k in keys}
    for key in sorted(set(range(len(sizes))) - kept, key=lambda k: (-sizes[k], k)):
        name = min(servers, key=load.__getitem__)
        held[name].append(key)
        load[name] += sizes[key]
    while True:
        rich, poor = max(servers, key=load.__getitem__), min(servers, key=load.__getitem__)
        gap = load[rich] - load[poor]
        fitting = [key for key in held[rich] if 0 < sizes[key] < gap]
        if not fitting:
            return {name: tuple(sorted(keys)) for name, keys in held.items()}
        key = min(fitting, key=lambda k: (abs(gap - 2 * sizes[k]), k))
        held[rich].remove(key)
        held[poor].append(key)
        load[rich] -= sizes[key]
        load[poor] += sizes[key]


def moves(
    before: Mapping[str, Sequence[int]],
    after: Mapping[str, Sequence[int]],
    spare: str,
    newcomers: Sequence[str],
) -> Gifts:
    """Parameters that change their server.

    `spare` gives those whose server is gone. Newcomers without any get the rest of the state
    all the same, so that they know where the training has come to.
    """
    owner = {key: name for name, keys in before.items() for key in keys}
    found: dict[tuple[str, str], list[int]] = {}
    for name, keys in after.items():
        for key in keys:
            giver = owner.get(key, spare)
            if giver != name:
                found.setdefault((giver, name), []).append(key)
    gifts: Gifts = {pair: tuple(keys) for pair, keys in found.items()}
    for name in newcomers:
        if not any(taker == name for _, taker in found):
            gifts[next(iter(before), spare), name] = ()
    return gifts
