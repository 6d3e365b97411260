"""The contract of drivers: one that keeps it passes, and each breach is named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.backends.fake_cluster import FakeCluster, nodes

from rota.backends.driver import Answer, ClusterSight
from rota.testing import check_driver

if TYPE_CHECKING:
    from rota.backends.driver import JobSight, Place
    from rota.backends.reconciler import Action


class BentCluster(FakeCluster):
    """Breaks the contract in one way."""

    how = ""

    def observe(self) -> ClusterSight:
        sight = super().observe()
        jobs = list(sight.jobs)
        if self.how == "lists twice":
            jobs *= 2
        if self.how == "another name" and any(job.ran_s for job in self.jobs.values()):
            jobs = [replace(job, name=f"{job.name}-again") for job in jobs]
        if self.how == "unknown node":
            jobs = [replace(job, place=tuple(("n9", w, s) for _, w, s in job.place))
                    for job in jobs]  # fmt: skip
        if self.how == "no node":
            return ClusterSight(sight.time_s, jobs, [replace(n, up=False) for n in sight.nodes])
        late_s = 1e6 if self.how == "another clock" else 0.0
        return ClusterSight(sight.time_s - late_s, jobs, sight.nodes)

    def carry_out(self, action: Action, job: JobSight, place: Place) -> Answer:
        if self.how == "elsewhere" and action == "start":
            place = (("n2", 1, 0),)
        if self.how == "twice ends it" and action == "stop" and self.done[-1][0] == "stop":
            action = "cancel"
        if self.how == "deaf" and action == "cancel":
            return Answer("done")
        if self.how == "refuses" and action == "stop":
            return Answer("refused", "no rights")
        return super().carry_out(action, job, place)


def played(how: str = "") -> FakeCluster:
    cluster = BentCluster(nodes())
    cluster.how = how

    def submit() -> str:
        cluster.submit("j1", gpus_per_worker=1, stoppable=True, notice_s=1.0)
        return "j1"

    check_driver(cluster, submit, patience_s=0.5 if how else 300.0)
    return cluster


def test_a_driver_that_keeps_the_contract_passes() -> None:
    cluster = played()
    assert cluster.jobs["j1"].runs >= 2
    assert {action for action, *_ in cluster.done} == {
        "start", "notice", "stop", "withdraw", "cancel",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("lists twice", "lists a job twice"),
        ("another name", "job j1 was to be waiting"),
        ("unknown node", "which no look lists"),
        ("another clock", "a look was made at"),
        ("no node", "no node is up"),
        ("elsewhere", "it was to get"),
        ("twice ends it", "job j1 was to be waiting"),
        ("deaf", "was cancelled and is not over"),
        ("refuses", "stop of job j1: .*no rights"),
    ],
)
def test_each_breach_is_named(how: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        played(how)
