"""What an agent must beat: the bandit, constants, a lot, and nothing."""

from dataclasses import replace

import numpy as np
import pytest
from made_up_cases import MadeUpCases, Start, early_and_late, early_only

from rota.adapt.bandit import Bandit, BanditSettings, effects_of
from rota.adapt.constants import (
    NOTHING,
    Constant,
    GrowthKind,
    Nothing,
    Random,
    best_constant,
    constants_of_others,
    kinds_of,
)
from rota.adapt.growth import Growth
from rota.adapt.growth_cases import play
from rota.adapt.learning_curve import mean_gain
from rota.adapt.moment import GrowthChoice
from rota.errors import ConfigError

FIRST, LAST = GrowthKind("deepen", place=0.0), GrowthKind("deepen", place=1.0)


def test_the_bandit_finds_what_depends_on_the_time() -> None:
    cases = early_and_late()
    bandit = Bandit(cases, seed=1)
    while bandit.episodes < 300:
        bandit.advance()

    assert mean_gain(bandit.chooser, cases) > 0.9 * 0.075


def test_the_bandit_finds_the_weights_that_gains_were_made_of() -> None:
    # A gain of .04 for every use of the middle block: .04 · place · (1 − place) · 4 there.
    cases = MadeUpCases([Start("net", 0.5)], lambda _, taken: 0.04 * taken.count(1), noise=0.0)
    bandit = Bandit(cases, settings=BanditSettings(noise=1e-3, prior=1.0))
    for _ in range(60):
        bandit.advance()

    worth = effects_of(cases.moment(0, 0, ())) @ bandit.weights
    assert worth.argmax() == 1
    assert worth[1] == pytest.approx(0.04, abs=0.005)
    assert worth[3] == 0.0


def test_nothing_has_no_effect_on_the_gain_over_nothing() -> None:
    effects = effects_of(early_and_late().moment(0, 0, (1,)))

    assert not effects[-1].any()
    assert np.isfinite(effects).all()


def test_the_bandit_bears_what_was_not_measured() -> None:
    moment = early_and_late().moment(0, 0, ())
    odd = replace(moment, accuracy=float("nan"), epoch_s=0.0, left_s=-5.0)

    assert np.isfinite(effects_of(odd)).all()


@pytest.mark.parametrize("wrong", [{"prior": 0.0}, {"noise": float("nan")}])
def test_odd_beliefs_are_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="bandit"):
        BanditSettings(**wrong)


def test_the_same_seed_gives_the_same_bandit() -> None:
    def learned(seed: int) -> list[float]:
        bandit = Bandit(early_and_late(), seed=seed)
        return [bandit.advance() for _ in range(20)]

    assert learned(1) == learned(1) != learned(2)


def test_kinds_tell_where_a_layer_is_among_those_that_could_grow_so() -> None:
    found = kinds_of(early_and_late().moment(0, 0, (0, 0)))

    assert found == [FIRST, GrowthKind("deepen", place=0.5), LAST, NOTHING]


def test_a_constant_is_carried_over_to_a_network_of_another_depth() -> None:
    moment = early_and_late().moment(0, 0, ())
    deeper = replace(moment, choices=(*moment.choices[:2], moment.choices[3]))
    wide = GrowthChoice(Growth("widen", "block1", 4.0), 1, 1.0, 1)
    wider = replace(moment, choices=(wide, replace(wide, growth=Growth("widen", "block1", 2.0))))
    wider = replace(wider, choices=(*wider.choices, moment.choices[3]))

    assert Constant((LAST,)).choose(deeper) == 1
    assert Constant((LAST,)).choose(wider) == 2
    assert Constant((GrowthKind("widen", 2.0, 1.0),)).choose(wider) == 1
    assert Constant((NOTHING,)).choose(wider) == 2
    assert Constant(()).choose(moment) == 3
    assert str(Constant((GrowthKind("widen", 2.0, 0.5), NOTHING))) == "widen ×2 at 0.5, nothing"


def test_the_best_constant_is_the_best_in_the_mean() -> None:
    # Early alone, three uses of the first block; late alone, nothing of the first and last.
    cases = early_and_late(noise=0.0)

    assert best_constant(cases, [2, 3]).kinds == (FIRST, FIRST, FIRST)
    late = play(best_constant(cases, [0]), cases, 0, 0)
    assert 0 not in late
    assert 2 not in late


def test_a_constant_of_others_has_not_seen_the_case() -> None:
    # Early cases get what is best late, and late ones what is best early.
    cases = early_and_late(noise=0.0)
    apart = constants_of_others(cases, ["late", "late", "early", "early"])

    assert apart[0].kinds == (FIRST, FIRST, FIRST)
    assert FIRST not in apart[3].kinds
    assert apart[2:] == [apart[2]] * 2


def test_a_constant_needs_other_cases() -> None:
    with pytest.raises(ConfigError, match="no cases to choose"):
        constants_of_others(early_and_late(), ["same"] * 4)
    with pytest.raises(ConfigError, match="1 labels do not fit 4 cases"):
        constants_of_others(early_and_late(), ["same"])


def test_nothing_and_a_lot_are_as_they_say() -> None:
    cases = early_and_late()
    lot = Random(np.random.default_rng(0))
    moment = cases.moment(0, 0, ())

    assert play(Nothing(), cases, 0, 0) == (3, 3, 3)
    assert mean_gain(Nothing(), cases) == 0.0
    assert {lot.choose(moment) for _ in range(50)} == {0, 1, 2, 3}


def test_a_choice_that_is_not_there_is_refused() -> None:
    class Wrong:
        def choose(self, *_: object) -> int:
            return -1

    with pytest.raises(ConfigError, match="Wrong took choice -1 of 4"):
        play(Wrong(), MadeUpCases([Start("net", 0.5)], early_only), 0, 0)
