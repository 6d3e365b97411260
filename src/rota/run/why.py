"""Why a job waits, worked out from one round's snapshot and decision: no sockets, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import SLACK
from rota.core.plan import Stop
from rota.run.wait_reason import MOST_NAMED, WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rota.core.cluster import Cluster
    from rota.core.decision import Decision
    from rota.core.plan import Plan
    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats, Records

_RESOURCES: Final = (("gpus", "free", "GPUs"), ("cpus", "free_cpus", "CPUs"),
                     ("memory_gb", "free_memory_gb", "GB of memory"))  # fmt: skip
"""Of each: its name in `NODE` and in jobs (`…_per_worker`), what is free of it, its unit."""
_SHAPE: Final = ("workers", "min_workers", "min_servers", "gpu_type", "gpus_per_worker",
                 "cpus_per_worker", "memory_gb_per_worker", "cpus_per_server",
                 "memory_gb_per_server")  # fmt: skip
"""Jobs that are equal in these fit, or do not fit, alike."""
_UNLIMITED: Final = 1 << 31


def why_waiting(
    snapshot: Snapshot, decision: Decision, by: str, *, first_come: bool = False,
    call: Callable[[int], str] = str,
) -> dict[int, WaitReason]:  # fmt: skip
    """A reason, by uid, for every job that `decision` gives nothing.

    `by` names the policy that decided, "" if none did. With `first_come` it serves jobs in order
    of submission, so that it is known which job is ahead of another. `call` gives the name by which
    users know a job.
    """
    rows = snapshot.jobs.rows
    waiting = np.flatnonzero(decision.length == 0)
    free, held = _after(snapshot, decision)
    known: dict[tuple[Any, ...], WaitReason | str] = {}
    found: dict[int, WaitReason] = {}
    shapes = zip(*(rows[name][waiting].tolist() for name in _SHAPE), strict=True)
    first = int(rows["uid"][waiting[0]]) if first_come and len(waiting) else None
    for job, shape in zip(waiting.tolist(), shapes, strict=True):
        if shape not in known:
            obstacle = _obstacle(snapshot, free, held, rows[job], by, call)
            known[shape] = obstacle or _room(snapshot.cluster, free, rows[job])
        uid, reason = int(rows["uid"][job]), known[shape]
        if isinstance(reason, str):
            ahead = None if first == uid else first
            reason = _passed(reason, by, decision.reasons.get(job, ""), ahead, call)
        found[uid] = reason
    return found


def too_large(cluster: Cluster, row: Any, workers: int) -> str:
    """What a job of this record asks for that the whole empty cluster does not have; "" if nothing.

    `workers` is the number of workers that it needs.
    """
    nodes = cluster.empty()
    there = _suitable(nodes, row)
    if not there.any():
        return "no node has GPUs of the type that it asks for"
    for name, _, unit in _RESOURCES:
        each, most = float(row[f"{name}_per_worker"]), float(nodes[name][there].max())
        if each > most + SLACK:
            return f"each worker asks for {_count(each, unit)}; the largest node has {most:g}"
    room = int(_places(nodes, row).sum())
    if room < workers:
        here = f"{cluster.describe()} {'has' if len(cluster) == 1 else 'have'} room for {room}"
        return f"it asks for {_workers(row, workers)}; {here}"
    if not _fits(nodes, row, workers):
        return "its workers and parameter servers together need more CPUs or memory than there are"
    return ""


def stopped_for(plan: Plan, left: Mapping[int, Iterable[int]]) -> dict[int, tuple[int, ...]]:
    """For every job that a plan stops: the jobs that get a share of the nodes which it leaves.

    `left` maps the uids of stopped jobs to their nodes.
    """
    gains: dict[int, set[int]] = {}
    for action in plan:
        for node, *_ in getattr(action, "share", ()):
            gains.setdefault(node, set()).add(action.uid)
    return {
        action.uid: tuple(sorted({u for n in left.get(action.uid, ()) for u in gains.get(n, ())}))
        for action in plan
        if isinstance(action, Stop)
    }


def _after(snapshot: Snapshot, decision: Decision) -> tuple[Records, dict[int, Floats]]:
    """What is free once the decision is carried out, and what each job holds then (3, N)."""
    rows, nodes = snapshot.jobs.rows, snapshot.cluster.empty()
    held: dict[int, Floats] = {}
    for job in np.flatnonzero(decision.length).tolist():
        amounts = np.zeros((len(_RESOURCES), len(nodes)))
        for node, workers, servers in decision.share(job):
            for k, (name, *_) in enumerate(_RESOURCES):
                amounts[k, node] = workers * float(rows[f"{name}_per_worker"][job])
                if name != "gpus":
                    amounts[k, node] += servers * float(rows[f"{name}_per_server"][job])
        held[int(rows["uid"][job])] = amounts
    for k, (_, free, _) in enumerate(_RESOURCES):
        used = np.sum([amounts[k] for amounts in held.values()], axis=0) if held else 0.0
        nodes[free] = np.where(snapshot.nodes["up"], np.maximum(nodes[free] - used, 0), 0)
    nodes["up"] = snapshot.nodes["up"]
    return nodes, held


def _obstacle(
    snapshot: Snapshot, free: Records, held: Mapping[int, Floats], row: Any, by: str,
    call: Callable[[int], str],
) -> WaitReason | None:  # fmt: skip
    """What keeps jobs like this one from starting, or None if the policy could have started it."""
    least, asked = max(1, int(row["min_workers"])), int(row["workers"])
    if text := too_large(snapshot.cluster, row, least):
        return WaitReason(
            "never", f"never fits: {text}",
            "Cancel it and ask for less, or let rota schedule a larger cluster.",
        )  # fmt: skip
    if not by:
        return WaitReason(
            "undecided", "no policy has decided in the last round",
            "The policy and its fallback are asked again in the next round.",
        )  # fmt: skip
    if _fits(free, row, asked):
        return None
    k, text = _shortage(free, row, least if not _fits(free, row, least) else asked)
    there = _suitable(free, row) & free["up"]
    amounts = {uid: float(own[k][there].sum()) for uid, own in held.items()}
    holders = sorted(
        ((uid, amount) for uid, amount in amounts.items() if amount > 0),
        key=lambda one: (-one[1], one[0]),
    )
    parts = [text, *([_named(holders, call)] if holders else [])]
    if down := int((~free["up"]).sum()):
        parts.append(f"{down} node{'s are' if down > 1 else ' is'} down")
    if _fits(free, row, least):
        parts.append(f"policy {by} did not start it with fewer")
    return WaitReason(
        "full", "; ".join(parts),
        "It is considered again whenever a job ends, and in every round.",
        tuple(holders), _RESOURCES[k][2],
    )  # fmt: skip


def _room(cluster: Cluster, free: Records, row: Any) -> str:
    """How a job fits that could be started now."""
    workers = int(row["workers"])
    if _places(free, row).max() < workers <= _places(cluster.empty(), row).max():
        return "it fits on several nodes together, but on no single one, and"
    return "it fits, but"


def _passed(
    room: str, by: str, why: str, ahead: int | None, call: Callable[[int], str]
) -> WaitReason:
    told = f": {why}" if why else "" if ahead is None else f": job {call(ahead)} is ahead of it"
    return WaitReason(
        "passed", f"{room} policy {by} did not start it{told}",
        "The policy decides anew in every round.", ahead=None if why else ahead,
    )  # fmt: skip


def _shortage(free: Records, row: Any, workers: int) -> tuple[int, str]:
    """Which resource is short (its index), and a sentence about it."""
    there = _suitable(free, row) & free["up"]
    for k, (name, column, unit) in enumerate(_RESOURCES):
        each = float(row[f"{name}_per_worker"])
        room = np.floor((free[column][there] + SLACK) / each).sum() if each > 0 else _UNLIMITED
        if room >= workers:
            continue
        left, total = float(free[column][there].sum()), float(free[name][there].sum())
        text = f"needs {_need(row, k, workers)}; {left:g} of {total:g} {unit} {_are(left)} free"
        if left + SLACK >= each * workers:
            text += f", but on different nodes: there is room for {_plural(int(room), 'worker')}"
        return k, text
    room = int(_places(free, row).sum())
    text = f"needs {_workers(row, workers)}; nodes with all of that free have room for {room}"
    return 0, text


def _fits(nodes: Records, row: Any, workers: int) -> bool:
    """Whether nodes have room for this many workers and the fewest parameter servers."""
    places = _places(nodes, row)
    if places.sum() < workers:
        return False
    servers = int(row["min_servers"])
    needs = [float(row[f"{name}_per_server"]) for name in ("cpus", "memory_gb")]
    if not servers or not any(needs):
        return True
    left, room = workers, np.full(len(nodes), float(_UNLIMITED))
    taken = np.zeros(len(nodes))
    for node in np.argsort(places)[::-1].tolist():  # few nodes, so that others stay whole
        taken[node] = min(left, places[node])
        left -= int(taken[node])
    for name, each in zip(("cpus", "memory_gb"), needs, strict=True):
        if each > 0:
            rest = nodes[f"free_{name}"] - taken * float(row[f"{name}_per_worker"])
            room = np.minimum(room, np.floor((rest + SLACK) / each))
    return bool(np.where(nodes["up"], room, 0).sum() >= servers)


def _places(nodes: Records, row: Any) -> Floats:
    """Workers that each node has room for (N,)."""
    room = np.full(len(nodes), float(_UNLIMITED))
    for name, free, _ in _RESOURCES:
        each = float(row[f"{name}_per_worker"])
        if each > 0:
            room = np.minimum(room, np.floor((nodes[free] + SLACK) / each))
    return np.where(_suitable(nodes, row) & nodes["up"], room, 0.0)


def _suitable(nodes: Records, row: Any) -> Bools:
    """Nodes whose GPUs are of the type that a job asks for (N,)."""
    wanted = int(row["gpu_type"])
    return np.full(len(nodes), True) if wanted == -1 else np.equal(nodes["type"], wanted)


def _need(row: Any, k: int, workers: int) -> str:
    name, _, unit = _RESOURCES[k]
    each = float(row[f"{name}_per_worker"])
    if k == 0 and each == 1:
        return _count(workers, unit)
    return f"{_plural(workers, 'worker')} with {_count(each, unit)}{' each' * (workers > 1)}"


def _workers(row: Any, workers: int) -> str:
    amounts = [
        _count(float(row[f"{name}_per_worker"]), unit)
        for name, _, unit in _RESOURCES
        if row[f"{name}_per_worker"] > 0
    ]
    own = f" with {', '.join(amounts)}{' each' * (workers > 1)}" if amounts else ""
    return f"{_plural(workers, 'worker')}{own}"


def _named(holders: list[tuple[int, float]], call: Callable[[int], str]) -> str:
    told = [f"job {call(uid)} holds {amount:g}" for uid, amount in holders[:MOST_NAMED]]
    more = len(holders) - MOST_NAMED
    rest = f" and {_plural(more, 'job')} {sum(a for _, a in holders[MOST_NAMED:]):g} more"
    return ", ".join(told) + (rest if more > 0 else "")


def _count(amount: float, unit: str) -> str:
    return f"{amount:g} {unit[:-1] if amount == 1 and unit.endswith('s') else unit}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _are(amount: float) -> str:
    return "is" if amount == 1 else "are"
