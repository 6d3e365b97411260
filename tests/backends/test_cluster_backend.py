"""The backend for clusters that others run, over a cluster in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.backends.fake_cluster import FakeCluster, nodes

from rota.backends import cluster_calls
from rota.backends.cluster_backend import ClusterBackend
from rota.backends.driver import NodeSight, Progress
from rota.backends.job_book import JobBook
from rota.backends.preemption_limits import PreemptionLimits
from rota.backends.reconciler import JobOrder
from rota.backends.restart_costs import ASSUMED_S
from rota.core import Draft
from rota.errors import BackendError, JournalError
from rota.policies.catalogue import make_policy
from rota.run.guard import Guard
from rota.run.journal import Journal
from rota.run.loop import rounds
from rota.run.reader import read_journal
from rota.run.recorder import Recorder
from rota.run.speeds import Speeds
from rota.testing.backend_contract import check_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rota.core import Snapshot
    from rota.core.plan import Share

PATIENCE_S = 300.0


class Beats:
    """A heartbeat that is only counted."""

    count = 0

    def beat(self) -> None:
        self.count += 1


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., ClusterBackend]]:
    """Makes backends one after the other over the same book, as daemons do."""
    open_now: list[ClusterBackend] = []

    def begin(cluster: FakeCluster, **options: object) -> ClusterBackend:
        end()
        book = JobBook(tmp_path / "journal.db", 1000.0)
        speeds = Speeds(tmp_path / "speeds.npz")
        made = ClusterBackend(cluster, book, speeds, look_s=0.02, **options)  # type: ignore[arg-type]
        open_now.append(made)
        return made

    def end() -> None:
        for one in open_now:
            one.close()
            one.book.close()
        open_now.clear()

    yield begin
    end()


def until(backend: ClusterBackend, holds: Callable[[Snapshot], bool]) -> Snapshot:
    """The first snapshot that is so."""
    give_up_s = monotonic() + PATIENCE_S
    while monotonic() < give_up_s:
        backend._sleep(0.05)
        if holds(snapshot := backend.observe()):
            return snapshot
    raise AssertionError("it never came to that")


def decide(backend: ClusterBackend, **wanted: Share) -> None:
    """Have jobs, called j1, j2, …, hold these shares."""
    snapshot = backend.observe()
    draft = Draft(snapshot)
    for name, share in wanted.items():
        uid = next(u for u in snapshot.jobs.uid.tolist() if backend.roll.known(u).name == name)
        job = int(np.flatnonzero(snapshot.jobs.uid == uid)[0])
        if snapshot.share(job):
            draft.stop(job)
        if share:
            draft.place(job, [(node, workers) for node, workers, _ in share])
    backend.apply(draft.commit().diff(snapshot))


def is_running(cluster: FakeCluster, name: str) -> bool:
    return cluster.jobs[name].sight.phase == "running"


def test_it_keeps_the_contract_of_backends(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes())
    for k in range(5):
        cluster.submit(f"j{k}", 0.3, gpus_per_worker=3, stoppable=True)
    check_backend(lambda: make(cluster, every_s=0.2, drain=True), patience_s=PATIENCE_S)
    assert all(job.sight.end == "done" for job in cluster.jobs.values())


def test_a_policy_runs_every_job_once_and_the_journal_knows_when(
    make: Callable[..., ClusterBackend], tmp_path: Path
) -> None:
    cluster = FakeCluster(nodes())
    for k in range(6):
        cluster.submit(f"j{k}", 0.2, gpus_per_worker=2)
    meta = {"policy": "fifo-skip", "total_gpus": 8}
    with Journal.create(tmp_path / "journal.db", meta=meta) as journal:
        backend = make(cluster, every_s=0.2, drain=True)
        recorder = Recorder(journal, backend.roll)
        for turn in rounds(make_policy("fifo-skip"), backend, guard=Guard()):
            recorder.write(turn)
        recorder.close(backend.now_s)
    assert [job.runs for job in cluster.jobs.values()] == [1] * 6
    with read_journal(tmp_path / "journal.db") as view:
        outcome = view.outcome()
    assert np.isfinite(outcome.done_s).all()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        given = db.execute("SELECT action, outcome FROM commands").fetchall()
    assert given == [("start", "done")] * 6


def test_the_next_daemon_knows_jobs_by_the_same_numbers_and_goes_on(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=4)
    cluster.submit("j2", gpus_per_worker=4)
    backend = make(cluster)
    decide(backend, j2=((1, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j2"))
    before = {backend.roll.known(u).name: u for u in backend.observe().jobs.uid.tolist()}
    cluster.submit("j0", gpus_per_worker=4)
    backend = make(cluster)
    snapshot = until(backend, lambda s: len(s.jobs) == 3)
    after = {backend.roll.known(u).name: u for u in snapshot.jobs.uid.tolist()}
    assert before.items() < after.items()
    assert [a for a, *_ in cluster.done] == ["start"]


@pytest.mark.parametrize("later", [False, True])
def test_a_job_that_is_put_back_in_line_stays_the_same_job(
    make: Callable[..., ClusterBackend], later: bool
) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=4, stoppable=True)
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0),))
    snapshot = until(backend, lambda s: is_running(cluster, "j1") and bool(s.jobs.running.all()))
    (uid,), submit_s = snapshot.jobs.uid.tolist(), snapshot.jobs.submit_s.tolist()
    again = cluster.jobs["j1"].sight.submit_s + 5.0
    cluster.see("j1", phase="waiting", place=(), submit_s=again, resubmitted=True)
    backend = make(cluster) if later else backend
    seen = backend.roll.jobs
    snapshot = until(backend, lambda _: [j.sight.submit_s for j in seen.values()] == [again])
    assert (snapshot.jobs.uid.tolist(), snapshot.jobs.submit_s.tolist()) == ([uid], submit_s)


def test_a_number_that_is_given_a_second_time_is_another_job(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=4)
    backend = make(cluster)
    (uid,) = backend.observe().jobs.uid.tolist()
    cluster.see("j1", submit_s=cluster.jobs["j1"].sight.submit_s + 5.0)
    until(backend, lambda s: s.jobs.uid.tolist() == [uid + 1])


def test_a_decision_that_was_written_down_is_carried_out_by_the_next_daemon(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=4)
    backend = make(cluster)
    backend.observe()
    backend._order = lambda: None  # type: ignore[method-assign]  # it dies before it can do anything
    decide(backend, j1=((0, 1, 0),))
    backend = make(cluster)
    until(backend, lambda _: is_running(cluster, "j1"))


def test_a_command_whose_answer_is_lost_is_neither_forgotten_nor_given_twice(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(), lose=1)
    cluster.submit("j1", gpus_per_worker=4)
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j1"))
    assert cluster.jobs["j1"].runs == 1


def test_two_workers_that_must_be_apart_are_put_apart(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes())
    asks = {"workers": 2, "min_workers": 2, "max_workers": 2, "gpus_per_worker": 2}
    cluster.submit("j1", **asks, apart=True)
    backend = make(cluster)
    decide(backend, j1=((0, 2, 0),))
    until(backend, lambda _: is_running(cluster, "j1"))
    assert cluster.jobs["j1"].sight.place == (("n1", 1, 0), ("n2", 1, 0))


def test_a_job_runs_only_where_it_may(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes(3))
    cluster.submit("j1", gpus_per_worker=2, only_on=frozenset({"n3"}))
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j1"))
    assert cluster.jobs["j1"].sight.place == (("n3", 1, 0),)


def test_a_job_that_fits_nowhere_it_may_be_waits_and_that_is_said(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster, said = FakeCluster(nodes()), list[str]()
    cluster.submit("theirs", gpus_per_worker=3)
    cluster.see("theirs", managed=False, phase="running", place=(("n1", 1, 0),))
    cluster.submit("j1", gpus_per_worker=2, only_on=frozenset({"n1"}))
    backend = make(cluster, say=said.append)
    decide(backend, j1=((1, 1, 0),))
    assert said == ["job j1 fits none of the nodes that it may use"]
    assert backend.observe().jobs.waiting.tolist() == [False, True]


def test_what_others_run_takes_room_and_cannot_be_touched(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(1))
    cluster.submit("theirs", gpus_per_worker=3, stoppable=True)
    cluster.see("theirs", managed=False, phase="running", place=(("n1", 1, 0),))
    backend = make(cluster)
    snapshot = backend.observe()
    assert snapshot.nodes["free"].tolist() == [1]
    assert snapshot.pinned.all()
    decide(backend, theirs=())
    assert cluster.done == []


def test_what_waits_for_something_else_is_not_shown(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=1)
    cluster.see("j1", waits_for="it depends on afterok:3")
    backend = make(cluster)
    assert len(backend.observe().jobs) == 0
    cluster.see("j1", waits_for="")
    until(backend, lambda s: len(s.jobs) == 1)


def test_a_job_that_nobody_has_started_is_taken_back(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=1)
    cluster.see("j1", phase="starting")
    backend = make(cluster)
    until(backend, lambda _: cluster.jobs["j1"].sight.phase == "waiting")


def test_a_watcher_does_nothing(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=1)
    cluster.see("j1", phase="starting")
    backend = make(cluster, passive=True)
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda s: len(s.jobs) == 1)
    assert cluster.done == []


def test_nodes_come_go_and_change_size(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes(2))
    backend = make(cluster)
    assert backend.observe().nodes["gpus"].tolist() == [4, 4]
    cluster.nodes = [NodeSight(name="n2", gpus=8), NodeSight(name="m1", gpus=2)]
    snapshot = until(backend, lambda s: len(s.nodes) == 3)
    assert snapshot.cluster.names == ("n1", "n2", "m1")
    assert snapshot.nodes["up"].tolist() == [False, True, True]
    assert snapshot.nodes["free"].tolist() == [0, 8, 2]


def test_a_job_on_a_node_that_fails_waits_again(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=4)
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda s: is_running(cluster, "j1") and s.jobs.running.all())
    until(backend, lambda _: backend._mind.settled(1))
    cluster.nodes = [replace(cluster.nodes[0], up=False), cluster.nodes[1]]
    cluster.see("j1", phase="waiting", place=())
    until(backend, lambda s: bool(s.jobs.waiting.all()))


def test_a_job_that_vanished_is_over_after_two_looks(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=4)
    backend = make(cluster)
    (uid,) = backend.observe().jobs.uid.tolist()
    del cluster.jobs["j1"]
    until(backend, lambda s: len(s.jobs) == 0)
    assert backend.roll.ending(uid)[0] == 6  # KILL, as its fate says


def test_a_cluster_that_is_away_keeps_everything_as_it_was(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster, said = FakeCluster(nodes()), list[str]()
    cluster.submit("j1", gpus_per_worker=4)
    backend = make(cluster, say=said.append, every_s=0.1)
    backend.observe()
    cluster.away = True
    for _ in range(3):
        assert backend.wait(inf)
        assert len(backend.observe().jobs) == 1
    assert said == ["slurmctld is away; asked again"]
    cluster.away = False
    until(backend, lambda _: len(said) == 2)
    assert said[1] == "the cluster answers again"


def test_nothing_is_done_that_cannot_be_written_down(
    make: Callable[..., ClusterBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, said = FakeCluster(nodes()), list[str]()
    cluster.submit("j1", gpus_per_worker=4)
    backend = make(cluster, say=said.append)
    backend.observe()

    def full(*_: object) -> None:
        raise JournalError("Cannot write: the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(backend.book, "begin_command", full)
        decide(backend, j1=((0, 1, 0),))
        until(backend, lambda _: bool(said))
        assert cluster.done == []
    until(backend, lambda _: is_running(cluster, "j1"))


@pytest.mark.parametrize("table", ["jobs", "nodes", "intents", "commands"])
def test_a_full_disk_leaves_memory_and_book_in_agreement_and_jobs_alone(
    make: Callable[..., ClusterBackend], monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    cluster, said = FakeCluster(nodes(1)), list[str]()
    heartbeat = Beats()
    backend = make(cluster, say=said.append, heartbeat=heartbeat)
    backend.observe()
    verb = "begin_command" if table == "commands" else f"keep_{table}"

    def full(*_: object) -> None:
        raise JournalError("Cannot write: the disk is full.")

    with monkeypatch.context() as patched:
        for one in (verb, "try_out"):
            patched.setattr(backend.book, one, full)
        cluster.nodes = nodes(2)
        cluster.submit("j1", gpus_per_worker=4, stoppable=True)
        until(backend, lambda s: len(s.jobs) == 1 and len(s.nodes) == 2)
        decide(backend, j1=((1, 1, 0),))
        until(backend, lambda _: bool(said))
        beats = heartbeat.count
        for _ in range(3):
            backend.observe()
        assert (cluster.done, len(said), heartbeat.count) == ([], 1, beats)
    until(backend, lambda _: is_running(cluster, "j1"))
    assert said[1] == "the journal can be written again"
    assert cluster.jobs["j1"].sight.place == (("n2", 1, 0),)
    assert backend.book.nodes() == ["n1", "n2"]
    assert [job.name for job in backend.book.open_jobs()] == ["j1"]
    assert backend.book.intents()[1].share == ((1, 1, 0),)


def test_who_cannot_see_its_cluster_any_more_gives_no_sign_of_life(
    make: Callable[..., ClusterBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_calls, "SIGHT_S", 0.2)
    cluster, said, heartbeat = FakeCluster(nodes()), list[str](), Beats()
    backend = make(cluster, say=said.append, heartbeat=heartbeat)
    until(backend, lambda _: heartbeat.count > 0)

    def odd() -> None:
        raise TypeError("unhashable type")

    observe = cluster.observe
    for wrong in (odd, observe):
        cluster.observe, cluster.away = wrong, wrong is observe  # type: ignore[method-assign,assignment]
        until(backend, lambda _: not backend._calls.sees)
        beats = heartbeat.count
        for _ in range(5):
            backend.observe()
        assert heartbeat.count == beats
        cluster.observe, cluster.away = observe, False  # type: ignore[method-assign]
        until(backend, lambda _, beats=beats: heartbeat.count > beats)
    assert said == [
        "TypeError('unhashable type'); asked again", "the cluster answers again",
        "slurmctld is away; asked again", "the cluster answers again",
    ]  # fmt: skip


def test_a_look_that_took_long_is_not_the_last_one_for_minutes() -> None:
    calls = cluster_calls.ClusterCalls(FakeCluster(nodes()), 2.0)
    with closing(calls):
        calls.look(1)
        done = calls.event(PATIENCE_S)
        assert done is not None
        calls._looking = True
        calls._events.put(replace(done, took_s=30.0))
        assert calls.event(0.0) is not None
        assert 29 < calls._due_s - monotonic() <= 30


def test_a_notice_that_could_not_be_written_down_is_given_later(
    make: Callable[..., ClusterBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, said = FakeCluster(nodes()), list[str]()
    cluster.submit("j1", gpus_per_worker=4, stoppable=True, notice_s=1000.0)
    backend = make(cluster, say=said.append)
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j1") and backend._mind.settled(1))

    def full(*_: object) -> None:
        raise JournalError("Cannot write: the disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(backend.book, "begin_command", full)
        decide(backend, j1=())
        until(backend, lambda _: bool(said))
        assert not np.isfinite(backend._mind.intent(1).noticed_s)
    until(backend, lambda _: cluster.jobs["j1"].sight.phase == "waiting")
    assert [action for action, *_ in cluster.done] == ["start", "notice", "stop"]


@pytest.mark.parametrize("trouble", ["taken", "down"])
@pytest.mark.parametrize("phase", ["waiting", "starting"])
def test_a_job_whose_nodes_cannot_be_had_any_more_is_decided_anew_at_once(
    make: Callable[..., ClusterBackend], trouble: str, phase: str
) -> None:
    cluster = FakeCluster(nodes(2))
    cluster.submit("j1", gpus_per_worker=4, stoppable=True)
    cluster.submit("theirs", gpus_per_worker=4)
    cluster.see("theirs", managed=False)
    cluster.lazy = True  # what is started does not run yet
    backend = make(cluster)
    if phase == "waiting":
        backend._order = lambda: None  # type: ignore[method-assign]  # nothing is carried out
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda _: cluster.jobs["j1"].sight.phase == phase)
    if trouble == "taken":
        cluster.see("theirs", phase="running", place=(("n1", 1, 0),))
    else:
        cluster.nodes = [replace(cluster.nodes[0], up=False), cluster.nodes[1]]
    snapshot = until(backend, lambda _: not backend._mind.share(1))
    make_policy("srtf").decide(snapshot).diff(snapshot)
    if phase == "starting":
        until(backend, lambda _: cluster.jobs["j1"].sight.phase == "waiting")


def test_a_start_that_the_cluster_refuses_is_taken_back_and_its_nodes_are_free_for_others(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(1))
    cluster.submit("j1", gpus_per_worker=4)
    cluster.lazy = True
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda _: cluster.jobs["j1"].sight.phase == "starting")
    why = "Slurm did not start it (PartitionDown)"
    cluster.see("j1", refused=why)
    until(backend, lambda _: cluster.jobs["j1"].sight.phase == "waiting")
    cluster.see("j1", refused="", waits_for=why)
    cluster.submit("j2", gpus_per_worker=4)
    cluster.lazy = False
    snapshot = until(backend, lambda snapshot: snapshot.jobs.uid.tolist() == [2])
    assert snapshot.nodes["free"].tolist() == [4]
    decide(backend, j2=((0, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j2"))
    assert [action for action, *_ in cluster.done] == ["start", "withdraw", "start"]


def test_a_job_that_leaves_its_nodes_one_by_one_makes_room_for_others(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(2))
    asks = {"workers": 2, "min_workers": 2, "max_workers": 2, "gpus_per_worker": 4}
    cluster.submit("j1", **asks, stoppable=True)
    cluster.submit("theirs", gpus_per_worker=4)
    cluster.see("theirs", managed=False)
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0), (1, 1, 0)))
    until(backend, lambda s: is_running(cluster, "j1") and bool(s.jobs.running.any()))
    cluster.lazy = True  # it stays on its way out
    cluster.see("j1", phase="stopping", place=(("n1", 1, 0),))
    cluster.see("theirs", phase="running", place=(("n2", 1, 0),))
    snapshot = until(backend, lambda s: int(s.jobs.running.sum()) == 2)
    assert snapshot.nodes["free"].tolist() == [0, 0]
    make_policy("srtf").decide(snapshot).diff(snapshot)


def test_an_ended_job_that_its_cluster_lists_anew_is_run_like_a_new_one(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=4)
    backend = make(cluster)
    (uid,) = backend.observe().jobs.uid.tolist()
    cluster.see("j1", end="done")
    until(backend, lambda s: len(s.jobs) == 0)
    cluster.see("j1", end="")
    until(backend, lambda s: s.jobs.uid.tolist() == [uid + 1])
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j1"))


def test_a_size_that_a_cluster_tells_while_it_stops_a_job_does_not_confuse_policies(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes())
    asks = {"min_workers": 2, "max_workers": 2, "gpus_per_worker": 4}
    cluster.submit("j1", workers=2, stoppable=True, **asks)
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0), (1, 1, 0)))
    until(backend, lambda s: is_running(cluster, "j1") and bool(s.jobs.running.all()))
    request = replace(cluster.jobs["j1"].sight.request, workers=1, min_workers=1, max_workers=1)
    cluster.see("j1", request=request)
    snapshot = until(backend, lambda s: int(s.jobs.rows["workers"][0]) == 1)
    assert len(make_policy("srtf").decide(snapshot).diff(snapshot)) == 0


@pytest.mark.parametrize(
    ("limits", "pinned"),
    [
        (PreemptionLimits(per_hour=1), [True, True]),
        (PreemptionLimits(per_job=1), [True, False]),
        (PreemptionLimits(), [False, False]),
    ],
)
def test_jobs_are_spared_once_the_limits_of_preemption_are_reached(
    make: Callable[..., ClusterBackend], limits: PreemptionLimits, pinned: list[bool]
) -> None:
    cluster = FakeCluster(nodes())
    for name in ("j1", "j2"):
        cluster.submit(name, gpus_per_worker=4, stoppable=True)
    backend = make(cluster, limits=limits)
    decide(backend, j1=((0, 1, 0),), j2=((1, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j1") and is_running(cluster, "j2"))
    assert not backend.observe().pinned.any()
    decide(backend, j1=())
    until(backend, lambda _: cluster.jobs["j1"].sight.phase == "waiting")
    decide(backend, j1=((0, 1, 0),))
    snapshot = until(backend, lambda _: is_running(cluster, "j1"))
    assert snapshot.pinned.tolist() == pinned


def test_one_round_stops_no_more_jobs_than_the_hour_has_left_and_the_next_daemon_knows(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(4))
    names = ("j1", "j2", "j3")
    for name in names:
        cluster.submit(name, gpus_per_worker=4, stoppable=True)
    cluster.submit("j4", gpus_per_worker=4, workers=2, min_workers=2, max_workers=2)
    backend = make(cluster, limits=PreemptionLimits(per_hour=2))
    decide(backend, j1=((0, 1, 0),), j2=((1, 1, 0),), j3=((2, 1, 0),))
    until(backend, lambda _: all(is_running(cluster, name) for name in names))
    decide(backend, j1=(), j2=(), j3=(), j4=((2, 1, 0), (3, 1, 0)))
    until(backend, lambda _: sum(is_running(cluster, name) for name in names) == 1)
    until(backend, lambda s: bool((s.jobs.waiting).any()))
    assert is_running(cluster, "j3")
    assert not is_running(cluster, "j4")  # it would have needed the nodes of j3
    backend = make(cluster, limits=PreemptionLimits(per_hour=2))
    assert backend.observe().pinned[[s == 1 for s in backend.observe().jobs.running]].all()


def test_work_and_service_are_carried_over_from_run_to_run(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=4, stoppable=True, estimate_s=1000.0)
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda s: bool((s.jobs.progress_s > 0.2).any()))
    decide(backend, j1=())
    snapshot = until(backend, lambda s: bool(s.jobs.waiting.all()) and backend._mind.settled(1))
    (row,) = snapshot.jobs.rows
    assert row["progress_s"] > 0.1
    assert row["attained_gpu_s"] == pytest.approx(4 * row["progress_s"])
    assert row["remaining_s"] == pytest.approx(1000.0 - row["progress_s"])
    assert (row["preemptions"], np.isfinite(row["started_s"])) == (1, True)
    after = make(cluster).observe().jobs.rows[0]
    assert after["attained_gpu_s"] == row["attained_gpu_s"]


def test_what_a_restart_costs_is_measured_or_said_or_assumed_and_never_free(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(4))
    several = ({}, {}, {"restart_s": 7.0}, {"model": "x"}, {"user": "bob"})
    for k, asks in enumerate(several, 1):
        cluster.submit(f"j{k}", gpus_per_worker=1, **{"model": "m", **asks})

    def costs(backend: ClusterBackend) -> list[float]:
        return [float(row["restart_s"]) for row in backend.observe().jobs.rows]

    backend = make(cluster)
    assert costs(backend) == [ASSUMED_S, ASSUMED_S, 7.0, ASSUMED_S, ASSUMED_S]
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j1"))
    told_s = cluster.jobs["j1"].sight.start_s + 3.0
    cluster.see("j1", progress=Progress(time_s=told_s, samples=1.0))
    until(backend, lambda _: backend.roll.known(1).starts == 1)
    learned = (3.0, 3.0, 7.0, 3.0, ASSUMED_S)  # of one user's jobs, for that user's
    assert costs(make(cluster)) == [pytest.approx(cost) for cost in learned]


def test_a_job_that_is_resized_is_left_alone_for_its_least_run_time_from_then_on(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(3))
    cluster.submit("j1", gpus_per_worker=4, stoppable=True, max_workers=2, estimate_s=9000.0)
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0),))
    until(backend, lambda _: is_running(cluster, "j1"))
    backend.min_run_s = 3600.0
    cluster.see("j1", start_s=time() - 7200.0)  # as if that was two hours ago
    backend.jobs[0].since_s -= 7200.0
    until(backend, lambda snapshot: not snapshot.pinned.any())
    backend.jobs[0].known.counted_s = 0.0

    cluster.lazy = True
    decide(backend, j1=((1, 1, 0), (2, 1, 0)))
    snapshot = until(backend, lambda _: cluster.jobs["j1"].sight.phase == "stopping")
    assert snapshot.pinned.all()  # its old run is still there
    assert snapshot.jobs.progress_s[0] == pytest.approx(7200.0, abs=PATIENCE_S)  # on one node
    cluster.lazy = False
    assert until(backend, lambda _: cluster.jobs["j1"].runs == 2).pinned.all()
    assert len(cluster.done) == 3  # start, stop, start


def test_a_policy_leaves_running_jobs_where_they_are(make: Callable[..., ClusterBackend]) -> None:
    cluster = FakeCluster(nodes(3))
    for k in range(3):
        cluster.submit(f"j{k}", gpus_per_worker=4, stoppable=True, estimate_s=100.0 + k)
    backend = make(cluster)
    decide(backend, j0=((0, 1, 0),), j1=((1, 1, 0),), j2=((2, 1, 0),))
    until(backend, lambda s: bool(s.jobs.running.all()) and is_running(cluster, "j2"))
    cluster.see("j0", end="done")
    snapshot = until(backend, lambda s: len(s.jobs) == 2)
    assert len(make_policy("srtf").decide(snapshot).diff(snapshot)) == 0


@pytest.mark.parametrize("policy", ["fifo", "srtf", "hull-greedy", "deepshare"])
def test_a_node_on_which_others_have_put_too_much_hinders_no_decision(
    make: Callable[..., ClusterBackend], policy: str
) -> None:
    cluster = FakeCluster([replace(node, cpus=8.0, memory_gb=16.0) for node in nodes(2)])
    for name in ("x1", "x2"):
        cluster.submit(name, gpus_per_worker=3, cpus_per_worker=6.0, memory_gb_per_worker=12.0)
        cluster.see(name, managed=False, phase="running", place=(("n1", 1, 0),), start_s=time())
    cluster.submit("j1", 0.05, gpus_per_worker=2, cpus_per_worker=1.0, estimate_s=1.0)
    backend = make(cluster, every_s=0.1, drain=True)
    for turn in rounds(make_policy(policy), backend, guard=Guard(fallback=None)):
        assert turn.trouble == ""
    assert [(what, place) for what, _, place in cluster.done] == [("start", (("n2", 1, 0),))]


ELASTIC = {"workers": 1, "min_workers": 1, "max_workers": 3, "gpus_per_worker": 1, "apart": True,
           "in_place": True}  # fmt: skip


def held(cluster: FakeCluster, name: str) -> list[str]:
    return [node for node, _, _ in cluster.jobs[name].sight.place]


def test_an_elastic_job_starts_small_grows_and_shrinks_while_it_runs(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(3))
    job = cluster.submit("j1", **ELASTIC)
    backend = make(cluster)
    decide(backend, j1=((1, 3, 0),))  # a policy packs, but its nodes have to differ
    until(backend, lambda _: held(cluster, "j1") == ["n1", "n2", "n3"])
    assert [(action, len(place)) for action, _, place in cluster.done] == [
        ("start", 3), ("resize", 3),
    ]  # fmt: skip
    (fixed,) = job.sight.request.fixed
    decide(backend, j1=())  # it cannot be stopped, so it shrinks
    until(backend, lambda _: held(cluster, "j1") == [fixed])
    assert (job.runs, backend.jobs[0].known.preemptions) == (1, 0)


def test_a_daemon_that_was_killed_finds_an_elastic_job_with_all_its_nodes(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(3))
    cluster.submit("j1", **ELASTIC)
    decide(make(cluster), j1=((0, 1, 0), (2, 1, 0)))
    cluster.lose = 1
    until(backend := make(cluster), lambda _: held(cluster, "j1") == ["n1", "n3"])
    assert cluster.jobs["j1"].runs == 1
    assert backend.observe().share(0) == [(0, 1, 0), (2, 1, 0)]


def test_of_an_elastic_job_only_steady_training_is_measured(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(3))
    cluster.submit("j1", **ELASTIC)
    backend = make(cluster)
    decide(backend, j1=((0, 1, 0), (1, 1, 0)))
    until(backend, lambda _: held(cluster, "j1") == ["n1", "n2"])

    def tell(**facts: float) -> None:
        told = Progress(time(), facts.pop("samples"), 1000.0, **facts)  # type: ignore[arg-type]
        cluster.see("j1", progress=told)

    tell(samples=10, samples_per_s=8.0, nodes=1, pause_s=0.25)
    row = until(backend, lambda s: s.jobs.resize_s[0] == 0.25).jobs.rows[0]
    assert (row["pace"], row["resume_s"]) == (2.0, pytest.approx(backend.now_s, abs=60))
    assert backend.jobs[0].known.rate == 0  # on one node: that says nothing of two
    tell(samples=20, samples_per_s=8.0, nodes=2)
    until(backend, lambda _: backend.jobs[0].known.rate == 4.0)
    first = backend.observe().jobs.resume_s[0]
    assert backend.observe().jobs.resume_s[0] == first < backend.now_s
    decide(backend, j1=((0, 1, 0), (1, 1, 0), (2, 1, 0)))
    tell(samples=30, samples_per_s=8.0, nodes=2)
    assert until(backend, lambda s: s.jobs.held_workers[0] == 3).jobs.resume_s[0] > first


def test_what_an_elastic_job_had_before_it_grew_counts_as_what_it_was(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes(3))
    cluster.submit("j1", **ELASTIC)
    long_s = 1e7
    cluster.see("j1", phase="running", place=(("n1", 1, 0),), start_s=time() - long_s)
    backend = make(cluster)
    assert backend.observe().jobs.attained_gpu_s[0] == pytest.approx(long_s, rel=0.01)
    decide(backend, j1=((0, 1, 0), (1, 1, 0), (2, 1, 0)))
    until(backend, lambda _: len(backend.jobs[0].sight.place) == 3)
    assert backend.observe().jobs.attained_gpu_s[0] == pytest.approx(long_s, rel=0.01)
    cluster.see("j1", end="done", end_s=time(), place=())
    until(backend, lambda s: not s.jobs.uid.size)
    assert backend.roll.known(1).attained_gpu_s == pytest.approx(long_s, rel=0.01)


@pytest.mark.parametrize("first", [1e-308, 1.0, 1.7e308])
@pytest.mark.parametrize("then", [1e-308, 1.7e308])
def test_whatever_a_job_says_of_its_progress_policies_count_with_finite_numbers(
    make: Callable[..., ClusterBackend], first: float, then: float
) -> None:
    cluster = FakeCluster(nodes())
    cluster.submit("j1", gpus_per_worker=1, stoppable=True, model="m")
    now_s = time()
    cluster.see("j1", phase="running", place=(("n1", 1, 0),), start_s=now_s - 100)
    backend = make(cluster)
    backend.observe()
    for k, speed in enumerate((first, then)):
        told = Progress(now_s - 50 + k, 1e308, 1.7e308, speed)
        cluster.see("j1", progress=told)
        snapshot = until(backend, lambda _, told=told: backend.jobs[0].sight.progress == told)
    (row,) = snapshot.jobs.rows
    for name in ("progress_s", "estimate_s", "remaining_s", "pace"):
        assert np.isfinite(row[name])


def test_stops_that_a_clock_set_back_has_put_into_the_future_count_for_an_hour(
    make: Callable[..., ClusterBackend],
) -> None:
    limits = {"limits": PreemptionLimits(per_hour=2)}
    backend = make(FakeCluster(nodes()))
    for k in range(3):
        backend.book.begin_command(JobOrder(1, "stop"), backend.now_s + 86400.0 * k)
    backend = make(FakeCluster(nodes()), **limits)
    assert limits["limits"].left(backend.now_s) == 0
    assert limits["limits"].left(backend.now_s + 3601.0) == 2


def test_what_jobs_of_one_user_report_says_nothing_of_anothers(
    make: Callable[..., ClusterBackend],
) -> None:
    cluster = FakeCluster(nodes())
    for name, user in (("j1", "ann"), ("j2", "bob"), ("j3", "ann")):
        cluster.submit(name, user=user, model="resnet50")
    rows = until(make(cluster), lambda snapshot: len(snapshot.jobs) == 3).jobs.rows
    assert rows["model"][0] == rows["model"][2] != rows["model"][1]
    assert (rows["model"] >= 0).all()


@pytest.mark.parametrize("instead", ["nothing", "a directory", "a copy"])
def test_a_daemon_whose_journal_is_taken_away_ends_and_says_so(
    make: Callable[..., ClusterBackend], tmp_path: Path, instead: str
) -> None:
    backend = make(FakeCluster(nodes(2)))
    assert backend.wait(inf)
    path, moved = tmp_path / "journal.db", tmp_path / "moved.db"
    path.rename(moved)
    if instead == "a directory":
        path.mkdir()
    elif instead == "a copy":
        path.write_bytes(moved.read_bytes())
    with pytest.raises(
        BackendError, match=r"journal\.db was removed, replaced or .* Start rota again"
    ):
        backend.wait(inf)


def test_a_daemon_whose_journal_is_damaged_ends_in_place_of_waiting_for_ever(
    make: Callable[..., ClusterBackend], tmp_path: Path
) -> None:
    cluster = FakeCluster(nodes(2))
    backend = make(cluster, every_s=0.1)

    def go_on() -> None:
        for _ in range(100):
            backend.wait(inf)

    assert backend.wait(inf)
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(b"no database" * 1000)
    cluster.submit("1", gpus_per_worker=1)
    with pytest.raises(BackendError, match=r"journal\.db was removed, replaced or damaged"):
        go_on()
