"""Long queues: what is skipped there changes no schedule. Against slow, obvious twins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from rota.core import Cluster, Draft
from rota.policies import PLACEMENTS, Placer, make_policy
from rota.sim import Simulator, simulate
from rota.sim.replay_kernels import MORE, replay
from rota.traces import Trace

if TYPE_CHECKING:
    from rota.core import Decision, Snapshot

ONE_BY_ONE = sorted(set(PLACEMENTS) - {"fgd"})


def queue(seed: int, jobs: int, *, users: int = 0, shapes: int = 4) -> tuple[Cluster, Trace]:
    """A small cluster, and far more work than it can do at once."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 5))
    cluster = Cluster.uniform(nodes, 4, cpus=16.0, memory_gb=float(rng.choice([64.0, np.inf])))
    gpus = rng.choice([1, 1, 2, 3, 4, 4 * nodes], jobs)
    cpus = rng.integers(0, shapes, jobs) * 4.0 / shapes
    names = tuple(f"user{k}" for k in range(users))
    return cluster, Trace.build(
        "queue", submit_s=np.sort(rng.integers(0, 40, jobs).astype(float)), num_gpus=gpus,
        duration_s=rng.integers(1, 60, jobs).astype(float), cpus_per_worker=cpus,
        memory_gb_per_worker=rng.choice([0.0, 1.0, 8.0], jobs),
        **({"user": rng.integers(-1, users, jobs), "users": names} if users else {}),
    )  # fmt: skip


class Fair:
    """Max-min or dominant resource fairness, a job at a time, whoever has least."""

    def __init__(self, *, dominant: bool, place: str) -> None:
        self.dominant, self.place = dominant, Placer(place)

    def share(self, job: Any, nodes: Any) -> float:
        """What the job asks for of what there is most of it of."""
        found = [job["gpus"] / nodes["gpus"].sum()]
        if self.dominant:
            found.append(job["workers"] * job["cpus_per_worker"] / nodes["cpus"].sum())
            found.append(job["workers"] * job["memory_gb_per_worker"] / nodes["memory_gb"].sum())
        return float(max(found))

    def decide(self, snapshot: Snapshot) -> Decision:
        rows = snapshot.jobs.rows
        draft = Draft(snapshot, blank=not self.dominant)
        line = list(range(len(rows)))
        if not self.dominant:  # least served first, everything dealt out anew
            line.sort(key=lambda j: rows["gpus"][j] * rows["progress_s"][j])
        owner = {j: int(rows["user"][j]) if rows["user"][j] >= 0 else ("job", j) for j in line}
        has = dict.fromkeys(owner.values(), 0.0)
        for j in line:
            if draft.length[j]:
                has[owner[j]] += self.share(rows[j], draft.nodes)
        waiting = [j for j in line if not draft.length[j]]
        while waiting:
            j = min(waiting, key=lambda j: has[owner[j]])  # the first of these, in line
            waiting.remove(j)
            found = self.place(draft, j)
            if found is not None:
                draft.place(j, found)
                has[owner[j]] += self.share(rows[j], draft.nodes)
        late = not draft.length.astype(bool).all() and not self.dominant
        return draft.commit(wake_s=snapshot.time_s + 16.0 if late else np.inf)


@pytest.mark.parametrize("name", ["max-min:quantum=16", "drf"])
@examples(25)
@given(
    seed=st.integers(0, 2**32), jobs=st.integers(1, 60), users=st.integers(0, 6),
    place=st.sampled_from(ONE_BY_ONE),
)  # fmt: skip
def test_fairness_serves_whoever_has_least(
    name: str, seed: int, jobs: int, users: int, place: str
) -> None:
    cluster, trace = queue(seed, jobs, users=users)
    fast = simulate(cluster, trace, make_policy(f"{name}+{place}"))
    slow = simulate(cluster, trace, Fair(dominant=name == "drf", place=place))
    assert fast.started_s.tolist() == slow.started_s.tolist()
    assert fast.done_s.tolist() == slow.done_s.tolist()


def test_fairness_counts_no_share_of_gpus_where_there_are_none() -> None:
    # Two users with two jobs each on a node without GPUs, one CPU: a, b, a, b.
    cluster = Cluster(gpus=np.zeros(1, np.int64), cpus=np.ones(1))
    trace = Trace.build(
        "cpus", submit_s=np.zeros(4), duration_s=np.full(4, 10.0), num_gpus=np.ones(4, np.int64),
        gpus_per_worker=np.zeros(4, np.int64), cpus_per_worker=np.ones(4),
        user=np.array([0, 0, 1, 1]), users=("a", "b"),
    )  # fmt: skip
    assert sorted(simulate(cluster, trace, make_policy("drf")).done_s) == [10, 20, 30, 40]


class InOrder:
    """Shortest remaining first: everything is dealt out anew, everybody is tried."""

    def __init__(self, place: str) -> None:
        self.place = Placer(place)

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot, blank=True)
        self.place.fill(draft, np.argsort(snapshot.jobs.remaining_s, kind="stable"))
        return draft.commit()


@examples(40)
@given(
    seed=st.integers(0, 2**32), jobs=st.integers(20, 80), place=st.sampled_from(ONE_BY_ONE),
    shapes=st.sampled_from([1, 4, 1000]),
)  # fmt: skip
def test_whoever_is_passed_over_without_a_look_would_not_have_fitted(
    seed: int, jobs: int, place: str, shapes: int
) -> None:
    cluster, trace = queue(seed, jobs, shapes=shapes)
    fast = simulate(cluster, trace, make_policy(f"srtf+{place}"))
    slow = simulate(cluster, trace, InOrder(place))
    assert fast.done_s.tolist() == slow.done_s.tolist()


@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "sjf", "sjf-skip"])
@examples(25)
@given(
    seed=st.integers(0, 2**32), jobs=st.integers(80, 250), place=st.sampled_from(ONE_BY_ONE),
    series=st.booleans(),
)  # fmt: skip
def test_the_indexed_queue_serves_many_shapes_like_trying_all(
    name: str, seed: int, jobs: int, place: str, series: bool
) -> None:
    cluster, trace = queue(seed, jobs, shapes=1000)  # more of them than are looked at one by one
    policy: Any = make_policy(f"{name}+{place}")
    fast = simulate(cluster, trace, policy, series=series)
    plain, status = Simulator(cluster, trace), np.zeros(1, np.int64)
    replay(policy.rule, plain.batch, 100_000, status)
    assert status[0] != MORE
    np.testing.assert_array_equal(fast.done_s, plain.state.truth["done_s"])
    np.testing.assert_array_equal(fast.started_s, plain.state.jobs["started_s"])
    assert fast.rounds == plain.clock["rounds"]


@pytest.mark.parametrize("name", ["max-min", "drf", "sjf-skip"])
def test_a_long_queue_of_many_users_and_shapes_ends(name: str) -> None:
    # Minutes if every turn looked at everybody who waits.
    rng, jobs = np.random.default_rng(0), 4_000
    trace = Trace.build(
        "long", submit_s=np.zeros(jobs), duration_s=rng.integers(1, 1000, jobs).astype(float),
        num_gpus=rng.choice([1, 2, 4, 8], jobs), cpus_per_worker=rng.uniform(0.1, 4.0, jobs),
        user=rng.integers(0, 500, jobs), users=tuple(map(str, range(500))),
    )  # fmt: skip
    outcome = simulate(Cluster.uniform(40, 8, cpus=32.0), trace, make_policy(name))
    assert np.isfinite(outcome.done_s).all()
