"""Whatever happens, and however often the watcher is killed, the journal tells each job's runs."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from math import inf, nan
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.fake_cluster import nodes

from rota.backends.book_reader import read_known
from rota.backends.cluster_snapshot import snapshot_of
from rota.backends.driver import ClusterSight, JobRequest, JobSight
from rota.backends.job_book import JobBook
from rota.backends.job_roll import JobRoll
from rota.backends.node_table import NodeTable
from rota.backends.reconciler import Reconciler
from rota.core import Draft
from rota.core.layout import ARRIVE, FINISH, START, STOP
from rota.run.journal import Journal
from rota.run.loop import Round, unheeded
from rota.run.reader import read_journal
from rota.run.recorder import Recorder

T = 1_000_000.0
JOBS = 2
ACTS = ("submit", "start", "put back", "end", "look", "write", "kill")
steps = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(0, JOBS - 1)), min_size=8, max_size=40
)


@dataclass
class Truth:
    """One job as it really is, and its runs."""

    sight: JobSight | None = None
    runs: list[list[float]] = field(default_factory=list)  # start and end of each run

    def submit(self, name: str, now_s: float) -> None:
        if self.sight is None:
            self.sight = JobSight(name=name, submit_s=T + now_s, request=JobRequest())

    def start(self, now_s: float) -> None:
        if self.sight and self.sight.phase == "waiting" and not self.sight.end:
            self.sight = replace(self.sight, phase="running", place=(("n1", 1, 0),),
                                 start_s=T + now_s)  # fmt: skip
            self.runs.append([now_s, inf])

    def put_back(self, now_s: float) -> None:
        if self.sight and self.sight.phase == "running":
            self.sight = replace(self.sight, phase="waiting", place=(), start_s=nan)
            self.runs[-1][1] = now_s

    def end(self, now_s: float) -> None:
        if self.sight and self.sight.phase == "running":
            self.sight = replace(self.sight, phase="waiting", end="done", end_s=T + now_s)
            self.runs[-1][1] = now_s


class Watcher:
    """Looks and writes when it is told, without threads; a new one goes on from the files."""

    def __init__(self, path: Path) -> None:
        self._path, self._stack = path, ExitStack()
        meta = {"policy": "none", "total_gpus": 8}
        there = path.exists()
        journal = Journal.reopen(path) if there else Journal.create(path, meta=meta)
        self._stack.enter_context(journal)
        book = self._stack.enter_context(closing(JobBook(path, T)))
        self._book, self._nodes, mind = book, NodeTable([]), Reconciler()
        self._nodes.see(nodes())
        self._roll = JobRoll(book, self._nodes, mind, passive=True)
        self._recorder = Recorder(journal, self._roll.facts)

    def look(self, jobs: list[JobSight], now_s: float) -> None:
        sight = ClusterSight(T + now_s, jobs, nodes())
        self._roll.see(sight, lambda *_: ("done", inf), forget_rows=False)
        self._roll.write()

    def write(self, now_s: float) -> None:
        jobs = list(self._roll.jobs.values())
        snapshot = snapshot_of(
            self._nodes, jobs, {job.uid: self._roll.share(job) for job in jobs}, now_s, T,
            lambda _: (-1, -1), lambda _: False, lambda _: 1.0,
        )  # fmt: skip
        plan = Draft(snapshot).commit().diff(snapshot)
        self._recorder.write(unheeded(Round(1, snapshot, plan, 0.0, 0.0, "none")))

    def kill(self) -> None:
        self._stack.close()


def stints(path: Path) -> dict[str, list[list[float]]]:
    """By the name of the job: begin and end of what the journal says that it held."""
    names = {str(job.uid): job.name for job in read_known(path)}
    found: dict[str, list[list[float]]] = {}
    with read_journal(path) as view:
        events, uids = view.events().events, view.jobs.job_id.tolist()
    assert (np.diff(events["time_s"]) >= 0).all()
    for time_s, job, kind, _ in events.tolist():
        own = found.setdefault(names[uids[job]], [])
        if kind == START:
            own.append([time_s, inf])
        elif kind in (STOP, FINISH) and own:
            assert own[-1][1] == inf
            own[-1][1] = time_s
        else:
            assert kind == ARRIVE
    return found


@settings(deadline=None, max_examples=60)
@given(steps)
def test_every_run_that_a_look_could_see_is_told_as_it_was(
    acts: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        watcher, jobs = Watcher(path), [Truth() for _ in range(JOBS)]
        closing_acts = [("look", 0), ("write", 0)]
        for k, (act, which) in enumerate([*acts, *closing_acts], 1):
            now_s, job = 10.0 * k, jobs[which]
            if act == "submit":
                job.submit(f"j{which}", now_s)
            elif act == "look":
                watcher.look([one.sight for one in jobs if one.sight], now_s)
            elif act == "write":
                watcher.write(now_s)
            elif act == "kill":
                watcher.kill()
                watcher = Watcher(path)
            else:
                getattr(job, act.replace(" ", "_"))(now_s)
        watcher.kill()
        told = stints(path)
    for k, job in enumerate(jobs):
        real, own = job.runs, told.get(f"j{k}", [])
        begins = [begin_s for begin_s, _ in real]
        # Runs that were put back between two looks, or before a kill, may be missing: no look
        # that counts has shown them. What is told has begun when it did, and nothing twice.
        assert [begin_s for begin_s, _ in own] == sorted({b for b, _ in own} & set(begins))
        if job.sight and (job.sight.end or job.sight.phase == "running"):
            assert own[-1] == real[-1]
        elif own:
            assert own[-1][1] < inf
