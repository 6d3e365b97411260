"""Our agent: whatever it is shown, it scores every choice, and its file says what it is."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_cases import early_and_late, layer

from rota import weights_file
from rota.adapt.features import CHOICE_WIDTH, CONTEXT_WIDTH, LAYER_WIDTH, numbers_of
from rota.adapt.growth import Growth
from rota.adapt.growth_agent import AgentSettings, GrowthAgent, batch_of
from rota.adapt.moment import GrowthChoice, Moment
from rota.errors import CheckpointError, ConfigError

odd = st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e300, 0.5])


@pytest.fixture(scope="module")
def agent() -> GrowthAgent:
    return GrowthAgent.draw(np.random.default_rng(0), AgentSettings(width=8))


def moment(layers: int = 3, growths: int = 4, **more: object) -> Moment:
    facts = tuple(layer(f"block{i}", width=2**i) for i in range(layers))
    choices = [
        GrowthChoice(Growth("widen", f"block{i % layers}", 2.0 + i), i % layers, 2.0 + i, 100 * i)
        for i in range(growths)
    ]
    last = GrowthChoice(None, -1, 2.0, 50)
    return replace(
        early_and_late().moment(0, 0, ()), layers=facts, choices=(*choices, last), **more
    )


def test_the_numbers_are_as_wide_as_they_say() -> None:
    numbers = numbers_of(moment(layers=2, growths=5))

    assert numbers.layers.shape == (2, LAYER_WIDTH)
    assert numbers.choices.shape == (6, CHOICE_WIDTH)
    assert numbers.context.shape == (CONTEXT_WIDTH,)
    assert numbers.grows.tolist() == [0, 1, 0, 1, 0, -1]


@settings(max_examples=60, deadline=None)
@given(odd, odd, odd, odd, odd)
def test_the_numbers_are_bounded_whatever_is_shown(
    left: float, epoch: float, loss: float, rate: float, gpus: float
) -> None:
    odd_moment = moment(
        left_s=left, epoch_s=epoch, loss=loss, learning_rate=rate, gpus=gpus, slope=loss
    )
    numbers = numbers_of(odd_moment)

    for array in (numbers.layers, numbers.choices, numbers.context):
        assert np.isfinite(array).all()
        assert np.abs(array).max() < 20.0


def test_what_was_not_measured_is_told_from_what_is_zero() -> None:
    unknown, zero = (numbers_of(moment(accuracy=a)).context for a in (math.nan, 0.0))

    assert (unknown != zero).sum() == 1


def test_a_batch_of_unlike_moments_is_scored_as_each_by_itself(agent: GrowthAgent) -> None:
    moments = [moment(1, 1), moment(4, 20), moment(2, 0), moment(3, 3, accuracy=math.nan)]
    with torch.inference_mode():
        together = agent.network(batch_of([numbers_of(each) for each in moments])).exp().numpy()

    for row, each in zip(together, moments, strict=True):
        alone = agent.probabilities(each)
        np.testing.assert_allclose(row[: len(alone)], alone, rtol=1e-5)
        assert row[len(alone) :].sum() == 0.0
        assert alone.sum() == pytest.approx(1.0, abs=1e-5)


def test_choices_are_known_by_what_they_are_and_not_by_their_order(agent: GrowthAgent) -> None:
    shown = moment(3, 5)
    *growths, last = shown.choices
    turned = replace(shown, choices=(*growths[::-1], last))

    there, back = agent.probabilities(shown), agent.probabilities(turned)
    np.testing.assert_allclose(back, [*there[:-1][::-1], there[-1]], rtol=1e-5)
    assert len(set(there.tolist())) == 6


def test_names_of_layers_mean_nothing(agent: GrowthAgent) -> None:
    shown = moment()
    renamed = replace(shown, layers=tuple(replace(x, name=f"x{x.name}") for x in shown.layers))

    np.testing.assert_array_equal(agent.probabilities(shown), agent.probabilities(renamed))


def test_a_network_without_layers_can_only_stay(agent: GrowthAgent) -> None:
    assert agent.choose(replace(moment(growths=0), layers=())) == 0


@pytest.mark.parametrize("at", [3, -2])
def test_a_choice_of_a_layer_that_is_not_there_is_refused(agent: GrowthAgent, at: int) -> None:
    shown = moment(3, 1)
    wrong = replace(shown.choices[0], layer=at)

    with pytest.raises(ConfigError, match="the network has 3"):
        agent.choose(replace(shown, choices=(wrong, shown.choices[1])))


def test_a_moment_without_choices_is_refused(agent: GrowthAgent) -> None:
    with pytest.raises(ConfigError, match="at least one choice"):
        agent.choose(replace(moment(), choices=()))


@pytest.mark.parametrize("width", [0, -1, 2.5, True, 10**9])
def test_odd_widths_are_refused(width: int) -> None:
    with pytest.raises(ConfigError, match=r"agent\.width"):
        AgentSettings(width=width)


def test_an_agent_comes_back_from_its_file_as_it_was(agent: GrowthAgent, tmp_path) -> None:
    agent.save(tmp_path / "agent.ckpt", {"note": "tried"})
    back = GrowthAgent.load(tmp_path / "agent.ckpt")

    assert back.settings == agent.settings
    np.testing.assert_array_equal(agent.probabilities(moment()), back.probabilities(moment()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "dl2"}, "'dl2', not 'growth-agent'"),
        ({"version": 99}, "version 99"),
        ({"settings": {"width": 9}}, "shape"),
        ({"settings": {"depth": 9}}, "settings are wrong"),
        ({"settings": None}, "settings are wrong"),
    ],
)
def test_a_file_that_says_something_else_is_refused(
    agent: GrowthAgent, tmp_path, change: dict, said: str
) -> None:
    path = tmp_path / "agent.ckpt"
    agent.save(path)
    facts, arrays = weights_file.read(path)
    weights_file.write(path, {**facts, **change}, arrays)

    with pytest.raises(CheckpointError, match=said):
        GrowthAgent.load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"more": np.zeros(1)}, "more"),
        ({"score.bias": np.array([np.nan])}, "no finite numbers"),
        ({"score.bias": np.zeros(1, np.int64)}, "no finite numbers"),
        ({"score.bias": np.zeros(2)}, "shape"),
    ],
)
def test_a_file_of_other_weights_is_refused(
    agent: GrowthAgent, tmp_path, change: dict, said: str
) -> None:
    path = tmp_path / "agent.ckpt"
    agent.save(path)
    facts, arrays = weights_file.read(path)
    weights_file.write(path, facts, {**arrays, **change})

    with pytest.raises(CheckpointError, match=said):
        GrowthAgent.load(path)


def test_a_file_that_is_cut_off_is_refused(agent: GrowthAgent, tmp_path) -> None:
    path = tmp_path / "agent.ckpt"
    agent.save(path)
    content = path.read_bytes()
    for size in (0, 4, 100, len(content) - 10):
        path.write_bytes(content[:size])
        with pytest.raises(CheckpointError):
            GrowthAgent.load(path)
