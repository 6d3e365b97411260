"""The generators of DL2's and DeepShare's jobs, against the published facts about them."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.errors import ConfigError
from rota.policies import make_policy
from rota.scenarios import load, names
from rota.sim import simulate
from rota.traces import deepshare_jobs, dl2_jobs
from rota.traces.dl2_jobs import KINDS, KindSpeeds, Slots, Stream, poisson, slotted

if TYPE_CHECKING:
    from rota.traces import Trace

SPEEDS = KindSpeeds(np.arange(1.0, 9.0), np.full(8, 16), np.full(8, 16))
SMALL = {"jobs": 60, "per_slot": 3, "max_epochs": 30_000, "slot_s": 1200.0}


def drawn(seed: int = 0, **changes: Any) -> Trace:
    return slotted(Slots(**{**SMALL, **changes}), SPEEDS, seed)


def test_jobs_come_as_at_alibaba_shifted_by_up_to_four_slots() -> None:
    shifts = set()
    for seed in range(20):
        counts = np.bincount((drawn(seed).submit_s / 1200).astype(int))
        whole = [ceil(a * 3 / 82) for a in dl2_jobs._ALI]
        fits = [s for s in range(5) if (whole[s:] + whole)[: len(counts) - 1] == [*counts[:-1]]]
        assert len(fits) == 1  # the last slot may be cut short
        shifts.add(fits[0])
    assert shifts == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("arrivals", ["ali", "poisson"])
@pytest.mark.parametrize("lengths", ["ali", "normal"])
@pytest.mark.parametrize("vary", [False, True])
def test_random_numbers_are_drawn_in_the_published_order(
    arrivals: str, lengths: str, vary: bool
) -> None:
    trace = drawn(7, arrivals=arrivals, lengths=lengths, vary_lengths=vary, units="batches")
    rng = np.random.RandomState(7)
    if arrivals == "poisson":
        rng.poisson(3, 100)
    rng.randint(5)
    for job in range(60):
        if lengths == "ali":
            u, total = rng.rand(), 0.0
            for kind in range(8):
                total += KINDS[kind].weight
                if total > u * sum(k.weight for k in KINDS):
                    break
            epochs = int(KINDS[kind].minutes / 1155 * 30_000)
        else:
            kind = rng.randint(8)
            epochs = int(KINDS[kind].epochs * 30_000)
        if vary:
            epochs = int(epochs * rng.randint(90, 110) / 100)
        rng.rand()
        assert trace.model[job] == kind
        assert trace.samples[job] == epochs * KINDS[kind].batches


def test_mended_units_keep_the_common_jobs_as_long_as_they_were() -> None:
    slip, mended = drawn(3, units="batches", lengths="normal"), drawn(3, lengths="normal")
    ratio = mended.samples / slip.samples
    assert dict(zip(mended.model.tolist(), ratio.tolist(), strict=True)) == {
        k: KINDS[k].batch / 32 for k in set(mended.model.tolist())
    }
    assert ratio[mended.model == 0].tolist() == [1.0] * int((mended.model == 0).sum())


def test_jobs_are_elastic_and_some_need_no_gpu() -> None:
    trace = drawn(lengths="normal")
    cpu_only = np.isin(trace.model, [5, 6])
    assert cpu_only.any()
    assert (trace.gpus_per_worker == np.where(cpu_only, 0, 1)).all()
    for name, value in (("min_workers", 1), ("max_workers", 16), ("min_servers", 1),
                        ("max_servers", 16), ("cpus_per_worker", 2), ("cpus_per_server", 2),
                        ("num_gpus", 2), ("num_servers", 2)):  # fmt: skip
        assert set(getattr(trace, name).tolist()) == {value}
    # The unit of work is that of the speed curve: samples / duration = speed at the request.
    assert trace.samples / trace.duration_s == pytest.approx(SPEEDS.reference[trace.model])


def test_a_scheduler_may_be_told_a_wrong_number_of_epochs() -> None:
    exact, wrong = drawn(1), drawn(1, epoch_error=0.2)
    assert np.isnan(exact.estimate_s).all()
    assert wrong.estimate_s.tolist() == exact.duration_s.tolist()
    off = wrong.duration_s / wrong.estimate_s
    assert 0.8 <= off.min() < 0.9 < 1.1 < off.max() <= 1.2


def test_other_arrivals() -> None:
    uniform = np.bincount((drawn(arrivals="uniform").submit_s / 1200).astype(int))
    assert uniform.tolist() == [3] * 20
    google = np.bincount((drawn(arrivals="google").submit_s / 1200).astype(int))
    assert set(google.tolist()) <= {1, 2, 3}
    clipped = np.bincount((drawn(arrivals="poisson").submit_s / 1200).astype(int))
    assert clipped.max() <= 3
    with pytest.raises(ConfigError, match="per_slot = 3 only, not 10"):
        drawn(arrivals="google", per_slot=10)


def test_published_traces_have_the_published_lower_bound() -> None:
    # Each job alone at its fastest size: dl2-small 5.029 slots over seeds 0–99, testbed .686.
    for name, slot_s, bound in (("dl2-small-published", 1200, 5.029),
                                ("dl2-small-uniform-published", 1200, 22.005),
                                ("dl2-testbed-published", 300, 0.686)):  # fmt: skip
        scenario = load(name)
        curves = scenario.physics().curves
        assert curves is not None
        fastest = curves.speed[:, 0].max(axis=(1, 2))
        means = []
        for seed in range(100):
            trace = scenario.draw(seed).trace
            which = np.array([curves.index(model) for model in trace.models])[trace.model]
            means.append((trace.samples / fastest[which]).mean() / slot_s)
        assert np.mean(means) == pytest.approx(bound, abs=0.0006)


def test_mended_jobs_ask_for_nothing_that_was_not_measured() -> None:
    for name in ("dl2-small", "dl2-template", "dl2-busy"):
        world = load(name).draw(0)
        curves = world.physics.curves
        assert curves is not None
        which = np.array([curves.index(model) for model in world.trace.models])[world.trace.model]
        assert (world.trace.max_servers <= curves.measured[which, 0]).all()
        assert (world.trace.max_workers <= curves.measured[which, 1]).all()
        # More than 24 tasks were never run: the surplus adds nothing.
        servers, workers = np.indices(curves.speed.shape[2:])
        inside = servers + workers <= 24
        assert curves.speed[:, 0].max(axis=(1, 2)) == pytest.approx(
            np.where(inside, curves.speed[:, 0], 0).max(axis=(1, 2))
        )


def test_busy_jobs_come_at_their_rate_and_length() -> None:
    many = Stream(jobs=20_000, per_hour=14)
    trace = poisson(many, SPEEDS, np.random.default_rng(0))
    assert trace.span_s == pytest.approx(20_000 / 14 * 3600, rel=0.03)
    # 147 minutes is what Alibaba's jobs took on average.
    assert trace.duration_s.mean() / 60 == pytest.approx(147, rel=0.03)
    off = trace.duration_s / 60 / np.array([kind.minutes for kind in KINDS])[trace.model]
    assert 0.9 <= off.min() < 0.91 < 1.09 < off.max() <= 1.1
    heavy = Stream(jobs=20_000, per_hour=14, types="uniform", lengths="lognormal")
    trace = poisson(heavy, SPEEDS, np.random.default_rng(0))
    assert np.median(trace.duration_s) / 60 == pytest.approx(30, rel=0.05)
    assert trace.duration_s.max() == 2880 * 60
    assert np.bincount(trace.model).min() > 2300
    one = Stream(jobs=100, per_hour=2, types="uniform", lengths="one", median_min=9)
    trace = poisson(one, SPEEDS, np.random.default_rng(0))
    assert trace.duration_s == pytest.approx(np.full(100, 540.0))


SPREAD = np.zeros((6, 5, 9))
for _model in range(6):
    for _gpus, _nodes in ((2, 2), (4, 2), (4, 4), (8, 2), (8, 4)):
        SPREAD[_model, _nodes, _gpus] = (1 + _model) * _gpus * (1 if _nodes == 2 else 0.5)


def test_deepshare_jobs_take_an_hour_at_their_mean_speed() -> None:
    plan = deepshare_jobs.GangWorkload(jobs=256)
    trace = deepshare_jobs.gangs(plan, SPREAD, np.random.default_rng(0))
    assert set(trace.submit_s.tolist()) == {0.0}
    assert set(trace.num_gpus.tolist()) == {2, 4, 8}
    # 2 GPUs: one placement, 3600 s. 4 and 8: mean of 1 and .5, at best 3600 × .75.
    assert {
        (gpus, round(took))
        for gpus, took in zip(trace.num_gpus.tolist(), trace.duration_s.tolist(), strict=True)
    } == {(2, 3600), (4, 2700), (8, 2700)}


@pytest.mark.parametrize("load", [0.55, 0.8])
def test_deepshare_jobs_arrive_at_their_load(load: float) -> None:
    plan = deepshare_jobs.GangWorkload(jobs=20_000, load=load)
    trace = deepshare_jobs.gangs(plan, SPREAD, np.random.default_rng(1))
    nominal = 3600 * trace.num_gpus.sum() / (32 * trace.span_s)
    assert nominal == pytest.approx(load, rel=0.03)


def test_deepshare_gangs_grow_up_to_the_largest() -> None:
    plan = deepshare_jobs.GangWorkload(jobs=500, gpus=512, largest_gang=32)
    speed = np.ones((len(deepshare_jobs.MODELS), 33, 65))
    trace = deepshare_jobs.gangs(plan, speed, np.random.default_rng(0))
    assert sorted(set(trace.num_gpus.tolist())) == [2, 4, 8, 16, 32]
    with pytest.raises(ConfigError, match="largest_gang=24"):
        deepshare_jobs.GangWorkload(largest_gang=24)
    small = deepshare_jobs.GangWorkload(gpus=16, largest_gang=32)
    with pytest.raises(ConfigError, match="jobs of 32 GPUs do not fit a cluster of 16"):
        deepshare_jobs.gangs(small, speed, np.random.default_rng(0))


def test_deepshare_mixes() -> None:
    plan = deepshare_jobs.GangWorkload(jobs=20_000, mix="heavy")
    trace = deepshare_jobs.gangs(plan, SPREAD, np.random.default_rng(0))
    share = np.bincount(trace.model) / 20_000
    assert share == pytest.approx(deepshare_jobs.MIXES["heavy"], abs=0.01)
    with pytest.raises(ConfigError, match="do not fit a cluster of 4"):
        deepshare_jobs.gangs(deepshare_jobs.GangWorkload(gpus=4), SPREAD, np.random.default_rng(0))


def test_gangs_of_several_gpu_types_have_a_speed_wherever_they_are_put() -> None:
    world = load("das-medium").draw(0)
    curves = world.physics.curves
    assert curves is not None
    assert curves.gpu_types == ("v100", "p100", "k80") == world.cluster.gpu_types
    which = np.array([curves.index(model) for model in world.trace.models])[world.trace.model]
    for curve, gpus in zip(which.tolist(), world.trace.num_gpus.tolist(), strict=True):
        assert (curves.speed[curve, :, 1 : gpus + 1, gpus] > 0).all()
    assert (world.cluster.price_per_gpu_h > 0).all()
    assert world.physics.drift is not None


@pytest.mark.parametrize("name", ["venus", "philly", "pai", "rigid-blind", "gang-nonpreemptive"])
def test_presets_fit_their_clusters(name: str) -> None:
    world = load(name).draw(0)
    assert world.trace.num_gpus.max() <= world.cluster.total_gpus
    if "load" in load(name).settings["workload"]:
        # Of gangs of one to 64 GPUs, some are wider than others: the load is exact all the same.
        assert world.trace.load(world.cluster.total_gpus) == pytest.approx(0.82, rel=0.01)


LOADED = [
    name for name in names()
    if load(name).settings["workload"]["kind"] == "preset"
    and "load" in load(name).settings["workload"]
]  # fmt: skip


@pytest.mark.parametrize("name", LOADED)
def test_the_load_at_best_speed_is_the_nominal_one(name: str) -> None:
    """A duration is what a job takes at the best speed the cluster can give it."""
    nominal = load(name).settings["workload"]["load"]
    for seed in (0, 1):
        world = load(name).draw(seed)
        assert world.trace.offered_load(world.cluster.total_gpus) == pytest.approx(
            nominal, rel=0.01
        )


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["rigid-blind", "rigid-blind-philly"])
def test_jobs_wait(name: str, seed: int) -> None:
    world = load(name).draw(seed)
    outcome = simulate(world.cluster, world.trace, make_policy("fifo-skip"), world.when, seed=seed)
    waited = outcome.started_s > outcome.submit_s + 60
    assert 0.1 < waited.mean() < 0.9
    better = simulate(world.cluster, world.trace, make_policy("las"), world.when, seed=seed)
    jct_s = [float((run.done_s - run.submit_s).mean()) for run in (outcome, better)]
    assert jct_s[1] < 0.95 * jct_s[0]
