"""What policies are told that a worker needs, of jobs whose workers must be on different nodes.

A policy packs workers: four with a GPU each go on one node of four GPUs. It would never start a job
of which one worker takes all memory of a node, and whose workers come to four nodes anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rota.backends.driver import JobRequest
    from rota.core.cluster import Cluster


def packed_needs(request: JobRequest, cluster: Cluster) -> tuple[float, float]:
    """CPUs and gigabytes of a worker, at most what leaves room for all that a node's GPUs serve."""
    cpus, memory_gb, each = (
        request.cpus_per_worker, request.memory_gb_per_worker, request.gpus_per_worker,
    )  # fmt: skip
    if not request.apart or request.max_workers == 1:
        return cpus, memory_gb
    fits = (cluster.gpus >= each) & (cluster.cpus >= cpus) & (cluster.memory_gb >= memory_gb)
    if request.gpu_type:
        fits &= cluster.type == cluster.type_code(request.gpu_type)
    if not fits.any():
        return cpus, memory_gb
    places = cluster.gpus[fits].max() // each if each else request.max_workers
    together = max(1, min(int(places), request.max_workers))
    return (
        float(np.minimum(cpus, cluster.cpus[fits].min() / together)),
        float(np.minimum(memory_gb, cluster.memory_gb[fits].min() / together)),
    )
