"""The vocabulary: what a cluster, a job, a decision is. Knows no clock, no file, no backend."""

from rota.core.cluster import Cluster
from rota.core.decision import Decision
from rota.core.draft import Draft
from rota.core.jobs import Job, JobTable
from rota.core.plan import Move, Plan, Resize, Start, Stop, Tune
from rota.core.seams import Backend, Policy
from rota.core.snapshot import Snapshot

__all__ = [
    "Backend", "Cluster", "Decision", "Draft", "Job", "JobTable", "Move", "Plan", "Policy",
    "Resize", "Snapshot", "Start", "Stop", "Tune",
]  # fmt: skip
