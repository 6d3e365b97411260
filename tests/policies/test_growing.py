"""Policies that let networks grow: moments solved by hand, the contract, and bad settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.core import Cluster, Draft, Job, Snapshot
from rota.core.learning import Learning
from rota.core.speed import Curves
from rota.errors import ConfigError, UnknownNameError
from rota.perf.learning_curves import learning_curves
from rota.policies import make_policy
from rota.policies.growing.outlook import Outlook
from rota.testing import check_policy

if TYPE_CHECKING:
    from rota.core import Decision

# 0.8 − 0.6 / (1 + e), and 0.9 − 1.4 / (2 + e) at twice the work; five epochs of 10 s are left.
SMALL = {"top": 0.8, "span": 0.6, "scale": 1.0, "power": 1.0, "cost": 1.0}
LARGE = {"top": 0.9, "span": 0.7, "scale": 2.0, "power": 1.0, "cost": 2.0}
FAMILIES = learning_curves({"m": {"epochs": 10, "levels": [SMALL, LARGE]}})


def moment(*, deadline_s: float = np.inf, waiting: int = 0, left_s: float = 50.0) -> Snapshot:
    """One job has trained half of its ten epochs on one of two GPUs; others wait for two each."""
    first = Job(workers=1, max_workers=1, deadline_s=deadline_s, estimate_s=left_s)
    others = [Job(workers=2, min_workers=2, estimate_s=100.0) for _ in range(waiting)]
    plain = Snapshot.of(Cluster.uniform(1, 2), [first, *others], {0: [(0, 1)]})
    zeros = np.zeros(1 + waiting)
    half = np.where(np.arange(1 + waiting) == 0, 5.0, 0.0)
    family = np.zeros(1 + waiting, np.int64)
    return replace(plain, learning=Learning(FAMILIES, family, family, half, zeros, 10.0 - half))


def stays(snapshot: Snapshot) -> Decision:
    return Draft(snapshot).commit()


def growths(name: str, snapshot: Snapshot) -> dict[int, float]:
    decision = make_policy(name).decide(snapshot)
    decision.check(snapshot)
    return {job: settings["grow"] for job, settings in decision.tunes.items()}


def test_what_a_job_can_expect() -> None:
    snapshot = moment(deadline_s=80.0)
    assert snapshot.learning is not None
    outlook = Outlook.of(snapshot, stays(snapshot), snapshot.learning)

    # All five epochs fit before the deadline; of the larger network's four.
    assert outlook.accuracy(0) == pytest.approx([0.8 - 0.6 / 11])
    assert outlook.accuracy(1) == pytest.approx([0.9 - 1.4 / (2 + 5 + 4)])
    assert outlook.delay_s(1) == pytest.approx([50.0])
    # After two epochs of the small network, from 0.725 on, three of the large one.
    later = outlook.later([0.0, 0.4])
    assert later.left_s == pytest.approx([80.0, 60.0])
    assert later.accuracy(1) == pytest.approx([0.9 - 1.4 / 11, 0.9 - 1.4 / (2 + 6 + 3)])
    assert later.delay_s(1) == pytest.approx([50.0, 30.0])


def test_jobs_that_lack_workers_make_a_growth_dearer() -> None:
    snapshot = moment(waiting=3)
    assert snapshot.learning is not None
    outlook = Outlook.of(snapshot, stays(snapshot), snapshot.learning)
    # 50 s more on one of two GPUs delay each of three jobs by 25 s.
    assert outlook.delay_s(1)[0] == pytest.approx(50.0 + 3 * 25.0)


@pytest.mark.parametrize(
    ("deadline_s", "by"),
    [(np.inf, {0: 1}), (80.0, {0: 1}), (12.0, {}), (0.5, {}), (-5.0, {})],
)
def test_a_growth_must_pay_before_the_deadline(deadline_s: float, by: dict[int, int]) -> None:
    # By 12 s the small network trains 1.2 epochs to 0.7167, the large one 0.6 to 0.7158.
    assert growths("grow:weight=0,patient=0", moment(deadline_s=deadline_s)) == by


def test_a_growth_must_be_worth_the_delay() -> None:
    # Without a deadline 0.0379 are gained for 50 s, or 125 s where three wait: 2.7 or 1.1 an hour.
    for weight, alone, crowded in ((0.5, {0: 1}, {0: 1}), (2.0, {0: 1}, {}), (3.0, {}, {})):
        name = f"grow:base=fifo,weight={weight},patient=0"
        assert growths(name, moment()) == alone
        assert growths(name, moment(waiting=3)) == crowded


def test_a_network_that_is_better_grown_later_waits_and_asks_for_a_round_then() -> None:
    # Half of its 5000 s left, the growth would cost half as much and gain nearly as much.
    snapshot = moment(left_s=5000.0)
    decision = make_policy("grow:weight=0.02").decide(snapshot)
    assert growths("grow:weight=0.02,patient=0", snapshot) == {0: 1}
    assert decision.tunes == {}
    assert decision.wake_s in [pytest.approx(5000.0 * part) for part in (0.3, 0.5, 0.7, 0.85)]


def test_the_base_decides_where_nothing_can_grow() -> None:
    snapshot = moment(waiting=2)
    blind = replace(snapshot, learning=None)
    base = make_policy("hull-greedy").decide(blind)
    for name in ("grow", "grow:weight=0", "grow-always", "grow:weight=inf"):
        decision = make_policy(name).decide(blind)
        assert [decision.share(job) for job in range(3)] == [base.share(job) for job in range(3)]
        assert decision.tunes == {}
    assert growths("grow:weight=inf", snapshot) == {}
    assert growths("grow-always:base=fifo", snapshot) == {0: 1}
    nobody = Snapshot.of(Cluster.uniform(1, 2), [])
    none = np.zeros(0)
    empty = Learning(FAMILIES, none.astype(int), none.astype(int), none, none, none)
    assert growths("grow", replace(nobody, learning=empty)) == {}


def test_a_job_of_unknown_length_does_not_grow() -> None:
    assert growths("grow:weight=0", moment(left_s=np.nan)) == {}


def test_paces_of_jobs_that_are_placed_anew_come_from_the_curves() -> None:
    """One worker makes 10 samples a second, two make 15: so two run at pace 1.5."""
    speed = np.array([[0.0, 0.0, 0.0], [0.0, 10.0, 15.0]])[None, None]
    curves = Curves(("m",), ("gpu",), speed, True, np.array([[1, 2]]))
    job = Job(workers=1, max_workers=2, curve=0, estimate_s=100.0, resize_s=7.0, deadline_s=60.0)
    plain = Snapshot.of(Cluster.uniform(1, 2), [job], {0: [(0, 1)]}, curves=curves)
    learning = moment().learning
    assert learning is not None
    snapshot = replace(plain, learning=learning)
    draft = Draft(snapshot)
    draft.place(0, [(0, 2)])
    outlook = Outlook.of(snapshot, draft.commit(), learning)
    assert (outlook.pace.tolist(), outlook.gpus.tolist()) == ([1.5], [2])
    assert outlook.left_s.tolist() == [53.0], "a resize takes 7 s"


@pytest.mark.parametrize("name", ["grow", "grow:weight=0", "grow-always:base=las/elastic"])
def test_policies_that_grow_keep_the_contract(name: str) -> None:
    check_policy(make_policy(name))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("grow:weight=-1", "must be a number, 0 or more, or inf"),
        ("grow:weight=nan", "must be a number, 0 or more, or inf"),
        ("grow:weight=much", "must be a number, 0 or more, or inf"),
        ("grow:patient=2", "must be 0 or 1"),
        ("grow:base=gittins", "draws on past jobs or estimates of its own"),
        ("grow+elastic", "places jobs itself"),
    ],
)
def test_settings_that_mean_nothing_are_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_policy(name)


def test_a_base_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownNameError, match="hul-greedy"):
        make_policy("grow:base=hul-greedy")
