"""Laws that hold whatever the policy: nothing is given twice, no work is lost or made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from books import Replayed, check_books
from hypothesis import given
from hypothesis import strategies as st
from worlds import (
    Scripted,
    assert_same,
    by_rounds,
    cluster_of,
    examples,
    holds,
    outages,
    trace_of,
    worlds,
)

from rota.core import Cluster, Draft
from rota.policies import ORDERINGS, make_policy
from rota.policies.classic.rule import EASY
from rota.run.loop import rounds
from rota.sim import Conditions, Faults, Simulator, simulate
from rota.sim.briefing import informed
from rota.sim.journal_writer import take_log
from rota.sim.replay_kernels import MORE, OVER, replay, replay_backfill
from rota.sim.setup import build_state

if TYPE_CHECKING:
    from worlds import Jobs

    from rota.core import Decision, Snapshot

World = tuple[list[int], "Jobs"]
NAMES = sorted(ORDERINGS)
PLACES = ["first-fit", "best-fit", "worst-fit", "consolidate", "spread", "topology", "fgd"]
random_faults = st.sampled_from(
    [Faults(), Faults(node_mtbf_s=200, node_repair_s=30, job_mtbf_s=150, retries=2)]
)
conditions = st.builds(
    Conditions,
    restart_s=st.sampled_from([0.0, 0.0, 7.0, 60.0]),
    resize_s=st.sampled_from([None, None, 0.0, 3.0]),
    min_run_s=st.sampled_from([0.0, 0.0, 15.0]),
    slot_s=st.sampled_from([0.0, 0.0, 0.0, 25.0]),
    checkpoint_s=st.sampled_from([1.0, 20.0, np.inf]),
    faults=random_faults,
)


class Restless:
    """Elastic jobs grow, shrink, move and stop at random; whatever a draft allows."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def decide(self, snapshot: Snapshot) -> Decision:
        draft, rng = Draft(snapshot), self.rng
        for job in rng.permutation(len(snapshot.jobs)).tolist():
            row = snapshot.jobs.rows[job]
            if draft.held(job) and rng.random() < 0.5:
                draft.stop(job)
            if draft.held(job) or rng.random() < 0.2:
                continue
            left = int(rng.integers(row["min_workers"], row["max_workers"] + 1))
            share = []
            for node in rng.permutation(len(snapshot.nodes)).tolist():
                here = min(left, draft.free(node))
                if here:
                    share.append((node, here))
                    left -= here
            if not left:
                draft.place(job, share)
        return draft.commit(wake_s=snapshot.time_s + float(rng.integers(1, 20)))


