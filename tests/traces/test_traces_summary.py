"""Describing a trace."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rota.traces import Trace, describe, load_trace
from rota.traces.summary import bars, duration_bars, size_bars


def sample() -> Trace:
    return Trace.build(
        "t",
        submit_s=[0, 50, 100],
        duration_s=[5, 100, 100],
        num_gpus=[1, 1, 8],
        user=["ann", "bob", "bob"],
        left_out={"no GPU": 2},
        skipped=1,
    )


def test_sums_up_in_numbers_that_json_can_hold() -> None:
    facts = json.loads(json.dumps(describe(sample(), gpus=10), allow_nan=False))

    assert facts["jobs"] == 3
    assert facts["gpu_hours"] == pytest.approx(905 / 3600)
    assert facts["load"] == pytest.approx(905 / 1000)
    assert facts["duration_s"]["p50"] == 100
    assert facts["num_gpus"][1] == {"gpus": 8, "jobs": 1, "gpu_hour_share": 800 / 905}
    assert facts["top_users"] == [{"name": "bob", "jobs": 2}, {"name": "ann", "jobs": 1}]
    assert (facts["skipped"], facts["left_out"]) == (1, {"no GPU": 2})


def test_a_single_job_has_no_load_and_no_gaps() -> None:
    facts = describe(sample().head(1), gpus=10)
    assert facts["load"] is facts["gap_s"] is facts["mean_gpus_busy"] is None


def test_bars_are_drawn_to_an_eighth() -> None:
    assert bars(["a", "bb"], [16, 1], width=2) == [" a ██ 16", "bb ▏  1"]
    assert bars(["a"], [0], width=2) == ["a    0"]
    assert bars([], []) == []


def test_bars_count_every_job_once() -> None:
    assert [line.split()[-1] for line in size_bars(sample())] == ["2", "0", "0", "1"]
    assert sum(int(line.split()[-1]) for line in duration_bars(sample())) == 3


def test_types_limits_and_starts_are_described() -> None:
    trace = Trace.build(
        "x",
        submit_s=[0, 0, 10],
        duration_s=[3600, 1800, 50],
        num_gpus=[4, 2, 1],
        gpu_type=["a100", "a100", ""],
        estimate_s=[7200, 1800, np.nan],
        started_s=[0, 60, np.nan],
    )
    facts = describe(trace)
    assert facts["gpu_types"][0] == {
        "gpu_type": "a100", "jobs": 2, "gpu_hours": 5.0, "gpus_per_node": None, "peak_gpus": 6,
    }  # fmt: skip
    assert facts["gpu_types"][1]["gpu_type"] is None
    assert (facts["time_limits"]["jobs"], facts["time_limits"]["exceeded"]) == (2, 0)
    assert facts["time_limits"]["used"]["mean"] == 0.75
    assert facts["recorded"]["jobs"] == 2
    assert facts["recorded"]["wait_s"]["mean"] == 30
    assert facts["recorded"]["peak_gpus"] == 6
    bare = describe(load_trace("poisson:jobs=5"))
    assert bare["time_limits"] == {"jobs": 0, "used": None, "exceeded": 0}
    assert bare["recorded"] == {"jobs": 0, "wait_s": None, "peak_gpus": None}
