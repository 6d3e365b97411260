"""Before a daemon takes a job its policy has decided on jobs of all kinds."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

from rota.core import Cluster, Draft
from rota.policies import make_policy
from rota.run.rehearsal import rehearse

if TYPE_CHECKING:
    from rota.core import Snapshot


class Watches:
    """A policy that notes what it is asked, and may fail."""

    name = "watches"

    def __init__(self, error: BaseException | None = None) -> None:
        self.seen: list[Snapshot] = []
        self._error = error

    def decide(self, snapshot: Snapshot) -> Any:
        self.seen.append(snapshot)
        if self._error:
            raise self._error
        return Draft(snapshot).commit()


def test_a_policy_is_asked_about_jobs_of_all_kinds() -> None:
    policy = Watches()
    rehearse(policy, Cluster.uniform(2, 2), 60.0)
    jobs = [snapshot.jobs for snapshot in policy.seen]
    assert any(len(own) == 0 for own in jobs)
    assert any(own.waiting.all() and len(own) for own in jobs)
    assert any(own.running.any() and own.waiting.any() for own in jobs)
    assert all(snapshot.curves is not None for snapshot in policy.seen)
    assert (policy.seen[-1].jobs.progress_s > 0).any()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), MemoryError()])
def test_what_is_wrong_with_a_policy_is_not_told_yet(error: BaseException) -> None:
    policy = Watches(error)
    rehearse(policy, Cluster.uniform(1, 1), 60.0)
    assert len(policy.seen) == 1


def test_a_policy_that_hangs_ends_the_rehearsal_at_its_deadline() -> None:
    class Sleeps(Watches):
        def decide(self, snapshot: Snapshot) -> Any:
            self.seen.append(snapshot)
            sleep(1000)

    policy, began_s = Sleeps(), monotonic()
    rehearse(policy, Cluster.uniform(1, 2), 0.2)
    assert monotonic() - began_s < 600  # only a hang takes longer, also on a busy machine
    assert len(policy.seen) == 1


def test_all_rounds_together_have_one_deadline() -> None:
    class Dawdles(Watches):
        def decide(self, snapshot: Snapshot) -> Any:
            decision = super().decide(snapshot)
            sleep(0.2)
            return decision

    policy = Dawdles()
    rehearse(policy, Cluster.uniform(1, 2), 0.3)
    assert len(policy.seen) in (1, 2)  # of four; the second, if the machine is quick enough


def test_a_policy_that_compiles_may_be_later_than_the_deadline() -> None:
    class Compiles(Watches):
        compiles = True

        def decide(self, snapshot: Snapshot) -> Any:
            sleep(0.05)
            return super().decide(snapshot)

    policy = Compiles()
    rehearse(policy, Cluster.uniform(1, 2), 0.01)
    assert len(policy.seen) == 4


@pytest.mark.parametrize("name", ["fifo-skip", "srtf", "hull-greedy", "las", "optimus"])
def test_a_policy_of_ours_does_well(name: str) -> None:
    class Counts:
        asked = 0
        own = make_policy(name)

        def decide(self, snapshot: Snapshot) -> Any:
            decision = self.own.decide(snapshot)
            type(self).asked += 1
            return decision

    rehearse(Counts(), Cluster.uniform(1, 1, gpu_type="cpu"), 600.0)
    assert Counts.asked == 4
