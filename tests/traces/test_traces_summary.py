"""Describing a trace."""

from __future__ import annotations

import json

import pytest

from rota.traces import Trace, describe
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
