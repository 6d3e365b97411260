"""Worlds that once broke something, cut down to what matters; nothing in them fails any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rota.errors import ConfigError
from rota.policies import make_policy
from rota.sim import Faults, Simulator
from rota.testing import WorldSpec, examine
from rota.testing.world_runs import play


def _job(submit_s: float, duration_s: float, num_gpus: int, **more: Any) -> dict[str, Any]:
    return {"submit_s": submit_s, "duration_s": duration_s, "num_gpus": num_gpus, **more}


def _assert_sound(policy: str, jobs: list[dict[str, Any]], **world: Any) -> None:
    world.setdefault("cluster", {"gpus": [2]})
    found = examine(WorldSpec(jobs=jobs, **world), policy)
    assert [(finding.kind, finding.message) for finding in found] == []


@pytest.mark.parametrize("policy", ["fifo", "max-min", "srsf"])
def test_a_slot_never_ends_before_what_happened_in_it(policy: str) -> None:
    # 0.9 / 0.3 is 3 in floating point, but 3 · 0.3 is less than 0.9: the clock went back.
    jobs = [_job(0.9, 1.0, 2), _job(0.9, 1.0, 1), _job(1.8, 0.9, 1)]
    _assert_sound(policy, jobs, when={"slot_s": 0.3})
    _assert_sound(policy, jobs, when={"slot_s": 0.3, "whole_slots": True})


def test_slots_finer_than_time_itself_come_to_an_end() -> None:
    # At 8e11 s two moments lie 1.2e-4 s apart; ten slots later was still the same moment.
    _assert_sound("fifo", [_job(8e11, 1e-3, 1), _job(8e11, 1e-3, 2)], when={"slot_s": 1e-5})


def test_steps_of_drift_finer_than_time_itself_come_to_an_end() -> None:
    physics = {"drift": {"sd": 0.1, "step_s": 1e-5}}
    _assert_sound("fifo", [_job(8e11, 1e-3, 1), _job(8e11, 1e-3, 2)], physics=physics)


def test_a_queue_that_a_job_leaves_within_the_same_moment_ends() -> None:
    # The limit is reached after 1e-6 s, which at 8e11 s is no time: the policy asked to be woken
    # now, and now, and now.
    jobs = [_job(8e11, 10.0, 1), _job(8e11, 10.0, 2), _job(8e11, 10.0, 1)]
    _assert_sound("tiresias:limits=0.00001/1", jobs)


@pytest.mark.parametrize("placement", ["spread", "topology", "consolidate", "worst-fit", "fgd"])
@pytest.mark.parametrize("ordering", ["drf", "tetris", "srtf"])
def test_servers_fit_wherever_first_fit_finds_room_for_them(ordering: str, placement: str) -> None:
    # Only the first node has CPUs for a server. Spread put a worker on each node, and a server
    # beside each: no room, for ever.
    cluster = {"gpus": [2, 2], "cpus": [8, 0]}
    jobs = [_job(0.0, 10.0, 2, num_servers=2, cpus_per_server=4.0)]
    _assert_sound(f"{ordering}+{placement}", jobs, cluster=cluster)


@pytest.mark.parametrize("policy", ["drf-bundles", "srtf-bundles", "equal-units"])
def test_a_job_without_a_curve_is_bundled_with_the_servers_it_asks_for(policy: str) -> None:
    jobs = [_job(0.0, 10.0, 2, num_servers=1, min_servers=0, max_servers=4)]
    _assert_sound(policy, jobs)


def test_the_published_optimus_starts_nobody_with_too_few_servers() -> None:
    cluster = {"gpus": [2], "cpus": [4]}
    jobs = [_job(0.0, 5.0, 1, num_servers=3, cpus_per_server=1.0) for _ in range(2)]
    _assert_sound("dl2-optimus", jobs, cluster=cluster)


@pytest.mark.parametrize(
    "policy", ["fifo", "max-min", "drf", "tetris", "themis", "las", "gavel-max-min", "optimus"]
)
def test_a_cluster_without_gpus_runs_what_needs_cpus_only(policy: str) -> None:
    cluster = {"gpus": [0, 0], "cpus": [4, 2]}
    jobs = [_job(k, 10.0, 2, gpus_per_worker=0, cpus_per_worker=1.0) for k in range(4)]
    _assert_sound(policy, jobs, cluster=cluster)


@pytest.mark.parametrize("policy", ["gavel-max-min:lease=10", "gavel-min-jct:lease=10"])
def test_leases_shorter_than_a_restart_let_jobs_get_on(policy: str) -> None:
    # Every lease ended before its job had started again, and the next one had its turn.
    jobs = [_job(0.0, 100.0, 2, user=f"u{k}") for k in range(3)]
    _assert_sound(policy, jobs, when={"restart_s": 25.0})


@pytest.mark.parametrize("policy", ["fifo-skip", "sjf-skip"])
def test_workers_without_gpus_of_another_number_are_another_shape_to_the_queue(policy: str) -> None:
    # Eight workers do not fit beside one; the two behind them do, and wait for nobody.
    cluster = {"gpus": [0, 0, 0, 0], "cpus": [8, 8, 8, 8]}
    one = {"gpus_per_worker": 0, "cpus_per_worker": 4.0}
    jobs = [_job(0.0, 50.0, 1, **one), _job(1.0, 1.0, 8, **one), _job(2.0, 50.0, 2, **one)]
    _assert_sound(policy, jobs, cluster=cluster)


@pytest.mark.parametrize("policy", ["equal-units", "optimus", "hull-greedy", "srtf-bundles"])
def test_a_job_over_two_gpu_types_keeps_both_within_its_minimum_run_time(policy: str) -> None:
    cluster = {"gpus": [2, 2], "gpu_types": ["old", "new"], "type": [0, 1]}
    curves = {"by_nodes": True, "bend": [0.9], "loss": 0.3}
    jobs = [_job(0.0, 70.0, 3, model="wide"), _job(49.0, 1.0, 1, model="wide")]
    physics = {"curves": curves}
    _assert_sound(policy, jobs, cluster=cluster, when={"min_run_s": 120.0}, physics=physics)


def test_who_came_first_to_a_machine_does_not_change_a_bit() -> None:
    # Everybody's pace is a product over the others there; in another order it rounds otherwise.
    costs = [0.0, 0.0, 0.0, 1e6, 1e6, 1e6]
    sizes = [(1e8, 8), (1e7, 8), (1.0, 2), (1e8, 2), (1.0, 2), (1e7, 2)]
    jobs = [
        _job(-5e7, duration_s, gpus, restart_s=cost)
        for (duration_s, gpus), cost in zip(sizes, costs, strict=True)
    ]
    physics = {"contention": {"law": "machines", "weight": [0.5, 0.2, 1.0]}}
    world = {"seed": 369000, "cluster": {"gpus": [3, 3, 64]}, "physics": physics}
    _assert_sound("srtf:error=3+first-fit", jobs, **world)


def test_jobs_as_good_as_nothing_have_numbers_for_metrics() -> None:
    jobs = [_job(0.0, 10.0, 2), _job(0.0, 1e-280, 2)]
    _assert_sound("fifo", jobs)
    _assert_sound("fifo", jobs[1:] * 2)


def test_failures_that_nobody_could_draw_are_refused() -> None:
    world = WorldSpec(cluster={"gpus": [2]}, jobs=[_job(0.0, 8e11, 1)]).build()
    when = replace(world.when, faults=Faults(node_mtbf_s=1.0, node_repair_s=1.0))
    with pytest.raises(ConfigError, match="node_mtbf_s=1 means about"):
        Simulator(world.cluster, world.trace, when)


@pytest.mark.parametrize("name", ["optimus", "dl2-tetris", "hull-greedy", "drf-bundles"])
def test_a_job_that_may_have_all_workers_of_the_world_costs_no_memory(name: str) -> None:
    jobs = [_job(0.0, 10.0, 1, min_workers=1, max_workers=2**31 - 1) for _ in range(2)]
    _assert_sound(name, jobs, cluster={"gpus": [4, 4]})
    observed = {"curves": {"by_nodes": False, "bend": [0.9], "loss": 0.3}, "sight": "observed"}
    jobs = [{**job, "model": "wide", "num_servers": 1, "max_servers": 10**9} for job in jobs]
    _assert_sound(name, jobs, cluster={"gpus": [4, 4]}, physics=observed)


def test_a_job_with_more_nodes_than_workers_can_be_observed() -> None:
    # One worker on a node and its server on another are two nodes, though one worker.
    jobs = [_job(0.0, 10.0, 1, num_servers=1), _job(0.0, 1.0, 1)]
    observed = {"curves": {"by_nodes": True, "bend": [0.45], "loss": 0.3}, "sight": "observed"}
    _assert_sound("dl2-optimus", jobs, cluster={"gpus": [2, 2]}, physics=observed)


def test_what_a_cluster_does_not_count_changes_nobodys_pace() -> None:
    # Infinitely many CPUs by one each were not a number, and the gang's pace was that on one node.
    curves = {"by_nodes": True, "bend": [0.9], "loss": 0.3}
    ends = []
    for cpus in (0.0, 1.0):
        job = _job(0.0, 100.0, 4, model="wide", cpus_per_worker=cpus)
        world = WorldSpec(cluster={"gpus": [2, 2]}, jobs=[job], physics={"curves": curves})
        ends.append(play(world.build(), make_policy("fifo"), "rounds", 0).outcome.done_s[0])
    assert ends == [100.0, 100.0]


@pytest.mark.parametrize("policy", ["las{}", "las{}+elastic", "max-min{}", "themis{}"])
def test_who_starts_slower_than_a_lease_runs_as_long_as_it_took_to_start(policy: str) -> None:
    policy = policy.format(":quantum=300")
    # They gave way to each other as soon as they ran again: 240 s of work in 173,040 s, for ever.
    jobs = [_job(0.0, 9000.0, 2, user="ab"[k], restart_s=890.0) for k in range(2)]
    world = WorldSpec(cluster={"gpus": [2]}, jobs=jobs)
    done_s = play(world.build(), make_policy(policy), "rounds", 0).outcome.done_s
    assert max(done_s) <= 2 * 18000.0
    _assert_sound(policy, jobs)


def test_a_failure_never_gives_work_back() -> None:
    # After 9e11 s the last of checkpoints 1e-7 s apart came out later than what was done.
    jobs = [_job(0.0, 10.0, 1, model="wide"), _job(5.98342e-08, 9e11, 192, model="wide")]
    _assert_sound(
        "fifo-skip", jobs, cluster={"gpus": [192]},
        when={"restart_s": 3e-06, "min_run_s": 2e-06, "slot_s": 900000000.01, "checkpoint_s": 1e-07,
              "hide_durations": True},
        faults={"node_mtbf_s": 2420892000026.899, "job_mtbf_s": 2574639000028.607, "retries": 2},
        physics={"curves": {"by_nodes": False, "bend": [0.910895, 0.663821], "loss": 0.214851,
                            "most": 8}, "sight": "hidden"}, seed=68189,
    )  # fmt: skip


def test_jobs_alike_do_not_swap_at_every_end_of_their_shortest_run() -> None:
    # A round every 2 ms for 9e11 s: who had run for so long gave way to who had not.
    jobs = [_job(0.0, 9e8, 2, user="u1") for _ in range(3)]
    _assert_sound("las:quantum=1e7", jobs, when={"min_run_s": 0.002})
    _assert_sound("max-min:quantum=1e7", jobs, when={"min_run_s": 0.002})


@pytest.mark.parametrize("policy", ["dl2-fifo", "dl2-srtf", "dl2-drf", "dl2-tetris", "dl2-optimus"])
def test_who_starts_slower_than_a_slot_goes_on_under_the_baselines_of_dl2(policy: str) -> None:
    # Both were moved as soon as they might be, in the moment in which they would have gone on.
    bare = {"gpus_per_worker": 0, "restart_s": 1728.0}
    jobs = [_job(0.0, 2872.0, 8, cpus_per_worker=1, **bare),
            _job(0.0, 1790.0, 8, cpus_per_worker=0.1, **bare)]  # fmt: skip
    cluster = {"gpus": [0, 0, 0, 0], "cpus": [96, 7.5, 1, 4]}
    _assert_sound(policy, jobs, cluster=cluster, when={"min_run_s": 1728.0, "slot_s": 864.0})


@pytest.mark.parametrize("policy", ["srtf", "tiresias", "srsf+fgd"])
def test_a_job_that_gives_back_and_takes_again_the_same_is_not_changed(policy: str) -> None:
    # The first job has grown to three workers; the second needs all four GPUs and waits. In every
    # round the first shrank, which nobody could use, and grew again: that counted as a change, so
    # the policy asked to be woken when its minimum run time would be over, for ever.
    jobs = [_job(0.0, 1e9, 1, min_workers=1, max_workers=3), _job(10.0, 1e11, 4)]
    when = {"restart_s": 5.0, "resize_s": 5.0, "min_run_s": 120.0}
    _assert_sound(f"{policy}+elastic", jobs, cluster={"gpus": [4]}, when=when)


def test_a_job_with_servers_may_fit_once_less_is_free() -> None:
    # Five of job 1's workers went to node 0, which had no CPU left for its server; when job 2 had
    # taken a CPU there, four did, and all of it fitted. The indexed queue did not look again.
    bare = {"gpus_per_worker": 0, "cpus_per_worker": 1}
    jobs = [_job(0.0, 36000.0, 1, num_servers=1, cpus_per_server=2.5, **bare),
            _job(10.0, 1.0, 7, **{**bare, "cpus_per_worker": 2.5}, num_servers=1,
                 cpus_per_server=1),
            _job(20.0, 36000.0, 1, **bare), _job(30.0, 1.0, 1, **bare)]  # fmt: skip
    _assert_sound("fifo-skip+first-fit", jobs, cluster={"gpus": [8, 8], "cpus": [16, 16]})
