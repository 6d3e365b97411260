"""What is free beside the jobs of a cluster, and who comes too late for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.backends.fitting import Room
from rota.core.decision import Decision
from rota.core.layout import SHARE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.backends.fitting import Fitter
    from rota.backends.job_roll import JobRoll
    from rota.backends.node_table import NodeTable
    from rota.backends.reconciler import Reconciler
    from rota.core.plan import Share


def room_beside(held: Mapping[int, Share], roll: JobRoll, nodes: NodeTable) -> Room:
    """What is free while jobs hold these shares."""
    room = Room(nodes)
    for uid, share in held.items():
        room.take(roll.jobs[uid].sight.request, share)
    return room


def laid_out(
    wanted: Mapping[int, Share], roll: JobRoll, nodes: NodeTable, mind: Reconciler, fitter: Fitter,
    now_s: float,
) -> dict[int, Share | None]:  # fmt: skip
    """What our jobs get of what was decided about them, beside all others; None: nothing new."""
    others = {uid: roll.share(job) for uid, job in roll.jobs.items() if uid not in wanted}
    asked = {uid: (job.sight.request, share) for uid, share in wanted.items()
             if (job := roll.jobs.get(uid)) and job.sight.managed}  # fmt: skip
    has = {uid: mind.share(uid) for uid in asked}
    return fitter.lay_out(asked, room_beside(others, roll, nodes), now_s, has)


def giving(decision: Decision, shares: Mapping[int, Share]) -> Decision:
    """A decision, but for jobs, by uid, that are to hold something else."""
    uids = decision.uid.tolist()
    every = [shares.get(uid, decision.share(job)) for job, uid in enumerate(uids)]
    length = np.array([len(share) for share in every], np.int64)
    entries = np.array([entry for share in every for entry in share], SHARE)
    return Decision(
        decision.uid, length.cumsum() - length, length, entries, decision.tunes, decision.reasons,
        decision.wake_s,
    )  # fmt: skip


def crowded_out(roll: JobRoll, nodes: NodeTable, mind: Reconciler) -> list[int]:
    """Jobs whose nodes others have taken before they came there, or that cannot be used any more.

    Between a decision and a start, others may start jobs of their own.
    """
    shares = {uid: roll.share(job) for uid, job in roll.jobs.items()}
    coming = [uid for uid, share in shares.items()
              if share and uid in mind and roll.physical(roll.jobs[uid]) != share]  # fmt: skip
    room = room_beside({uid: shares[uid] for uid in shares.keys() - set(coming)}, roll, nodes)
    found = []
    for uid in coming:
        request = roll.jobs[uid].sight.request
        if room.holds(request, shares[uid]):
            room.take(request, shares[uid])
        else:
            found.append(uid)
    return found
