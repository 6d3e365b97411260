"""Backfilling where estimates are missing, infinite, used up or absurd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_sim import SlowJob, SlowSim
from worlds import assert_same, by_rounds, cluster_of, examples, trace_of, worlds

import rota.sim.setup
from rota.core import Cluster, Job, Snapshot
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import Conditions, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worlds import Jobs

    from rota.run.outcome import Outcome

BACKFILL = {
    "fifo-easy": {"passing": "easy"},
    "fifo-conservative": {"passing": "conservative"},
    "fifo-conservative:depth=2": {"passing": "conservative", "depth": 2},
}
BLIND = Conditions(hide_durations=True)


def played(
    gpus: Sequence[int], jobs: Any, name: str, known: Sequence[bool], **columns: Any
) -> Outcome:
    """Replay with the length of some jobs unknown; compiled and round by round alike."""
    plain = rota.sim.setup.job_records

    def some_unknown(*args: Any) -> Any:
        rows = plain(*args)
        unknown = ~np.array(known[: len(rows)], np.bool_)
        rows["estimate_s"][unknown] = rows["remaining_s"][unknown] = np.nan
        return rows

    cluster, trace, policy = cluster_of(gpus), trace_of(jobs, **columns), make_policy(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rota.sim.setup, "job_records", some_unknown)
        outcome = simulate(cluster, trace, policy)
        assert_same(outcome, by_rounds(cluster, trace, policy))
    return outcome


@pytest.mark.parametrize("name", BACKFILL)
@examples(80)
@given(worlds(), st.lists(st.booleans(), min_size=64, max_size=64))
def test_some_lengths_are_unknown(
    name: str, world: tuple[list[int], Jobs], known: list[bool]
) -> None:
    gpus, jobs = world
    known = (known * (1 + len(jobs) // len(known)))[: len(jobs)]
    fast = played(gpus, jobs, name, known)
    slow = SlowSim(
        gpus,
        [SlowJob(i, *map(float, job[:2]), job[2], known[i]) for i, job in enumerate(jobs)],
        **BACKFILL[name],  # type: ignore[arg-type]
    )
    np.testing.assert_allclose(fast.done_s, slow.run(), rtol=1e-9)


@pytest.mark.parametrize("name", BACKFILL)
@examples(40)
@given(worlds())
def test_without_estimates_backfilling_is_first_come_first_served(
    name: str, world: tuple[list[int], Jobs]
) -> None:
    gpus, jobs = world
    cluster, trace = cluster_of(gpus), trace_of(jobs)
    strict = simulate(cluster, trace, make_policy("fifo"), BLIND)
    assert_same(simulate(cluster, trace, make_policy(name), BLIND), strict)


@pytest.mark.parametrize("name", ["fifo-easy", "fifo-conservative"])
def test_nobody_of_unknown_length_passes_a_head_whose_start_is_unknown(name: str) -> None:
    # 4 GPUs. Job 0 (unknown, really 100 s) holds 2; job 1 wants all 4, so its start is not known.
    # Job 2 is of unknown length: it waits. Job 3 ends in 10 s, which is before never: it passes.
    jobs = [(0, 100, 2), (1, 10, 4), (2, 10, 1), (3, 10, 1)]
    outcome = played([4], jobs, name, [False, True, False, True])
    assert outcome.started_s.tolist() == [0, 100, 110, 3]


@pytest.mark.parametrize("name", ["fifo-easy", "fifo-conservative"])
def test_who_never_ends_may_pass_where_the_head_has_room_all_the_same(name: str) -> None:
    # Two nodes of 4. Job 0 holds node 0 until 100, which is known; job 1 wants a whole node and
    # job 2 has taken one GPU of node 1, to 300. Job 3 is unknown: beside job 2 it is in nobody's
    # way. Job 4, unknown too, fits nowhere before the head has gone.
    jobs = [(0, 100, 4), (0, 300, 1), (1, 10, 4), (2, 500, 3), (3, 500, 1)]
    outcome = played([4, 4], jobs, name, [True, True, True, False, False])
    assert outcome.started_s.tolist() == [0, 0, 100, 2, 110]


@pytest.mark.parametrize("name", ["fifo-easy", "fifo-conservative"])
@pytest.mark.parametrize("time_s", [0.0, -1e6, 1e17])
@pytest.mark.parametrize("left_s", [np.nan, np.inf, -5.0, 0.0, 1e308, 5e-324])
def test_no_estimate_makes_a_round_give_a_gpu_twice(
    name: str, time_s: float, left_s: float
) -> None:
    # Half of 8 GPUs are held; a gang of 8 waits, and behind it whoever would fill the rest twice.
    jobs = [Job(workers=4), Job(workers=8), *(Job(workers=2) for _ in range(6))]
    made = Snapshot.of(Cluster.uniform(2, 4), jobs, {0: [(0, 4)]}, time_s=time_s)
    for unknown in ([0], [2, 4], list(range(len(jobs)))):
        rows = made.jobs.rows.copy()
        rows["remaining_s"] = 50.0
        rows["remaining_s"][unknown] = left_s
        rows["settled_s"] = time_s
        snapshot = Snapshot(time_s, made.cluster, type(made.jobs)(rows), made.nodes, made.shares)
        decision = make_policy(name).decide(snapshot)
        decision.check(snapshot)
        assert decision.share(0) == ((0, 4, 0),)


@pytest.mark.parametrize("name", ["fifo-easy", "fifo-conservative"])
def test_a_job_that_stands_still_is_believed_never_to_end(name: str) -> None:
    jobs = [Job(workers=1, estimate_s=10.0), Job(workers=4), Job(workers=1)]
    made = Snapshot.of(Cluster.uniform(1, 4), jobs, {0: [(0, 1)]})
    rows = made.jobs.rows.copy()
    rows["pace"] = 0.0
    snapshot = Snapshot(0.0, made.cluster, type(made.jobs)(rows), made.nodes, made.shares)
    assert len(make_policy(name).decide(snapshot).diff(snapshot)) == 0


@pytest.mark.parametrize("name", BACKFILL)
def test_jobs_that_take_no_time_are_not_given_the_same_gpus(name: str) -> None:
    # 3 GPUs free beside job 0; the head wants 4. The others take less time than a number as large
    # as the clock's can tell: one after the other they pass the head, at the same moment.
    now_s = 1e9
    jobs = [(now_s, 50, 1), (now_s, 5, 4), *((now_s, 1e-9, 2) for _ in range(5))]
    outcome = played([4], jobs, name, [True] * 7)
    assert (outcome.done_s - now_s).tolist() == [50, 55, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["fifo-easy", "fifo-conservative", "sjf-skip", "srtf"])
def test_a_scenario_without_estimates_is_played_to_its_end(name: str) -> None:
    world = load("rigid-blind").draw(0)
    trace = world.trace.head(400)
    outcome = simulate(world.cluster, trace, make_policy(name), world.when, physics=world.physics)
    assert np.isfinite(outcome.done_s).all()
    series = simulate(
        world.cluster, trace, make_policy(name), world.when, physics=world.physics, series=True
    ).series
    assert (series["held_gpus"] <= series["up_gpus"]).all()
