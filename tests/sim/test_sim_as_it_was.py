"""A log's own record as a run."""

from __future__ import annotations

import numpy as np
import pytest

from rota.core import Cluster
from rota.run.metrics import series
from rota.sim.as_it_was import UNKNOWN, as_it_was, doubts_as_it_was, summary_as_it_was
from rota.traces import Trace

LOG = Trace.build(
    "log",
    submit_s=[0, 0, 10, 20],
    duration_s=[100, 50, 40, 10],
    num_gpus=[4, 4, 2, 8],
    started_s=[0, 100, 10, np.nan],
    user=["ann", "bob", "bob", "ann"],
)


def test_the_record_is_made_of_recorded_starts_alone() -> None:
    record = as_it_was(LOG, Cluster.uniform(1, 8))
    assert record is not None
    facts = summary_as_it_was(record)
    assert (facts["policy"], facts["jobs"], facts["finished"]) == ("as it was", 3, 3)
    assert facts["mean_wait_s"] == pytest.approx((0 + 100 + 0) / 3)
    assert facts["mean_jct_s"] == pytest.approx((100 + 150 + 40) / 3)
    assert facts["makespan_s"] == 150
    assert facts["utilisation"] == pytest.approx((400 + 200 + 80) / (8 * 150))
    assert all(facts[name] is None for name in UNKNOWN)


def test_use_over_time_is_that_of_the_record() -> None:
    record = as_it_was(LOG, Cluster.uniform(1, 8))
    assert record is not None
    drawn = series(record, 3)  # 0–50, 50–100, 100–150
    assert drawn["utilisation"] == pytest.approx([(4 + 2 * 0.8) / 8, 4 / 8, 4 / 8])
    assert drawn["waiting"] == pytest.approx([1, 1, 0])


def test_a_log_without_starts_has_no_record() -> None:
    bare = Trace.build("bare", submit_s=[0], duration_s=[1], num_gpus=[1])
    assert as_it_was(bare, Cluster.uniform(1)) is None
    assert doubts_as_it_was(bare, Cluster.uniform(1)) == []


def test_what_makes_the_record_doubtful_is_said() -> None:
    few, enough = Cluster.uniform(1, 4), Cluster.uniform(1, 8)
    assert ["no start of 1 of 4 jobs" in said for said in doubts_as_it_was(LOG, enough)] == [True]
    assert "up to 6 GPUs were in use at once" in doubts_as_it_was(LOG, few)[1]
    typed = Trace.build(
        "typed", submit_s=[0, 0], duration_s=[9, 9], num_gpus=[4, 2], started_s=[0, 0],
        gpu_type=["a", "b"],
    )  # fmt: skip
    mixed = Cluster(gpus=np.array([3, 9]), gpu_types=("a", "b"), type=np.array([0, 1]))
    (said,) = doubts_as_it_was(typed, mixed)
    assert "up to 4 GPUs of type 'a' were in use at once, but this cluster has 3" in said


def test_jobs_without_gpus_hold_none() -> None:
    cpus = Trace.build(
        "cpus", submit_s=[0, 0], duration_s=[10, 10], num_gpus=[2, 3], gpus_per_worker=[1, 0],
        started_s=[0, 0],
    )  # fmt: skip
    record = as_it_was(cpus, Cluster.uniform(1, 4, cpus=64))
    assert record is not None
    assert summary_as_it_was(record)["utilisation"] == pytest.approx(2 / 4)
    assert doubts_as_it_was(cpus, Cluster.uniform(1, 2, cpus=64)) == []
