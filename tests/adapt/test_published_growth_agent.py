"""The published agent, as it was and as it is mended."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from made_up_cases import MadeUpCases, Start, early_and_late, early_only

from rota import weights_file
from rota.adapt.growth_cases import play
from rota.adapt.layer_tokens import Vocabulary, word_of
from rota.adapt.published_agent import (
    MENDED,
    PUBLISHED,
    Defects,
    PublishedAgent,
    time_code,
)
from rota.adapt.published_training import (
    PublishedTraining,
    networks_of,
    probabilities,
    tan_reward,
)
from rota.errors import CheckpointError, ConfigError

OLD_NORM = "BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
NEW_NORM = OLD_NORM.replace("affine=True", "affine=True, bias=True")


def test_its_network_is_of_the_published_size() -> None:
    agent = PublishedAgent.draw([[f"word {i}" for i in range(18)]], rng(), PUBLISHED)

    count = sum(x.numel() for x in agent.network.parameters())
    learned = sum(x.numel() for x in agent.network.parameters() if x.requires_grad)
    assert (count, learned) == (55_268, 54_980)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_sines_alone_cannot_tell_the_beginning_from_half_time_and_the_end() -> None:
    codes = [time_code(left, 400.0, PUBLISHED) for left in (0.0, 200.0, 400.0)]
    mended = [time_code(left, 400.0) for left in (0.0, 200.0, 400.0)]

    np.testing.assert_allclose(codes, np.zeros((3, 8)), atol=1e-5)
    assert all(np.abs(a - b).max() > 0.4 for a, b in pairwise(mended))


def test_the_time_code_is_five_times_the_sine_of_whole_turns() -> None:
    # At an eighth of the time: sin 45°, sin 90°, sin 135°, sin 180°, …
    half = 5.0 / math.sqrt(2.0)

    found = time_code(50.0, 400.0, PUBLISHED)

    np.testing.assert_allclose(found, [half, 5, half, 0, -half, -5, -half, 0], atol=1e-5)


def test_layers_of_a_second_network_share_ids_as_published() -> None:
    # The second has three words of which one is known: its new ones are numbered from 3, where the
    # first network's last word is.
    networks = [["a", "b", "c", "d"], ["a", "x", "y"]]

    published = Vocabulary.of(networks, printed=True, shared=True)
    mended = Vocabulary.of(networks, printed=True)

    assert published.ids(["d", "x"]) == [3, 3]
    assert published.size == 5
    assert mended.ids(["a", "b", "c", "d", "x", "y"]) == [0, 1, 2, 3, 4, 5]


def test_a_layer_that_another_torch_prints_otherwise_is_known_if_mended() -> None:
    published = Vocabulary.of([[OLD_NORM]], printed=True)
    mended = Vocabulary.of([[OLD_NORM]])

    assert mended.ids([NEW_NORM]) == mended.ids([OLD_NORM]) == [0]
    with pytest.raises(ConfigError, match="does not know the layer"):
        published.ids([NEW_NORM])


def test_a_layer_that_was_never_seen_has_an_id_of_its_own_if_mended() -> None:
    words = Vocabulary.of([["Linear(in_features=3, out_features=4, bias=True)", "ReLU()"]])

    assert words.ids(["GELU(approximate='none')", "Linear(in_features=4, out_features=3)"]) == [
        2,
        2,
    ]
    assert words.size == 3


@pytest.mark.parametrize(
    ("token", "word"),
    [
        ("Conv2d(3, 32, kernel_size=(3, 3), stride=(1, 1))", "Conv2d 3 32 3×3 1×1"),
        ("Linear(in_features=3, out_features=4, bias=True)", "Linear 3 4"),
        ("AdaptiveAvgPool2d(output_size=1)", "AdaptiveAvgPool2d 1"),
        ("ReLU(inplace=True)", "ReLU"),
        (NEW_NORM, "BatchNorm2d 8"),
        ("odd", "odd"),
    ],
)
def test_a_word_is_the_kind_and_shape_of_a_layer(token: str, word: str) -> None:
    assert word_of(token, printed=False) == word
    assert word_of(token, printed=True) == token


def test_the_published_temperature_forgets_what_was_learned() -> None:
    # Softmax of probabilities in [0, 1]: with four choices none is above e/(e+3) = .475.
    sure = torch.tensor([100.0, 0.0, 0.0, 0.0])

    published = probabilities(sure, 1.0001, PUBLISHED)
    mended = probabilities(sure, 1.0001, MENDED)

    assert float(published[0]) == pytest.approx(math.e / (math.e + 3), abs=1e-3)
    assert float(mended[0]) == pytest.approx(1.0)
    assert float(probabilities(sure, 1.0, PUBLISHED)[0]) == pytest.approx(1.0)


def test_the_published_temperature_is_gone_after_22_episodes() -> None:
    # 10 · 0.9^22 = .98
    published, mended = (
        PublishedTraining(early_and_late(), defects=defects, temperature=10.0)
        for defects in (PUBLISHED, MENDED)
    )
    for count in range(22):
        assert published.temperature > 1.0, count
        published.advance()
        mended.advance()

    assert (published.temperature, mended.temperature) == (1.0, 10.0)


def test_the_reward_is_the_published_tangent() -> None:
    assert tan_reward(0.60) - tan_reward(0.59) == pytest.approx(4.45, abs=0.01)
    assert tan_reward(0.7391) == pytest.approx(230, abs=0.5)
    assert math.isfinite(tan_reward(1.0))
    assert tan_reward(-1.0) == 0.0


def test_one_step_follows_the_published_objective() -> None:
    # With R = r·mean(−log p), the gradient of the last bias is −R·mean(onehot − p).
    cases = MadeUpCases([Start("net", 0.7)], early_only, decisions=1)
    training = PublishedTraining(cases, defects=PUBLISHED)
    shown = training.agent.read(cases.moment(0, 0, ()))
    odds = training.agent.scores(*shown).softmax(0).detach().numpy()
    accuracy = training.advance()

    bias = training.agent.network.decide[4].bias.grad.numpy()
    taken = int(bias.argmin())
    replicas = {cases.accuracy(0, r, (taken,)) for r in range(5)}
    assert accuracy in replicas
    np.testing.assert_allclose(bias, -tan_reward(accuracy) * (np.eye(4)[taken] - odds), rtol=1e-3)


def test_its_word_vectors_are_never_learned() -> None:
    training = PublishedTraining(early_and_late())
    before = training.agent.network.embedding.weight.clone()
    encoder = training.agent.network.layers.weight_ih_l0.detach().clone()
    for _ in range(3):
        training.advance()

    assert torch.equal(training.agent.network.embedding.weight, before)
    assert not torch.equal(training.agent.network.layers.weight_ih_l0, encoder)


def test_the_learning_rate_falls_every_500_episodes() -> None:
    training = PublishedTraining(early_and_late())
    training.episodes = 499
    training.advance()

    assert training._adam.param_groups[0]["lr"] == pytest.approx(0.99e-4)


def test_its_vocabulary_holds_every_network_that_cases_show() -> None:
    cases = early_and_late()
    agent = PublishedAgent.draw(networks_of(cases), rng(), PUBLISHED)

    for taken in ((), (0,), (2, 2), (1, 3)):
        agent.choose(cases.moment(2, 3, taken))


def test_it_learns_what_is_best_everywhere() -> None:
    cases = MadeUpCases([Start("net", 0.7)], lambda _, taken: 0.3 * taken.count(1), decisions=1)
    training = PublishedTraining(cases, defects=PUBLISHED)
    while training.episodes < 300:
        training.advance()

    assert play(training.chooser, cases, 0, 0) == (1,)


def test_it_refuses_what_it_cannot_read() -> None:
    cases = early_and_late()
    agent = PublishedAgent.draw(networks_of(cases), rng())
    moment = cases.moment(0, 0, ())

    with pytest.raises(ConfigError, match="knows 4 choices"):
        agent.choose(replace(moment, choices=moment.choices[1:]))
    with pytest.raises(ConfigError, match="no layers"):
        agent.choose(replace(moment, tokens=()))
    with pytest.raises(ConfigError, match="no time to decide by"):
        agent.choose(replace(moment, left_s=math.nan))
    with pytest.raises(ConfigError, match="temperature"):
        PublishedTraining(cases, temperature=0.5)


@pytest.mark.parametrize("defects", [MENDED, PUBLISHED, Defects(sine_only=True)])
def test_it_comes_back_from_its_file_as_it_was(tmp_path, defects: Defects) -> None:
    cases = early_and_late()
    agent = PublishedAgent.draw(networks_of(cases), rng(), defects)
    agent.save(tmp_path / "agent.ckpt")
    back = PublishedAgent.load(tmp_path / "agent.ckpt")
    shown = cases.moment(0, 0, (1,))

    assert (back.defects, back.vocabulary) == (defects, agent.vocabulary)
    assert torch.equal(back.scores(*back.read(shown)), agent.scores(*agent.read(shown)))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "growth-agent"},
        {"version": 0},
        {"words": {"a": 10**12}},
        {"words": {"a": -1}},
        {"words": {}},
        {"words": None},
        {"defects": {"sine_only": False, "other": True}},
        {"defects": {"sine_only": True}},
    ],
)
def test_a_wrong_file_is_refused(tmp_path, change: dict) -> None:
    path = tmp_path / "agent.ckpt"
    PublishedAgent.draw([["a", "b"]], rng()).save(path)
    facts, arrays = weights_file.read(path)
    weights_file.write(path, {**facts, **change}, arrays)

    with pytest.raises(CheckpointError):
        PublishedAgent.load(path)
