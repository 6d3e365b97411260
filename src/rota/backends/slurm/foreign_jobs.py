"""Jobs that are not rota's, as far as they take room on its nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rota.backends.slurm.replies import ENDS, gpus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.backends.driver import JobRequest, Place
    from rota.backends.slurm.replies import SlurmJob


def shut_nodes(jobs: Iterable[SlurmJob]) -> set[str]:
    """Nodes on which nobody, or only some user, can start jobs beside one that is there."""
    return {
        node
        for job in jobs
        if job.exclusive and job.state not in ENDS and job.state != "PENDING"
        for node in job.nodes
    }


def foreign_share(job: SlurmJob, request: JobRequest, names: set[str]) -> tuple[JobRequest, Place]:
    """A job that is not ours, as far as it takes room on our nodes: GPU by GPU, or by its CPUs."""
    held = {
        name: sum(gpus(text).values())
        for name, text in zip(job.nodes, job.gpus_held, strict=False)
        if name in names
    }
    total = sum(held.values())
    if not total:
        place = tuple((name, 1, 0) for name in job.nodes if name in names)
        size, each, cpus = len(place), 0, job.cpus / max(1, len(job.nodes))
    else:
        place = tuple((name, count, 0) for name, count in held.items() if count)
        size, each, cpus = total, 1, job.cpus / max(1, len(job.nodes)) * len(held) / total
    return replace(
        request, workers=size, min_workers=size, max_workers=size, gpus_per_worker=each,
        cpus_per_worker=cpus, gpu_type="", stoppable=False, in_place=False, only_on=None,
        must_have=frozenset(), apart=False,
    ), place  # fmt: skip
