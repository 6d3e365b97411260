"""Where simulators go wrong: overdue jobs, other resources, odd numbers, nothing at all."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import pytest
from worlds import Scripted, assert_same, by_rounds, cluster_of, trace_of

from rota.core import Cluster, Draft, Job, Snapshot
from rota.errors import InputError, PolicyError
from rota.policies import ORDERINGS, make_policy
from rota.run.loop import rounds
from rota.sim import Conditions, Simulator, simulate
from rota.traces import Trace

if TYPE_CHECKING:
    from rota.core import Decision
    from rota.run.outcome import Outcome


def both(cluster: Cluster, trace: Trace, name: str, when: Conditions | None = None) -> Outcome:
    fast, policy = simulate(cluster, trace, make_policy(name), when), make_policy(name)
    assert_same(fast, by_rounds(cluster, trace, policy, when))
    return fast


# -- backfilling -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fifo-easy", "fifo-conservative"])
def test_an_overdue_job_still_holds_its_gpus(name: str) -> None:
    # Job 0 was to take 10 s and takes 100. At 20 its end is believed to be now, but is not.
    trace = trace_of([(0, 100, 1), (20, 50, 1)], estimate_s=[10, 10])
    outcome = both(cluster_of([1]), trace, name, Conditions(trust_trace=True))
    assert outcome.done_s.tolist() == [100, 150]


@pytest.mark.parametrize("name", ["fifo-easy", "fifo-conservative"])
def test_backfilled_jobs_share_the_cpus_there_are(name: str) -> None:
    # 4 CPUs; the gang of 4 GPUs is the head until 10. The two small jobs want 3 CPUs each, so
    # they run one after the other: 0-5 and 5-10.
    cluster = cluster_of([4], cpus=np.array([4.0]))
    trace = trace_of([(0, 10, 2), (0, 10, 4), (0, 5, 1), (0, 5, 1)], cpus_per_worker=[0, 0, 3, 3])
    assert both(cluster, trace, name).done_s.tolist() == [10, 20, 5, 10]


@pytest.mark.parametrize("name", ["fifo-easy", "fifo-conservative"])
def test_backfilled_servers_need_cpus_too(name: str) -> None:
    # The same with a worker of 1 CPU and two servers of 1 CPU.
    cluster = cluster_of([4], cpus=np.array([4.0]))
    trace = trace_of(
        [(0, 10, 2), (0, 10, 4), (0, 5, 1), (0, 5, 1)],
        cpus_per_worker=[0, 0, 1, 1],
        num_servers=[0, 0, 2, 2],
        cpus_per_server=[0, 0, 1, 1],
    )
    assert both(cluster, trace, name).done_s.tolist() == [10, 20, 5, 10]


# -- servers and sizes -------------------------------------------------------------------


class FarServers:
    """A worker on node 0, its servers everywhere else."""

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        for job in np.flatnonzero(snapshot.jobs.waiting).tolist():
            others = range(1, len(snapshot.cluster))
            draft.place(job, [(0, 1)], servers=[(node, 1) for node in others])
        return draft.commit()


def test_servers_may_sit_where_the_job_holds_no_gpu() -> None:
    nodes = 40
    sim = Simulator(Cluster.uniform(nodes, 1), trace_of([(0, 10, 1)], num_servers=[nodes - 1]))
    first = next(iter(rounds(FarServers(), sim)))
    assert sim.observe().share(0) == list(first.plan.decision.share(0))
    assert len(first.plan.decision.diff(sim.observe())) == 0


def test_an_elastic_job_that_starts_smaller_gets_its_servers() -> None:
    trace = trace_of(
        [(0, 10, 4), (0, 10, 4)], min_workers=[1, 1], max_workers=[4, 4], num_servers=[2, 2]
    )
    sim = Simulator(cluster_of([6]), trace)
    next(iter(rounds(make_policy("fifo+elastic"), sim)))
    assert [sim.observe().share(job) for job in (0, 1)] == [[(0, 4, 2)], [(0, 2, 2)]]


@pytest.mark.parametrize("restart_s", [0.0, 5.0])
def test_an_elastic_job_that_started_smaller_is_pinned_too(restart_s: float) -> None:
    # A holds its 4, B 2 of the 4 it asked for; neither may be stopped before 50, whoever comes.
    trace = trace_of([(0, 100, 4), (0, 90, 4), (10, 5, 2)], min_workers=[1, 1, 2],
                     max_workers=[4, 4, 2])  # fmt: skip
    sim = Simulator(cluster_of([6]), trace, Conditions(restart_s=restart_s, min_run_s=50))
    for turn in rounds(make_policy("srtf+elastic"), sim):
        if turn.snapshot.time_s < 50:
            assert all(type(action).__name__ != "Stop" for action in turn.plan)


# -- estimates ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sjf", "sjf-skip", "srtf", "srsf"])
def test_a_job_of_unknown_length_does_not_upset_the_order_of_the_others(name: str) -> None:
    # Known lengths 5 and 1; whatever is thought of the unknown one, 1 comes before 5.
    jobs = [Job(workers=1, estimate_s=5.0), Job(workers=1), Job(workers=1, estimate_s=1.0)]
    decision = make_policy(name).decide(Snapshot.of(cluster_of([2]), jobs))
    assert decision.share(2)


def test_an_oracle_sees_the_truth_where_others_are_told_the_traces_limits() -> None:
    # By their limits job 0 comes first, by their lengths job 1.
    trace = trace_of([(0, 100, 1), (0, 10, 1)], estimate_s=[50, 500])
    when = Conditions(trust_trace=True, estimate_error=2.0)
    ends = {
        name: simulate(cluster_of([1]), trace, make_policy(name), when).done_s.tolist()
        for name in ("sjf", "sjf@oracle", "srtf@oracle", "sjf:error=3@oracle")
    }
    assert ends.pop("sjf") == [100, 110]
    assert all(done_s == [110, 10] for done_s in ends.values())


@pytest.mark.parametrize("error", [0.0, 2.0])
def test_the_traces_estimates_are_told_as_they_are(error: float) -> None:
    trace = trace_of([(0, 100, 1), (0, 10, 1), (0, 20, 1)], estimate_s=[300, np.nan, 7])
    when = Conditions(trust_trace=True, estimate_error=error)
    sim = Simulator(cluster_of([1]), trace, when)
    assert sim.wait()
    for told in (sim.observe().jobs.estimate_s, sim.observe().jobs.remaining_s):
        np.testing.assert_array_equal(told, [300, np.nan, 7])
    # The same through a policy's own setting; of unknown length comes last.
    for name in ("sjf", "sjf:error=2"):
        done_s = simulate(cluster_of([1]), trace, make_policy(name), when).done_s
        assert done_s.tolist() == [120, 130, 20]


def test_gittins_without_a_history_serves_in_order() -> None:
    # All classes are one: nothing is known, so first come, first served.
    policy = make_policy("gittins")
    rule = policy.rule  # type: ignore[attr-defined]
    assert len(rule.worth) == len(rule.limits) + 1
    decision = policy.decide(Snapshot.of(cluster_of([1]), [Job(workers=1), Job(workers=1)]))
    assert (decision.share(0), decision.share(1)) == (((0, 1, 0),), ())


# -- nothing, much, and odd numbers ------------------------------------------------------


@pytest.mark.parametrize("name", ["fifo", "srtf", "fifo-easy"])
def test_an_empty_trace_is_over_at_once(name: str) -> None:
    empty = Trace.build("empty", submit_s=[], duration_s=[], num_gpus=[])
    outcome = simulate(cluster_of([4]), empty, make_policy(name))
    assert (len(outcome.done_s), outcome.rounds, outcome.held_gpu_s) == (0, 0, 0)


@pytest.mark.parametrize("slot_s", [0.1, 0.7, 1 / 3])
def test_slots_of_odd_length_never_stand_still(slot_s: float) -> None:
    # 43 · 0.1 / 0.1 rounds to less than 43: the next slot after 4.3 must not be 4.3 again.
    sim = Simulator(cluster_of([1]), trace_of([(0, 20, 1), (0, 20, 1)]), Conditions(slot_s=slot_s))
    last_s = -1.0
    for turn in rounds(make_policy("las"), sim):
        assert turn.snapshot.time_s > last_s
        last_s = turn.snapshot.time_s


MANY = """
import numpy as np
from rota.core import Cluster
from rota.policies import make_policy
from rota.run.loop import rounds
from rota.sim import Simulator
from rota.sim.journal_writer import take_log
from rota.traces import Trace

