"""The contest: ranks, paired differences and episodes, by hand."""

from dataclasses import dataclass

import numpy as np
import pytest
from made_up_cases import MadeUpCases, Start, early_and_late

from rota.adapt.constants import Constant, GrowthKind, Nothing
from rota.adapt.contest import Contest, Entry, plans, plans_apart
from rota.adapt.growth_cases import Part, play, sequences
from rota.adapt.learning_curve import Curve, CurveCheck, learning_curve, mean_gain
from rota.errors import ConfigError

FIRST = Constant((GrowthKind("deepen"),) * 3)


def test_sequences_are_all_that_can_be_taken() -> None:
    every = sequences(early_and_late(), 0)

    assert len(every) == len(set(every)) == 64
    assert (every[0], every[-1]) == ((0, 0, 0), (3, 3, 3))


def test_a_line_says_what_was_taken_and_how_many_are_better() -> None:
    # Early, (0, 0, 0) is the best of 64; late, it is the worst but for what also deepens the last:
    # none, as a use of the last block costs less than one of the first.
    contest = Contest(early_and_late(noise=0.0))

    lines = contest.lines(Entry("first", (plans(FIRST, contest.cases),)))

    assert [line.taken for line in lines] == [(0, 0, 0)] * 4
    assert [(line.rank, line.of) for line in lines] == [(64, 64)] * 2 + [(1, 64)] * 2
    np.testing.assert_allclose([line.gain for line in lines], [-0.15, -0.15, 0.15, 0.15])
    assert lines[2].accuracy == pytest.approx(0.6 + 0.02 + 0.15)  # replicas add 0, .01, … .04


def test_seeds_that_take_different_things_share_a_line() -> None:
    cases = Part(early_and_late(noise=0.0), [3])
    contest = Contest(cases)
    runs = tuple(plans(chooser, cases) for chooser in (FIRST, FIRST, Nothing()))

    (line,) = contest.lines(Entry("seeds", runs))

    assert (line.taken, line.share) == ((0, 0, 0), pytest.approx(2 / 3))
    assert line.gain == pytest.approx(0.10)


def test_a_difference_is_taken_in_pairs() -> None:
    # Noise of .01 per replica in all that is taken drops out: +.15 twice and −.15 twice.
    contest = Contest(early_and_late(noise=0.0))
    entries = [Entry(n, (plans(c, contest.cases),)) for n, c in (("a", FIRST), ("b", Nothing()))]
    rng = np.random.default_rng(0)

    whole = contest.difference(*entries, rng, draws=500)
    nothing = contest.difference(entries[0], entries[0], rng, draws=50)
    early = Contest(Part(contest.cases, [2, 3]))
    sure = early.difference(*[Entry(e.name, (e.runs[0][2:],)) for e in entries], rng, draws=50)

    assert whole.mean == pytest.approx(0.0)
    assert whole.low == pytest.approx(-0.15)
    assert whole.high == pytest.approx(0.15)
    assert (nothing.mean, nothing.low, nothing.high) == (0.0, 0.0, 0.0)
    assert [sure.low, sure.mean, sure.high] == pytest.approx([0.15] * 3)


def test_clusters_of_cases_are_drawn_together() -> None:
    # In each cluster one case gains what the other loses: a drawn cluster is always worth 0.
    contest = Contest(early_and_late(noise=0.0))
    a, b = (Entry(n, (plans(c, contest.cases),)) for n, c in (("a", FIRST), ("b", Nothing())))
    rng = np.random.default_rng(0)

    found = contest.difference(a, b, rng, clusters=["x", "y", "x", "y"], draws=50)

    assert [found.low, found.high] == pytest.approx([0.0, 0.0])
    with pytest.raises(ConfigError, match="1 clusters do not fit"):
        contest.difference(a, b, rng, clusters=["x"])


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    # 40 worlds of pure noise: the truth, 0, lies within at about 38; fewer than 32 would be a bug.
    within = 0
    for seed in range(40):
        starts = [Start(f"net/{i}", 0.5) for i in range(12)]
        cases = MadeUpCases(starts, lambda *_: 0.0, noise=0.02, seed=seed, decisions=1)
        contest = Contest(cases)
        a, b = (Entry(n, (plans(c, cases),)) for n, c in (("a", FIRST), ("b", Nothing())))
        found = contest.difference(a, b, np.random.default_rng(seed), draws=150)
        within += found.low <= 0.0 <= found.high

    assert within >= 32


