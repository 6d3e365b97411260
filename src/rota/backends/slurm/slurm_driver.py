"""Slurm as a driver: what it says of jobs and nodes, and what scontrol and scancel can do."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from math import inf, nan
from time import time
from typing import TYPE_CHECKING, Final

from rota.backends.driver import Answer, ClusterSight, JobSight
from rota.backends.slurm.demands import Demands, held_mark, is_touched, own_nodes
from rota.backends.slurm.failed_dependencies import FailedDependencies
from rota.backends.slurm.foreign_jobs import foreign_share, shut_nodes
from rota.backends.slurm.forgotten_runs import ForgottenRuns
from rota.backends.slurm.heartbeat import read_heartbeat
from rota.backends.slurm.hook import HELD, LET_GO
from rota.backends.slurm.node_sights import node_sights
from rota.backends.slurm.replies import ENDS, array_tasks
from rota.backends.slurm.said_once import SaidOnce
from rota.backends.slurm.satellites import grown, misfit, sort_out, steps_to
from rota.backends.slurm.slurm_holds import (
    held_by,
    is_held_on_purpose,
    is_held_unmarked,
    waits_for,
)
from rota.backends.slurm.slurm_reader import SlurmReader
from rota.backends.slurm.topology import racks
from rota.backends.slurm.unstarted import Unstarted
from rota.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rota.backends.driver import Place
    from rota.backends.reconciler import Action, Phase
    from rota.backends.slurm.demands import Demand
    from rota.backends.slurm.replies import SlurmJob, SlurmNode
    from rota.backends.slurm.rest import Slurmrestd
    from rota.backends.slurm.tools import Said, SlurmTools

_RUNS: Final = ("RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING",
                "STAGE_OUT")  # fmt: skip
FRESH_S: Final = 60.0
"""Since a requeue, which a job is given as its time of submission; its old run may take as long."""
NOTICED_S: Final = 3600.0
"""Seconds for which it is remembered that a job which is not listed was given notice."""
MOST_TASKS: Final = 64
"""Tasks of an array that policies are shown at a time."""


class SlurmDriver:
    """Drives the jobs of some partitions of one Slurm cluster."""

    def __init__(
        self,
        tools: SlurmTools,
        partitions: frozenset[str],
        *,
        passive: bool = False,
        rest: Slurmrestd | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """With `passive` a job counts as waiting until it runs, whoever will start it."""
        self._tools, self._passive = tools, passive
        self._reader = SlurmReader(tools, rest, say)
        self.demands = Demands(partitions)
        self._noticed: dict[str, float] = {}
        self._jobs: dict[str, SlurmJob] = {}  # as last seen, by call
        self._said = SaidOnce(say)
        self._racks: dict[str, int] | None = None
        self._left: list[SlurmJob] = []  # jobs of our partitions that Slurm is to start itself
        self._why_left: dict[str, str] = {}
        self._runs, self._unstarted = ForgottenRuns(), Unstarted(self._said.about_job)
        self._dependencies = FailedDependencies()
        self._satellites: dict[int, list[SlurmJob]] = {}  # by the number of the job they follow
        self._orphans: list[SlurmJob] = []

    # What there is.

    def observe(self) -> ClusterSight:
        """All nodes, then all jobs; the first time, how Slurm is configured, too."""
        if self._racks is None:
            self._racks = self._configured()
        nodes, jobs = self._reader.look()
        sight = self.sight(jobs, nodes, time())
        if not self._passive:
            self._give_back()
        return sight

    def _configured(self) -> dict[str, int]:
        """Learn whether memory is counted, and which nodes share a switch."""
        said = self._tools.ask("scontrol", "show", "config")
        found = re.search(r"(?m)^SelectTypeParameters\s*=\s*(\S+)", said)
        self.demands.counts_memory = found is not None and "MEMORY" in found[1].upper()
        return racks(self._tools.run("scontrol", "show", "topology").out)

    def _give_back(self) -> None:
        """Release jobs that Slurm is to start itself; end satellites whose job is over."""
        for job in self._orphans:
            self._tools.cancel(job.call)
        for job in self._left:
            if job.priority == 0 and job.mark.startswith(HELD):
                said = self._tools.update(job.call, {"StartTime": "now"})
                if said.code == 0:
                    said = self._tools.control(("release",), job.call)
                if said.code == 0:  # last: until then it is tried again
                    self._tools.update(job.call, {"AdminComment": LET_GO})

    def sight(self, jobs: list[SlurmJob], nodes: list[SlurmNode], now_s: float) -> ClusterSight:
        """What these answers say."""
        jobs = self._dependencies.told(jobs)
        ours = [node for node in nodes if node.partitions & self.demands.partitions]
        self.demands.see(ours)
        names = {node.name for node in ours}
        found: list[JobSight] = []
        seen: dict[str, SlurmJob] = {}
        self._left, self._why_left = [], {}
        self._said.astray(ours)
        self._runs.see(jobs, _RUNS, now_s)
        self._unstarted.see(jobs, now_s)
        active = _active_tasks(job for job in jobs if not self._is_put_off(job, now_s))
        parted = sort_out(jobs, self.demands.satellite_of, self._misfit, self._said.about_job)
        self._satellites, self._orphans = parted.by_main, parted.orphans
        strays = {job.job_id for job in parted.strays}
        for job in (*parted.jobs, *parted.strays):
            demand = self.demands.of(job)
            if job.job_id in strays:
                demand = replace(demand, left="it is a further node of another job")
            self._tell(job, demand)
            managed = not demand.left
            if not managed and not names.intersection(job.nodes):
                if self._is_left(job, demand):
                    self._left.append(job)
                    self._why_left[job.call] = demand.left
                if job.call not in self._jobs:
                    continue
            for one in _split(job, active.get(job.array_id, 0)):
                seen[one.call] = one
                found.append(self._job(one, demand, now_s, names))
        self._jobs = seen
        self._said.forget(jobs)
        for call, at_s in list(self._noticed.items()):
            if call not in seen and now_s - at_s > NOTICED_S:
                self._noticed.pop(call, None)
        nodes_seen = node_sights(ours, self._racks or {}, shut_nodes(jobs))
        return ClusterSight(now_s, found, nodes_seen, self._why_left)

    def _job(self, job: SlurmJob, demand: Demand, now_s: float, names: set[str]) -> JobSight:
        end = ENDS.get(job.state, "")
        phase = "waiting" if end else self._phase(job)
        managed = not demand.left
        place: Place = ()
        request = demand.request
        progress = saved_s = None
        # One that has just ended told the last of it after the look before.
        before = self._jobs.get(job.call)
        tells = phase == "running" or (end and before is not None and before.state not in ENDS)
        if tells and (demand.hints.heartbeat or request.in_place):
            progress, saved_s = read_heartbeat(job)
        if phase in ("running", "stopping") or (end and managed):
            place = tuple((name, 1, 0) for name in job.nodes)
            if not managed:
                request, place = foreign_share(job, request, names)
            elif request.in_place:
                has_all = progress is not None and progress.time_s >= job.start_s
                own = self._satellites.get(job.job_id, [])
                request, place = grown(request, job, own, has_all=has_all)
            elif place and len(place) != request.workers:
                # Somebody else has given it another size than it says it can have.
                size = len(place)
                request = replace(
                    request, min_workers=min(request.min_workers, size),
                    max_workers=max(request.max_workers, size),
                )  # fmt: skip
        elif phase == "starting" and is_touched(job):
            place = tuple((name, 1, 0) for name in job.required)
        return JobSight(
            name=job.call, submit_s=job.submit_s, resubmitted=job.restarts > 0, request=request,
            phase=phase, place=place,
            start_s=job.start_s if phase in ("running", "stopping") or end else nan,
            saved=saved_s is not None and saved_s >= self._noticed.get(job.call, inf),
            managed=managed, progress=progress, end=end, end_s=job.end_s if end else inf,
            waits_for=self._waits_for(job, now_s) if phase == "waiting" and not end else "",
            refused=self._unstarted.why(job, now_s) if phase == "starting" else "",
        )  # fmt: skip

    def _waits_for(self, job: SlurmJob, now_s: float) -> str:
        """What a waiting job waits for beside room; "" if for nothing else."""
        if self._runs.may_go_on(job):
            return "Slurm has forgotten that it ran a moment ago; it may still run"
        return waits_for(job, now_s) or self._unstarted.why(job, now_s)

    def _is_put_off(self, job: SlurmJob, now_s: float) -> bool:
        """Whether a job waits for something that rota cannot give it."""
        held = job.state == "PENDING" and job.priority == 0
        return held and bool(waits_for(job, now_s) or self._unstarted.why(job, now_s))

    def _phase(self, job: SlurmJob) -> Phase:
        if job.state == "PENDING" or job.state.startswith(("REQUEUE", "SPECIAL")):
            return "waiting" if job.priority == 0 or self._passive else "starting"
        return "running" if job.state in _RUNS else "stopping"

    def _is_left(self, job: SlurmJob, demand: Demand) -> bool:
        ours = not self.demands.partitions.isdisjoint(job.partition.split(","))
        waits = job.state == "PENDING" and not is_held_on_purpose(job)
        return ours and bool(demand.left) and waits

    def _tell(self, job: SlurmJob, demand: Demand) -> None:
        """Say once what was ignored of a job's hints, and why a job is left to Slurm."""
        said = list(demand.ignored)
        if self._is_left(job, demand):
            said.append(f"it is left to Slurm: {demand.left}")
        elif not demand.left and job.state == "PENDING" and is_held_unmarked(job):
            said.append("it is held, and not by rota: `scontrol release` it; jobs that rota's hook "
                        "holds are marked (`rota setup` writes it)")  # fmt: skip
        for text in said:
            self._said.about_job(job, text)

    def _misfit(self, job: SlurmJob, main: SlurmJob) -> str:
        return misfit(job, self.demands.of(job), main, self.demands.of(main))

    def fate(self, name: str, submit_s: float) -> tuple[str, float]:
        """What accounting says, where there is any; else it is taken to be done."""
        since = f"now-{int(max(0.0, time() - submit_s) // 60) + 10}minutes"
        try:
            said = self._tools.ask("sacct", "-n", "-X", "-P", "-j", name, "-o", "State,End,Submit",
                                   "-S", since)  # fmt: skip
        except BackendError:  # no accounting, or no such command
            said = ""
        lines = said.split("\n")
        states = [line.split("|")[0].split(" ")[0] for line in lines if line.count("|") == 2]
        return ENDS.get(states[-1], "done") if states else "done", inf

    # What can be done.

    def carry_out(self, action: Action, job: JobSight, place: Place) -> Answer:
        """Do one thing; doing it twice does no harm."""
        slurm_job = self._jobs.get(job.name)
        if slurm_job is None or slurm_job.submit_s != job.submit_s:
            return Answer("unknown", "Slurm does not list it any more")
        if action == "start":
            if held := held_by(slurm_job):  # since the decision: a start would release it
                return Answer("refused", held)
            return self._start(slurm_job, job, place)
        if action == "withdraw":
            # Not `hold`: what an administrator holds, the watchdog leaves alone.
            return self._in_turn(slurm_job, ("uhold",))
        if action == "stop":
            # With `Incomplete` a job that has just ended is not run a second time.
            return self._in_turn(slurm_job, ("requeuehold", "Incomplete"))
        if action == "notice":
            self._noticed[job.name] = time()
            signal = f"--signal={self.demands.of(slurm_job).hints.signal}"
            return _answer(self._tools.cancel(slurm_job.call, signal))
        if action == "cancel":
            return _answer(self._tools.cancel(slurm_job.call))
        return self._resize(slurm_job, job, [name for name, _, _ in place])

    def _resize(self, slurm_job: SlurmJob, job: JobSight, wanted: list[str]) -> Answer:
        """Let satellites of a job begin and end; what has been done already is left out."""
        satellites = self._satellites.get(slurm_job.job_id, [])
        steps, lacking = steps_to(slurm_job.nodes, satellites, wanted)
        for step in steps:
            if step.action == "start":
                answer = self._start(step.satellite, job, ((step.node, 1, 0),))
            else:
                stop = step.action == "stop"
                verb = ("requeuehold", "Incomplete") if stop else ("uhold",)
                answer = self._in_turn(step.satellite, verb)
            if answer.outcome != "done":
                return answer
        if lacking:
            return Answer("unknown", f"{lacking} of its satellites are not there")
        return Answer("done")

    def _start(self, slurm_job: SlurmJob, job: JobSight, place: Place) -> Answer:
        """Set the size, then the nodes, then release the job.

        The watchdog may have started it by now. A list of nodes would shrink a running job to
        them, but a new size is refused unless it is pending: so the size comes first, alone.
        """
        nodes = [name for name, _, _ in place]
        if job.request.in_place:  # what it starts on it cannot give up: further nodes come later
            own = own_nodes(slurm_job)
            nodes.sort(key=lambda name: name not in own)
            nodes = nodes[: max(job.request.min_workers, len(own))]
        mark = held_mark(slurm_job, self.demands.of(slurm_job).asked, len(nodes))
        size = {"AdminComment": mark, "NumNodes": f"{len(nodes)}-{len(nodes)}"}
        if len(nodes) != slurm_job.least_nodes:
            cpus = job.request.cpus_per_worker * len(nodes)
            size["NumCPUs"] = str(round(cpus))
            # As many tasks on each node as before: Slurm never starts a job whose tasks do not fit.
            tasks = round(slurm_job.tasks * cpus / slurm_job.cpus)
            if tasks > len(nodes):
                size["NumTasks"] = str(tasks)
        said = self._tools.update(slurm_job.call, size)
        if said.code == 0:
            # Right after a requeue a node takes a new start for the old one, and the job fails.
            when = (
                "now+2" if time() - slurm_job.submit_s < FRESH_S and slurm_job.restarts else "now"
            )
            where = {"ReqNodeList": ",".join(nodes), "StartTime": when}
            said = self._tools.update(slurm_job.call, where)
        if said.code == 0:
            said = self._tools.control(("release",), slurm_job.call)
            self._unstarted.told(slurm_job)
        return _answer(said)

    def _in_turn(self, job: SlurmJob, verb: tuple[str, ...]) -> Answer:
        """Mark a job as held by rota first: without the mark, nobody would ever release it."""
        mark = held_mark(job, self.demands.of(job).asked, job.least_nodes)
        said = self._tools.update(job.call, {"AdminComment": mark})
        if said.code == 0:
            said = self._tools.control(verb, job.call)
        return _answer(said)


def _answer(said: Said) -> Answer:
    if said.code == 0:
        return Answer("done")
    return Answer("unknown" if said.unanswered else "refused", said.line)


def _active_tasks(jobs: Iterable[SlurmJob]) -> dict[int, int]:
    """Tasks of every array that were split off and are not over, among these jobs."""
    found: dict[int, int] = {}
    for job in jobs:
        if job.array_task >= 0 and job.state not in ENDS:
            found[job.array_id] = found.get(job.array_id, 0) + 1
    return found


def _split(job: SlurmJob, active: int) -> Iterator[SlurmJob]:
    """A job, or the next tasks of an array."""
    if not job.array_tasks:
        yield job
        return
    most = min(MOST_TASKS, max(0, job.array_most - active) if job.array_most else MOST_TASKS)
    for task in islice(array_tasks(job.array_tasks), most):
        yield replace(job, array_task=task, array_tasks="")
