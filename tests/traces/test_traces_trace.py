"""The columnar trace: defaults, order, checks, slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rota.errors import TraceError
from rota.traces import Trace


def three(**columns: Any) -> Trace:
    return Trace.build(
        "three", submit_s=[0, 10, 20], duration_s=[5, 6, 7], num_gpus=[1, 2, 4], **columns
    )


def test_fills_in_defaults() -> None:
    trace = three()

    assert trace.job_id.tolist() == ["0", "1", "2"]
    assert trace.min_workers.tolist() == trace.max_workers.tolist() == [1, 2, 4]
    assert trace.user.tolist() == [-1, -1, -1]
    assert np.isinf(trace.deadline_s).all()
    assert np.isnan(trace.estimate_s).all()


def test_workers_are_counted_in_workers_not_gpus() -> None:
    trace = Trace.build("t", submit_s=[0], duration_s=[1], num_gpus=[8], gpus_per_worker=[4])
    assert trace.max_workers.tolist() == [2]


def test_sorts_by_submission_and_keeps_file_order_among_equals() -> None:
    trace = Trace.build(
        "t",
        submit_s=[5, -3, 5],
        duration_s=[1, 2, 3],
        num_gpus=[1, 1, 1],
        job_id=["late", "early", "later"],
        user=["ann", "bob", "ann"],
    )

    assert trace.job_id.tolist() == ["early", "late", "later"]
    assert trace.names("user") == ["bob", "ann", "ann"]


def test_arrays_are_read_only_and_the_callers_stay_writable() -> None:
    submit_s = np.array([0.0, 1.0])
    trace = Trace.build("t", submit_s=submit_s, duration_s=[1, 1], num_gpus=[1, 1])

    with pytest.raises(ValueError, match="read-only"):
        trace.submit_s[0] = 7
    submit_s[0] = 7
    assert trace.submit_s[0] == 0


def test_load_is_work_over_capacity() -> None:
    # 1*5 + 2*6 + 4*7 = 45 GPU seconds, in 20 s, on 3 GPUs: 45 / 60.
    assert three().gpu_seconds == 45
    assert three().load(3) == 0.75
    assert three().head(1).load(3) == float("inf")


def test_takes_by_mask_by_index_and_from_the_head() -> None:
    trace = three(user=["ann", "", "bob"])

    assert trace.take(trace.num_gpus > 1).job_id.tolist() == ["1", "2"]
    assert trace.take(np.array([2, 0])).job_id.tolist() == ["0", "2"]
    assert trace.head(2).names("user") == ["ann", ""]
    assert len(trace.head(0)) == 0


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("duration_s", [5, 0, 7], "0 is not a positive"),
        ("num_gpus", [1, 2.5, 4], "2.5 is not a whole number"),
        ("submit_s", [0, np.nan, 1], "nan is not a time"),
        ("job_id", ["a", "b", "a"], "row 0 and row 2"),
        ("min_workers", [1, 3, 4], "min_workers exceeds max_workers"),
        ("gpus_per_worker", [1, 2, 3], "not divisible"),
        ("deadline_s", [100, 5, 100], "absolute, not relative"),
        ("estimate_s", [1, -1, np.nan], "-1 is not a positive"),
        ("restart_s", [1, 2], "holds 2 values"),
    ],
)
def test_refuses_what_makes_no_sense(column: str, values: list[object], says: str) -> None:
    columns: dict[str, Any] = {
        "submit_s": [0, 10, 20],
        "duration_s": [5, 6, 7],
        "num_gpus": [1, 2, 4],
    }
    with pytest.raises(TraceError, match=says):
        Trace.build("t", **{**columns, column: values})


def test_refuses_codes_without_a_name() -> None:
    with pytest.raises(TraceError, match="entries of users"):
        three(user=[0, 1, 2], users=("ann", "bob"))


def test_refuses_a_column_that_does_not_exist() -> None:
    with pytest.raises(TypeError, match="colour"):
        three(colour=[1, 2, 3])
