"""When a waiting job will start, as far as one can tell: the last round, played on."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.run.guard import Guard
from rota.run.loop import rounds
from rota.run.play_on import PlayOn

if TYPE_CHECKING:
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats
    from rota.run.last_round import LastRound

GUESS_S: Final = 3600.0
"""Assumed length of a job of which nothing is known, nor of any other."""
OVERDUE: Final = 0.1
"""A job that outlives its estimate is assumed to need this part of its run time again."""
MOST_S: Final = 15.0
"""Real seconds that playing on may take after its first round."""
DECIDE_S: Final = 120.0
"""Real seconds for one decision; where nothing is compiled yet, the first takes long."""


@dataclass(frozen=True)
class ExpectedStart:
    """What came of playing on; times are those of the backend, in seconds."""

    uid: int
    start_s: float | None
    """None: it did not start in what was played."""
    until_s: float
    """So far was played."""
    before: tuple[int, ...]
    """Jobs that wait now and start before it, in this order."""
    waiting: int
    """Jobs that wait now, itself among them."""
    why_not: str = ""
    """Why it did not start, if it did not."""
    assumed: tuple[str, ...] = ()
    """What had to be assumed, in sentences."""


def expected_start(
    last: LastRound, uid: int, policy: Policy, fallback: Policy | None, typical_s: float,
    *, most_s: float = MOST_S,
) -> ExpectedStart:  # fmt: skip
    """Play on from the last round, with what it decided, until job `uid` starts.

    `typical_s` is the usual length of this cluster's jobs, NaN if that is not known.
    """
    snapshot = last.snapshot
    work_s, unknown = work_left(snapshot, typical_s)
    backend = PlayOn(snapshot, work_s)
    backend.apply(last.plan)
    waiting = np.flatnonzero(last.plan.decision.length == 0)
    waited = [int(one) for one in snapshot.jobs.uid[waiting]]
    backend.started_s.clear()
    ends_s, trouble, out_of_time = 0.0, "", False
    for turn in rounds(policy, backend, guard=Guard(fallback, deadline_s=DECIDE_S)):
        ends_s = ends_s or monotonic() + most_s  # not sooner: the first round may compile
        out_of_time = monotonic() > ends_s
        trouble = turn.trouble if not turn.by else ""
        if uid in backend.started_s or out_of_time or trouble:
            break
    order = [one for one in backend.started_s if one in waited]
    start_s = backend.started_s.get(uid)
    why_not = "" if start_s is not None else trouble or (
        "playing on took too long" if out_of_time else
        "nothing more would happen, and it would still wait"
    )  # fmt: skip
    before = tuple(order[: order.index(uid)] if uid in order else order)
    return ExpectedStart(
        uid, start_s, backend.now_s, before, len(waited), why_not,
        assumptions(snapshot, unknown, typical_s),
    )  # fmt: skip


def work_left(snapshot: Snapshot, typical_s: float) -> tuple[Floats, Bools]:
    """Work left of each job (J,), in seconds at the size it asks for, and where it is a guess."""
    rows = snapshot.jobs.rows
    left_s, done_s = rows["remaining_s"].astype(np.float64), rows["progress_s"]
    unknown = np.isnan(left_s)
    if typical_s > 0:
        again_s = np.where(done_s < typical_s, typical_s - done_s, done_s)
    else:  # nothing better is known than that it goes on as long again
        again_s = np.where(done_s > 0, done_s, GUESS_S)
    left_s = np.where(unknown, again_s, left_s)
    overdue_s = np.maximum(OVERDUE * done_s, 1.0)
    return np.where(left_s > 0, left_s, overdue_s), unknown


def assumptions(snapshot: Snapshot, unknown: Bools, typical_s: float) -> tuple[str, ...]:
    """What one has to believe to believe the result."""
    told = ["no further job comes, none fails, no node goes or comes back"]
    count = int(unknown.sum())
    if count:
        usual = (
            f"as long as half of those that are over, {typical_s:.0f} s"
            if typical_s > 0
            else f"as long again as they have run, or {GUESS_S:.0f} s"
        )
        jobs = f"{count} job{'s' * (count > 1)}"
        told.append(f"the length of {jobs} is not known: each is taken to last {usual}")
    if count < len(unknown):
        told.append("all others last as long as was estimated")
    if snapshot.curves is None and (snapshot.jobs.min_workers < snapshot.jobs.max_workers).any():
        told.append("jobs go faster in proportion to their workers")
    return tuple(told)
