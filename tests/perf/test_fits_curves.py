"""The tables that the models give: shapes, monotony, zeros where nothing can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.core import Cluster
from rota.core.speed import LINKS, MACHINES, PAIRS, RANKS
from rota.errors import ConfigError, InputError, UnknownNameError
from rota.perf import profiles
from rota.perf.allreduce import AllReduce, allreduce_curves, allreduce_model, best_batch
from rota.perf.arena import arena_curves
from rota.perf.colocation import machine_contention, pair_speed
from rota.perf.doubt import beyond, noisy
from rota.perf.goodput import efficiency
from rota.perf.hetero import gavel_curves
from rota.perf.ps import PsModel, ps_curves, ps_model
from rota.perf.published import deepshare_measured, deepshare_work, dl2_clean, dl2_measured
from rota.perf.sharing import deepshare_curves, link_contention, rank_contention

if TYPE_CHECKING:
    from rota.core.speed import Curves

ALL = {
    "servers": ps_curves,
    "all-reduce": allreduce_curves,
    "gavel": gavel_curves,
    "arena": arena_curves,
    "deepshare": deepshare_curves,
}


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_curves_are_tables_with_nothing_at_zero(make: type) -> None:
    curves: Curves = make()

    assert curves.speed.shape[:2] == (len(curves.names), len(curves.gpu_types))
    assert curves.measured.shape == (len(curves.names), 2)
    assert (curves.speed[:, :, 0] == 0).all()
    assert (curves.speed[:, :, :, 0] == 0).all()
    assert (curves.speed.max(axis=(1, 2, 3)) > 0).all()
    if curves.by_nodes:
        a, w = np.indices(curves.speed.shape[2:])
        assert (curves.speed[:, :, a > w] == 0).all()


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_an_unknown_model_is_refused(make: type) -> None:
    with pytest.raises(UnknownNameError, match="is called 'vgg-61'"):
        make(models=["vgg-61"])


@pytest.mark.parametrize("make", [allreduce_curves, gavel_curves, arena_curves])
def test_an_unknown_gpu_type_is_refused(make: type) -> None:
    with pytest.raises(InputError, match="is called 'b300'"):
        make(gpu_types=["b300"])


def test_a_step_with_servers_is_the_sum_of_its_parts() -> None:
    # 32/4·1 + 2 + 3·4/2 + 4/2 + 5·4 + 6·2 = 8 + 2 + 6 + 2 + 20 + 12
    model = PsModel(32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)

    assert model.step_s(2, 4) == 50.0
    assert model.speed(2, 4) == 32 / 50
    assert model.speed([0, 2], [4, 0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", profiles.DL2_MODELS)
def test_servers_and_workers_have_one_peak(name: str) -> None:
    model = ps_model(name)
    p, w = np.arange(1, 65)[:, None], np.arange(1, 65)[None, :]
    step = model.step_s(p, w)

    assert min(model.sample, model.fixed, model.shared, model.sent, model.worker, model.server) >= 0
    assert (np.diff(step, 2, axis=0) > -1e-12).all()
    assert (np.diff(step, 2, axis=1) > -1e-12).all()
    # Taken alone, traffic falls with servers and compute falls with workers.
    bare = PsModel(model.batch, model.sample, model.fixed, model.shared, model.sent, 0.0, 0.0)
    assert (np.diff(bare.speed(p, w), axis=0) >= -1e-9).all()


def test_a_step_of_all_reduce_overlaps_as_told() -> None:
    parts = (1.0, 0.5, 2.0, 0.1, 4.0, 0.2)
    added, larger = AllReduce(*parts, 1.0), AllReduce(*parts, 200.0)

    assert added.step_s(1, 1, 4) == 3.0  # 1 + .5·4, alone
    assert added.step_s(1, 4, 4) == pytest.approx(3 + 2.2)
    assert added.step_s(2, 4, 4) == pytest.approx(3 + 4.4)
    assert larger.step_s(2, 4, 4) == pytest.approx(4.4, rel=1e-2)
    assert AllReduce(*parts, 2.0).step_s(2, 2, 4) == pytest.approx(5.0)  # √(3² + 4²)


def test_what_does_not_fit_at_once_is_done_in_passes() -> None:
    model = AllReduce(1.0, 0.5, 2.0, 0.0, 4.0, 0.0, 1.0)

    # 16 on 2 GPUs are 8 each; with room for 4 that is one pass more of 1 + .5·4.
    assert model.iteration_s(1, 2, 16, most=4) == pytest.approx(3 + 3 + 2)
    assert model.iteration_s(1, 2, 16, most=8) == pytest.approx(5 + 2)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [(name, "t4") for name in profiles.POLLUX_MODELS]
    + [(name, gpu) for name in profiles.TITAN_MODELS for gpu in ("a100", "v100")],
)
def test_all_reduce_steps_lengthen_with_batch_gpus_and_distance(name: str, gpu: str) -> None:
    model = allreduce_model(name, gpu)
    r = np.arange(2, 65)

    assert 1 <= model.overlap <= 10
    assert (np.diff(model.step_s(1, 4, np.arange(1, 100))) > 0).all()
    assert (np.diff(model.step_s(1, r, 8)) >= 0).all()
    assert (np.diff(model.step_s(2, r, 8)) >= 0).all()
    assert model.step_s(2, 4, 8) >= model.step_s(1, 4, 8)
    assert model.step_s(1, 2, 8) >= model.step_s(1, 1, 8)


def test_goodput_is_at_least_the_speed_at_the_own_batch() -> None:
    fixed, best = allreduce_curves(), allreduce_curves(goodput=True)

    assert (best.speed >= fixed.speed - 1e-9).all()
    assert (best.speed[:, 0, 4, 16] > best.speed[:, 0, 1, 1]).all()


def test_a_sample_is_worth_less_in_a_larger_batch_and_more_later_on() -> None:
    batches = np.array([128, 256, 1024, 4096])

    assert efficiency("cifar10", 128) == pytest.approx(1.0)
    assert (np.diff(efficiency("cifar10", batches)) < 0).all()
    assert efficiency("cifar10", 4096, tenth=9) > efficiency("cifar10", 4096, tenth=0)


def test_the_best_batch_grows_with_gpus() -> None:
    few, many = (best_batch("imagenet", "t4", n, r)[0] for n, r in ((1, 1), (8, 32)))

    assert many > few


def test_goodput_of_a_model_without_measured_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match="goodput is known of bert"):
        allreduce_curves(["vit"], ["a100"], goodput=True)


def test_types_come_in_the_order_asked_for() -> None:
    one, other = gavel_curves(gpu_types=("v100", "k80")), gavel_curves(gpu_types=("k80",))

    np.testing.assert_array_equal(one.speed[:, 1], other.speed[:, 0])


def test_what_never_ran_on_a_type_has_no_speed_there() -> None:
    curves = gavel_curves(["ResNet-50 (batch size 128)"], ["k80"])
    assert curves.speed[0, 0, 1].nonzero()[0].tolist() == [1]

    large = arena_curves(["bert-6.7B-b128"], ["a10", "a100"])
    assert large.speed[0, 0].max() == 0
    assert large.speed[0, 1].max() > 0
    assert large.speed[0, 1, 1, 1] == 0


def test_only_several_nodes_unless_asked() -> None:
    assert (deepshare_curves().speed[:, :, 1] == 0).all()
    assert (deepshare_curves(single_node=True).speed[:, 0, 1, 1:] > 0).all()


def test_ranks_leave_single_nodes_alone_and_know_unseen_jobs() -> None:
    laws = rank_contention(deepshare_curves(["MoE", "DLRM"]))
    assert laws.mode == RANKS
    assert laws.kind.shape == (3, 5, 9)
    assert (laws.kind[:, :2] == -1).all()
    assert laws.kind[0, 2, 8] == 28  # MoE is the sixth model, (8, 2) its fourth placement
    assert laws.kind[0, 3, 6] in (27, 28, 29)
    assert laws.kind[2, 2, 2] == 30  # no curve: an average job
    assert (1 - np.outer(laws.hurt, laws.harm) > 0.3).all()

    told = rank_contention(gavel_curves(["A3C"]), {"A3C": (0.2, 0.7)})
    k = told.kind[0, 2, 2]
    assert (told.hurt[k], told.harm[k]) == (0.2, 0.7)


def test_links_carry_what_jobs_lose_between_nodes() -> None:
    cluster = Cluster.uniform(4, per_rack=2)
    curves = allreduce_curves(["bert"], max_nodes=4, max_gpus=8)
    laws = link_contention(curves, cluster, 200.0, 400.0)
    k = laws.kind[0, 2, 8]

    assert laws.mode == LINKS
    assert laws.talk[k] == pytest.approx(1 - curves.speed[0, 0, 2, 8] / curves.speed[0, 0, 1, 8])
    assert laws.traffic_gbps[k] == pytest.approx(100.0 * laws.talk[k])
    assert laws.uplink_gbps.tolist() == [200.0, 200.0]
    assert (laws.kind[:, 1] == -1).all()
    assert link_contention(None, cluster, 200.0, 400.0).talk.tolist() == [0.2]


def test_links_refuse_what_makes_no_sense() -> None:
    cluster = Cluster.uniform(2)
    with pytest.raises(ConfigError, match="must exceed 0"):
        link_contention(None, cluster, 0.0, 1.0)
    with pytest.raises(ConfigError, match="other_talk"):
        link_contention(None, cluster, 1.0, 1.0, other_talk=1.5)
    with pytest.raises(ConfigError, match="give talk="):
        link_contention(deepshare_curves(), cluster, 1.0, 1.0)


def test_machines_weigh_as_much_as_pairs_on_a_gpu_at_full_strength() -> None:
    laws = machine_contention(gavel_curves(["A3C", "CycleGAN"]))

    assert laws.mode == MACHINES
    assert laws.kind[:, 1, 1].tolist() == [0, 1, 2]
    typical = laws.hurt[-1] * laws.harm[-1]
    assert 1 - typical == pytest.approx(0.68, abs=0.02)
    half = machine_contention(strength=0.5)
    assert half.hurt[-1] * half.harm[-1] == pytest.approx(typical / 2)
    with pytest.raises(ConfigError, match="strength"):
        machine_contention(strength=2.0)


def test_pairs_that_do_not_fit_have_no_speed() -> None:
    _, speed = pair_speed("k80")

    assert ((speed >= 0) & (speed <= 1)).all()
    assert ((speed == 0) == (speed.T == 0)).all()
    assert 0.05 < (speed == 0).mean() < 0.3


def test_noise_is_a_factor_of_the_stated_size_and_repeats() -> None:
    curves = ps_curves()
    one, two = (noisy(curves, 0.3, np.random.default_rng(7)) for _ in range(2))
    some = curves.speed > 0

    np.testing.assert_array_equal(one.speed, two.speed)
    assert np.std(np.log(one.speed[some] / curves.speed[some])) == pytest.approx(0.3, rel=0.1)
    assert (one.speed[~some] == 0).all()
    with pytest.raises(ConfigError, match="sd=-1"):
        noisy(curves, -1, np.random.default_rng(0))


def test_sizes_beyond_the_measured_are_said() -> None:
    curves = ps_curves(max_servers=32, max_workers=32)

    assert beyond(curves, ["vgg-16", "nobody"], 8, 8) == []
    (sentence,) = beyond(curves, ["vgg-16", "vgg-16"], 16, 16)
    assert "'vgg-16' were measured up to 12 workers (jobs may get 16)" in sentence
    (sentence,) = beyond(curves, ["vgg-16"], None, None)
    assert "23 parameter servers (jobs may get 32) and 12 workers (jobs may get 32)" in sentence
    assert "nodes" in beyond(gavel_curves(), ["A3C"], 2, 1)[0]


SHAPE = {
    # Best speed and where, best of n servers with n workers, speed at (1, 1) and (16, 16).
    "resnet-50": (65.2, (15, 2), 39.2, 16, 15.8, 39.2),
    "vgg-16": (28.4, (14, 1), 15.1, 5, 9.6, 12.9),
    "resnext-110": (507, (5, 1), 400, 3, 383, 341),
    "inception-bn": (318, (16, 5), 275, 4, 170, 238),
    "seq2seq": (556, (11, 3), 466, 5, 277, 316),
    "cnn-text-classification": (100, (5, 5), 100, 5, 62, 85),
    "dssm": (1189, (7, 5), 1125, 5, 462, 1083),
    "wlm": (498, (5, 1), 293, 4, 162, 259),
}


def test_the_published_surface_has_its_published_shape() -> None:
    curves = dl2_measured(size=16)
    assert curves.names == tuple(SHAPE)
    for c, (best, where, bundle, n, first, last) in enumerate(SHAPE.values()):
        speed = curves.speed[c, 0]
        same = np.diag(speed)
        assert np.unravel_index(speed.argmax(), speed.shape) == where
        assert same.argmax() == n
        seen = [speed.max(), same.max(), speed[1, 1], speed[16, 16]]
        np.testing.assert_allclose(seen, [best, bundle, first, last], rtol=6e-3)


def test_the_clean_surface_ends_where_measurements_end() -> None:
    speed = dl2_clean().speed[:, 0]
    p, w = np.indices(speed.shape[1:])
    inside = (p >= 1) & (w >= 1) & (p + w <= 24)

    assert (speed[:, ~inside] == 0).all()
    assert (speed[:, inside] > 0).all()


def test_deepshare_is_given_as_measured() -> None:
    curves, laws = deepshare_measured()
    moe = curves.index("MoE")

    assert curves.speed[moe, 0, 2, 8] == 45.18
    assert (curves.speed[:, 0, 1] == 0).all()
    assert (curves.speed > 0).sum() == 30
    assert laws.mode == PAIRS
    assert laws.floor == 0.35
    worst = laws.ratio[laws.kind[moe, 2, 2] :, :].min()
    assert worst == pytest.approx(0.36)
    dlrm, mobile = laws.kind[curves.index("DLRM"), 4, 8], laws.kind[0, 2, 2]
    assert laws.ratio[dlrm, mobile] == 0.366
    assert deepshare_work()["MoE", 8] == 130785.648
