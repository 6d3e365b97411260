"""Growing networks in the simulator: solved by hand, and equal to a world without learning."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import Scripted, assert_same, cluster_of, examples, trace_of

from rota.core import Draft
from rota.core.speed import no_contention
from rota.errors import ConfigError, InputError, PolicyError
from rota.perf.learning_curves import learning_curves
from rota.perf.physics import Drift, Physics
from rota.policies import make_policy
from rota.run.journal import Journal
from rota.run.metrics import summarise
from rota.run.reader import read_journal
from rota.sim import Conditions, simulate
from rota.testing.contract_worlds import contract_world

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core import Decision, Policy, Snapshot

# 0.8 − 0.6 / (1 + e), and 0.9 − 1.4 / (2 + e) at twice the work.
SMALL = {"top": 0.8, "span": 0.6, "scale": 1.0, "power": 1.0, "cost": 1.0}
LARGE = {"top": 0.9, "span": 0.7, "scale": 2.0, "power": 1.0, "cost": 2.0}
TEN_EPOCHS = {"m": {"epochs": 10, "levels": [SMALL, LARGE]}}


def learning(pause_s: float = 0.0) -> Physics:
    return Physics(learning=learning_curves(TEN_EPOCHS, pause_s=pause_s))


@dataclass
class GrowsAt:
    """Gives every job its GPUs in order of arrival; job 0 grows at a moment."""

    moment_s: float = np.inf
    looks_s: tuple[float, ...] = ()
    """Further moments at which it looks."""
    settings: dict[str, Any] = field(default_factory=lambda: {"grow": 1})
    seen: list[Snapshot] = field(default_factory=list)
    name: str = "grows-at"

    def decide(self, snapshot: Snapshot) -> Decision:
        self.seen.append(snapshot)
        draft = Draft(snapshot)
        for job, uid in enumerate(snapshot.jobs.uid.tolist()):
            if not draft.held(job) and draft.free(0):
                draft.place(job, [(0, 1)])
            if uid == 0 and snapshot.time_s == self.moment_s:
                draft.tune(job, **self.settings)
        ahead = [s for s in (self.moment_s, *self.looks_s) if s > snapshot.time_s]
        return draft.commit(wake_s=min(ahead, default=np.inf))


def one_job(deadline_s: float, **more: Any) -> Any:
    return trace_of([(0, 100, 1)], model=["m"], deadline_s=[deadline_s], **more)


@pytest.mark.parametrize(
    ("pause_s", "done_s", "deadline_s", "accuracy", "ungrown"),
    [
        # Five epochs of 10 s, grown at 0.7, which is five epochs of the larger; then 20 s each.
        (0.0, 150.0, 110.0, 0.9 - 1.4 / (2 + 8), 0.8 - 0.6 / 11),
        (0.0, 150.0, 50.0, 0.7, 0.7),
        (0.0, 150.0, 51.0, 0.9 - 1.4 / (2 + 5.05), 0.8 - 0.6 / 6.1),
        (0.0, 150.0, 30.0, 0.8 - 0.6 / 4, 0.8 - 0.6 / 4),
        (0.0, 150.0, 1e-9, 0.2, 0.2),
        (0.0, 150.0, 1e9, 0.9 - 1.4 / 12, 0.8 - 0.6 / 11),
        (0.0, 150.0, np.inf, 0.9 - 1.4 / 12, 0.8 - 0.6 / 11),
        (10.0, 160.0, 58.0, 0.7, 0.7),
        (10.0, 160.0, 110.0, 0.9 - 1.4 / (2 + 7.5), 0.8 - 0.6 / 11),
    ],
)
def test_a_network_that_grows_halfway(
    pause_s: float, done_s: float, deadline_s: float, accuracy: float, ungrown: float
) -> None:
    trace, policy = one_job(deadline_s), GrowsAt(50.0)
    result = simulate(cluster_of([1]), trace, policy, physics=learning(pause_s))

    assert result.done_s.tolist() == pytest.approx([done_s])
    assert result.accuracy.tolist() == pytest.approx([accuracy])
    assert result.ungrown.tolist() == pytest.approx([ungrown])
    assert result.level.tolist() == [1]
    found = summarise(result)
    assert found["mean_accuracy"] == pytest.approx(accuracy)
    assert found["mean_accuracy_gain"] == pytest.approx(accuracy - ungrown)
    assert found["grown"] == 1


def test_what_a_policy_sees_of_learning() -> None:
    policy = GrowsAt(50.0, looks_s=(30.0, 70.0))
    simulate(cluster_of([1]), one_job(110.0), policy, physics=learning())
    at_30, at_50, at_70 = policy.seen[1:4]

    for snapshot, level, epochs, left, accuracy, remaining_s in (
        (at_30, 0, 3.0, 7.0, 0.65, 70.0),
        (at_50, 0, 5.0, 5.0, 0.7, 50.0),
        (at_70, 1, 6.0, 4.0, 0.9 - 1.4 / 8, 80.0),
    ):
        facts = snapshot.learning
        assert facts is not None
        assert facts.level.tolist() == [level]
        assert facts.epochs.tolist() == pytest.approx([epochs])
        assert facts.epochs_left.tolist() == pytest.approx([left])
        assert facts.accuracy.tolist() == pytest.approx([accuracy])
        assert snapshot.jobs.remaining_s.tolist() == pytest.approx([remaining_s])
    assert at_70.jobs.estimate_s.tolist() == pytest.approx([150.0])


def test_the_growth_of_one_job_makes_another_one_wait() -> None:
    trace = trace_of([(0, 100, 1), (10, 20, 1)], model=["m", "m"], deadline_s=[110, 130])
    result = simulate(cluster_of([1]), trace, GrowsAt(50.0), physics=learning())

    assert result.done_s.tolist() == pytest.approx([150.0, 170.0])
    # The second has not begun when its deadline comes.
    assert result.accuracy.tolist() == pytest.approx([0.76, 0.2])
    assert result.level.tolist() == [1, 0]


def test_a_failure_takes_nothing_from_before_a_growth() -> None:
    # Without checkpoints. Grown at 50, killed at 70, back at 100: what came after 50 is lost.
    faults = Scripted(nodes=((70.0, 0, False), (100.0, 0, True)))
    when = Conditions(checkpoint_s=np.inf, faults=faults)
    for deadline_s, accuracy in ((60.0, 0.9 - 1.4 / 7.5), (70.0, 0.9 - 1.4 / 8), (80.0, 0.7)):
        result = simulate(
            cluster_of([1]), one_job(deadline_s), GrowsAt(50.0), when, physics=learning()
        )
        assert result.done_s.tolist() == pytest.approx([200.0])
        assert result.lost_s.tolist() == pytest.approx([20.0])
        assert result.accuracy.tolist() == pytest.approx([accuracy])


@pytest.mark.parametrize("deadline_s", [1.0, 30.0, 59.0, 60.0, 61.0, 99.5, 100.0, 101.0])
def test_slots_do_not_blur_a_deadline(deadline_s: float) -> None:
    exact = simulate(cluster_of([1]), one_job(deadline_s), GrowsAt(), physics=learning())
    in_slots = simulate(
        cluster_of([1]), one_job(deadline_s), GrowsAt(), Conditions(slot_s=60.0),
        physics=learning(),
    )  # fmt: skip
    # The first slot's decision falls on the submission.
    assert exact.accuracy.tolist() == pytest.approx(in_slots.accuracy.tolist())


def test_a_job_without_a_model_is_left_out_of_the_mean() -> None:
    trace = trace_of([(0, 100, 1), (0, 100, 1)], model=["m", ""])
    result = simulate(cluster_of([2]), trace, GrowsAt(50.0), physics=learning())
    assert np.isnan(result.accuracy).tolist() == [False, True]
    assert summarise(result)["mean_accuracy"] == pytest.approx(0.9 - 1.4 / 12)


def test_a_world_without_learning_curves_says_nothing_of_accuracy() -> None:
    result = simulate(cluster_of([1]), one_job(50.0), GrowsAt())
    assert "mean_accuracy" not in summarise(result)
    assert result.accuracy.size == 0


@pytest.mark.parametrize(
    ("policy", "physics", "says"),
    [
        (GrowsAt(50.0), Physics(), "nothing of a job can be tuned in this world"),
        (GrowsAt(50.0, settings={"grow": 2}), learning(), "'grows-at', round 2: Job 0 cannot grow"),
        (GrowsAt(50.0, settings={"batch": 2}), learning(), "cannot be tuned by 'batch'"),
    ],
)
def test_a_tune_that_nothing_can_follow_ends_the_run(
    policy: Policy, physics: Physics, says: str
) -> None:
    with pytest.raises(PolicyError, match=says):
        simulate(cluster_of([1]), one_job(110.0), policy, physics=physics)


def test_what_does_not_go_together_is_refused() -> None:
    cluster, trace = cluster_of([1]), one_job(50.0)
    with pytest.raises(ConfigError, match="do not go with drift"):
        simulate(cluster, trace, GrowsAt(), physics=replace(learning(), drift=Drift(0.1)))
    contention = no_contention()
    with pytest.raises(ConfigError, match="with contention need decisions at every event"):
        simulate(
            cluster, trace, GrowsAt(), Conditions(slot_s=60.0),
            physics=replace(learning(), contention=contention),
        )  # fmt: skip
    stranger = trace_of([(0, 100, 1)], model=["resnet"])
    with pytest.raises(InputError, match="'resnet', for which there is no learning curve"):
        simulate(cluster, stranger, GrowsAt(), physics=learning())


@dataclass
class Peeks:
    """Decides as its base; wakes at deadlines to see how accurate jobs are."""

    base: Policy
    deadline_s: Any  # (J,)
    found: dict[int, float] = field(default_factory=dict)
    name: str = "peeks"

    def decide(self, snapshot: Snapshot) -> Decision:
        assert snapshot.learning is not None
        due = snapshot.jobs.deadline_s == snapshot.time_s
        self.found |= dict(
            zip(snapshot.jobs.uid[due].tolist(), snapshot.learning.accuracy[due], strict=True)
        )
        decision = self.base.decide(snapshot)
        ahead = self.deadline_s[self.deadline_s > snapshot.time_s]
        return replace(decision, wake_s=min(decision.wake_s, ahead.min(initial=np.inf)))


@pytest.mark.parametrize("name", ["fifo+elastic", "grow:weight=0.001"])
def test_accuracy_at_deadlines_is_what_a_policy_sees_then(name: str) -> None:
    world = contract_world("learning", 1)
    policy = Peeks(make_policy(name), world.trace.deadline_s)
    result = simulate(world.cluster, world.trace, policy, world.when, seed=1, physics=world.physics)
    assert len(policy.found) > 3
    for uid, accuracy in policy.found.items():
        # A job that is killed at its very deadline was seen after it had lost something.
        assert result.accuracy[uid] >= accuracy - 1e-9
    met = [
        uid for uid, accuracy in policy.found.items() if abs(result.accuracy[uid] - accuracy) < 1e-9
    ]
    assert len(met) >= len(policy.found) - 1


@examples(4)
@given(st.integers(0, 1000), st.sampled_from(["fifo", "srtf", "las+elastic", "hull-greedy"]))
def test_without_tunes_learning_curves_change_no_schedule(seed: int, name: str) -> None:
    world, policy = contract_world("learning", seed), make_policy(name)
    plain = replace(world.physics, learning=None)
    laws = (world.physics, plain)
    learned, same = (
        simulate(world.cluster, world.trace, policy, world.when, seed=seed, physics=one)
        for one in laws
    )
    assert_same(learned, same)
    known = ~np.isnan(learned.accuracy)
    np.testing.assert_allclose(learned.accuracy[known], learned.ungrown[known], rtol=1e-9)


@examples(4)
@given(st.integers(0, 1000), st.sampled_from(["grow:weight=0", "grow-always", "grow:patient=0"]))
def test_whatever_grows_all_jobs_end_and_the_run_can_be_repeated(seed: int, name: str) -> None:
    world, policy = contract_world("learning", seed), make_policy(name)
    first, second = (
        simulate(world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics)
        for _ in range(2)
    )
    assert_same(first, second)
    np.testing.assert_array_equal(first.accuracy, second.accuracy)
    assert not np.isnan(first.done_s).any()
    assert (first.accuracy >= 0.1 - 1e-9).all()
    assert (first.accuracy <= 0.9).all()
    assert (first.level <= world.physics.learning.levels.max() - 1).all()  # type: ignore[union-attr]


def test_a_journal_keeps_tunes(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    meta = {"policy": "grows-at", "total_gpus": 1}
    with Journal.create(path, meta=meta) as journal:
        simulate(
            cluster_of([1]), one_job(110.0), GrowsAt(50.0), physics=learning(), journal=journal
        )
    with read_journal(path) as view:
        ((number, uid, live, settings),) = view.tunes()
        assert view.rounds()["time_s"][number] == 50.0
    assert (uid, live, settings) == ("0", False, {"grow": 1})
