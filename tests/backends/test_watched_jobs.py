"""A backend that only watches: the journal holds what others did, at their own times."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING

import pytest
from tests.backends.fake_cluster import FakeCluster, nodes

from rota.backends.cluster_backend import ClusterBackend
from rota.backends.job_book import JobBook
from rota.backends.restart_costs import ASSUMED_S
from rota.core.layout import ARRIVE, FINISH, GIVE_UP, KILL, MOVE, START, STOP
from rota.policies.catalogue import make_policy
from rota.run.guard import Guard
from rota.run.journal import Journal
from rota.run.loop import rounds, unheeded
from rota.run.reader import read_journal
from rota.run.recorder import Recorder
from rota.run.speeds import Speeds
from rota.sim.past import past_jobs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.backends.driver import ClusterSight

T = 1_000_000.0
"""The Unix time at which the book begins."""


@dataclass
class SeenCluster(FakeCluster):
    """Counts how often it is looked at."""

    looks: int = 0

    def observe(self) -> ClusterSight:
        self.looks += 1
        return super().observe()


class Watching:
    """A daemon in shadow over a cluster in memory, a round at a time; a new one goes on."""

    def __init__(self, cluster: SeenCluster, folder: Path, policy: str) -> None:
        self.cluster, self.path, self._stack = cluster, folder / "journal.db", ExitStack()
        self._folder, self._policy = folder, policy
        self.begin()

    def begin(self) -> None:
        meta = {"policy": self._policy, "total_gpus": 8}
        there = self.path.exists()
        journal = Journal.reopen(self.path) if there else Journal.create(self.path, meta=meta)
        self._stack.enter_context(journal)
        book = self._stack.enter_context(closing(JobBook(self.path, T)))
        self.backend = ClusterBackend(
            self.cluster, book, Speeds(self._folder / "speeds.npz"), look_s=0.01, every_s=0.1,
            passive=True,
        )  # fmt: skip
        self._stack.callback(self.backend.close)
        self.recorder = Recorder(journal, self.backend.roll.facts)
        policy = make_policy(self._policy)
        self._turns = map(unheeded, rounds(policy, self.backend, guard=Guard()))

    def turn(self, rounds: int = 1) -> None:
        """Look, decide and write, until all that has happened is in the journal."""
        before = self.cluster.looks
        while rounds > 0 or self.cluster.looks < before + 3:
            self.recorder.write(next(self._turns))
            rounds -= 1
        self.recorder.write(next(self._turns))

    def kill(self) -> None:
        self._stack.close()

    def told(self) -> list[tuple[str, int, float, list[tuple[int, int, int]]]]:
        """Job, kind, seconds since T and share of all events."""
        with read_journal(self.path) as view:
            events, shares, offsets = view.events()
            names = view.jobs.job_id.tolist()
        return [
            (names[job], kind, time_s, shares[offsets[e] : offsets[e + 1]].tolist())
            for e, (time_s, job, kind, _) in enumerate(events.tolist())
        ]

    def wishes(self) -> list[list[dict[str, object]]]:
        """What would have been done, round by round."""
        with read_journal(self.path) as view:
            return [note.get("shadow", []) for note in view.notes().values()]


@pytest.fixture
def watch(tmp_path: Path) -> Callable[..., Watching]:
    return lambda cluster, policy="srtf": Watching(cluster, tmp_path, policy)


def starts(cluster: SeenCluster, name: str, at_s: float, *places: tuple[str, int]) -> None:
    """The cluster's own scheduler starts a job."""
    place = tuple((node, workers, 0) for node, workers in places)
    cluster.see(name, phase="running", place=place, start_s=T + at_s)


def came(cluster: SeenCluster, name: str, at_s: float, **asks: object) -> None:
    cluster.submit(name, **asks)
    cluster.see(name, submit_s=T + at_s)


def test_starts_and_ends_are_told_as_they_were_and_nothing_is_done(
    watch: Callable[..., Watching],
) -> None:
    cluster = SeenCluster(nodes())
    came(cluster, "a", 10, workers=2, min_workers=2, max_workers=2, gpus_per_worker=2,
         estimate_s=100.0)  # fmt: skip
    came(cluster, "b", 20, gpus_per_worker=4, estimate_s=10.0)
    watching = watch(cluster)
    watching.turn()
    starts(cluster, "a", 30, ("n1", 1), ("n2", 1))
    watching.turn()
    cluster.see("a", end="done", end_s=T + 90, phase="waiting")
    starts(cluster, "b", 91, ("n1", 1))
    watching.turn()
    cluster.see("b", end="cancelled", end_s=T + 95)
    watching.turn()
    watching.kill()
    assert watching.told() == [
        ("1", ARRIVE, 10, []), ("2", ARRIVE, 20, []), ("1", START, 30, [(0, 1, 0), (1, 1, 0)]),
        ("1", FINISH, 90, []), ("2", START, 91, [(0, 1, 0)]), ("2", KILL, 95, []),
        ("2", GIVE_UP, 95, []),
    ]  # fmt: skip
    assert cluster.done == []
    # The first wish is the policy's own: the shorter job and, beside it, the longer one.
    first = watching.wishes()[0]
    assert {(wish["uid"], wish["do"]) for wish in first} == {(1, "start"), (2, "start")}


