"""Workers and servers that need no GPU: there can be far more of them than there are GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import Scripted, assert_same, by_rounds, cluster_of, examples, trace_of

from rota.core import Cluster, Draft, Job, Snapshot
from rota.core.layout import START
from rota.policies import ORDERINGS, make_policy
from rota.policies.classic.placing import Placer
from rota.run.journal import Journal
from rota.run.loop import rounds
from rota.run.reader import read_journal
from rota.sim import Conditions, Simulator, simulate
from rota.sim.setup import job_records, most_shares
from rota.traces import Trace

NODES = 16
TWO_GPUS = np.array([2] + [0] * (NODES - 1))


def crowd(jobs: int = 360, seed: int = 0, **columns: Any) -> Trace:
    """Jobs of one core each, most of which come at once."""
    rng = np.random.default_rng(seed)
    return Trace.build(
        "crowd",
        submit_s=np.sort(rng.integers(0, 40, jobs)),
        duration_s=rng.integers(1, 900, jobs),
        num_gpus=np.ones(jobs),
        gpus_per_worker=np.zeros(jobs),
        cpus_per_worker=np.ones(jobs),
        **columns,
    )


def office(gpus: Any = TWO_GPUS) -> Cluster:
    return cluster_of(gpus, cpus=np.full(len(gpus), 64.0))


@pytest.mark.parametrize("restart_s", [0.0, 30.0])
@pytest.mark.parametrize("name", [*ORDERINGS, "srtf+consolidate", "fifo+spread", "las+topology"])
def test_hundreds_of_workers_without_gpus_run_at_once(name: str, restart_s: float) -> None:
    # 1,024 cores for 360 jobs of one core: nobody ever waits, whatever the order.
    when = Conditions(restart_s=restart_s)
    outcome = simulate(office(), crowd(), make_policy(name), when, series=True)
    np.testing.assert_array_equal(outcome.started_s, outcome.submit_s)
    np.testing.assert_array_equal(outcome.done_s, outcome.submit_s + outcome.duration_s)


@pytest.mark.parametrize(
    "name", ["fifo", "srtf", "fifo-easy", "fifo-conservative", "drf", "tetris"]
)
@pytest.mark.parametrize("restart_s", [0.0, 30.0])
def test_few_cores_are_never_given_twice(name: str, restart_s: float) -> None:
    # 32 cores and no GPU at all; both ways of playing agree, and every decision is checked.
    cluster, trace = cluster_of([0, 0], cpus=np.array([16.0, 16.0])), crowd(120)
    policy, when = make_policy(name), Conditions(restart_s=restart_s)
    assert_same(simulate(cluster, trace, policy, when), by_rounds(cluster, trace, policy, when))


@pytest.mark.parametrize("name", ["fifo+elastic", "drf+elastic", "optimus", "pollux"])
def test_other_policies_run_them_too(name: str) -> None:
    outcome = simulate(office(), crowd(60), make_policy(name))
    assert np.isfinite(outcome.done_s).all()


def test_a_cluster_without_any_gpu_can_be_simulated_with_faults() -> None:
    cluster = cluster_of([0, 0], cpus=np.array([8.0, 8.0]))
    when = Conditions(faults=Scripted(nodes=((5, 0, False), (50, 0, True))), checkpoint_s=1.0)
    outcome = simulate(cluster, crowd(30), make_policy("fifo-skip"), when)
    assert np.isfinite(outcome.done_s).all()


def test_conservative_backfilling_charges_workers_without_gpus_no_gpus() -> None:
    # 4 GPUs: job 0 holds 2 until 10, the head wants 4. Job 2 wants 4 cores for 100 s and no GPU.
    # Charged as GPUs it would stand in the way of the head, and later of job 3.
    cluster = cluster_of([4], cpus=np.array([8.0]))
    trace = trace_of(
        [(0, 10, 2), (0, 10, 4), (0, 100, 4), (0, 10, 2)],
        gpus_per_worker=[1, 1, 0, 1],
        cpus_per_worker=[0, 0, 1, 0],
    )
    for name in ("fifo-easy", "fifo-conservative"):
        outcome = simulate(cluster, trace, make_policy(name))
        assert_same(outcome, by_rounds(cluster, trace, make_policy(name)))
        assert outcome.started_s.tolist() == [0, 10, 0, 0]


def test_servers_go_where_there_are_cores_for_them() -> None:
    # Workers that need nothing would do with node 0, but their server needs node 1.
    cluster = cluster_of([0, 0], cpus=np.array([0.0, 1.0]))
    trace = trace_of([(0, 5, 2)] * 2, gpus_per_worker=[0, 0], num_servers=[1, 1],
                     cpus_per_server=[1, 1])  # fmt: skip
    outcome = simulate(cluster, trace, make_policy("fifo"))
    assert outcome.done_s.tolist() == [5, 10]


# -- the log -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fifo", "srtf"])
def test_a_journal_keeps_every_share_of_a_crowd(tmp_path: Any, name: str) -> None:
    path = tmp_path / "journal.db"
    with Journal.create(path, meta={"policy": name, "total_gpus": 2}) as journal:
        outcome = simulate(office(), crowd(), make_policy(name), journal=journal)
    with read_journal(path) as view:
        events = view.events()
    starts = events.events[events.events["kind"] == START]
    assert len(starts) >= len(outcome.done_s)
    assert (starts["entries"] > 0).all()


class Everywhere:
    """One worker, and a server on every node."""

    def decide(self, snapshot: Snapshot) -> Any:
        draft = Draft(snapshot)
        for job in np.flatnonzero(snapshot.jobs.waiting).tolist():
            draft.place(job, [(0, 1)], [(node, 1) for node in range(len(snapshot.cluster))])
        return draft.commit()


def test_the_log_of_a_policy_that_spreads_servers_loses_none() -> None:
    # 40 jobs with a server on each of 1,000 nodes: 40,000 shares in one round.
    nodes, jobs = 1000, 40
    cluster = cluster_of([jobs] + [0] * (nodes - 1))
    trace = trace_of([(0, 10, 1)] * jobs, num_servers=[nodes] * jobs)
    sim = Simulator(cluster, trace, log=1)
    next(iter(rounds(Everywhere(), sim)))
    assert sim.clock["lost"] == 0
    events = sim.state.events[: sim.clock["events"]]
    assert events["entries"].sum() == sim.clock["entries"] == nodes * jobs
    assert sim.observe().share(jobs - 1)[-1] == (nodes - 1, 0, 1)


def test_a_job_may_sit_on_more_nodes_than_a_short_integer_counts() -> None:
    nodes = 33_000
    cluster = Cluster(gpus=np.ones(nodes, np.int64))
    sim = Simulator(cluster, trace_of([(0, 10, nodes)]), log=1)
    next(iter(rounds(make_policy("fifo"), sim)))
    events = sim.state.events[: sim.clock["events"]]
    assert events["entries"].tolist() == [0, nodes]


# -- how many shares there can be --------------------------------------------------------


def shares_of(cluster: Cluster, trace: Trace) -> int:
    return most_shares(cluster, job_records(trace, cluster, Conditions(), np.random.default_rng(0)))


def test_how_many_shares_jobs_can_hold_at_once() -> None:
    # GPUs only: one share per GPU at most.
    assert shares_of(Cluster.uniform(2, 4), trace_of([(0, 1, 2)] * 9)) == 8
    # 360 jobs of one core on 1,024: all of them. On 2 × 16 cores: 32, and one for the rounding.
    assert shares_of(office(), crowd()) == 2 + 360
    assert shares_of(cluster_of([0, 0], cpus=np.array([16.0, 16.0])), crowd()) in (32, 33)
    # A server on each of 3 nodes for as many jobs as 4 GPUs hold: no more than 4 · 3.
    many = trace_of([(0, 1, 1)] * 50, num_servers=[3] * 50)
    assert 12 <= shares_of(Cluster.uniform(3, 4), many) <= 12 + 36 + 1
    # Whole numbers beyond counting are no trouble either.
    tiny = trace_of([(0, 1, 5)], gpus_per_worker=[0], cpus_per_worker=[1e-300])
    assert shares_of(cluster_of([1, 1], cpus=np.array([8.0, 8.0])), tiny) == 2 + 2


def test_a_draft_that_compiled_code_has_no_room_in_is_left_alone() -> None:
    # The draft has room for 64 + J shares; 3 jobs over 300 nodes would take 900.
    cluster = cluster_of([0] * 300, cpus=np.ones(300))
    jobs = [Job(workers=100, gpus_per_worker=0, cpus_per_worker=1.0) for _ in range(3)]
    snapshot = Snapshot.of(cluster, jobs)
    draft = Draft(snapshot)
    Placer("first-fit").fill(draft, np.arange(3))
    draft.commit().check(snapshot)
    assert draft.length.tolist() == [100, 100, 100]
    decision = make_policy("fifo").decide(snapshot)
    decision.check(snapshot)
    assert decision.length.tolist() == [100, 100, 100]


@examples(60)
@given(st.data())
def test_random_crowds_are_played_alike_both_ways(data: st.DataObject) -> None:
    draw = data.draw
    nodes = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=1, max_size=4))
    gpus, cpus = (np.array(column) for column in zip(*nodes, strict=True))
    wish = st.tuples(
        st.integers(0, 9), st.integers(1, 30), st.integers(1, 3), st.integers(0, 2),
        st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.integers(0, 2), st.sampled_from([0.0, 1.0]),
    )  # fmt: skip
    asked = []
    for submit, lasts, workers, each, cores, servers, per_server in draw(
        st.lists(wish, min_size=1, max_size=25)
    ):
        whole = workers * max(1, each)
        room_gpus = gpus.max() >= workers * each
        alone = room_gpus and (
            cpus[gpus >= workers * each].max() >= workers * cores + servers * per_server
        )
        if alone:
            asked.append((submit, lasts, whole, each, cores, servers, per_server))
    if not asked:
        return
    columns = list(zip(*asked, strict=True))
    trace = trace_of(
        list(zip(*columns[:3], strict=True)), gpus_per_worker=columns[3],
        cpus_per_worker=columns[4], num_servers=columns[5], cpus_per_server=columns[6],
    )  # fmt: skip
    cluster = cluster_of(gpus, cpus=cpus.astype(float))
    when = Conditions(
        restart_s=draw(st.sampled_from([0.0, 5.0])), hide_durations=draw(st.booleans())
    )
    policy = make_policy(draw(st.sampled_from(["fifo", "srtf", "fifo-easy", "fifo-conservative"])))
    assert_same(
        simulate(cluster, trace, policy, when, series=True),
        by_rounds(cluster, trace, policy, when),
    )
