"""What a job of Slurm asks for, in rota's words, or why it is left to Slurm."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import ceil, isfinite, nan
from typing import TYPE_CHECKING, Final

from rota.backends.driver import JobRequest
from rota.backends.slurm.hints import read_hints
from rota.backends.slurm.hook import HELD
from rota.backends.slurm.node_lists import MOST_NODES
from rota.backends.slurm.replies import gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.backends.slurm.hints import Hints
    from rota.backends.slurm.replies import SlurmJob, SlurmNode

MOST_GPUS: Final = 1024
"""On one node; a job that asks for more is left to Slurm, which knows no such node either."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
NO_LIMIT_S: Final = 365 * 86400.0
"""Slurm's backfill scheduler gives this limit to a job without any when it starts it."""
_NODELIST: Final = re.compile(r"\bnodelist=(\S*)")
_SIZE: Final = re.compile(r" nodes=(\d{1,7})/(\d{1,7})\b")
_IN_ALL: Final = (
    "min_nodes and max_nodes are ignored: its GPUs are asked for in all; ask for them per node, as "
    "with --gres"
)


@dataclass(frozen=True)
class Demand:
    """A request, or why the job is Slurm's own affair."""

    request: JobRequest
    hints: Hints
    left: str = ""
    ignored: tuple[str, ...] = ()
    """Hints that were not understood."""
    asked: int = 1
    """Nodes that it was submitted with."""


