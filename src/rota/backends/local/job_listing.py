"""What the journal is told of a job: what it asked for, and what was measured of it."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

from rota.run.job_facts import Listing, Measured

if TYPE_CHECKING:
    from rota.backends.local.held import Ended, Held
    from rota.backends.local.request import Request


def listing_of(uid: int, request: Request, submit_s: float) -> Listing:
    """What is known of a job when it arrives."""
    return Listing(
        job_id=str(uid),
        user=request.user,
        num_gpus=request.workers * max(1, request.gpus_per_worker),  # as in a trace
        submit_s=submit_s,
        estimate_s=nan if request.estimate_s is None else request.estimate_s,
        model=request.model,
        num_servers=request.servers,
        **request.sizes(),
    )


def measured_of(request: Request, held: Held, ended: Ended | None) -> Measured:
    """What an elastic job did and what its changes cost; of a plain job nothing is measured."""
    if request.kind == "plain":
        return Measured()
    speed = held.speed(request.workers, request.servers)
    whole = ended is not None and ended.state == "done"
    samples = held.total if whole and held.total else held.samples
    return Measured(
        work_s=samples / speed if speed and samples else nan,
        restart_s=held.starting_s / held.starts if held.starts else nan,
        resize_s=held.paused_s / held.changes if held.changes else nan,
    )
