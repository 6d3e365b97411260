"""Which compiled replay is chosen, and the traits of orderings by which it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rota.core import Cluster
from rota.core.layout import JOB, RUNNING, WAITING
from rota.policies import ORDERINGS, make_policy
from rota.policies.classic.orderings import FIXED_SCORES, STILL_SCORES, score
from rota.sim import Conditions, Faults
from rota.sim.queue_kernels import FEW, replay_queue, replay_shapes
from rota.sim.rank_kernels import replay_ranked
from rota.sim.replay_choice import facts_of, indexed_replay, replay_for
from rota.sim.replay_kernels import replay, replay_backfill, replay_free
from rota.traces import Trace

LIMITS = np.array([10.0, 100.0])


def rule_of(name: str) -> Any:
    policy: Any = make_policy(name)
    return policy.rule._replace(limits=LIMITS, worth=np.array([3.0, 2.0, 1.0]))


def score_of(name: str, status: int, now_s: float, live: int, demand: float) -> float:
    """The score of a job that has run before, in plain Python."""
    job = np.zeros(1, JOB)[0]
    job["status"], job["pace"] = status, 1.0 if status == RUNNING else 0.0
    job["gpus"], job["estimate_s"], job["remaining_s"], job["progress_s"] = 1, 100.0, 60.0, 40.0
    plain: Any = getattr(score, "py_func", score)
    return float(plain(rule_of(name), job, now_s, live, 8, demand))


@pytest.mark.parametrize("name", ORDERINGS)
def test_a_score_changes_only_when_its_ordering_says_so(name: str) -> None:
    waiting = [score_of(name, WAITING, *moment) for moment in ((0.0, 1, 0.1), (500.0, 80, 0.2))]
    running = [score_of(name, RUNNING, now_s, 1, 0.1) for now_s in (0.0, 500.0)]
    keeps = ORDERINGS[name].keeps_score
    if keeps == "no":
        # Fair orderings serve users by what they hold, whatever the scores are.
        assert waiting[0] != waiting[1] or name in ("max-min", "drf")
    else:
        assert waiting[0] == waiting[1]
    if keeps == "always":
        assert running[0] == running[1] == waiting[0]
    if keeps == "waiting":
        assert running[0] != running[1]


def test_orderings_with_one_score_agree_on_when_it_changes() -> None:
    by_code: dict[int, set[str]] = {}
    for ordering in ORDERINGS.values():
        by_code.setdefault(ordering.code, set()).add(ordering.keeps_score)
    assert all(len(found) == 1 for found in by_code.values())
    assert not FIXED_SCORES & STILL_SCORES


def many(jobs: int = 3000, shapes: int = 1, **columns: Any) -> Trace:
    return Trace.build(
        "many", submit_s=np.arange(jobs), duration_s=np.ones(jobs), num_gpus=np.ones(jobs, int),
        cpus_per_worker=np.arange(jobs) % shapes / 100, **columns,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shapes", "columns", "expected"),
    [
        ("fifo", FEW + 1, {}, replay_queue),
        ("sjf-skip", 1, {}, replay_queue),
        ("sjf-skip", FEW + 1, {}, replay_shapes),
        ("srtf", 1, {}, replay_ranked),
        ("themis", 1, {}, replay_free),
        ("tetris", 1, {}, replay_free),
        ("drf", 1, {}, replay_free),
        ("fifo-easy", 1, {}, replay_backfill),
        ("srtf", 1, {"restart_s": np.ones(3000)}, replay),
        ("fifo", 1, {"restart_s": np.ones(3000)}, replay_queue),
    ],
)
def test_the_kernel_follows_from_the_ordering_and_the_trace(
    name: str, shapes: int, columns: dict[str, Any], expected: Any
) -> None:
    facts = facts_of(Cluster.uniform(2, 8, cpus=64), many(shapes=shapes, **columns), Conditions())
    policy: Any = make_policy(name)
    assert replay_for(policy.rule, facts) is expected


def test_uneven_nodes_and_failures_have_no_indexed_queue() -> None:
    fifo: Any = make_policy("fifo")
    uneven = facts_of(Cluster(gpus=np.array([4, 8])), many(), Conditions())
    assert indexed_replay(fifo.rule, uneven) is None
    for mtbf_s, expected in ((np.inf, replay_queue), (1e5, None)):
        when = Conditions(faults=Faults(node_mtbf_s=mtbf_s))
        assert indexed_replay(fifo.rule, facts_of(Cluster.uniform(2, 8), many(), when)) is expected