def test_hindsight_is_flattered_by_noise_and_foresight_is_not() -> None:
    # Nothing gains anything here but luck.
    starts = [Start(f"net/{i}", 0.5) for i in range(20)]
    contest = Contest(MadeUpCases(starts, lambda *_: 0.0, noise=0.02))

    assert contest.gain(Entry("hindsight", (contest.hindsight(),))) > 0.015
    assert abs(contest.gain(Entry("foresight", (contest.foresight(),)))) < 0.012


def test_foresight_needs_other_replicas() -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        Contest(early_and_late(replicas=1)).foresight()


def test_choosers_that_do_not_fit_the_cases_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 choosers do not fit 4 cases"):
        plans_apart([Nothing()], early_and_late())


def test_a_part_shows_the_cases_and_replicas_that_were_chosen() -> None:
    whole = early_and_late()
    part = Part(whole, [3, 1], seen=[4])

    assert (part.names, part.replicas) == (["net/0.9", "net/0.3"], 1)
    assert part.moment(0, 0, (1,)) is whole.moment(3, 4, (1,))
    assert part.accuracy(1, 0, (0, 1, 2)) == whole.accuracy(1, 4, (0, 1, 2))
    assert part.reference(1, 0) == whole.reference(1, 4)
    assert play(Nothing(), part, 0, 0) == (3, 3, 3)


@pytest.mark.parametrize(("chosen", "seen"), [([4], None), ([], None), ([0], []), ([0], [-1])])
def test_a_part_of_what_is_not_there_is_refused(chosen: list[int], seen: list[int] | None) -> None:
    with pytest.raises(ConfigError):
        Part(early_and_late(), chosen, seen)


def test_a_goal_is_reached_where_it_lasts_to_the_next_check() -> None:
    checks = [(10, 0.5, 1.0), (20, 1.5, 1.0), (30, 0.0, 1.0), (40, 1.0, 1.0), (50, 1.0, 1.0)]
    curve = Curve(1.0, tuple(CurveCheck(n, (a, b)) for n, a, b in checks))

    assert curve.reached == 40
    assert curve.reached_each == (40, 10)
    assert Curve(2.0, curve.checks).reached is None


@dataclass
class Scripted:
    """Learns to deepen the first block at a known episode."""

    learned: int
    batch: int = 1
    episodes: int = 0

    @property
    def chooser(self) -> object:
        return FIRST if self.episodes >= self.learned else Nothing()

    def advance(self) -> None:
        self.episodes += self.batch


def test_a_curve_counts_episodes_until_the_mean_over_seeds_is_good_enough() -> None:
    cases = Part(early_and_late(noise=0.0), [2, 3])
    curve = learning_curve(
        [Scripted(25), Scripted(35, batch=3)], cases, goal=0.95 * 0.15, every=10, most=200
    )

    assert curve.reached == 40
    assert curve.reached_each == (30, 40)
    assert [check.episodes for check in curve.checks] == [10, 20, 30, 40, 50]
    assert curve.checks[2].gain == pytest.approx(0.075)
    assert mean_gain(FIRST, cases) == pytest.approx(0.15)


def test_a_curve_ends_where_it_was_told_to() -> None:
    curve = learning_curve([Scripted(10**6)], early_and_late(), goal=1.0, every=10, most=35)

    assert curve.reached is None
    assert [check.episodes for check in curve.checks] == [10, 20, 30]


@pytest.mark.parametrize(("every", "most"), [(0, 10), (20, 10)])
def test_a_curve_without_points_is_refused(every: int, most: int) -> None:
    with pytest.raises(ConfigError, match="no points"):
        learning_curve([Scripted(1)], early_and_late(), goal=0.0, every=every, most=most)
