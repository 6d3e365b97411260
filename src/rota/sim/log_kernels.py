"""The log of a simulation: events, and the shares that were given with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.jit import inline, part

if TYPE_CHECKING:
    from rota.core.types import Records
    from rota.sim.state import State


@inline
def copy_share(to: Records, k: int, source: Records, e: int) -> None:
    """to[k] = source[e], field by field, which compiles far faster."""
    to[k]["node"], to[k]["workers"] = source[e]["node"], source[e]["workers"]
    to[k]["servers"] = source[e]["servers"]


@inline
def log(s: State, kind: int, j: int, first: int, count: int) -> None:
    """Write an event down, with shares[first : first + count], if a log is kept."""
    if s.events.size > 0:
        write_down(s.events, s.entries, s.shares, s.clock[0], kind, j, first, count)


@part
def write_down(
    events: Records,
    entries: Records,
    shares: Records,
    clock: Any,
    kind: int,
    j: int,
    first: int,
    count: int,
) -> None:
    """Append an event and its shares to the log; what does not fit is counted as lost."""
    if clock["events"] >= events.size or clock["entries"] + count > entries.size:
        clock["lost"] += 1
        return
    event = events[clock["events"]]
    event["time_s"], event["job"] = clock["now_s"], j
    event["kind"], event["entries"] = kind, count
    for k in range(count):
        copy_share(entries, clock["entries"] + k, shares, first + k)
    clock["events"] += 1
    clock["entries"] += count