def test_a_wish_that_stands_is_written_once(watch: Callable[..., Watching]) -> None:
    cluster = SeenCluster(nodes())
    came(cluster, "a", 10, gpus_per_worker=4)
    watching = watch(cluster)
    watching.turn(rounds=20)
    starts(cluster, "a", 30, ("n1", 1))
    watching.turn()
    watching.kill()
    assert [len(wish) for wish in watching.wishes()] == [1, 0]
    with read_journal(watching.path) as view:
        last = view.notes()[1]
    assert last["quiet"] >= 19


def test_a_job_that_its_cluster_puts_back_and_moves(watch: Callable[..., Watching]) -> None:
    cluster = SeenCluster(nodes())
    came(cluster, "a", 10, gpus_per_worker=4)
    watching = watch(cluster)
    starts(cluster, "a", 30, ("n1", 1))
    watching.turn()
    cluster.see("a", phase="waiting", place=(), start_s=float("nan"))
    watching.turn()
    starts(cluster, "a", 60, ("n2", 1))
    watching.turn()
    kinds = [kind for _, kind, *_ in watching.told()]
    assert kinds == [ARRIVE, START, STOP, START]
    # Between two looks, it is put back and started elsewhere.
    at_s = time() - T
    starts(cluster, "a", at_s, ("n1", 1))
    watching.turn()
    watching.kill()
    assert [kind for _, kind, *_ in watching.told()][4:] == [STOP, START]
    assert MOVE not in kinds


def test_the_next_daemon_tells_what_happened_in_between_once(
    watch: Callable[..., Watching],
) -> None:
    cluster = SeenCluster(nodes())
    for k, name in enumerate("abcd"):
        came(cluster, name, 10 + k, gpus_per_worker=1)
    watching = watch(cluster)
    starts(cluster, "a", 20, ("n1", 1))
    starts(cluster, "b", 21, ("n1", 1))
    watching.turn()
    watching.kill()
    cluster.see("a", end="done", end_s=T + 40)
    starts(cluster, "c", 41, ("n2", 1))
    cluster.see("d", end="failed", end_s=T + 44, start_s=T + 43, place=(("n2", 1, 0),))
    came(cluster, "e", 50, gpus_per_worker=2)
    cluster.see("e", end="done", end_s=T + 60, start_s=T + 55, place=(("n1", 1, 0),))
    before = watching.told()
    watching.begin()
    watching.turn()
    watching.kill()
    assert watching.told()[len(before) :] == [
        ("1", FINISH, 40, []), ("3", START, 41, [(1, 1, 0)]), ("4", START, 43, [(1, 1, 0)]),
        ("4", GIVE_UP, 44, []), ("5", ARRIVE, 50, []), ("5", START, 55, [(0, 1, 0)]),
        ("5", FINISH, 60, []),
    ]  # fmt: skip
    assert cluster.done == []


def test_a_full_disk_costs_nothing_but_time(
    watch: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SeenCluster(nodes())
    came(cluster, "a", 10, gpus_per_worker=4)
    watching = watch(cluster)
    watching.turn()
    starts(cluster, "a", 30, ("n1", 1))
    add_events = Journal.add_events

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Journal, "add_events", full)
    with pytest.raises(OSError, match="no space"):
        watching.turn(rounds=50)
    monkeypatch.setattr(Journal, "add_events", add_events)
    cluster.see("a", end="done", end_s=T + 44)
    watching.turn()
    watching.kill()
    assert [one[1:3] for one in watching.told()] == [(ARRIVE, 10), (START, 30), (FINISH, 44)]


def test_the_journal_serves_as_a_trace(watch: Callable[..., Watching]) -> None:
    cluster = SeenCluster(nodes())
    came(cluster, "a", 10, gpus_per_worker=4, gpu_type="a100", stoppable=True, restart_s=7.0)
    came(cluster, "b", 11, gpus_per_worker=2, estimate_s=50.0)
    watching = watch(cluster)
    starts(cluster, "a", 20, ("n1", 1))
    starts(cluster, "b", 20, ("n2", 1))
    watching.turn()
    cluster.see("a", end="done", end_s=T + 50)
    cluster.see("b", end="failed", end_s=T + 60)
    watching.turn()
    watching.kill()
    trace = past_jobs(watching.path)
    assert trace.duration_s.tolist() == [30, 40]
    assert trace.names("gpu_type") == ["a100", ""]
    assert (trace.stoppable.tolist(), trace.restart_s.tolist()) == ([1, 0], [7, ASSUMED_S])
    assert (trace.num_gpus.tolist(), trace.estimate_s.tolist()[1]) == ([4, 2], 50)
