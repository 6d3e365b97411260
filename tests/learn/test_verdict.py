"""The rule by which learned weights may take the place of those that run, solved by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from learned_weights import RUNNING, changed, learned

from rota.learn import checkpoint
from rota.learn.checkpoint import Checkpoint
from rota.learn.verdict import compare, origin_of, refusal
from rota.systems.registry import trained
from rota.weights_file import CRITIC

INF = float("inf")


# Of two stretches, a bootstrap draws each of them twice in one resample of four, so the ends of
# the interval are the two stretches' own changes.
@pytest.mark.parametrize(
    ("new_s", "ends", "not_worse", "says"),
    [
        ([9.0, 9.0], (-0.1, -0.1), True, "not worse: mean JCT -10.0%"),
        ([10.0, 10.0], (0.0, 0.0), True, "not worse: mean JCT +0.0%"),
        ([8.0, 10.04], (-0.2, 0.004), True, "not worse: mean JCT -9.8%"),
        ([8.0, 10.2], (-0.2, 0.02), False, "not certain enough: mean JCT -9.0%"),
        ([9.0, 11.0], (-0.1, 0.1), False, "not certain enough"),
        ([10.01, 10.01], (0.001, 0.001), False, "worse: mean JCT +0.1%"),
    ],
)
def test_no_higher_mean_and_at_most_one_percent_at_the_upper_end(
    new_s: list[float], ends: tuple[float, float], not_worse: bool, says: str
) -> None:
    found = compare(np.array(new_s), np.array([10.0, 10.0]))
    assert found.ci95 == pytest.approx(ends)
    assert found.not_worse is not_worse
    assert found.words().startswith(says)


def test_a_job_that_no_longer_ends_is_worse_whatever_the_others_gain() -> None:
    found = compare(np.array([1.0, 1.0, INF]), np.array([10.0, 10.0, 10.0]))
    assert (found.not_worse, found.unfinished) == (False, 1)
    assert "some jobs did not end" in found.words()


def test_stretches_that_the_running_weights_leave_unfinished_say_nothing() -> None:
    found = compare(np.array([9.0, 9.0, 5.0]), np.array([10.0, 10.0, INF]))
    assert (found.stretches, found.not_worse) == (2, True)
    none = compare(np.array([9.0]), np.array([INF]))
    assert not none.not_worse
    assert none.words().startswith("not comparable")


def test_of_one_stretch_nothing_follows() -> None:
    assert not compare(np.array([5.0]), np.array([10.0])).not_worse


def test_only_weights_compared_with_exactly_those_that_run_may_follow() -> None:
    new = learned(RUNNING)
    assert refusal(new, RUNNING) == ""
    assert "but" in refusal(learned(new), RUNNING)
    assert refusal(learned(new), new) == ""
    assert origin_of(learned(new)) == RUNNING.digest == origin_of(RUNNING)


def test_what_is_unjudged_worse_changed_or_of_another_form_is_refused() -> None:
    new, other = learned(RUNNING), checkpoint.load(trained()["deepshare"])
    assert "nothing says" in refusal(changed(RUNNING), RUNNING)
    assert "found worse" in refusal(learned(RUNNING, 0.02), RUNNING)
    assert "found worse" in refusal(changed(new, not_worse="yes"), RUNNING)
    assert "damaged" in refusal(replace(RUNNING, about=new.about), RUNNING)
    assert "of deepshare" in refusal(other, RUNNING)
    about = replace(new.about, lens={**new.about.lens, "window": 7})
    assert "other settings" in refusal(replace(new, about=about), RUNNING)


def test_a_digest_is_of_what_decides_and_nothing_else() -> None:
    weights = {n: array for n, array in RUNNING.weights.items() if not n.startswith(CRITIC)}
    other = Checkpoint(replace(RUNNING.about, step=7, scores={}, training={}), weights)
    assert other.digest == RUNNING.digest
    about = replace(RUNNING.about, lens={**RUNNING.about.lens, "window": 7})
    assert Checkpoint(about, weights).digest != RUNNING.digest
    assert learned(RUNNING).digest != RUNNING.digest
