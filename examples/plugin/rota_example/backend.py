"""A backend: any object with observe, apply and wait; here a simulated cluster."""

from __future__ import annotations

from rota.core import Cluster
from rota.sim import Simulator
from rota.traces import load_trace


def cluster(nodes: int = 2, gpus: int = 4, jobs: int = 10) -> Simulator:
    """A cluster of so many nodes, with a few drawn jobs in line."""
    return Simulator(Cluster.uniform(nodes, gpus), load_trace(f"poisson:jobs={jobs},total_gpus=8"))
