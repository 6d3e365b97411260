"""Every metric against numbers that can be checked by hand, and against slow, obvious twins."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.layout import ROUND
from rota.run.metrics import Times, cdf, mean_over, series, summarise
from rota.run.outcome import Outcome


def outcome(**given: Any) -> Outcome:
    """An outcome of `submit_s` and whatever else is given; by default all runs at once, alone."""
    submit_s = np.asarray(given.pop("submit_s", []), np.float64)
    J = len(submit_s)
    facts: dict[str, Any] = {
        "job_id": np.array([f"job-{j}" for j in range(J)], np.str_),
        "user": np.full(J, -1),
        "num_gpus": np.ones(J, np.int64),
        "duration_s": np.ones(J),
        "started_s": submit_s,
        "gave_up": np.zeros(J, np.bool_),
        "preemptions": np.zeros(J, np.int64),
        "lost_s": np.zeros(J),
        **{name: np.asarray(v) if isinstance(v, list) else v for name, v in given.items()},
    }
    facts.setdefault("done_s", submit_s + facts["duration_s"])
    sums = {"begin_s": 0.0, "end_s": 100.0, "held_gpu_s": 0.0, "up_gpu_s": 0.0, "stray_gpu_s": 0.0}
    return Outcome(**{"policy": "fifo", "total_gpus": 4, "submit_s": submit_s, **sums, **facts})


# Job 0 runs at once; job 1 waits 10 s and runs 30 s; job 2 waits 5 s and is preempted twice;
# job 3 gives up at 60; job 4 runs still; job 5 has not started.
MIXED = outcome(
    submit_s=[0, 10, 20, 30, 40, 50], started_s=[0, 20, 25, 30, 45, np.nan],
    done_s=[20, 50, 65, 60, np.nan, np.nan], duration_s=[20.0, 30, 20, 100, 100, 1],
    num_gpus=[1, 4, 8, 16, 64, 2], gave_up=[False, False, False, True, False, False],
    user=[0, 1, 1, -1, 0, 2], users=("ann", "bob", "cy"), preemptions=[0, 0, 2, 0, 0, 1],
    lost_s=[0.0, 0, 0, 450, 0, 0], held_gpu_s=300.0, up_gpu_s=400.0, stray_gpu_s=25.0,
    seed=3, moves=4, resizes=5, kills=6, rounds=7, wall_s=0.5,
)  # fmt: skip


def test_only_finished_jobs_count_but_the_others_are_told() -> None:
    got = summarise(MIXED)
    assert (got["policy"], got["seed"]) == ("fifo", 3)
    assert (got["jobs"], got["finished"], got["gave_up"]) == (6, 3, 1)
    # JCT 20, 40, 45; waits 0, 10, 5; alone 20, 30, 20.
    assert got["mean_jct_s"] == 35
    assert got["p50_jct_s"] == 40
    assert got["p90_jct_s"] == pytest.approx(44)
    assert got["p99_jct_s"] == pytest.approx(44.9)
    assert got["mean_wait_s"] == 5
    assert got["p99_wait_s"] == pytest.approx(9.9)
    assert got["mean_delay_s"] == pytest.approx((0 + 10 + 25) / 3)
    assert got["mean_slowdown"] == pytest.approx((1 + 4 / 3 + 2.25) / 3)
    assert got["p99_slowdown"] == pytest.approx(4 / 3 + 0.98 * (2.25 - 4 / 3))


def test_sums_are_about_the_whole_run() -> None:
    got = summarise(MIXED)
    assert got["makespan_s"] == 65  # from the first submission to the last end
    assert got["utilisation"] == 0.75
    assert got["fragmentation"] == 0.25
    assert got["lost_gpu_h"] == 2.0  # 450 s on 16 GPUs
    assert [got[k] for k in ("preemptions", "moves", "resizes", "kills", "rounds", "wall_s")] == [
        3, 4, 5, 6, 7, 0.5,
    ]  # fmt: skip


def test_a_giving_up_job_may_be_the_last_to_end() -> None:
    got = summarise(outcome(submit_s=[5, 0], done_s=[6.0, 90.0], gave_up=[False, True]))
    assert (got["makespan_s"], got["finished"]) == (90, 1)


def test_finish_time_fairness_by_hand() -> None:
    # On 4 GPUs: A (4 GPUs, 10 s) lives 0–10, B (4 GPUs, 10 s) lives 5–20, C (1 GPU, 5 s) 10–25.
    # Live: 1 in 0–5, 2 in 5–10, 2 in 10–20, 1 in 20–25.
    got = summarise(
        outcome(
            submit_s=[0, 5, 10], done_s=[10.0, 20, 25], duration_s=[10.0, 10, 5], num_gpus=[4, 4, 1]
        )
    )
    # n_A = 1.5, so T = 15 and rho = 2/3; n_B = 2, T = 20, rho = 3/4; n_C = 5/3 of a quarter of
    # the cluster is less than all it asks for, so T = 5 and rho = 3.
    assert got["mean_rho"] == pytest.approx((2 / 3 + 3 / 4 + 3) / 3)
    assert got["max_rho"] == pytest.approx(3)
    assert got["unfair_share"] == pytest.approx(1 / 3)
    x = [3 / 2, 4 / 3, 1 / 3]
    assert got["jain"] == pytest.approx(sum(x) ** 2 / (3 * sum(v * v for v in x)))


def test_rounding_does_not_make_a_lone_job_unfairly_treated() -> None:
    # 100.1 + 0.2 − 100.1 is a little more than 0.2 in floating point.
    got = summarise(outcome(submit_s=[100.1], duration_s=[0.2], done_s=[100.1 + 0.2]))
    assert got["max_rho"] > 1
    assert got["unfair_share"] == 0


def test_jobs_that_have_not_ended_crowd_the_others() -> None:
    # Job 1 lives on to the end of the run at 100, job 2 comes only after it.
    run = outcome(
        submit_s=[0, 0, 200],
        duration_s=[10.0, 1, 1],
        done_s=[20, np.nan, np.nan],
        num_gpus=[4, 1, 1],
    )
    assert Times.of(run).rho.tolist() == [1.0]  # 20 s against 10 s × 2 jobs × all GPUs


lives = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(0, 20), st.integers(1, 8),
              st.sampled_from(["ends", "gives up", "goes on"])),
    max_size=25,
)  # fmt: skip


def slow_rho(run: Outcome) -> list[float]:
    """rho of the finished jobs, counting the live ones second by second."""
    end_s = np.where(np.isnan(run.done_s), run.end_s, run.done_s)
    out = []
    for j in np.flatnonzero(~np.isnan(run.done_s) & ~run.gave_up):
        seconds = np.arange(run.submit_s[j], run.done_s[j])
        live = [int(((run.submit_s <= t) & (t < end_s)).sum()) for t in seconds]
        crowd = max(1.0, run.num_gpus[j] * float(np.mean(live)) / run.total_gpus)
        out.append((run.done_s[j] - run.submit_s[j]) / (run.duration_s[j] * crowd))
    return out


@given(lives)
def test_fairness_agrees_with_counting_second_by_second(
    jobs: list[tuple[int, int, int, int, str]],
) -> None:
    submit, duration, wait, gpus, fate = zip(*jobs, strict=True) if jobs else ([], [], [], [], [])
    submit_s, duration_s = np.array(submit, np.float64), np.array(duration, np.float64)
    done_s = submit_s + duration_s + np.array(wait, np.float64)
    done_s[[f == "goes on" for f in fate]] = np.nan
    run = outcome(
        submit_s=submit_s, duration_s=duration_s, done_s=done_s, num_gpus=np.array(gpus, np.int64),
        gave_up=np.array([f == "gives up" for f in fate], np.bool_), end_s=200.0,
    )  # fmt: skip
    np.testing.assert_allclose(Times.of(run).rho, slow_rho(run), rtol=1e-12)
    json.dumps(summarise(run), allow_nan=False)


def test_classes_of_size_hold_what_they_say() -> None:
    rows = summarise(MIXED)["by_size"]
    assert [row["size"] for row in rows] == ["1", "2-4", "5-8", "9-16", "17+"]
    assert [row["jobs"] for row in rows] == [1, 2, 1, 1, 1]
    assert [row["mean_jct_s"] for row in rows] == [20, 40, 45, None, None]
    assert [row["mean_wait_s"] for row in rows] == [0, 10, 5, None, None]
    assert [row["p99_jct_s"] for row in rows] == [20, 40, 45, None, None]
    assert rows[2]["mean_slowdown"] == 2.25


def test_users_come_by_the_work_they_asked_for() -> None:
    rows = summarise(MIXED)["by_user"]
    # ann 20 + 6400, nobody 1600, bob 120 + 160, cy 2 GPU-seconds.
    assert [row["user"] for row in rows] == ["ann", None, "bob", "cy"]
    assert rows[0]["gpu_h"] == pytest.approx(6420 / 3600)
    assert (rows[2]["jobs"], rows[2]["finished"], rows[2]["mean_jct_s"]) == (2, 2, 42.5)
    assert (rows[3]["jobs"], rows[3]["finished"], rows[3]["mean_jct_s"]) == (1, 0, None)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.001, 1e6)), min_size=1, max_size=60))
def test_percentiles_of_groups_agree_with_numpy(jobs: list[tuple[int, float]]) -> None:
    user, jct_s = (np.array(column) for column in zip(*jobs, strict=True))
    run = outcome(submit_s=np.zeros(len(user)), done_s=jct_s, user=user, users=tuple("abcdef"))
    rows = {row["user"]: row for row in summarise(run)["by_user"]}
    for code in np.unique(user):
        mine = jct_s[user == code]
        row = rows["abcdef"[code]]
        assert row["p99_jct_s"] == pytest.approx(np.percentile(mine, 99), rel=1e-12)
        assert row["mean_jct_s"] == pytest.approx(mine.mean(), rel=1e-12)


def test_nothing_to_measure_gives_none_everywhere() -> None:
    for run in (outcome(), outcome(submit_s=[1.0], started_s=[np.nan], done_s=[np.nan])):
        got = summarise(run)
        json.dumps(got, allow_nan=False)
        for name in ("mean_jct_s", "p99_jct_s", "mean_wait_s", "mean_slowdown", "makespan_s",
                     "utilisation", "fragmentation", "mean_rho", "jain"):  # fmt: skip
            assert got[name] is None, name
        assert (got["finished"], got["lost_gpu_h"]) == (0, 0.0)
        assert [row["mean_jct_s"] for row in got["by_size"]] == [None] * 5


def test_a_job_of_unknown_length_counts_where_its_length_does_not_matter() -> None:
    got = summarise(outcome(submit_s=[0, 0], done_s=[10.0, 20], duration_s=[np.nan, 10.0]))
    assert (got["mean_jct_s"], got["mean_slowdown"], got["mean_delay_s"]) == (15, 2, 10)


def test_a_cluster_without_free_gpus_has_no_fragmentation() -> None:
    got = summarise(replace(MIXED, held_gpu_s=400.0))
    assert (got["utilisation"], got["fragmentation"]) == (1.0, None)


# Over time.

ROUNDS = np.array(
    [(0.0, 0, 1, 2, 4, 2), (2.0, 3, 2, 4, 4, 0), (2.0, 1, 2, 4, 4, 0), (6.0, 0, 0, 0, 0, 0)], ROUND
)


def test_a_series_averages_over_time_not_over_rounds() -> None:
    got = series(outcome(series=ROUNDS, end_s=8.0), points=2)
    # Bin 0–4: half of it 2 of 4 GPUs, half 4 of 4. Bin 4–8: 2 s of 4 of 4, then no node is up.
    assert got["time_s"] == [0, 4]
    assert got["bin_s"] == 4
    assert got["utilisation"] == [0.75, 1.0]
    assert got["running"] == [1.5, 1.0]
    assert got["waiting"] == [0.5, 0.5]


def test_a_series_has_gaps_where_no_node_is_up() -> None:
    assert series(outcome(series=ROUNDS, end_s=8.0), points=4)["utilisation"] == [0.5, 1, 1, None]


def test_a_series_of_nothing_is_empty() -> None:
    for rounds in (ROUNDS[:0], ROUNDS[:1]):
        got = series(outcome(series=rounds, end_s=0.0))
        assert (got["time_s"], got["utilisation"]) == ([], [])


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_a_series_keeps_the_integral(rows: list[tuple[int, int]], points: int) -> None:
    rounds = np.zeros(len(rows), ROUND)
    rounds["time_s"], rounds["running"] = np.sort([t for t, _ in rows]), [n for _, n in rows]
    got = series(outcome(series=rounds, end_s=60.0), points)
    area = float(rounds["running"] @ np.diff(rounds["time_s"], append=60.0))
    assert sum(got["running"]) * got["bin_s"] == pytest.approx(area)


def test_a_small_distribution_is_given_whole() -> None:
    assert cdf([3.0, 1.0, np.nan, 2.0, 2.0]) == {"x": [1, 2, 2, 3], "p": [0.25, 0.5, 0.75, 1]}
    assert cdf([]) == {"x": [], "p": []}


def test_a_large_distribution_is_thinned_but_keeps_its_ends() -> None:
    got = cdf(np.arange(1.0, 1001.0), points=11)
    assert got["x"][0] == 1
    assert got["x"][-1] == 1000
    assert len(got["x"]) == 11
    assert got["p"] == [x / 1000 for x in got["x"]]


def test_a_mean_over_runs_is_of_those_that_have_the_metric() -> None:
    runs = [{"moves": 1, "fee": None}, {"moves": 2, "fee": 3.0}, {"moves": 6}]
    assert mean_over(runs, ("moves", "fee", "rho")) == {"moves": 3.0, "fee": 3.0, "rho": None}


def test_slowdown_is_not_below_one_because_late_times_are_coarse() -> None:
    # At 1.7e9 s times are 2.4e-7 s apart: the first two jobs end when they were submitted.
    got = Times.of(outcome(submit_s=[1.7e9, 1.7e9, 0, 0], duration_s=[1e-9, 1e-7, 10, 10],
                           done_s=[1.7e9, 1.7e9, 10, 5]))  # fmt: skip
    assert got.slowdown.tolist() == [1, 1, 1, 0.5]  # the last one ran on more GPUs
