"""The compiled simulator against its slow twin, on small random worlds full of ties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_sim import SlowJob, SlowSim
from worlds import Scripted, cluster_of, examples, outages, trace_of, worlds

from rota.policies import make_policy
from rota.sim import Conditions, simulate

if TYPE_CHECKING:
    from worlds import Jobs

PLACES = ("first-fit", "best-fit", "worst-fit")
places = st.sampled_from(PLACES)


def agree(
    gpus: list[int],
    jobs: Jobs,
    name: str,
    when: Conditions,
    move_s: float | None = None,
    **rules: Any,
) -> None:
    told = {} if move_s is None else {"resize_s": [move_s] * len(jobs)}
    fast = simulate(cluster_of(gpus), trace_of(jobs, **told), make_policy(name), when)
    slow = SlowSim(
        gpus,
        [SlowJob(i, *map(float, job[:2]), job[2]) for i, job in enumerate(jobs)],
        restart_s=when.restart_s,
        resize_s=move_s,
        min_run_s=when.min_run_s,
        slot_s=when.slot_s,
        checkpoint_s=when.checkpoint_s,
        **rules,
    )
    np.testing.assert_allclose(fast.done_s, slow.run(), rtol=1e-9)
    assert fast.preemptions.tolist() == [job.preemptions for job in slow.jobs]
    np.testing.assert_allclose(fast.lost_s, [job.lost_s for job in slow.jobs], rtol=1e-9)


NON_PREEMPTIVE = {
    "fifo": {"passing": "strict"},
    "fifo-skip": {},
    "sjf": {"order": "sjf", "passing": "strict"},
    "sjf-skip": {"order": "sjf"},
}
BACKFILL = {
    "fifo-easy": {"passing": "easy"},
    "fifo-conservative": {"passing": "conservative"},
    "fifo-conservative:depth=2": {"passing": "conservative", "depth": 2},
}
PREEMPTIVE = {
    "srtf": {"order": "srtf"},
    "srsf": {"order": "srsf"},
    "las:quantum=16": {"order": "las", "quantum_s": 16.0},
    "tiresias:limits=32/320": {"order": "tiresias", "limits": (32.0, 320.0)},
}


@pytest.mark.parametrize("name", NON_PREEMPTIVE)
@examples(60)
@given(worlds(), places, st.sampled_from([0.0, 0.0, 25.0]))
def test_without_preemption(
    name: str, world: tuple[list[int], Jobs], place: str, slot_s: float
) -> None:
    when = Conditions(slot_s=slot_s)
    agree(*world, f"{name}+{place}", when, place=place, **NON_PREEMPTIVE[name])


@pytest.mark.parametrize("name", BACKFILL)
@examples(80)
@given(worlds(), places)
def test_backfill(name: str, world: tuple[list[int], Jobs], place: str) -> None:
    agree(*world, f"{name}+{place}", Conditions(), place=place, **BACKFILL[name])


@pytest.mark.parametrize("name", BACKFILL)
@examples(15)
@given(worlds(most_jobs=60), places)
def test_backfill_of_a_long_queue(name: str, world: tuple[list[int], Jobs], place: str) -> None:
    agree(*world, f"{name}+{place}", Conditions(), place=place, **BACKFILL[name])


@pytest.mark.parametrize("name", PREEMPTIVE)
@examples(60)
@given(
    worlds(sizes=(1, 2, 4, 8, 16)),
    places,
    st.sampled_from([0.0, 0.0, 25.0]),
    st.sampled_from([0.0, 0.0, 15.0]),
)
def test_preemption_with_free_repacking(
    name: str, world: tuple[list[int], Jobs], place: str, slot_s: float, min_run_s: float
) -> None:
    when = Conditions(slot_s=slot_s, min_run_s=min_run_s)
    agree(*world, f"{name}+{place}", when, place=place, preempt=True, **PREEMPTIVE[name])


@pytest.mark.parametrize("name", PREEMPTIVE)
@examples(80)
@given(
    worlds(sizes=(1, 2, 4, 8, 16)),
    places,
    st.sampled_from([1.0, 7.0, 60.0]),
    st.sampled_from([0.0, 0.0, 15.0]),
)
def test_sticky_and_defragmenting_where_restarts_cost(
    name: str, world: tuple[list[int], Jobs], place: str, restart_s: float, min_run_s: float
) -> None:
    when = Conditions(restart_s=restart_s, min_run_s=min_run_s)
    agree(*world, f"{name}+{place}", when, place=place, preempt=True, **PREEMPTIVE[name])


@pytest.mark.parametrize("name", PREEMPTIVE)
@examples(60)
@given(
    worlds(sizes=(1, 2, 4, 8, 16)),
    places,
    st.sampled_from([0.0, 7.0, 60.0]),
    st.sampled_from([0.0, 1.0, 30.0]),
    st.sampled_from([0.0, 0.0, 15.0]),
)
def test_where_a_move_costs_other_than_a_restart(
    name: str,
    world: tuple[list[int], Jobs],
    place: str,
    restart_s: float,
    move_s: float,
    min_run_s: float,
) -> None:
    when = Conditions(restart_s=restart_s, min_run_s=min_run_s)
    rules = {**PREEMPTIVE[name], "place": place, "preempt": True}
    agree(*world, f"{name}+{place}", when, move_s, **rules)


@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "fifo-easy", "srtf", "las:quantum=16"])
@examples(60)
@given(st.data(), st.sampled_from([0.0, 7.0]), st.sampled_from([1.0, 10.0, 1800.0]))
def test_node_failures(name: str, data: st.DataObject, restart_s: float, every_s: float) -> None:
    gpus, jobs = data.draw(worlds(sizes=(1, 2, 4, 8, 16)))
    down = data.draw(outages(len(gpus)))
    when = Conditions(restart_s=restart_s, checkpoint_s=every_s, faults=Scripted(nodes=down))
    rules: dict[str, Any] = {**NON_PREEMPTIVE, **BACKFILL, **PREEMPTIVE}[name]
    agree(gpus, jobs, name, when, preempt=name in PREEMPTIVE, faults=list(down), **rules)
