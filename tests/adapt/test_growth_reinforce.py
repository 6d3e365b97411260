"""How our agent learns: what it finds, that it can be killed, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from made_up_cases import MadeUpCases, ManyChoices, Start, early_and_late, early_only

from rota import weights_file
from rota.adapt.apprentice import Apprentice, apprentice
from rota.adapt.constants import best_constant
from rota.adapt.growth_agent import GrowthAgent
from rota.adapt.growth_cases import Cases, Part, play
from rota.adapt.learning_curve import mean_gain
from rota.adapt.reinforce import Reinforce, ReinforceSettings
from rota.errors import CheckpointError, ConfigError, TrainingError

SHORT = ReinforceSettings(episodes=64, groups=2)


def train(cases: Cases, *, settings: ReinforceSettings, seed: int = 0) -> Reinforce:
    """Train to the end."""
    training = Reinforce(cases, settings=settings, seed=seed)
    while training.episodes < settings.episodes:
        training.advance()
    return training


def kept(state: Path, *, seed: int = 0, resume: bool = False) -> Apprentice:
    """A short training that is kept on disk."""
    return apprentice(
        "ours", early_and_late(), seed=seed, settings=SHORT, state=state, resume=resume
    )


@pytest.fixture(scope="module")
def agent() -> GrowthAgent:
    settings = ReinforceSettings(episodes=1_000)
    return train(early_and_late(), settings=settings, seed=1).agent


def test_it_finds_what_depends_on_the_time_and_no_constant_can_reach(agent: GrowthAgent) -> None:
    # Early, three uses of the first block gain .15; late, nothing is best: .075 in the mean. Any
    # constant gains as much early as it loses late.
    cases = early_and_late()
    constant = best_constant(cases, range(4))
    assert mean_gain(constant, cases) < 0.01

    assert mean_gain(agent, cases) > 0.9 * 0.075
    early, late = (play(agent, cases, case, 0) for case in (3, 0))
    assert early == (0, 0, 0)
    assert 0 not in late


def test_what_it_learns_carries_over_to_times_it_has_not_seen(agent: GrowthAgent) -> None:
    others = MadeUpCases([Start("net/0.2", 0.2), Start("net/0.8", 0.8)], early_only)

    assert mean_gain(agent, others) > 0.9 * 0.075


def test_it_finds_the_one_of_thirteen_choices_that_gains() -> None:
    # Early the middle block is made twice as wide, three times; late nothing is done: .15 and 0.
    cases = ManyChoices()
    learned = train(cases, settings=ReinforceSettings(episodes=1_000), seed=1).agent

    assert [play(learned, cases, case, 0) for case in (0, 3)] == [(12, 12, 12), (7, 7, 7)]
    assert mean_gain(learned, cases) == pytest.approx(0.075)


def test_the_same_seed_gives_the_same_numbers() -> None:
    logs = [train(early_and_late(), settings=SHORT, seed=seed).log for seed in (1, 1, 2)]

    assert logs[0] == logs[1] != logs[2]


@pytest.mark.parametrize("killed", [1, 5, 7])
def test_a_killed_training_goes_on_with_the_same_numbers(tmp_path, killed: int) -> None:
    state = tmp_path / "state"
    whole = train(early_and_late(), settings=SHORT, seed=3)
    each = SHORT.groups * SHORT.siblings

    def kill(episodes: int) -> None:
        if episodes == killed * each:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept(state, seed=3).run(kill, every=2 * each)
    resumed = kept(state, seed=3, resume=state.exists())
    resumed.run(every=2 * each)
    again = resumed.learner

    assert again.log == whole.log
    assert again.updates == whole.updates
    for name, weight in whole.agent.network.state_dict().items():
        np.testing.assert_array_equal(again.agent.network.state_dict()[name], weight)


def test_a_training_that_has_not_begun_can_be_kept_as_well(tmp_path) -> None:
    first, second = (Reinforce(early_and_late(), settings=SHORT) for _ in range(2))
    first.save(tmp_path / "state")
    second.restore(tmp_path / "state")

    assert first.advance() == second.advance()


def test_a_finished_training_is_not_trained_on(tmp_path) -> None:
    state = tmp_path / "state"
    kept(state).run()
    said: list[int] = []
    kept(state, resume=True).run(said.append)

    assert said == []


def test_a_training_cannot_be_resumed_from_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no training to go on with"):
        kept(tmp_path / "state", resume=True)


def test_another_training_is_not_gone_on_with(tmp_path) -> None:
    state = tmp_path / "state"
    kept(state).run()
    for other, said in (
        (Reinforce(early_and_late(), settings=SHORT, seed=9), "seed"),
        (Reinforce(early_and_late()), "settings"),
        (Reinforce(Part(early_and_late(), [0, 1]), settings=SHORT), "cases"),
    ):
        with pytest.raises(CheckpointError, match=f"the {said} .* not"):
            other.restore(state)


@pytest.mark.parametrize(
    "lost", ["adam.exp_avg.score.bias", "log.gain", "weights.stay", "adam.step.look.weight"]
)
def test_a_damaged_state_is_refused(tmp_path, lost: str) -> None:
    state = tmp_path / "state"
    kept(state).run()
    facts, arrays = weights_file.read(state)
    weights_file.write(state, facts, {n: x for n, x in arrays.items() if n != lost})

    with pytest.raises(CheckpointError):
        Reinforce(early_and_late(), settings=SHORT).restore(state)


def test_an_agent_is_no_state_to_resume_from(tmp_path) -> None:
    training = Reinforce(early_and_late(), settings=SHORT)
    training.agent.save(tmp_path / "agent.ckpt")

    with pytest.raises(CheckpointError, match="'growth-agent', not 'growth-training'"):
        training.restore(tmp_path / "agent.ckpt")


def test_each_episode_is_compared_with_its_siblings() -> None:
    # Gains of one group 1, 2, 3 and the others' means 2.5, 2, 1.5: −1.5, 0 and 1.5 better, which
    # is √1.5 in the root mean square.
    training = Reinforce(early_and_late(), settings=ReinforceSettings(siblings=3, groups=1))
    log = [_Episode(gain) for gain in (1.0, 2.0, 3.0)]

    found = training._advantages(log)  # type: ignore[arg-type]

    np.testing.assert_allclose(found, np.array([-1.5, 0.0, 1.5]) / 1.5**0.5, rtol=1e-5)


class _Episode:
    def __init__(self, gain: float) -> None:
        self.gain = gain


def test_siblings_that_all_gain_the_same_teach_nothing() -> None:
    training = Reinforce(early_and_late(), settings=ReinforceSettings(siblings=3, groups=1))

    found = training._advantages([_Episode(0.5)] * 3)  # type: ignore[arg-type]

    np.testing.assert_array_equal(found, [0.0, 0.0, 0.0])


def test_every_case_comes_once_before_any_comes_again() -> None:
    training = Reinforce(early_and_late(), settings=ReinforceSettings(siblings=2, groups=2))
    for _ in range(6):
        training.advance()

    cases = [episode.case for episode in training.log[::2]]
    assert [sorted(cases[i : i + 4]) for i in (0, 4, 8)] == [[0, 1, 2, 3]] * 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"siblings": 1},
        {"groups": 0},
        {"passes": 0},
        {"episodes": 2.5},
        {"learning_rate": float("nan")},
        {"entropy": -1.0},
    ],
)
def test_odd_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=f"reinforce.{next(iter(wrong))}"):
        ReinforceSettings(**wrong)


def test_an_accuracy_that_is_no_number_stops_the_training() -> None:
    cases = MadeUpCases([Start("net/x", 0.5)], lambda *_: float("nan"))

    with pytest.raises(TrainingError, match="Case 'net/x' has the accuracy nan"):
        train(cases, settings=SHORT)


def test_no_cases_are_refused() -> None:
    with pytest.raises(ConfigError, match="no cases"):
        Reinforce(MadeUpCases([], early_only))


def test_a_learning_rate_that_is_far_too_high_does_not_end_in_silence() -> None:
    # Steps of Adam are bounded, so weights stay finite; what matters is that it ends or says so.
    settings = ReinforceSettings(episodes=64, learning_rate=1e30)

    with pytest.raises(TrainingError, match="lower learning_rate"):
        train(early_and_late(), settings=settings)
