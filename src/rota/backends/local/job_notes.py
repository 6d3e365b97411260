"""What the daemon notes about jobs for their users: why they were stopped, why they start late."""

from __future__ import annotations

from time import strftime
from typing import TYPE_CHECKING

from rota.run.wait_reason import WaitReason, name_jobs
from rota.run.why import stopped_for

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rota.backends.local.live_job import LiveJob
    from rota.core.plan import Plan


def stop_notes(plan: Plan, by: str, jobs: Mapping[int, LiveJob]) -> dict[int, str]:
    """For every job that a plan has stopped: when, by which policy, for which jobs, and why."""
    stopped = {uid: job.held for uid, job in jobs.items() if not job.held.seats}
    left = {uid: {seat.node for seat in held.leaving.values()} for uid, held in stopped.items()}
    reasons = {int(plan.decision.uid[k]): why for k, why in plan.decision.reasons.items()}
    notes = {}
    for uid, others in stopped_for(plan, left).items():
        if uid in stopped:
            whom = f" for {name_jobs(others)}" if others else ""
            why = f": {reasons[uid]}" if uid in reasons else ""
            notes[uid] = f"stopped at {strftime('%H:%M')} by {by}{whom}{why}"
    return notes


def starting_reasons(jobs: Collection[LiveJob]) -> dict[int, WaitReason]:
    """For every job that has its seats and no run yet: which jobs' processes are in its way."""
    return {job.uid: _starting(job, jobs) for job in jobs if job.held.seats and not job.held.open}


def _starting(job: LiveJob, jobs: Collection[LiveJob]) -> WaitReason:
    seats = job.held.seats.values()
    others = [
        other.uid
        for other in jobs
        if any(left.meets(seat) for left in other.held.leaving.values() for seat in seats)
    ]
    whose = f"of {name_jobs(others)} " if others else ""
    return WaitReason(
        "leaving", f"starts when the processes {whose}on its GPUs have ended",
        "They are killed if they do not end in time.",
    )  # fmt: skip