jobs = 6000
one = np.ones(jobs)
trace = Trace.build("many", submit_s=0 * one, duration_s=one, num_gpus=one)
sim = Simulator(Cluster.uniform(1, 8), trace, log=1)
next(iter(rounds(make_policy("fifo"), sim)))
assert sim.clock["events"] <= sim.state.events.size, (sim.clock["events"], sim.state.events.size)
assert len(take_log(sim)[0]) >= jobs
"""


def test_the_log_has_room_for_many_arrivals_at_once() -> None:
    # In a process of its own: a log that runs over takes the interpreter with it.
    run = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-500:]


def test_negative_and_large_times_are_times_like_any_other() -> None:
    for origin_s in (-5000.0, 1.7e9):
        jobs = [(origin_s, 10, 1), (origin_s + 2, 3, 1)]
        outcome = both(cluster_of([1]), trace_of(jobs), "srtf")
        assert (outcome.done_s - origin_s).tolist() == [13, 5]


def test_a_job_that_never_fits_is_refused_by_name() -> None:
    trace = trace_of([(0, 10, 1), (0, 10, 9)], job_id=["small", "large"])
    with pytest.raises(InputError, match="job 'large' asks for 9 GPUs"):
        Simulator(Cluster.uniform(1, 8), trace)


def test_servers_that_never_fit_are_refused_by_name() -> None:
    # 2 CPUs can never hold a worker and a server of 2 each: not the policy's fault.
    cluster = cluster_of([4], cpus=np.array([2.0]))
    trace = trace_of([(0, 10, 1)], cpus_per_worker=[2], num_servers=[1], cpus_per_server=[2])
    with pytest.raises(InputError, match="job '0'"):
        simulate(cluster, trace, make_policy("fifo"))


class Lazy:
    def decide(self, snapshot: Snapshot) -> Decision:
        return Draft(snapshot).commit()


@pytest.mark.parametrize("slot_s", [0.0, 10.0])
def test_a_policy_that_starves_everybody_is_named(slot_s: float) -> None:
    with pytest.raises(PolicyError, match="2 of 2 jobs have not ended: the policy starves them"):
        simulate(
            cluster_of([1]), trace_of([(0, 9, 1), (5, 9, 1)]), Lazy(), Conditions(slot_s=slot_s)
        )


class Hesitates:
    """Waits a while on purpose, and says so."""

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        if snapshot.time_s < 100:
            return draft.commit(wake_s=100.0)
        for job in np.flatnonzero(snapshot.jobs.waiting).tolist():
            draft.place(job, [(0, 1)])
        return draft.commit()


@pytest.mark.parametrize("slot_s", [0.0, 40.0])
def test_a_policy_may_wait_on_purpose(slot_s: float) -> None:
    # It asks to be woken at 100; with slots of 40 s, that is at 120.
    outcome = simulate(
        cluster_of([1]), trace_of([(0, 9, 1)]), Hesitates(), Conditions(slot_s=slot_s)
    )
    assert outcome.started_s.tolist() == [120.0 if slot_s else 100.0]


@pytest.mark.parametrize("name", ORDERINGS)
def test_all_nodes_down_is_only_a_pause(name: str) -> None:
    faults = Scripted(nodes=((5, 0, False), (5, 1, False), (50, 0, True), (60, 1, True)))
    when = Conditions(checkpoint_s=1, faults=faults)
    trace = trace_of([(0, 20, 1), (1, 20, 2), (6, 20, 1)])
    outcome = both(cluster_of([1, 1]), trace, name, when)
    assert (outcome.done_s >= 65).all()


def test_an_error_in_estimates_changes_nothing_but_beliefs() -> None:
    # FIFO asks for no estimates.
    trace, cluster = trace_of([(k, 50 + k, 1 + k % 3) for k in range(20)]), cluster_of([4])
    plain = simulate(cluster, trace, make_policy("fifo"))
    wrong = simulate(cluster, trace, make_policy("fifo"), Conditions(estimate_error=2.0))
    assert_same(plain, wrong)


@pytest.mark.parametrize("no_two_alike", [False, True])
@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "sjf+first-fit", "sjf-skip"])
def test_few_jobs_are_replayed_without_an_indexed_queue_alike(
    name: str, no_two_alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    trace = Trace.build(
        "few", submit_s=rng.integers(0, 900, 200), duration_s=rng.integers(1, 90, 200),
        num_gpus=rng.choice([1, 2, 4, 8, 12], 200),
        cpus_per_worker=rng.uniform(0.1, 2.5, 200) if no_two_alike else np.ones(200),
    )  # fmt: skip
    cluster, policy = Cluster.uniform(3, 8, cpus=30.0), make_policy(name)
    indexed = simulate(cluster, trace, policy)
    monkeypatch.setattr(import_module("rota.sim.replay_choice"), "MANY_JOBS", 10**9)
    assert_same(indexed, simulate(cluster, trace, policy))
