"""What the end of a run means for its job: over, waiting to go on, or failed once more."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Final

from rota.elastic.job import LAUNCH_S
from rota.elastic.parking import parked
from rota.elastic.protocol import AGENT_FILE, JOB_FILE, RESULT_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from rota.backends.local.held import Held
    from rota.backends.local.request import Request
    from rota.backends.local.state_dir import StateDir

MOST_KILLS: Final = 3
"""Times in a row that a job is started again because its agent, not its script, was lost."""
LONG_S: Final = 60.0
"""A run of this length counts as progress, whether the job reports progress or not."""
NEVER: Final = "never"
"""The state of a run that never began."""


@dataclass(frozen=True)
class RunEnd:
    """How a run ended."""

    state: str
    error: str
    time_s: float
    told: bool
    """Whether its agent said so, or at least was there."""


def count_failure(held: Held, request: Request, time_s: float, *, killed: bool) -> bool:
    """Count a failure; True if it was one too many.

    Failures of the script count in all. Lost agents (`killed`) count in a row, as long as the job
    makes no progress in between.
    """
    held.failures += 1
    if not killed:
        held.faults += 1
        return held.faults > request.retries
    ran_s = time_s - (time_s if held.since_s is None else held.since_s)
    progressed = held.samples > held.lost_at or ran_s >= LONG_S
    held.losses = 1 if progressed else held.losses + 1
    held.lost_at = held.samples
    return held.losses > max(MOST_KILLS, request.retries)


def adopt_state(store: StateDir, uid: int, held: Held) -> bool:
    """Let the next run go on from the last state that this one has kept; False if there is none."""
    new, old = (store.park_folder(uid, run) for run in (held.run, held.parked))
    if not parked(new):
        shutil.rmtree(new, ignore_errors=True)
        return False
    if new != old:
        held.parked = held.run
        store.keep(uid, held)  # before the former state is removed
        shutil.rmtree(old, ignore_errors=True)
    return True


def no_state(store: StateDir, uid: int, held: Held) -> str:
    """Adopt the state of a run that was stopped; what to say if it has kept none."""
    if adopt_state(store, uid, held) or not held.samples:
        return ""
    again = " where it was stopped before" if held.parked else ""
    return f"it was stopped, but left no state behind: it begins again{again}"


def drop_states(store: StateDir, uid: int, held: Held) -> None:
    """Remove what the runs of a job that is over have kept."""
    for run in {held.run, held.parked}:
        shutil.rmtree(store.park_folder(uid, run), ignore_errors=True)


def may_still_come(folder: Path) -> bool:
    """Whether an agent that a former daemon has launched may still be starting."""
    if (folder / AGENT_FILE).exists():
        return False
    try:
        return time() - (folder / JOB_FILE).stat().st_mtime < LAUNCH_S
    except OSError:
        return False


def end_time(folder: Path, origin: float, since_s: float, now_s: float) -> float:
    """When a run ended, even if no daemon ran then, by the clock that began at `origin`."""
    try:
        written_s = (folder / RESULT_FILE).stat().st_mtime - origin
    except OSError:
        return now_s
    return min(max(written_s, since_s), now_s)
