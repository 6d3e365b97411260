"""Jobs that were released and that Slurm does not start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rota.backends.slurm.replies import SlurmJob
from rota.backends.slurm.slurm_holds import MOST_PAUSE_S, waits_for
from rota.backends.slurm.unstarted import (
    AGAIN_S,
    LONGEST_S,
    MOST_AGAIN_S,
    MOST_PART,
    SURE_S,
    Unstarted,
)

HELD = SlurmJob(job_id=7, priority=0, mark="rota:held nodelist=", reason="JobHeldUser")
NOW_S = 2_000_000_000.0


def released(reason: str) -> SlurmJob:
    return replace(HELD, priority=5.0, reason=reason)


def tried(seen: Unstarted, job: SlurmJob, at_s: float, for_s: float) -> str:
    """Why a job shall not be started, after it has been listed like this for so long."""
    for now_s in (at_s, at_s + for_s):
        seen.see([job], now_s)
    return seen.why(job, at_s + for_s)


def test_a_reason_that_lasts_is_believed_after_a_moment_and_said_once() -> None:
    said: list[str] = []
    seen = Unstarted(lambda job, text: said.append(f"{job.call}: {text}"))
    assert not tried(seen, released("PartitionTimeLimit"), NOW_S, SURE_S - 1)
    why = tried(seen, released("PartitionTimeLimit"), NOW_S, SURE_S)
    assert why == "Slurm did not start it (PartitionTimeLimit); it is tried again after a while"
    assert len(said) == 1


@pytest.mark.parametrize("reason", ["None", "Resources", "Priority", "BeginTime"])
def test_a_job_that_waits_as_usual_is_given_minutes(reason: str) -> None:
    seen = Unstarted(lambda _job, _text: None)
    assert not tried(seen, released(reason), NOW_S, LONGEST_S - 1)
    assert tried(seen, released(reason), NOW_S, LONGEST_S)
    seen.see([HELD], NOW_S + LONGEST_S + 1)
    later_s = NOW_S + LONGEST_S * (1 + MOST_PART)
    assert seen.why(HELD, later_s - 1)
    assert not seen.why(HELD, later_s)


def test_each_try_that_fails_puts_the_next_one_off_for_longer() -> None:
    seen, at_s, pauses = Unstarted(lambda _job, _text: None), NOW_S, []
    for _ in range(6):
        assert tried(seen, released("PartitionDown"), at_s, SURE_S)
        refused_s = at_s + SURE_S
        seen.see([HELD], refused_s)
        at_s = next(t for k in range(2000) if not seen.why(HELD, t := refused_s + k))
        pauses.append(at_s - refused_s)
        seen.see([HELD], at_s)
    assert pauses == [AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S, 8 * AGAIN_S, MOST_AGAIN_S, MOST_AGAIN_S]


@pytest.mark.parametrize("change", [{"time_limit_s": 60.0}, {"partition": "other"}])
def test_a_job_that_asks_for_something_else_is_tried_at_once(change: dict[str, object]) -> None:
    seen = Unstarted(lambda _job, _text: None)
    assert tried(seen, released("PartitionTimeLimit"), NOW_S, SURE_S)
    other = replace(HELD, **change)  # type: ignore[arg-type]
    seen.see([other], NOW_S + SURE_S)
    assert not seen.why(other, NOW_S + SURE_S)


def test_a_job_that_slurm_holds_as_impossible_is_not_released_again_and_again() -> None:
    seen, held = Unstarted(lambda _job, _text: None), replace(HELD, reason="BadConstraints")
    seen.see([held], NOW_S)
    assert not seen.why(held, NOW_S)  # nobody has tried it yet
    for pause_s in (AGAIN_S, 2 * AGAIN_S):
        seen.told(held)
        seen.see([held], NOW_S)
        seen.see([held], NOW_S + pause_s - 1)
        assert "(BadConstraints)" in seen.why(held, NOW_S + pause_s - 1)
        seen.see([held], NOW_S + pause_s)
        assert not seen.why(held, NOW_S + pause_s)


def test_what_one_task_has_met_puts_off_the_others_of_its_array_until_one_runs() -> None:
    seen = Unstarted(lambda _job, _text: None)
    tried = replace(released("PartitionDown"), array_id=7, array_task=0)
    rest, other = replace(HELD, array_id=7, array_tasks="1-9"), replace(HELD, job_id=8)
    for now_s in (NOW_S, NOW_S + SURE_S):
        seen.see([tried, rest, other], now_s)
    assert "(PartitionDown)" in seen.why(rest, NOW_S + SURE_S)
    assert not seen.why(other, NOW_S + SURE_S)
    runs = replace(tried, state="RUNNING", nodes=("n1",))
    seen.see([runs, rest, other], NOW_S + SURE_S + 1)
    assert not seen.why(rest, NOW_S + SURE_S + 1)


def test_what_others_start_or_what_runs_is_not_watched() -> None:
    seen = Unstarted(lambda _job, _text: None)
    assert not tried(seen, replace(released("PartitionDown"), mark="rota:let-go"), NOW_S, SURE_S)
    assert not tried(seen, replace(released(""), state="RUNNING"), NOW_S, LONGEST_S)
    assert not seen._tries


def test_jobs_of_one_user_that_ask_for_the_same_do_not_keep_nodes_empty_in_turn() -> None:
    seen = Unstarted(lambda _job, _text: None)
    first = replace(released("Resources"), user_id=5, time_limit_s=60.0)
    alike, longer = (replace(HELD, job_id=8, user_id=5, time_limit_s=t) for t in (60.0, 90.0))
    others = replace(HELD, job_id=9, user_id=6, time_limit_s=60.0)
    for now_s in (NOW_S, NOW_S + LONGEST_S):
        seen.see([first, alike, longer, others], now_s)
    late_s = NOW_S + LONGEST_S
    assert [bool(seen.why(one, late_s)) for one in (alike, longer, others)] == [True, False, False]
    assert not seen.why(alike, late_s + LONGEST_S * MOST_PART)
    runs = replace(first, priority=5.0, state="RUNNING", nodes=("n1",))
    seen.see([runs, alike], late_s + 1)
    assert not seen.why(alike, late_s + 1)


def test_a_reason_that_slurm_names_puts_off_that_job_alone() -> None:
    seen = Unstarted(lambda _job, _text: None)
    alike = replace(HELD, job_id=8)
    for now_s in (NOW_S, NOW_S + SURE_S):
        seen.see([released("QOSMaxJobsPerUserLimit"), alike], now_s)
    assert not seen.why(alike, NOW_S + SURE_S)


@pytest.mark.parametrize(("restarts", "pause_s"), [(2, 4), (4, 16), (9, 512), (40, MOST_PAUSE_S)])
def test_a_job_that_no_node_can_launch_is_tried_less_and_less_often(
    restarts: int, pause_s: float
) -> None:
    job = replace(HELD, said="launch failed requeued held", restarts=restarts, submit_s=NOW_S)
    assert "could not launch it" in waits_for(job, NOW_S + pause_s - 1)
    assert waits_for(job, NOW_S + pause_s) == ""
    assert waits_for(replace(job, restarts=1), NOW_S) == ""