@dataclass
class Demands:
    """Reads jobs; remembers what it has read while a job stays as it is."""

    partitions: frozenset[str]
    counts_memory: bool = False
    """Whether Slurm gives memory to jobs, beside CPUs and GPUs."""
    _nodes: Sequence[SlurmNode] = ()
    _facts: Sequence[tuple[object, ...]] = ()  # of nodes, as jobs see them
    _places: dict[tuple[object, ...], frozenset[str]] = field(default_factory=dict)
    _most: dict[str, int] = field(default_factory=dict)  # GPUs of the largest node, by type
    _known: dict[tuple[object, ...], Demand] = field(default_factory=dict)

    def see(self, nodes: Sequence[SlurmNode]) -> None:
        """Take in the nodes on which jobs may be."""
        facts = [(one.name, one.gpus, one.gpu_type, one.cpus, one.memory_mb, one.features,
                  one.partitions) for one in nodes]  # fmt: skip
        if facts == self._facts:
            return
        self._nodes, self._facts, self._most = nodes, facts, {"": 0}
        for node in nodes:
            for kind in ("", node.gpu_type):
                self._most[kind] = max(self._most.get(kind, 0), node.gpus)
        self._known.clear()
        self._places.clear()

    @property
    def populated(self) -> frozenset[str]:
        """Those of our partitions that have nodes."""
        return self.partitions & frozenset[str]().union(*(one.partitions for one in self._nodes))

    def of(self, job: SlurmJob) -> Demand:
        """What a job asks for."""
        key = (job.comment, job.gpus_per_node, job.gpus_per_job, job.gpus_other,
               job.least_nodes, job.most_nodes, job.sized, job.tasks, job.tasks_per_node, job.cpus,
               job.memory_mb, job.cpu_memory_mb, job.features, job.excluded,
               own_nodes(job), own_size(job), job.partition, job.user, job.time_limit_s,
               job.requeue, job.batch, job.het_id, job.reservation, job.exclusive,
               job.contiguous, job.licenses)  # fmt: skip
        if key not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
                self._places.clear()
            self._known[key] = self._read(job)
        return self._known[key]

    def satellite_of(self, job: SlurmJob) -> int:
        """The number of the job that one follows, or 0; what is left to Slurm follows none."""
        demand = self.of(job)
        return 0 if demand.left else demand.hints.satellite_of

    def _read(self, job: SlurmJob) -> Demand:
        hints, ignored = read_hints(job.comment)
        only_on, strange = self._only_on(job)
        if not job.sized:
            job = self._sized(job, only_on)
        kind, each, nodes, left = self._gpus(job)
        if job.gpus_per_job and (hints.min_nodes or hints.max_nodes) and not hints.elastic:
            ignored.append(_IN_ALL)
            hints = replace(hints, min_nodes=0, max_nodes=0)
        asked = nodes if job.gpus_per_job else own_size(job)
        workers, least, most = _sizes(asked, hints, resizes=hints.checkpointable and job.requeue)
        # Policies and what is learned of speed have a place for each size that a job may have.
        places = len(self._nodes if only_on is None else only_on)
        most = max(workers, least, min(most, places))
        limit_s = max(0.0, job.time_limit_s) if job.time_limit_s < NO_LIMIT_S else nan
        request = JobRequest(
            user=job.user, model=hints.model, workers=workers, min_workers=least, max_workers=most,
            gpus_per_worker=each, cpus_per_worker=job.cpus / max(1, nodes), gpu_type=kind,
            memory_gb_per_worker=self._memory_gb(job),
            estimate_s=hints.estimate_s if isfinite(hints.estimate_s) else limit_s,
            restart_s=hints.restart_s, stoppable=hints.checkpointable and job.requeue,
            notice_s=hints.grace_s if hints.signal else 0.0, only_on=only_on,
            must_have=frozenset(own_nodes(job)), apart=True, in_place=hints.elastic,
        )  # fmt: skip
        return Demand(request, hints, self._left(job) or left or strange, tuple(ignored), asked)

    def _left(self, job: SlurmJob) -> str:
        """Why rota does not place a job like this, if it does not."""
        if self.partitions.isdisjoint(job.partition.split(",")):
            return f"it is in partition {job.partition}"
        return next(
            (why for holds, why in (
                (job.het_id, "it is part of a heterogeneous job"),
                (job.reservation, "it has a reservation"),
                (job.licenses, "it needs licenses"),
                (job.exclusive, "it wants its nodes for itself alone, or for its user"),
                (job.contiguous, "it wants nodes that are neighbours"),
                (self.counts_memory and not job.memory_mb > 0, "it wants all memory of its nodes"),
                (not job.batch, "it is interactive"),
                (job.least_nodes > MOST_NODES, f"it asks for {job.least_nodes} nodes"),
            ) if holds), "",
        )  # fmt: skip

    def _sized(self, job: SlurmJob, only_on: frozenset[str] | None) -> SlurmJob:
        """A job that asks for tasks, on as few nodes as have room for them.

        Slurm 22.05 guesses one node too many where tasks want several CPUs, two for a single task.
        """
        each, fit = ceil(job.cpus / job.tasks), 1
        for node in self._nodes:
            if only_on is None or node.name in only_on:
                here = node.cpus // each
                if self.counts_memory and job.cpu_memory_mb > 0:
                    here = int(min(here, node.memory_mb // (job.cpu_memory_mb * each)))
                fit = max(fit, here)
        if job.tasks_per_node > 0:
            fit = min(fit, job.tasks_per_node)
        nodes = max(ceil(job.tasks / fit), job.least_nodes - (each > 1))
        memory_mb = job.memory_mb
        if job.cpu_memory_mb > 0:
            memory_mb = job.cpu_memory_mb * ceil(job.cpus / nodes)
        return replace(job, least_nodes=nodes, most_nodes=nodes, memory_mb=memory_mb)

    def _memory_gb(self, job: SlurmJob) -> float:
        return job.memory_mb / 1024 if self.counts_memory and job.memory_mb > 0 else 0.0

    def _gpus(self, job: SlurmJob) -> tuple[str, int, int, str]:
        """Type, GPUs per node, nodes, and why that cannot be placed."""
        nodes, asked = job.least_nodes, gpus(job.gpus_per_node)
        if job.gpus_other:
            return "", 0, nodes, f"its GPUs are asked for as {job.gpus_other!r}"
        if job.gpus_per_job and not asked:
            return self._laid_out(job)
        if len(asked) > 1:
            return "", 0, nodes, "it asks for several types of GPU"
        for kind, count in asked.items():
            if count > MOST_GPUS:
                return "", 0, nodes, f"it asks for {count} GPUs on one node"
            return kind, count, nodes, ""
        return "", 0, nodes, ""

    def _laid_out(self, job: SlurmJob) -> tuple[str, int, int, str]:
        """GPUs that were asked for in all: on one node, or on whole ones."""
        total = gpus(job.gpus_per_job)
        if len(total) == 1:
            ((kind, count),) = total.items()
            most = self._most.get(kind, 0)
            if count > MOST_GPUS * MOST_GPUS:
                return "", 0, job.least_nodes, f"it asks for {count} GPUs"
            if job.most_nodes <= 1 and count <= most:
                return kind, count, 1, ""
            if most and count % most == 0 and job.least_nodes in (1, count // most):
                return kind, most, count // most, ""
        return "", 0, job.least_nodes, f"{job.gpus_per_job} cannot be laid out evenly"

    def _only_on(self, job: SlurmJob) -> tuple[frozenset[str] | None, str]:
        """The nodes that a job may use, None: all; and why that cannot be told."""
        wanted = _features(job.features)
        if wanted is None:
            return None, f"its features are asked for as {job.features!r}"
        key = job.partition, job.excluded, job.features
        may = self._places.get(key)
        if may is None:
            may = self._places[key] = self._suitable(job, wanted)
        return (None if len(may) == len(self._nodes) else may), ""

    def _suitable(self, job: SlurmJob, wanted: list[frozenset[str]]) -> frozenset[str]:
        """Nodes of its partitions with the features that it wants, without those it excludes."""
        partitions, excluded = job.partition.split(","), frozenset(job.excluded)
        return frozenset(
            node.name
            for node in self._nodes
            if not node.partitions.isdisjoint(partitions)
            and node.name not in excluded
            and (not wanted or any(every <= node.features for every in wanted))
        )


def _sizes(nodes: int, hints: Hints, *, resizes: bool) -> tuple[int, int, int]:
    """Nodes that a job is to be given, at least and at most; where hints tell one end only, the
    other is what it was submitted with, or the same.
    """
    if hints.elastic:  # its own allocation is as small as it can be, satellites are the rest
        least = hints.min_nodes or nodes
        return least, least, max(least, hints.max_nodes)
    if not resizes:
        return nodes, nodes, nodes
    least = hints.min_nodes or min(nodes, hints.max_nodes or nodes)
    most = hints.max_nodes or max(nodes, least)
    return min(max(nodes, least), most), least, most


def _features(text: str) -> list[frozenset[str]] | None:
    """Alternatives of features that a node must have; None: more than that was asked for."""
    if not text:
        return []
    if not re.fullmatch(r"[A-Za-z0-9_.:-]+([&|,][A-Za-z0-9_.:-]+)*", text):
        return None
    return [frozenset(re.split("[&,]", one)) for one in text.split("|")]


def own_nodes(job: SlurmJob) -> tuple[str, ...]:
    """The nodes that a job's user has named, whatever rota has written in their place since."""
    if (found := _NODELIST.search(job.mark)) is None:
        return job.required
    return tuple(filter(None, found[1].split(",")))


def is_touched(job: SlurmJob) -> bool:
    """Whether its list of nodes was written by rota."""
    return _NODELIST.search(job.mark) is not None


def own_size(job: SlurmJob) -> int:
    """The nodes that a job was submitted with, however many rota has given it since.

    What somebody else has set since rota did counts as asked for.
    """
    found = _SIZE.search(job.mark)
    return int(found[1]) if found and int(found[2]) == job.least_nodes else job.least_nodes


def held_mark(job: SlurmJob, asked: int, given: int) -> str:
    """The mark with which a job waits for rota; it remembers the nodes that its user has named.

    And how many it was submitted with, if it has been given others.
    """
    size = f" nodes={asked}/{given}" if asked != given else ""
    return f"{HELD} nodelist={','.join(filter(_NAME.fullmatch, own_nodes(job)))}{size}"
