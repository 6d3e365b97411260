"""Elastic sizing: jobs give back what others wait for, and grow into what is free.

That they start smaller where they must is part of the compiled round: it goes by its order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.policies.classic.placing import PLACEMENTS, Placer

if TYPE_CHECKING:
    from rota.core.draft import Draft
    from rota.core.types import Ints

_NAMES = {code: name for name, (code, _) in PLACEMENTS.items()}


def shrink_back(draft: Draft) -> None:
    """While jobs wait, take back what running jobs hold beyond their request."""
    jobs = draft.snapshot.jobs
    if not jobs.waiting.any():
        return
    grown = (jobs.held_workers > jobs.workers) & ~draft.snapshot.pinned
    for job in np.flatnonzero(grown).tolist():
        surplus = int(jobs.held_workers[job] - jobs.workers[job])
        for node, workers, _ in reversed(draft.held(job)):
            taken = min(surplus, workers)
            if taken:
                draft.shrink(job, node, taken)
                surplus -= taken


def grow(draft: Draft, place: int, order: Ints) -> None:
    """Let running jobs grow into what is left, in `order`, one worker at a time."""
    jobs, find = draft.snapshot.jobs, Placer(_NAMES[place])
    elastic = (jobs.max_workers > jobs.min_workers) & ~draft.snapshot.pinned
    growing = order[((draft.length > 0) & elastic)[order]].tolist()
    while growing:
        growing = [job for job in growing if _grow_by_one(draft, job, find)]


def _grow_by_one(draft: Draft, job: int, find: Placer) -> bool:
    """Add a worker beside those the job has, or else wherever there is room."""
    rows, held = draft.rows, draft.held(job)
    if sum(workers for _, workers, _ in held) >= rows["max_workers"][job]:
        return False
    each = int(rows["gpus_per_worker"][job])
    plain = not (rows["cpus_per_worker"][job] or rows["memory_gb_per_worker"][job])
    beside = [node for node, _, _ in held if plain and draft.free(node) >= each]
    share = [(beside[0], 1)] if beside else find(draft, job, 1)
    if share is None:
        return False
    draft.grow(job, share[0][0])
    return True
