"""The seam to a cluster that others run: what a driver says of it, and what it can do there."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, nan
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.backends.reconciler import Action, Outcome, Phase

Place: TypeAlias = "tuple[tuple[str, int, int], ...]"
"""(node, workers, servers), by the names of nodes."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """What a job asks for, in rota's words."""

    user: str = ""
    model: str = ""
    workers: int = 1
    min_workers: int = 1
    max_workers: int = 1
    gpus_per_worker: int = 0
    cpus_per_worker: float = 0.0
    memory_gb_per_worker: float = 0.0
    gpu_type: str = ""
    """The only type it runs on; "": any."""
    estimate_s: float = nan
    """Run time at the size it asks for, as far as it is known."""
    restart_s: float = nan
    """Seconds without progress after a stop, as its user says."""
    stoppable: bool = False
    in_place: bool = False
    """It can be resized while it runs."""
    notice_s: float = 0.0
    """Seconds it is given to save its progress before it is stopped."""
    only_on: frozenset[str] | None = None
    """Nodes it may run on; None: all."""
    must_have: frozenset[str] = frozenset()
    """Nodes that have to be among its own."""
    apart: bool = False
    """No two workers on one node."""
    fixed: frozenset[str] = frozenset()
    """Nodes that it cannot give up while it runs, though it can be resized in place."""


@dataclass(frozen=True)
class Progress:
    """What a job says of its own progress."""

    time_s: float
    """Unix time at which it said so."""
    samples: float
    total: float = nan
    samples_per_s: float = nan
    nodes: int = 0
    """Nodes on which it trained then; 0: it does not say, they are those that it holds."""
    pause_s: float = nan
    """What a resize in place has cost it until now, on average."""


@dataclass(frozen=True, kw_only=True)
class JobSight:
    """One job as its cluster shows it."""

    name: str
    """By which its cluster's users call it."""
    submit_s: float
    """Unix time; together with the name it tells one job from all others."""
    resubmitted: bool = False
    """Its cluster has put it back in line: it is known by an earlier submission, too."""
    request: JobRequest
    phase: Phase = "waiting"
    place: Place = ()
    start_s: float = nan
    """Unix time at which its present run began."""
    saved: bool = False
    """It has saved its progress since it was given notice."""
    managed: bool = True
    """Whether it is ours to start and stop; room that others take is seen all the same."""
    waits_for: str = ""
    """What it waits for beside room, so that no policy is asked about it yet."""
    refused: str = ""
    """Why its cluster does not start it, though it was told to and its nodes are free."""
    progress: Progress | None = None
    end: str = ""
    """`done`, `failed` or `cancelled`; "": it is not over."""
    end_s: float = inf
    """Unix time."""


@dataclass(frozen=True, kw_only=True)
class NodeSight:
    """One node as its cluster shows it."""

    name: str
    gpus: int
    gpu_type: str = ""
    cpus: float = inf
    memory_gb: float = inf
    rack: int = 0
    up: bool = True
    """Whether jobs can be started there now."""


@dataclass(frozen=True)
class ClusterSight:
    """Everything at one moment."""

    time_s: float
    """Unix time."""
    jobs: Sequence[JobSight]
    nodes: Sequence[NodeSight]
    left: Mapping[str, str] = field(default_factory=dict)
    """Waiting jobs that might be ours, but are started by somebody else: by name, why."""


@dataclass(frozen=True)
class Answer:
    """What came of an action, and what the cluster said."""

    outcome: Outcome
    said: str = ""


class Driver(Protocol):
    """Looks at one cluster, and does one thing to one job at a time.

    It is called in several threads.
    """

    def observe(self) -> ClusterSight:
        """All jobs and nodes at once; BackendError if the cluster cannot be asked."""
        ...

    def carry_out(self, action: Action, job: JobSight, place: Place) -> Answer:
        """Do one thing; it must not matter if it is done twice.

        `place` is what the job shall hold: for a start or a resize, what it gets.
        """
        ...

    def fate(self, name: str, submit_s: float) -> tuple[str, float]:
        """How and when (unix time) a job ended that is not listed any more, as far as is known."""
        ...
