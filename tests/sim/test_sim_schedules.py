"""Schedules worked out by hand, checked to the second, compiled and round by round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from worlds import Scripted, assert_same, by_rounds, cluster_of, done_s, trace_of

from rota.core import Draft
from rota.policies import make_policy
from rota.run.loop import rounds
from rota.sim import Conditions, Simulator, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worlds import Jobs

    from rota.core import Cluster, Decision, Snapshot
    from rota.run.outcome import Outcome
    from rota.traces import Trace

COSTS_5 = Conditions(restart_s=5)


def both(cluster: Cluster, trace: Trace, name: str, when: Conditions | None = None) -> Outcome:
    """The outcome, after compiled replay and Python rounds have been found equal."""
    policy = make_policy(name)
    fast = simulate(cluster, trace, policy, when)
    assert_same(fast, by_rounds(cluster, trace, policy, when))
    return fast


# -- gangs and nodes ---------------------------------------------------------------------


def test_a_gang_larger_than_a_node_takes_several() -> None:
    # The gang fills both nodes until 10; the single GPU starts then.
    assert done_s([2, 2], [(0, 10, 4), (0, 5, 1)], "fifo") == [10, 15]


def test_a_gang_takes_whole_nodes_and_the_rest_on_one_further() -> None:
    # 6 = node 0 whole + 2 on node 1; 4 = node 2; node 1 has 2 left, so the 3 wait until 10.
    jobs = [(0, 10, 6), (0, 10, 4), (0, 10, 3)]
    assert done_s([4, 4, 4], jobs, "fifo") == [10, 10, 20]


def test_a_gang_of_one_nodes_size_is_not_split() -> None:
    # 1 + 1 GPUs are free at 0, on two nodes: the pair waits until one node is free, at 10.
    jobs = [(0, 10, 1), (0, 20, 1), (0, 5, 2)]
    assert done_s([2, 2], jobs, "fifo+worst-fit") == [10, 20, 15]
    assert done_s([2, 2], jobs, "fifo+consolidate") == [10, 20, 5]  # 0 and 1 share node 0
    assert done_s([2, 2], jobs, "fifo+spread") == [10, 20, 5]  # one worker on each


def test_best_fit_keeps_the_large_node_free_and_first_fit_does_not() -> None:
    jobs = [(0, 10, 2), (0, 10, 4)]
    assert done_s([4, 2], jobs, "fifo+best-fit") == [10, 10]
    assert done_s([4, 2], jobs, "fifo+first-fit") == [10, 20]


# -- order without preemption ------------------------------------------------------------


def test_the_head_of_a_strict_queue_blocks() -> None:
    # 4 GPUs are free at 10 only; the single GPU waits behind the gang, from 20.
    assert done_s([4], [(0, 10, 2), (0, 10, 4), (0, 1, 1)], "fifo") == [10, 20, 21]


def test_skipping_passes_over_what_does_not_fit() -> None:
    assert done_s([4], [(0, 10, 2), (0, 10, 4), (0, 1, 1)], "fifo-skip") == [10, 20, 1]


def test_shortest_job_first() -> None:
    # At 10 the 3 s job goes before the 5 s job that came first.
    assert done_s([1], [(0, 10, 1), (1, 5, 1), (2, 3, 1)], "sjf") == [10, 18, 13]


def test_shortest_job_first_strict_and_skip_differ() -> None:
    # At 0 two GPUs remain. The shortest waiting is the gang of 4 (5 s): strict, it blocks.
    jobs = [(0, 4, 2), (0, 5, 4), (0, 6, 1)]
    assert done_s([4], jobs, "sjf") == [4, 9, 15]
    assert done_s([4], jobs, "sjf-skip") == [4, 11, 6]


def test_tetris_prefers_the_large_demand() -> None:
    # Scores: .1 log10(1 + 10) - 1/4 = -.146 and .1 log10(1 + 40) - 4/4 = -.839.
    assert done_s([4], [(0, 10, 1), (0, 10, 4)], "tetris") == [20, 10]


# -- backfilling -------------------------------------------------------------------------


def test_easy_starts_a_job_that_ends_before_the_head_could_start() -> None:
    # The gang of 4 can start at 10; the third job would run from 2 to 10: just in time.
    assert done_s([4], [(0, 10, 2), (1, 10, 4), (2, 8, 2)], "fifo-easy") == [10, 20, 10]


def test_easy_does_not_start_a_job_that_would_delay_the_head() -> None:
    # One second longer, and the head would start at 11: it waits for the head to end.
    assert done_s([4], [(0, 10, 2), (1, 10, 4), (2, 9, 2)], "fifo-easy") == [10, 20, 29]


def test_easy_starts_a_long_job_if_the_head_finds_another_place() -> None:
    # Node 0 is free at 10 for the head; the long job beside the second one does not matter.
    jobs = [(0, 10, 2), (0, 30, 1), (1, 10, 2), (2, 100, 1)]
    assert done_s([2, 2], jobs, "fifo-easy") == [10, 30, 20, 102]


def test_conservative_backfill_delays_nobody_where_easy_delays_the_second() -> None:
    # Reservations: B [10, 20) with 3 of 4 GPUs, C [20, 30) with 4. D (1 GPU, 25 s) leaves B
    # alone but runs into C: EASY starts it at 0 and C waits until 25; conservative does not.
    jobs = [(0, 10, 2), (0, 10, 3), (0, 10, 4), (0, 25, 1)]
    assert done_s([4], jobs, "fifo-easy") == [10, 20, 35, 25]
    assert done_s([4], jobs, "fifo-conservative") == [10, 20, 30, 55]


def test_backfill_believes_the_estimates() -> None:
    # The user says 100 s where 5 are true: it may not start before the head.
    trace = trace_of([(0, 10, 2), (1, 10, 4), (2, 5, 2)], estimate_s=[10, 10, 100])
    cluster, trusting = cluster_of([4]), Conditions(trust_trace=True)
    assert both(cluster, trace, "fifo-easy", trusting).done_s.tolist() == [10, 20, 25]
    assert both(cluster, trace, "fifo-easy").done_s.tolist() == [10, 20, 7]


# -- preemption --------------------------------------------------------------------------


def test_srtf_preempts_for_a_shorter_job() -> None:
    # At 2, 3 s beat the 8 s that are left; those are done from 5 to 13.
    assert done_s([1], [(0, 10, 1), (2, 3, 1)], "srtf") == [13, 5]


def test_srtf_and_srsf_differ_on_wide_jobs() -> None:
    # 6 s < 8 s, but 6 s × 4 GPUs > 8 s × 1 GPU.
    jobs = [(0, 6, 4), (0, 8, 1)]
    assert done_s([4], jobs, "srtf") == [6, 14]
    assert done_s([4], jobs, "srsf") == [14, 8]
    assert done_s([4], jobs, "srsf:b=0") == [6, 14]


def test_a_preempted_job_pays_for_its_restart_and_a_first_start_is_free() -> None:
    # Stopped at 2, started again at 5, no progress until 10, 8 s of work left.
    outcome = both(cluster_of([1]), trace_of([(0, 10, 1), (2, 3, 1)]), "srtf", COSTS_5)
    assert outcome.done_s.tolist() == [18, 5]
    assert outcome.preemptions.tolist() == [1, 0]
    assert outcome.held_gpu_s == 18  # the pause is held too


def test_a_jobs_own_restart_cost_wins_over_the_general_one() -> None:
    trace = trace_of([(0, 10, 1), (2, 3, 1)], restart_s=[1, np.nan])
    assert both(cluster_of([1]), trace, "srtf", COSTS_5).done_s.tolist() == [14, 5]


def test_sticky_jobs_keep_their_nodes_where_free_repacking_moves_them() -> None:
    # A and B share node 0. At 10 C (2 GPUs, shortest) comes. Packed anew it takes node 0, and
    # A and B go to node 1 and, at 30, back: 4 free moves. If moving costs, C takes node 1.
    trace = trace_of([(0, 100, 1), (0, 50, 1), (10, 20, 2)])
    free = both(cluster_of([2, 2]), trace, "srtf")
    sticky = both(cluster_of([2, 2]), trace, "srtf", COSTS_5)
    assert free.done_s.tolist() == sticky.done_s.tolist() == [100, 50, 30]
    assert (free.moves, sticky.moves) == (4, 0)


def test_defragmenting_moves_the_smallest_job_and_charges_it() -> None:
    # Worst-fit: B (90 s) on node 0, A on node 1. At 10 the pair C is selected but fits on no
    # node: B moves to node 1, does nothing until 15 and has 80 s left.
    trace = trace_of([(0, 100, 1), (0, 90, 1), (10, 20, 2)])
    outcome = both(cluster_of([2, 2]), trace, "srtf+worst-fit", COSTS_5)
    assert outcome.done_s.tolist() == [100, 95, 30]
    assert (outcome.moves, outcome.preemptions.sum()) == (1, 0)


def test_las_takes_turns_by_quantum() -> None:
    # A 0-10, B 10-20, then a tie at 10 each: A came first, 20-30; B 30-40.
    assert done_s([1], [(0, 20, 1), (0, 20, 1)], "las:quantum=10") == [30, 40]


def test_tiresias_demotes_at_the_threshold() -> None:
    # A has had 8 GPU-seconds at 8 and falls behind B: B 8-13, A 13-25.
    assert done_s([1], [(0, 20, 1), (1, 5, 1)], "tiresias:limits=8") == [25, 13]


def test_tiresias_demotes_a_job_that_started_while_the_other_already_waited() -> None:
    # The same with both there from the start: nothing else happens before 8.
    assert done_s([1], [(0, 20, 1), (0, 5, 1)], "tiresias:limits=8") == [25, 13]


def test_tiresias_counts_gpu_seconds() -> None:
    # Two GPUs reach 8 GPU-seconds after 4 s; B is done with 6 of them, from 4 to 7.
    assert done_s([2], [(0, 20, 2), (1, 3, 2)], "tiresias:limits=8") == [23, 7]


def test_tiresias_serves_a_queue_in_order_of_submission() -> None:
    # B has had its 8 GPU-seconds at 8 and falls into A's queue, behind A: A 8-24, B 24-25.
    assert done_s([2], [(0, 20, 2), (1, 5, 2)], "tiresias:limits=8") == [24, 25]


def test_a_minimum_run_time_delays_preemption() -> None:
    # A may not be touched before 8: B 8-11, A 11-23.
    assert done_s([1], [(0, 20, 1), (2, 3, 1)], "srtf", Conditions(min_run_s=8)) == [23, 11]


def test_a_minimum_run_time_ends_even_if_nothing_else_happens() -> None:
    # Both there from 0, least service first every 100 s: the lease would end at 100, but the
    # queue's threshold is reached at 5 and the minimum run time ends at 8.
    when = Conditions(min_run_s=8)
    assert done_s([1], [(0, 20, 1), (0, 3, 1)], "tiresias:limits=5", when) == [23, 11]


# -- elastic jobs ------------------------------------------------------------------------


@dataclass(frozen=True)
class Script:
    """Gives job 0 so many workers on node 0 from each moment on."""

    workers: Mapping[float, int]

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        now_s = snapshot.time_s
        past = [at_s for at_s in self.workers if at_s <= now_s]
        wanted = self.workers[max(past)]
        have = sum(workers for _, workers, _ in draft.held(0))
        if wanted == 0 < have:
            draft.stop(0)
        elif wanted > have:
            draft.grow(0, 0, wanted - have)
        elif wanted < have:
            draft.shrink(0, 0, have - wanted)
        return draft.commit(wake_s=min((t for t in self.workers if t > now_s), default=np.inf))


@pytest.mark.parametrize(
    ("workers", "restart_s", "end_s"),
    [
        # 100 s of work at 2 workers; 10 s are done at the change.
        ({0: 2, 10: 4}, 0, 55),  # 90 s at double speed
        ({0: 2, 10: 4}, 5, 60),
        ({0: 2, 10: 1}, 0, 190),  # 90 s at half speed
        ({0: 2, 10: 1}, 5, 195),
        ({0: 1, 10: 4, 20: 2}, 0, 95),  # 5 s + 20 s, then 75 s
        ({0: 1, 10: 4, 12: 2}, 5, 112),  # a change during a pause begins it anew: 17 + 95
    ],
)
def test_a_resized_job_runs_in_proportion_to_its_workers(
    workers: dict[float, int], restart_s: float, end_s: float
) -> None:
    trace = trace_of([(0, 100, 2)], min_workers=[1], max_workers=[4])
    when = Conditions(restart_s=restart_s)
    outcome = simulate(cluster_of([4]), trace, Script(workers), when)
    assert outcome.done_s.tolist() == [end_s]
    assert outcome.resizes == len(workers) - 1


@pytest.mark.parametrize(
    ("resize_s", "told_s", "end_s"),
    [
        (None, np.nan, 105),  # as a restart
        (1.0, np.nan, 97),
        (0.0, np.nan, 95),
        (1.0, 3.0, 101),  # its trace knows better
    ],
)
def test_a_resize_and_a_restart_cost_what_each_costs(
    resize_s: float | None, told_s: float, end_s: float
) -> None:
    # 100 s of work at 2 workers: 10 s are done at 10, then 4 workers until 30, none until 40,
    # then 2. After a resize of c seconds 10 + 2 (20 - c) s are done at 30; from 45, as the
    # restart costs 5, 50 + 2 c s are left.
    trace = trace_of([(0, 100, 2)], min_workers=[1], max_workers=[4], resize_s=[told_s])
    when = Conditions(restart_s=5, resize_s=resize_s)
    outcome = simulate(cluster_of([4]), trace, Script({0: 2, 10: 4, 30: 0, 40: 2}), when)
    assert outcome.done_s.tolist() == [end_s]
    assert (outcome.resizes, outcome.preemptions.tolist()) == (1, [1])


def test_a_job_of_one_size_moves_by_a_restart_unless_its_trace_says_otherwise() -> None:
    # Two single GPUs sit on two nodes (worst-fit); at 10 a gang of 2 makes one of them move.
    jobs = [(0, 100, 1), (0, 100, 1), (10, 5, 2)]
    when = Conditions(restart_s=5, resize_s=1)
    for told_s, ends in ((np.nan, [100, 105, 15]), (0.5, [100, 100.5, 15])):
        trace = trace_of(jobs, resize_s=[told_s] * 3)
        outcome = both(cluster_of([2, 2]), trace, "srtf+worst-fit", when)
        assert sorted(outcome.done_s.tolist()) == sorted(ends)
        assert (outcome.moves, outcome.preemptions.sum()) == (1, 0)


def test_elastic_jobs_start_smaller_and_grow_into_what_is_left() -> None:
    # 4 GPUs: A takes its 3 and B, which would like 2, starts with the 1 that is left. A ends at
    # 10; B has done 5 s of its 20 and gets 2, its most: 15 s more.
    trace = trace_of([(0, 10, 3), (0, 20, 2)], min_workers=[3, 1], max_workers=[3, 2])
    outcome = simulate(cluster_of([4]), trace, make_policy("fifo+elastic"))
    assert outcome.done_s.tolist() == [10, 25]


# -- failures ----------------------------------------------------------------------------


def failing(every_s: float = 30, restart_s: float = 5, **faults: Any) -> Conditions:
    return Conditions(restart_s=restart_s, checkpoint_s=every_s, faults=Scripted(**faults))


def test_a_node_failure_rolls_back_to_the_checkpoint_and_costs_a_restart() -> None:
    # 70 s done when node 0 fails, 60 kept; on node 1 from 70, progress from 75, 40 s left.
    when = failing(nodes=((70, 0, False), (500, 0, True)))
    outcome = both(cluster_of([1, 1]), trace_of([(0, 100, 1)]), "fifo", when)
    assert outcome.done_s.tolist() == [115]
    assert (outcome.lost_s.tolist(), outcome.kills, outcome.preemptions.tolist()) == ([10], 1, [0])
    assert outcome.up_gpu_s == 70 * 2 + 45 * 1


def test_a_job_waits_for_the_repair_of_the_only_node() -> None:
    when = failing(nodes=((70, 0, False), (90, 0, True)))
    outcome = both(cluster_of([1]), trace_of([(0, 100, 1)]), "fifo", when)
    assert outcome.done_s.tolist() == [90 + 5 + 40]


def test_a_failing_node_takes_down_the_whole_gang() -> None:
    # Both nodes' GPUs are given back: the single GPU on node 0 runs while node 1 is down.
    when = failing(nodes=((10, 1, False), (60, 1, True)), restart_s=0)
    outcome = both(cluster_of([1, 1]), trace_of([(0, 30, 2), (5, 20, 1)]), "fifo-skip", when)
    assert outcome.done_s.tolist() == [90, 30]


def test_a_job_that_ends_at_the_moment_of_a_failure_has_ended() -> None:
    when = failing(nodes=((100, 0, False), (200, 0, True)))
    outcome = both(cluster_of([1]), trace_of([(0, 100, 1)]), "fifo", when)
    assert (outcome.done_s.tolist(), outcome.kills) == ([100], 0)


def test_a_job_that_fails_by_itself_is_tried_again() -> None:
    # Fails at 40, keeps 30, goes on at 45 with 70 s to do; the next failure would be later.
    when = failing(jobs=((40, 200),))
    outcome = both(cluster_of([1]), trace_of([(0, 100, 1)]), "fifo", when)
    assert (outcome.done_s.tolist(), outcome.gave_up.tolist()) == ([115], [False])
    assert outcome.lost_s.tolist() == [10]


def test_a_job_gives_up_after_its_last_retry() -> None:
    # Again after 40 s of run time, at 85, with 70 s done of which 60 would be kept.
    when = failing(jobs=((40, 40),))
    outcome = both(cluster_of([1]), trace_of([(0, 100, 1)]), "fifo", when)
    assert (outcome.done_s.tolist(), outcome.gave_up.tolist()) == ([85], [True])
    assert outcome.lost_s.tolist() == [20]


def test_without_checkpoints_all_is_lost() -> None:
    when = failing(every_s=np.inf, restart_s=0, jobs=((40, 200),))
    assert both(cluster_of([1]), trace_of([(0, 100, 1)]), "fifo", when).done_s.tolist() == [140]


# -- cadence and ties --------------------------------------------------------------------


def test_with_slots_decisions_wait_but_endings_do_not() -> None:
    # A comes at 3, starts at 10, ends at 14; B comes at 12 and starts at 20.
    assert done_s([1], [(3, 4, 1), (12, 5, 1)], "fifo", Conditions(slot_s=10)) == [14, 25]


def test_an_arrival_on_the_slot_is_decided_there() -> None:
    assert done_s([1], [(10, 4, 1), (20, 5, 1)], "fifo", Conditions(slot_s=10)) == [14, 25]


@pytest.mark.parametrize("name", ["fifo", "srtf", "las"])
def test_completions_come_before_arrivals(name: str) -> None:
    outcome = both(cluster_of([1]), trace_of([(0, 10, 1), (10, 5, 1)]), name)
    assert outcome.done_s.tolist() == [10, 15]
    assert (outcome.preemptions.sum(), outcome.rounds) == (0, 2)


@pytest.mark.parametrize("name", ["fifo", "sjf", "srtf", "srsf", "tiresias", "las", "fifo-easy"])
def test_equals_are_served_in_file_order(name: str) -> None:
    jobs: Jobs = [(0, 5, 1), (0, 5, 1), (0, 5, 1)]
    assert done_s([1], jobs, name) == [5, 10, 15]


# -- other resources ---------------------------------------------------------------------


def test_a_job_waits_for_its_gpu_type() -> None:
    # Node 1 alone is of type b.
    cluster = cluster_of([2, 2], gpu_types=("a", "b"), type=np.array([0, 1]))
    trace = trace_of([(0, 10, 2), (0, 5, 2), (0, 3, 2)], gpu_type=["b", "b", ""])
    assert both(cluster, trace, "fifo-skip").done_s.tolist() == [10, 15, 3]


@pytest.mark.parametrize("what", ["cpus", "memory_gb"])
def test_a_node_runs_out_of_cpus_or_memory_before_gpus(what: str) -> None:
    # 8 in all: 6 and 2 run together, 4 must wait.
    cluster = cluster_of([4], **{what: np.array([8.0])})
    trace = trace_of([(0, 10, 1)] * 3, **{f"{what}_per_worker": [6, 4, 2]})
    assert both(cluster, trace, "fifo-skip").done_s.tolist() == [10, 20, 10]
    assert both(cluster, trace, "fifo").done_s.tolist() == [10, 20, 20]


def test_parameter_servers_sit_beside_the_workers() -> None:
    # 3 servers over 2 nodes: 2 and 1.
    simulator = Simulator(cluster_of([2, 2]), trace_of([(0, 10, 4)], num_servers=[3]))
    first = next(iter(rounds(make_policy("fifo"), simulator)))
    assert first.plan.decision.share(0) == ((0, 2, 2), (1, 2, 1))


def test_parameter_servers_use_cpus() -> None:
    # 2 workers and 2 servers with a CPU each fill node 0; the next job fits beside it only at 10.
    cluster = cluster_of([4], cpus=np.array([4.0]))
    trace = trace_of(
        [(0, 10, 2), (0, 5, 1)], cpus_per_worker=[1, 1], num_servers=[2, 0], cpus_per_server=[1, 0]
    )
    assert both(cluster, trace, "fifo").done_s.tolist() == [10, 15]


# -- users -------------------------------------------------------------------------------


def test_drf_gives_the_textbook_shares() -> None:
    # Ghodsi et al.: 9 CPUs, 18 GB; tasks of A want 1 CPU and 4 GB, of B 3 CPUs and 1 GB. A gets
    # three, B two. When these are done at 10, two of A and two of B follow; 1 CPU is left over.
    cluster = cluster_of([18], cpus=np.array([9.0]), memory_gb=np.array([18.0]))
    users = ["A"] * 5 + ["B"] * 5
    trace = trace_of(
        [(0, 10, 1)] * 10,
        user=users,
        cpus_per_worker=[1] * 5 + [3] * 5,
        memory_gb_per_worker=[4] * 5 + [1] * 5,
    )
    done = both(cluster, trace, "drf").done_s.tolist()
    assert done == [10, 10, 10, 20, 20, 10, 10, 20, 20, 30]


def test_max_min_gives_each_user_a_turn() -> None:
    trace = trace_of([(0, 10, 1)] * 4, user=["A", "A", "A", "B"])
    assert both(cluster_of([2]), trace, "max-min").done_s.tolist() == [10, 20, 20, 10]


def test_themis_serves_who_is_worst_off() -> None:
    # At 30 the lease ends. A (100 s): shared 30 + 70 = 100, alone 100 × max(1, 1·2/1) = 200: .5.
    # B (20 s): 30 + 20 over 40: 1.25, so B runs 30-50, then A.
    assert done_s([1], [(0, 100, 1), (0, 20, 1)], "themis:quantum=30") == [120, 50]


@pytest.mark.parametrize("name", ["fifo", "fifo-skip+spread", "srtf", "fifo-easy"])
def test_workers_without_gpus_wait_for_cpus(name: str) -> None:
    """One node of 4 CPUs and 1 GPU: three workers of 2 CPUs do not fit at once, GPUs or not."""
    cluster = cluster_of([1], cpus=np.array([4.0]))
    trace = trace_of(
        [(0, 10, 1), (0, 10, 1), (0, 10, 1)],
        gpus_per_worker=[1, 0, 0],
        cpus_per_worker=[2, 2, 2],
    )
    assert simulate(cluster, trace, make_policy(name)).done_s.tolist() == [10, 10, 20]
