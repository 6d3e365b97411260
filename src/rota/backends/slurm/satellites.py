"""Further nodes of elastic jobs: satellites, which are jobs of one node that follow another job.

Slurm cannot let a running job with GPUs grow. So an elastic job submits jobs of one node each, with
the hint `satellite-of`, which are held like all others. rota starts one to let its job grow, and
puts it back on hold to let it shrink. Policies see one job, with all these nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from rota.backends.slurm.hook import HELD
from rota.backends.slurm.replies import ENDS
from rota.backends.slurm.slurm_holds import is_held_on_purpose

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rota.backends.driver import JobRequest, Place
    from rota.backends.slurm.demands import Demand
    from rota.backends.slurm.replies import SlurmJob

NO_MAIN: Final = "that is no elastic job of the same user"
MEGABYTE_GB: Final = 1 / 1024
"""Satellites are submitted with whole megabytes."""


@dataclass(frozen=True)
class SatelliteStep:
    """One thing to do to one satellite."""

    action: Literal["start", "withdraw", "stop"]
    satellite: SlurmJob
    node: str = ""
    """Where it is to start."""


@dataclass
class Sorted:
    """The jobs of one look, satellites apart from all others."""

    jobs: list[SlurmJob] = field(default_factory=list)
    """Jobs in their own right."""
    by_main: dict[int, list[SlurmJob]] = field(default_factory=dict)
    """Satellites that are not over, by the number of a job that runs."""
    orphans: list[SlurmJob] = field(default_factory=list)
    """Satellites whose job is over."""
    strays: list[SlurmJob] = field(default_factory=list)
    """Satellites that hold nodes while their job holds none."""


def sort_out(
    jobs: Sequence[SlurmJob],
    satellite_of: Callable[[SlurmJob], int],
    misfit: Callable[[SlurmJob, SlurmJob], str],
    say: Callable[[SlurmJob, str], None],
) -> Sorted:
    """Part satellites from other jobs; one that names a job of another user is a job like others.

    `satellite_of` gives the number of the job that a job follows, or 0; `misfit` says why the first
    job cannot be a further node of the second, "" if it can.
    """
    found = Sorted()
    by_id = {job.job_id: job for job in jobs}
    for job in jobs:
        number = satellite_of(job)
        if not number:
            found.jobs.append(job)
            continue
        main = by_id.get(number)
        alive = main is not None and main.state not in ENDS
        wrong = ""
        if main is not None and alive:
            stranger = main.user_id != job.user_id or satellite_of(main)
            wrong = NO_MAIN if stranger else misfit(job, main)
        if wrong:
            say(job, f"satellite-of={number} is ignored: {wrong}")
            found.jobs.append(job)
        elif job.state in ENDS:
            continue
        elif main is not None and alive and main.state != "PENDING":
            found.by_main.setdefault(number, []).append(job)
        else:
            if not alive:
                found.orphans.append(job)
            if job.nodes:
                found.strays.append(job)
    return found


def misfit(job: SlurmJob, demand: Demand, main: SlurmJob, of_main: Demand) -> str:
    """Why a job cannot be a further node of another job of its user; "" if it can.

    Policies decide about nodes as the main job has them: one that takes more would come to GPUs
    for which nobody has weighed it against others.
    """
    own, asked = demand.request, of_main.request
    if not asked.in_place or of_main.left:
        return NO_MAIN
    if job.array_id or own.workers != 1:
        return "it is not one job of one node"
    # Slurm rounds CPUs up to whole cores when a job starts.
    cpus = own.cpus_per_worker if job.state == "PENDING" else 0.0
    if (
        own.gpus_per_worker > asked.gpus_per_worker
        or (asked.gpu_type and own.gpu_type != asked.gpu_type)
        or cpus > ceil(asked.cpus_per_worker)
        or own.memory_gb_per_worker > asked.memory_gb_per_worker + MEGABYTE_GB
    ):
        return f"it asks for other resources than job {main.call} has on each node"
    return ""


def nodes_of(satellites: Iterable[SlurmJob]) -> list[str]:
    """The nodes that satellites hold."""
    return [node for one in satellites if one.state != "PENDING" for node in one.nodes]


def grown(
    request: JobRequest, job: SlurmJob, satellites: list[SlurmJob], *, has_all: bool
) -> tuple[JobRequest, Place]:
    """A job that runs, with the nodes of its satellites; its own allocation is the least.

    With `has_all` it has submitted all that it may have: it cannot grow beyond those.
    """
    nodes, own = dict.fromkeys((*job.nodes, *nodes_of(satellites))), frozenset(job.nodes)
    least, most = max(request.min_workers, len(own)), request.max_workers
    if has_all:
        most = min(most, len(own) + len(satellites))
    return replace(
        request, workers=max(request.workers, least), min_workers=least,
        max_workers=max(most, len(nodes), least), must_have=own, fixed=own,
    ), tuple((name, 1, 0) for name in nodes)  # fmt: skip


def steps_to(
    base: Collection[str], satellites: Sequence[SlurmJob], wanted: Sequence[str]
) -> tuple[list[SatelliteStep], int]:
    """What brings a job with the nodes `base` to those wanted, and how many satellites lack.

    What has been done already is not done again: satellites on their way to a node count.
    """
    steps: list[SatelliteStep] = []
    missing, idle = [node for node in wanted if node not in base], []
    for one in satellites:
        if one.state == "PENDING" and one.priority == 0:
            if one.mark.startswith(HELD) and not is_held_on_purpose(one):
                idle.append(one)
            continue
        waits = one.state == "PENDING"
        nodes = one.required if waits else one.nodes
        if one.state != "COMPLETING" and len(nodes) == 1 and nodes[0] in missing:
            missing.remove(nodes[0])
        elif one.state != "COMPLETING":
            steps.append(SatelliteStep("withdraw" if waits else "stop", one))
    steps += [SatelliteStep("start", one, node) for node, one in zip(missing, idle, strict=False)]
    return steps, max(0, len(missing) - len(idle))
