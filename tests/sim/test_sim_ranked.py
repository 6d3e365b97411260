"""Preemption over an indexed queue: the schedule is that of looking at everybody, to the event."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from rota.core import Cluster
from rota.errors import RotaError
from rota.policies import make_policy
from rota.sim import Conditions, Faults, Simulator, simulate
from rota.sim.queue_kernels import FEW
from rota.sim.rank_kernels import replay_ranked
from rota.sim.replay_choice import replay_of
from rota.sim.replay_kernels import replay, replay_free
from rota.testing.drawing import FEW_ROUNDS, draw_world
from rota.testing.world_runs import play, ways
from rota.traces import Trace

if TYPE_CHECKING:
    from rota.testing.world_runs import Run, Way
    from rota.testing.worlds import WorldSpec

NAMES = (
    "srtf", "srsf", "las", "tiresias", "gittins", "srtf+spread", "srtf+consolidate", "las+topology",
    "srsf:b=2+fgd", "gittins:classes=5+worst-fit", "tiresias+first-fit", "srtf:error=1",
)  # fmt: skip
SERVERS = ("num_servers", "min_servers", "max_servers", "cpus_per_server")


def level(spec: WorldSpec, copies: int, *, unlike: bool) -> WorldSpec:
    """A drawn world as the indexed queue needs it, with more jobs, of more shapes if `unlike`."""
    gpus, jobs = spec.cluster["gpus"], []
    for job in (job for job in spec.jobs for _ in range(copies)):
        plain = {k: v for k, v in job.items() if k != "restart_s" and k not in SERVERS}
        if unlike and "cpus_per_worker" in plain:
            plain["cpus_per_worker"] *= 1.0 - 0.0001 * len(jobs)
        jobs.append(plain)
    when = {k: v for k, v in spec.when.items() if k not in ("restart_s", "min_run_s")}
    faults = dict(spec.faults)
    if "jobs" in faults:
        faults["jobs"] = [row for row in faults["jobs"] for _ in range(copies)]
    cluster = {**spec.cluster, "gpus": [max(gpus)] * len(gpus)}
    return replace(spec, cluster=cluster, jobs=jobs, when=when, faults=faults)


def outcome(world: Any, name: str, way: Way, seed: int) -> Run | str:
    try:
        return play(world, make_policy(name), way, seed)
    except RotaError as error:  # such as a job that fits nowhere, or a speed of 0
        return str(error)


def assert_alike(a: Run | str, b: Run | str) -> None:
    """Every event, every share, every round."""
    if isinstance(a, str) or isinstance(b, str):
        assert a == b
        return
    for log in ("events", "entries", "rounds"):
        one, other = getattr(a, log), getattr(b, log)
        for name in one.dtype.names:
            np.testing.assert_array_equal(one[name], other[name], err_msg=f"{log}: {name}")
    np.testing.assert_array_equal(a.outcome.fee, b.outcome.fee)


@pytest.mark.parametrize("name", NAMES)
@examples(40)
@given(seed=st.integers(0, 2**32), copies=st.sampled_from([1, 4]), unlike=st.booleans())
def test_random_worlds_are_played_alike_with_and_without_an_indexed_queue(
    name: str, seed: int, copies: int, unlike: bool
) -> None:
    spec = level(draw_world(seed, 0), copies, unlike=unlike)
    if name.startswith("las"):  # leases of a quarter of an hour would fill years of some worlds
        name = name.replace("las", f"las:quantum={max(1.0, spec.span_s / FEW_ROUNDS):.1f}")
    world = spec.build()
    assert "queue" in ways(make_policy(name), world)
    free = outcome(world, name, "compiled", spec.seed)
    assert_alike(free, outcome(world, name, "queue", spec.seed))


def crowd(seed: int, jobs: int, *, bare: bool) -> tuple[Cluster, Trace]:
    """More shapes than are looked at one by one, far too many jobs at once, with ties."""
    rng = np.random.default_rng(seed)
    cluster = Cluster.uniform(int(rng.integers(1, 5)), 4, cpus=16.0)
    each = rng.choice([0, 1, 1, 2] if bare else [1, 1, 2], jobs)
    return cluster, Trace.build(
        "crowd", submit_s=np.sort(rng.integers(0, 30, jobs)), gpus_per_worker=each,
        num_gpus=rng.choice([1, 1, 2], jobs) * np.maximum(1, each),
        duration_s=rng.integers(1, 60, jobs), cpus_per_worker=rng.integers(1, 5 * FEW, jobs) / FEW,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["srtf", "las:quantum=16", "tiresias:limits=10/40", "gittins"])
@examples(40)
@given(
    seed=st.integers(0, 2**32), jobs=st.integers(80, 300), bare=st.booleans(),
    slot_s=st.sampled_from([0.0, 0.0, 25.0]), fail=st.booleans(), hide=st.booleans(),
)  # fmt: skip
def test_crowds_of_many_shapes_are_played_alike(
    name: str, seed: int, jobs: int, bare: bool, slot_s: float, fail: bool, hide: bool
) -> None:
    cluster, trace = crowd(seed, jobs, bare=bare)
    faults = Faults(node_mtbf_s=400.0, job_mtbf_s=100.0, retries=1) if fail else Faults()
    when = Conditions(slot_s=slot_s, checkpoint_s=5.0, faults=faults, hide_durations=hide)
    policy: Any = make_policy(name).learned(trace.duration_s, trace.num_gpus)  # type: ignore[attr-defined]
    sims = [Simulator(cluster, trace, when, seed=seed % 7, log=100_000) for _ in range(2)]
    for sim, play_all in zip(sims, (replay_free, replay_ranked), strict=True):
        play_all(policy.rule, sim.batch, 100_000, np.zeros(1, np.int64))
    free, ranked = sims
    assert free.finished == len(trace)
    for log, count in (("events", "events"), ("entries", "entries"), ("rounds", "logged")):
        assert free.clock[count] == ranked.clock[count]
        one, other = getattr(free.state, log), getattr(ranked.state, log)
        for column in one.dtype.names:
            np.testing.assert_array_equal(one[column], other[column])
    for column in free.state.truth.dtype.names:
        np.testing.assert_array_equal(free.state.truth[column], ranked.state.truth[column])


@pytest.mark.parametrize("name", ["srtf", "srsf", "tiresias"])
def test_a_long_queue_does_not_slow_preemption_down(name: str) -> None:
    # Minutes if every round looked at everybody who waits.
    rng, jobs = np.random.default_rng(0), 60_000
    trace = Trace.build(
        "long", submit_s=np.zeros(jobs), duration_s=rng.lognormal(5.0, 1.5, jobs) + 1.0,
        num_gpus=rng.choice([1, 2, 4, 8, 16], jobs),
    )  # fmt: skip
    outcome = simulate(Cluster.uniform(20, 8), trace, make_policy(name))
    assert np.isfinite(outcome.done_s).all()


@pytest.mark.parametrize(
    ("name", "gpus", "when", "columns", "expected"),
    [
        ("srtf", [4, 4], {}, {}, replay_ranked),
        ("gittins", [4, 4], {"slot_s": 5.0}, {}, replay_ranked),
        ("srtf", [4, 8], {}, {}, replay_free),
        ("srtf", [4, 4], {"min_run_s": 1.0}, {}, replay_free),
        ("srtf", [4, 4], {}, {"num_servers": [1]}, replay_free),
        ("themis", [4, 4], {}, {}, replay_free),
        ("srtf", [4, 4], {"restart_s": 1.0}, {}, replay),
        ("srtf", [4, 4], {}, {"restart_s": [1.0]}, replay),
    ],
)
def test_the_indexed_queue_is_used_where_its_schedule_is_the_same(
    name: str, gpus: list[int], when: dict[str, float], columns: dict[str, Any], expected: Any
) -> None:
    trace = Trace.build("one", submit_s=[0], duration_s=[1], num_gpus=[1], **columns)
    sim = Simulator(Cluster(gpus=np.array(gpus)), trace, Conditions(**when))  # type: ignore[arg-type]
    assert replay_of(sim, make_policy(name)) is expected
