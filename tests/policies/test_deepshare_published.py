"""DeepShare's baselines as published: small rounds by hand, and the numbers of its own trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.core import Cluster, Job, Snapshot
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.testing import check_policy
from rota.traces import load_trace

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("deepshare-las", "deepshare-srtf", "deepshare-las-corrected", "deepshare-srtf-corrected")


def moment(jobs: list[Job], held: Any = None, **columns: Any) -> Snapshot:
    """DeepShare's cluster at one moment."""
    made = Snapshot.of(Cluster.uniform(4, 8), jobs, held, time_s=600.0)
    rows = made.jobs.rows.copy()
    for name, values in columns.items():
        rows[name] = values
    return Snapshot(600.0, made.cluster, type(made.jobs)(rows), made.nodes, made.shares)


def decided(name: str, snapshot: Snapshot) -> dict[int, Any]:
    decision = make_policy(name).decide(snapshot)
    decision.check(snapshot)
    return {
        j: [(node, workers) for node, workers, _ in decision.share(j)]
        for j in range(len(snapshot.jobs)) if decision.share(j)
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_jobs_go_over_four_nodes_or_two_lowest_first_and_the_head_blocks(name: str) -> None:
    # 8 GPUs take 2 of every node, 2 take 1 of nodes 0 and 1, 4 take 1 of every node. Three more
    # jobs of 8 find 5, 5, 6, 6: two fit over four nodes, then 1, 1, 2, 2 are left. The third
    # blocks, although the job of 2 GPUs behind it would fit.
    jobs = [Job(workers=gpus, estimate_s=3600.0) for gpus in (8, 2, 4, 8, 8, 8, 2)]
    two = [(n, 2) for n in range(4)]
    assert decided(name, moment(jobs)) == {
        0: two, 1: [(0, 1), (1, 1)], 2: [(n, 1) for n in range(4)], 3: two, 4: two,
    }  # fmt: skip


def test_eight_gpus_go_to_two_nodes_where_four_have_no_room() -> None:
    # The others leave 0, 4, 0, 4, by hand: the last is the only one that may move.
    jobs = [Job(workers=8, min_run_s=1e6), Job(workers=8, min_run_s=1e6), Job(workers=8)]
    held = {0: [(0, 8)], 1: [(2, 8)]}
    snapshot = moment(jobs, held)
    assert decided("deepshare-las", snapshot)[2] == [(1, 4), (3, 4)]


def test_each_sorts_as_published_or_as_its_name_says() -> None:
    # Two jobs fill the cluster. Of four, job 0 ran for 900 s, job 1 for 300 s, and so on.
    ran_s, left_s = np.array([900.0, 300.0, 600.0, 0.0]), [2700.0, 2700.0, 600.0, 1800.0]
    snapshot = moment(
        [Job(workers=16)] * 4, attained_gpu_s=16 * ran_s, progress_s=ran_s, remaining_s=left_s
    )
    # Parts done: 1/4, 1/10, 1/2, 0.
    first = {name: sorted(decided(name, snapshot)) for name in NAMES}
    assert first == {
        "deepshare-las": [0, 2], "deepshare-srtf": [1, 3],
        "deepshare-las-corrected": [1, 3], "deepshare-srtf-corrected": [2, 3],
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_they_keep_the_contract(name: str) -> None:
    check_policy(make_policy(name))


class Counting:
    """Counts the rounds in which each job runs, which is all that the authors call JCT."""

    def __init__(self, name: str) -> None:
        self.policy, self.rounds = make_policy(name), np.zeros(256)

    def decide(self, snapshot: Snapshot) -> Any:
        decision = self.policy.decide(snapshot)
        for j, uid in enumerate(snapshot.jobs.uid.tolist()):
            self.rounds[uid] += len(decision.share(j)) > 0
        return decision


@pytest.mark.parametrize(
    ("name", "running_s", "used", "makespan_s"),
    [("deepshare-las", 6082, 0.907, 258_600), ("deepshare-srtf", 5975, 0.929, 0.955 * 258_600)],
)
def test_published_numbers(
    golden: Path, name: str, running_s: float, used: float, makespan_s: float
) -> None:
    """As others measured; makespans without the defect by which a job loses a round."""
    trace = load_trace(golden / "deepshare_trace0.csv")
    world = load("deepshare-published").draw(0, trace=trace)
    policy = Counting(name)
    run = simulate(world.cluster, world.trace, policy, world.when, physics=world.physics)
    assert 300 * policy.rounds.mean() == pytest.approx(running_s, rel=0.01)
    assert run.held_gpu_s / run.up_gpu_s == pytest.approx(used, abs=0.005)
    assert run.done_s.max() == pytest.approx(makespan_s, rel=0.01)
