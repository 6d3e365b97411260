"""Failures of nodes as they are drawn before a run: their law, their number, their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from worlds import cluster_of, trace_of

from rota.core import Draft
from rota.errors import ConfigError
from rota.sim import Conditions, Faults, faults, simulate
from rota.sim.setup import fault_horizon_s

if TYPE_CHECKING:
    from rota.core import Decision, Snapshot

DAY_S = 86400.0


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("draws", [1, 7, 1 << 19])
def test_failures_of_a_node_alternate_with_repairs_and_follow_their_law(
    draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_DRAWS", draws)  # in blocks of any size
    rows = Faults(node_mtbf_s=80.0, node_repair_s=20.0).of_nodes(5, 1000.0, 41_000.0, rng())
    assert (np.diff(rows["time_s"]) >= 0).all()
    lasts, repairs = [], []
    for node in range(5):
        own = rows[rows["node"] == node]
        assert own["up"].tolist() == [False, True] * (len(own) // 2)
        assert own["time_s"][-2] <= 41_000.0
        spans_s = np.diff(own["time_s"], prepend=1000.0)
        assert (spans_s >= 0).all()
        lasts, repairs = [*lasts, *spans_s[::2]], [*repairs, *spans_s[1::2]]
    # 5 nodes × 40,000 s of 100 s each: 2,000 ± 60, means within 4 standard errors.
    assert 1_850 < len(lasts) < 2_150
    assert np.mean(lasts) == pytest.approx(80, rel=0.1)
    assert np.std(lasts) == pytest.approx(80, rel=0.15)
    assert np.mean(repairs) == pytest.approx(20, rel=0.1)


def test_the_same_seed_draws_the_same_failures() -> None:
    seldom = Faults(node_mtbf_s=5e5)
    a, b, c = (seldom.of_nodes(40, 0.0, 30 * DAY_S, rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(a, b)
    assert len(a) != len(c) or (a != c).any()


def test_a_repair_that_never_ends_is_the_last_of_its_node() -> None:
    rows = Faults(node_mtbf_s=10.0, node_repair_s=np.inf).of_nodes(50, 0.0, 1e4, rng())
    assert rows["up"].sum() == 50
    assert np.isinf(rows["time_s"][rows["up"]]).all()


def test_more_failures_than_fit_into_memory_are_refused() -> None:
    often = Faults(node_mtbf_s=1.0, node_repair_s=1.0)
    assert 2 * len(often.of_nodes(1, 0.0, 1e5, rng())) == pytest.approx(2e5, rel=0.02)
    with pytest.raises(ConfigError, match=r"node_mtbf_s=1 means about 2.1e\+07 .* raise it"):
        often.of_nodes(16, 0.0, 30 * DAY_S, rng())


class Until:
    """Starts nothing before a time."""

    def __init__(self, begin_s: float) -> None:
        self.begin_s = begin_s

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        if snapshot.time_s < self.begin_s:
            return draft.commit(wake_s=self.begin_s)
        for job in np.flatnonzero(snapshot.jobs.waiting).tolist():
            if snapshot.nodes["up"][0]:
                draft.place(job, [(0, 1)])
        return draft.commit()


def test_a_run_that_goes_on_after_the_last_failure_says_so() -> None:
    cluster, trace = cluster_of([1]), trace_of([(0, 9, 1)])
    when = Conditions(faults=Faults(node_mtbf_s=100 * DAY_S))
    assert fault_horizon_s(cluster, trace) == 30 * DAY_S + 4 * 9
    assert simulate(cluster, trace, Until(20 * DAY_S), when).notes == ()
    (note,) = simulate(cluster, trace, Until(60 * DAY_S), when).notes
    assert "drawn up to 2,592,036 s, but the run ended at" in note
    assert simulate(cluster, trace, Until(60 * DAY_S)).notes == ()
