"""What is free beside the jobs of a cluster, and who comes too late for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.backends.fitting import Room

if TYPE_CHECKING:
    from collections.abc import Mapping

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
