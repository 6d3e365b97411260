"""How long the jobs of a journal were: from what they held, and from what was measured of them.

A simulator writes down how long each job takes alone. On a live cluster that is not known in
advance, but once a job is over the journal tells: what it held and when, and what its backend
measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.layout import ARRIVE, FINISH, GIVE_UP, MOVE, NODE_DOWN, RESIZE, START

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.core.types import Bools, Floats, Ints
    from rota.run.reader import Events, JournalView

ENDED: Final = "ended"
"""Where the note of a round keeps what was measured of the jobs that had ended, by uid."""
MEASURES: Final = ("work_s", "restart_s", "resize_s")


@dataclass(frozen=True)
class Lengths:
    """What a journal tells of each of its jobs (J,)."""

    held_s: Floats
    """How long it held something, first to last."""
    work_s: Floats
    """Work in that time, in seconds at the size asked for, if speed goes with workers and every
    change has cost what was measured: a simulation of the same rounds ends it at the same time."""
    measured_s: Floats
    """Work as its backend measured it, with one start; NaN: not measured."""
    restart_s: Floats
    """What its starts have cost; NaN: not measured."""
    resize_s: Floats
    fewest: Ints
    """Workers that it has held at the least, and at the most; 0: it has never held any."""
    most: Ints
    over: Bools
    """Whether it has finished, failed or been taken away."""
    came_s: Floats
    """When the journal first speaks of it; inf: never."""
    left_s: Floats
    """When it last gave up what it held; inf: it has not, or may come back."""


def lengths(view: JournalView) -> Lengths:
    """What the journal's events and notes tell of its jobs."""
    jobs, found, rounds = view.jobs, view.events(), view.rounds()
    told = _measures(view.notes().values(), jobs.job_id.tolist())
    each = np.maximum(1, np.nan_to_num(jobs.more.get("gpus_per_worker", 1.0), nan=1.0))
    asked = jobs.num_gpus // each  # 0, where workers without GPUs were not counted
    until_s = max(float(part["time_s"].max(initial=0.0)) for part in (found.events, rounds))
    return _followed(found, asked.astype(np.int64), told, until_s)


def _measures(notes: Iterable[Mapping[str, Any]], job_id: list[str]) -> dict[str, Floats]:
    """What the notes say was measured of each job (J,), NaN where they say nothing."""
    number = {name: k for k, name in enumerate(job_id)}
    found = {key: np.full(len(job_id), np.nan) for key in MEASURES}
    for note in notes:
        for uid, facts in (note.get(ENDED) or {}).items():
            for key in MEASURES:
                if uid in number and key in facts:
                    found[key][number[uid]] = float(facts[key])
    return found


def _followed(found: Events, asked: Ints, told: Mapping[str, Floats], until_s: float) -> Lengths:
    """Add up, job by job, the times in which it held something; open ones end at `until_s`."""
    J = len(asked)
    held_s, work_s = np.zeros((2, J))
    fewest, most = np.zeros((2, J), np.int64)
    over, came_s, left_s = np.zeros(J, np.bool_), np.full(J, np.inf), np.full(J, np.inf)
    restart_s, resize_s = np.nan_to_num(told["restart_s"]), np.nan_to_num(told["resize_s"])
    since_s, pause_s = np.full(J, np.nan), np.zeros(J)
    workers, ran = np.zeros(J, np.int64), np.zeros(J, np.bool_)

    def settle(job: int, now_s: float) -> None:
        """Count what the job has held up to now."""
        if since_s[job] == since_s[job]:
            span_s = now_s - since_s[job]
            held_s[job] += span_s
            work_s[job] += max(0.0, span_s - pause_s[job]) * workers[job]
        since_s[job] = np.nan

    for e, (now_s, job, kind, _) in enumerate(found.events.tolist()):
        if kind >= NODE_DOWN:
            continue
        came_s[job] = min(came_s[job], now_s)
        if kind == ARRIVE:
            continue
        held = since_s[job] == since_s[job]
        settle(job, now_s)
        if kind in (START, MOVE, RESIZE):
            given = found.shares["workers"][found.offsets[e] : found.offsets[e + 1]].sum()
            pause_s[job] = (resize_s[job] if held else restart_s[job]) if ran[job] else 0.0
            since_s[job], workers[job], ran[job] = now_s, given, True
            fewest[job] = min(fewest[job] or given, given)
            most[job], left_s[job] = max(most[job], given), np.inf
        elif held:
            left_s[job] = now_s
        over[job] |= kind in (FINISH, GIVE_UP)
    for job in np.flatnonzero(~np.isnan(since_s)).tolist():
        settle(job, until_s)
    left_s[~over] = np.inf
    work_s /= np.maximum(1, np.where(asked > 0, asked, most))
    measured_s = told["work_s"] + restart_s
    return Lengths(held_s, work_s, measured_s, told["restart_s"], told["resize_s"], fewest, most,
                   over, came_s, left_s)  # fmt: skip
