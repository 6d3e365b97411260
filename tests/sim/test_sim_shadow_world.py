"""Jobs that were watched, played again under other policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from shadow_journal import ALL, TURNS, write_shadow_journal

from rota.core import Cluster
from rota.core.layout import ARRIVE, GIVE_UP, KILL, START
from rota.errors import InputError, TraceError
from rota.policies import make_policy
from rota.run.reader import read_journal
from rota.sim import Conditions, simulate
from rota.sim.past import past_jobs
from rota.sim.shadow_world import ShadowWorld
from rota.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., ShadowWorld]:
    def made(turns: Any = TURNS, foreign: Any = (), **columns: Any) -> ShadowWorld:
        path = tmp_path / "run.db"
        path.unlink(missing_ok=True)
        write_shadow_journal(path, turns, **columns)
        with read_journal(path) as view:
            return ShadowWorld.of(view, foreign)

    return made


def waited(world: ShadowWorld, policy: str) -> list[float]:
    run = simulate(world.cluster, world.trace, make_policy(policy), world.when)
    return [float(wait_s) for wait_s in world.waited_s(run)]


def test_the_two_jobs_are_swapped_as_by_hand(world: Callable[..., ShadowWorld]) -> None:
    seen = world()
    assert seen.trace.duration_s.tolist() == [100, 10]
    assert seen.wait_s.tolist() == [0, 100]
    assert (seen.compared.tolist(), seen.aside) == ([True, True], {})
    assert waited(seen, "fifo") == pytest.approx([0, 100])
    assert waited(seen, "srtf") == pytest.approx([10, 0])


def test_policies_see_estimates_and_not_lengths(world: Callable[..., ShadowWorld]) -> None:
    # By its time limit job 2 is the longer one.
    assert waited(world(estimate_s=[100, 500]), "srtf") == pytest.approx([0, 100])


def test_only_a_job_that_can_be_stopped_is_preempted_and_that_costs(
    world: Callable[..., ShadowWorld],
) -> None:
    late = [(20, 1, ARRIVE, ())]
    turns = [(10, {"by": "srtf"}, [(10, 0, ARRIVE, ()), (10, 0, START, ALL)]),
             (20, {"by": "srtf"}, late), *TURNS[2:]]  # fmt: skip
    assert waited(world(turns, submit_s=(10, 20)), "srtf") == pytest.approx([0, 90])
    # Stopped from 20 to 30, and 5 s for the restart.
    stopped = world(turns, submit_s=(10, 20), stoppable=[1, 1])
    assert waited(stopped, "srtf") == pytest.approx([15, 0])


def test_a_job_that_ran_before_is_there_first_and_not_compared(
    world: Callable[..., ShadowWorld],
) -> None:
    turns = [(1, {"by": "srtf"}, [(0, 0, ARRIVE, ()), (0, 1, ARRIVE, ()), (0, 0, START, ALL)]),
             *TURNS[2:]]  # fmt: skip
    seen = world(turns, submit_s=(0, 0))
    assert seen.compared.tolist() == [False, True]
    assert seen.aside == {"running already when watching began": 1}
    # Job 2 is shorter, but job 1 was there and runs for its 110 s.
    assert waited(seen, "srtf")[1] == pytest.approx(110, abs=0.01)


def test_a_job_of_others_comes_when_it_takes_its_room(world: Callable[..., ShadowWorld]) -> None:
    seen = world(foreign={"2"})
    assert seen.trace.submit_s.tolist() == [10, 110]
    assert seen.compared.tolist() == [True, False]
    assert seen.aside == {"not rota's to start": 1}


def test_what_is_not_over_is_there_but_not_compared(world: Callable[..., ShadowWorld]) -> None:
    seen = world(TURNS[:-1])
    # The last event is that job 2 starts; the last round is at 115 s.
    assert seen.trace.duration_s.tolist() == [100, 5]
    assert seen.aside == {"not over yet": 1}
    assert world(TURNS[:3]).aside == {"still waiting": 1}


def test_what_was_taken_away_before_it_ran_is_counted(world: Callable[..., ShadowWorld]) -> None:
    gone = [(111, 1, KILL, ()), (111, 1, GIVE_UP, ())]
    seen = world([*TURNS[:3], (111, {"by": "srtf"}, gone)])
    assert (len(seen.trace), seen.aside) == (1, {"taken away before it ran": 1})


def test_without_any_run_there_is_nothing_to_say(world: Callable[..., ShadowWorld]) -> None:
    with pytest.raises(InputError, match="report later"):
        world(TURNS[:1])


def test_the_journal_serves_as_a_trace(tmp_path: Path) -> None:
    write_shadow_journal(tmp_path / "run.db")
    trace = past_jobs(tmp_path / "run.db")
    assert (trace.stoppable.tolist(), trace.restart_s.tolist()) == ([0, 0], [5, 5])


@pytest.mark.parametrize(("stoppable", "done_s"), [(1, [110, 15]), (0, [100, 110])])
@pytest.mark.parametrize("policy", ["srtf", "srtf+consolidate"])
def test_a_trace_says_which_jobs_may_be_stopped(
    stoppable: int, done_s: list[float], policy: str
) -> None:
    trace = Trace.build("two", submit_s=[0, 5], duration_s=[100, 10], num_gpus=[4, 4],
                        stoppable=[stoppable] * 2)  # fmt: skip
    run = simulate(Cluster.uniform(1, 4), trace, make_policy(policy), Conditions())
    np.testing.assert_allclose(run.done_s, done_s)


def test_whether_a_job_may_be_stopped_is_yes_or_no() -> None:
    with pytest.raises(TraceError, match="2 is neither 0 nor 1"):
        Trace.build("one", submit_s=[0], duration_s=[1], num_gpus=[1], stoppable=[2])