def elastic(jobs: Jobs) -> dict[str, list[int]]:
    return {
        "min_workers": [max(1, size // 2) for _, _, size in jobs],
        "max_workers": [2 * size for _, _, size in jobs],
    }


@pytest.mark.parametrize("name", NAMES)
@examples(12)
@given(worlds(), st.sampled_from(PLACES), conditions)
def test_compiled_replay_keeps_its_books(
    name: str, world: World, place: str, when: Conditions
) -> None:
    trace = trace_of(world[1])
    policy: Any = informed(make_policy(f"{name}+{place}"), trace)
    sim = Simulator(cluster_of(world[0]), trace, when, seed=3, log=1)
    account, status = Replayed(sim), np.zeros(1, np.int64)
    play = replay if policy.rule.passing < EASY else replay_backfill
    for _ in range(5000):
        play(policy.rule, sim.batch, 1, status)
        check_books(sim)
        account.follow(*take_log(sim)[:2])
        if status[0] != MORE:
            break
    assert status[0] == OVER
    sim.check_over()
    assert account.held_gpu_s == pytest.approx(sim.clock["held_gpu_s"])


@examples(30)
@given(worlds(), conditions, st.integers(0, 99))
def test_work_is_conserved_by_a_restless_policy(world: World, when: Conditions, seed: int) -> None:
    gpus, jobs = world
    when = replace(when, slot_s=0.0)  # with slots it would be called idle when it only hesitates
    sim = Simulator(cluster_of(gpus), trace_of(jobs, **elastic(jobs)), when, seed=seed, log=1)
    account = Replayed(sim)
    rows, last = {}, -np.inf
    for turn in rounds(Restless(seed), sim):
        snapshot = turn.snapshot
        # Between two rounds a job progresses at its pace, except during the pause of a restart.
        for job, row in enumerate(snapshot.jobs.rows):
            uid = int(row["uid"])
            if uid in rows and row["status"] == 1 and row["preemptions"] == rows[uid][1]:
                before_s, _, pace, resume_s, kills = rows[uid]
                if kills == sim.clock["kills"]:
                    ran_s = max(0.0, snapshot.time_s - max(resume_s, last))
                    assert row["progress_s"] == pytest.approx(before_s + pace * ran_s)
            assert row["progress_s"] + row["remaining_s"] == pytest.approx(jobs[uid][1])
            assert sim.state.truth["work_s"][uid] <= jobs[uid][1] + 1e-9
            assert len(snapshot.share(job)) == row["share_len"]
        check_books(sim)
        assert len(turn.plan.decision.diff(sim.observe())) == 0
        after = sim.observe()
        rows = {
            int(row["uid"]): (
                row["progress_s"], row["preemptions"], row["pace"], row["resume_s"],
                int(sim.clock["kills"]),
            )
            for row in after.jobs.rows
        }  # fmt: skip
        last = after.time_s
        if sim.log_is_full:
            account.follow(*take_log(sim)[:2])
        if turn.number > 400:
            return
    account.follow(*take_log(sim)[:2])
    truth, done = sim.state.truth, sim.state.jobs["status"] == 3
    work_s = sim.state.jobs["progress_s"]
    np.testing.assert_allclose(work_s[done], np.array([job[1] for job in jobs], float)[done])
    assert (truth["lost_s"] >= 0).all()
    assert account.held_gpu_s == pytest.approx(sim.clock["held_gpu_s"])


@examples(60)
@given(worlds(), st.sampled_from(NAMES), conditions, st.integers(0, 5))
def test_no_job_beats_its_run_time_and_no_cluster_its_size(
    world: World, name: str, when: Conditions, seed: int
) -> None:
    cluster, trace = cluster_of(world[0]), trace_of(world[1])
    outcome = simulate(cluster, trace, make_policy(name), when, seed=seed, series=True)
    done = ~outcome.gave_up
    alone_s = outcome.submit_s + outcome.duration_s
    assert (outcome.done_s[done] >= alone_s[done] - 1e-9).all()
    assert (outcome.started_s >= outcome.submit_s).all()
    assert outcome.held_gpu_s <= outcome.up_gpu_s + 1e-6
    assert (outcome.series["held_gpus"] <= outcome.series["up_gpus"]).all()
    assert (np.diff(outcome.series["time_s"]) >= 0).all()
    # What was held is what was worked, what was lost, and pauses.
    useful = float((outcome.num_gpus * outcome.duration_s)[done].sum())
    lost = float((outcome.num_gpus * outcome.lost_s)[done].sum())
    assert outcome.held_gpu_s >= (useful + lost) * (1 - 1e-9)
    if when.restart_s == 0 and not when.resize_s and done.all():
        assert outcome.held_gpu_s == pytest.approx(useful + lost)


@pytest.mark.parametrize("name", NAMES)
@examples(10)
@given(worlds(), st.sampled_from(PLACES), conditions)
def test_python_rounds_equal_the_compiled_replay(
    name: str, world: World, place: str, when: Conditions
) -> None:
    cluster, trace = cluster_of(world[0]), trace_of(world[1])
    policy = make_policy(f"{name}+{place}")
    assert_same(
        simulate(cluster, trace, policy, when, seed=5),
        by_rounds(cluster, trace, policy, when, seed=5),
    )


@pytest.mark.parametrize("restart_s", [0.0, 60.0])
@pytest.mark.parametrize("name", NAMES)
def test_python_rounds_equal_the_compiled_replay_on_a_busy_cluster(
    name: str, restart_s: float
) -> None:
    rng = np.random.default_rng(8)
    trace = trace_of(
        [(int(t), float(d), int(g)) for t, d, g in zip(
            np.sort(rng.integers(0, 20_000, 120)), np.exp(rng.uniform(3, 9, 120)),
            rng.choice([1, 1, 2, 4, 8, 12, 16], 120), strict=True)]
    )  # fmt: skip
    policy, cluster = make_policy(name), Cluster.uniform(4, 8)
    for when in (Conditions(restart_s=restart_s), Conditions(restart_s=restart_s, min_run_s=300)):
        assert_same(simulate(cluster, trace, policy, when), by_rounds(cluster, trace, policy, when))


@examples(20)
@given(worlds(), st.sampled_from(["fifo-easy", "fifo-conservative", "srtf", "sjf", "themis"]))
def test_python_rounds_equal_the_compiled_replay_under_wrong_estimates(
    world: World, name: str
) -> None:
    cluster, trace = cluster_of(world[0]), trace_of(world[1])
    policy = make_policy(f"{name}:error=1.0")
    slow = by_rounds(cluster, trace, policy)
    assert slow.held_gpu_s <= slow.up_gpu_s + 1e-6
    assert_same(simulate(cluster, trace, policy), slow)


@examples(40)
@given(worlds(), st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_names_of_jobs_do_not_matter(world: World, name: str, random: Any) -> None:
    gpus, jobs = world
    ids = [f"job-{k}" for k in range(len(jobs))]
    random.shuffle(ids)
    cluster, policy = cluster_of(gpus), make_policy(name)
    assert_same(
        simulate(cluster, trace_of(jobs), policy),
        simulate(cluster, trace_of(jobs, job_id=ids), policy),
    )


@examples(40)
@given(worlds(), st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter_where_times_differ(
    world: World, name: str, random: Any
) -> None:
    gpus, jobs = world
    jobs = [(k + 30 * submit, duration, size) for k, (submit, duration, size) in enumerate(jobs)]
    order = list(range(len(jobs)))
    random.shuffle(order)
    shuffled = trace_of([jobs[k] for k in order])
    cluster, policy = cluster_of(gpus), make_policy(name)
    assert_same(simulate(cluster, trace_of(jobs), policy), simulate(cluster, shuffled, policy))


@examples(60)
@given(worlds(sizes=(1,), most_nodes=1, most_jobs=20))
def test_srtf_is_at_least_as_good_as_fifo_on_one_gpu(world: World) -> None:
    _, jobs = world
    cluster, trace = cluster_of([1]), trace_of(jobs)
    srtf, *others = (
        simulate(cluster, trace, make_policy(name)).done_s.mean()
        for name in ("srtf", "fifo", "sjf", "las:quantum=5", "tiresias:limits=20")
    )
    assert all(srtf <= other + 1e-9 for other in others)


@examples(25)
@given(st.data(), st.sampled_from(["fifo-skip", "srtf", "las:quantum=16", "fifo-conservative"]),
       conditions)  # fmt: skip
def test_a_batch_equals_its_single_runs(data: st.DataObject, name: str, when: Conditions) -> None:
    gpus, _ = data.draw(worlds())
    sizes = [size for size in range(1, sum(gpus) + 1) if size <= max(gpus) or holds(gpus, size)]
    job = st.tuples(st.integers(0, 100), st.integers(1, 100), st.sampled_from(sizes))
    traces = [
        trace_of(jobs)
        for jobs in data.draw(
            st.lists(st.lists(job, min_size=1, max_size=9), min_size=1, max_size=4)
        )
    ]
    cluster, policy = cluster_of(gpus), make_policy(name)
    rule: Any = policy.rule  # type: ignore[attr-defined]
    batch = build_state(cluster, traces, when, range(len(traces)))
    status = np.zeros(len(traces), np.int64)
    play = replay if rule.passing < EASY else replay_backfill
    while (status == MORE).any():
        play(rule, batch, 7, status)
    for b, trace in enumerate(traces):
        single = build_state(cluster, [trace], when, [b])
        alone = np.zeros(1, np.int64)
        while alone[0] == MORE:
            play(rule, single, 1000, alone)
        for field in ("done_s", "lost_s", "moves"):
            np.testing.assert_array_equal(
                batch.truth[b, : len(trace)][field], single.truth[0][field]
            )
        for field in ("now_s", "held_gpu_s", "up_gpu_s", "stray_gpu_s", "rounds", "kills"):
            assert batch.clock[b, 0][field] == single.clock[0, 0][field]


@pytest.mark.parametrize("name", ["fifo", "srtf", "tiresias:limits=40"])
@examples(15)
@given(worlds(), conditions)
def test_same_seed_same_run(name: str, world: World, when: Conditions) -> None:
    cluster, trace = cluster_of(world[0]), trace_of(world[1])
    a, b = (simulate(cluster, trace, make_policy(name), when, seed=11) for _ in range(2))
    assert_same(a, b)


def test_seeds_govern_faults_and_estimates() -> None:
    cluster, trace = Cluster.uniform(2, 4), trace_of([(10 * k, 500, 1 + k % 4) for k in range(40)])
    when = Conditions(faults=Faults(node_mtbf_s=1000, node_repair_s=100))
    for name in ("fifo", "srtf:error=1.0"):
        runs = [simulate(cluster, trace, make_policy(name), when, seed=k).done_s for k in (0, 0, 1)]
        np.testing.assert_array_equal(runs[0], runs[1])
        assert (runs[0] != runs[2]).any()


@examples(40)
@given(st.data())
def test_every_repair_brings_the_node_back(data: st.DataObject) -> None:
    gpus, jobs = data.draw(worlds())
    down = data.draw(outages(len(gpus)))
    when = Conditions(checkpoint_s=10, faults=Scripted(nodes=down))
    sim = Simulator(cluster_of(gpus), trace_of(jobs), when)
    for turn in rounds(make_policy("fifo-skip"), sim):
        now_s = turn.snapshot.time_s
        last = {node: up for time_s, node, up in down if time_s <= now_s}
        assert [bool(up) for up in sim.state.nodes["up"]] == [
            last.get(node, True) for node in range(len(gpus))
        ]
        check_books(sim)
