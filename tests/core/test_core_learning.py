"""Learning curves: solved by hand, what growth preserves, and tunes that cannot be followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from rota.core import Cluster, Draft, Job, Snapshot
from rota.core.learning import Learning, LearningCurves
from rota.errors import ConfigError, DecisionError


def curves_of(*levels: tuple[float, float, float, float, float], epochs: float = 10) -> Any:
    """One family "m"; a level is (top, span, scale, power, cost)."""
    columns = np.array(levels, np.float64).T[:, None]
    laws = dict(zip(("top", "span", "scale", "power", "cost"), columns, strict=True))
    return LearningCurves(
        names=("m",), epochs=np.array([epochs]), levels=np.array([len(levels)]), **laws
    )


SMALL = (0.8, 0.6, 1.0, 1.0, 1.0)  # 0.8 − 0.6 / (1 + e)
LARGE = (0.9, 0.7, 2.0, 1.0, 2.0)  # 0.9 − 1.4 / (2 + e)
TWO = curves_of(SMALL, LARGE)


def standing(curves: LearningCurves, *, epochs: float = 5.0, left: float = 5.0) -> Learning:
    """One job of family "m", so far on the curve of the smallest network."""
    zero, none = np.zeros(1, np.int64), np.zeros(1)
    return Learning(curves, zero, zero, np.array([epochs]), none, np.array([left]))


def test_a_growth_goes_on_from_the_same_accuracy() -> None:
    # 0.8 − 0.6/6 = 0.7; 0.9 − 1.4/(2 + e) = 0.7 at e = 5; three epochs later 0.9 − 1.4/10.
    here = standing(TWO)
    grown = here.grown(np.array([0]), 1)

    assert here.accuracy == pytest.approx([0.7])
    assert (grown.level.tolist(), grown.epochs.tolist()) == ([1], pytest.approx([5.0]))
    assert here.after(3.0, 1) == pytest.approx([0.76])
    assert TWO.cost_ratio(0, 0, 1) == 2.0


def test_a_network_above_what_the_larger_size_reaches_stays_where_it_is() -> None:
    worse = curves_of(SMALL, (0.6, 0.4, 1.0, 1.0, 2.0))
    assert standing(worse).after(np.array([100.0]), 1) == pytest.approx([0.7])


def test_a_job_without_a_curve_has_no_accuracy_and_cannot_grow() -> None:
    stranger = replace(standing(TWO), family=np.array([-1]))
    assert np.isnan(stranger.accuracy).all()
    assert stranger.can_grow.tolist() == [0]
    assert np.isnan(standing(TWO).after(1.0, by=2)).all(), "there is no third size"


shares = st.floats(0.0, 1.0)
scales = st.floats(1e-3, 1e3)
powers = st.floats(0.1, 5.0)


@examples(60)
@given(
    start=st.floats(0, 0.5), gains=st.tuples(shares, shares), scale=st.tuples(scales, scales),
    power=st.tuples(powers, powers), epochs=st.floats(0, 1e4), more=st.floats(0, 1e4),
)  # fmt: skip
def test_growth_preserves_accuracy_which_never_falls(
    start: float, gains: Any, scale: Any, power: Any, epochs: float, more: float
) -> None:
    spans = np.array(gains) * (1 - start)
    levels = [(max(start + spans[k], 1e-9), min(spans[k], start + spans[k]), scale[k], power[k],
               1.0 + k) for k in (0, 1)]  # fmt: skip
    here = standing(curves_of(*levels), epochs=epochs)

    now = here.accuracy
    grown = here.grown(np.array([0]), 1)
    assert grown.accuracy == pytest.approx(np.maximum(now, start), abs=1e-6)
    assert (here.after(more) >= now).all()
    assert (here.after(more, 1) >= grown.accuracy).all()
    assert (here.after(2 * more, 1) >= here.after(more, 1)).all()
    assert ((grown.accuracy >= 0) & (here.after(more, 1) <= 1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"top": 1.2}, "every top must lie in"),
        ({"top": np.nan}, "every top must lie in"),
        ({"span": 0.9}, "every span must lie in"),
        ({"scale": 0.0}, "every scale and power must be positive"),
        ({"power": np.inf}, "every scale and power must be positive"),
        ({"cost": 2.0}, "costs must begin with 1"),
        ({"epochs": 0.0}, "epochs=0.0 must be positive"),
        ({"pause_s": -1.0}, "pause_s=-1.0 must be a number of seconds"),
    ],
)
def test_curves_that_mean_nothing_are_refused(change: dict[str, float], says: str) -> None:
    plain = curves_of(SMALL)
    ((name, value),) = change.items()
    wrong: Any = value if name == "pause_s" else np.full(getattr(plain, name).shape, value)
    with pytest.raises(ConfigError, match=says):
        replace(plain, **{name: wrong})


def test_a_larger_size_may_not_know_more_before_it_has_learned() -> None:
    with pytest.raises(ConfigError, match="'m': a larger size must not start above a smaller"):
        curves_of(SMALL, (0.9, 0.5, 1.0, 1.0, 2.0))


def snapshot() -> Snapshot:
    """Job 0 runs and can grow by one level, job 1 waits, job 2 has no curve."""
    jobs = [Job(workers=1), Job(workers=1), Job(workers=1)]
    plain = Snapshot.of(Cluster.uniform(1, 4), jobs, {0: [(0, 1)], 2: [(0, 1)]})
    zero = np.zeros(3)
    learning = Learning(TWO, np.array([0, 0, -1]), np.array([0, 0, 0]), zero, zero, zero + 10)
    return replace(plain, learning=learning)


@pytest.mark.parametrize(
    ("job", "settings", "says"),
    [
        (0, {"batch": 2.0}, "cannot be tuned by 'batch'"),
        (0, {"grow": 0}, "by 0 levels; give a whole number"),
        (0, {"grow": 0.5}, "by 0.5 levels; give a whole number"),
        (0, {"grow": np.nan}, "by nan levels; give a whole number"),
        (0, {"grow": np.inf}, "by inf levels; give a whole number"),
        (0, {"grow": True}, "by True levels; give a whole number"),
        (0, {"grow": "1"}, "by '1' levels; give a whole number"),
        (0, {"grow": 2}, "by 2 levels: it is at level 0 and the largest is 1"),
        (1, {"grow": 1}, "Job 1 shall grow but holds nothing"),
        (2, {"grow": 1}, "no learning curve of its model is known"),
    ],
)
def test_tunes_that_no_network_can_follow_are_refused(
    job: int, settings: dict[str, Any], says: str
) -> None:
    moment = snapshot()
    draft = Draft(moment)
    draft.tune(job, **settings)
    with pytest.raises(DecisionError, match=says):
        draft.commit().check(moment)


def test_a_job_may_start_and_grow_at_once() -> None:
    moment = snapshot()
    draft = Draft(moment)
    draft.place(1, [(0, 1)])
    draft.tune(1, grow=1)
    draft.tune(0, grow=1.0)
    draft.commit().check(moment)
