"""Speed curves in the simulator: solved by hand, and what policies get to see of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from worlds import Scripted, cluster_of, trace_of

from rota.core import Draft
from rota.core.speed import Curves
from rota.errors import ConfigError, InputError, PolicyError
from rota.perf.physics import Billing, Drift, Physics
from rota.policies import make_policy
from rota.sim import Conditions, simulate

if TYPE_CHECKING:
    from rota.core import Decision, Snapshot


def servers_curve() -> Curves:
    """10 · workers · servers / (workers + servers), up to four of each."""
    a, w = np.arange(5.0)[:, None], np.arange(5.0)[None, :]
    speed = 10 * a * w / np.maximum(a + w, 1)
    return Curves(("m",), ("gpu",), speed[None, None], False, np.array([[4, 4]]))


def types_curve() -> Curves:
    """One sample per second and worker on "slow", three on "fast"; .5 of it over two nodes."""
    each = np.arange(5.0)[None, :] * np.array([0.0, 1.0, 0.5])[:, None]
    return Curves(("m",), ("slow", "fast"), np.stack([each, 3 * each])[None], True, np.ones((1, 2)))


@dataclass
class Holds:
    """Gives every job the same (node, workers) and (node, servers), one job at a time."""

    share: list[tuple[int, int]]
    servers: list[tuple[int, int]] = field(default_factory=list)
    name: str = "holds"
    oracle: bool = False
    seen: list[Snapshot] = field(default_factory=list)

    def decide(self, snapshot: Snapshot) -> Decision:
        self.seen.append(snapshot)
        draft = Draft(snapshot, blank=True)
        draft.place(0, self.share, self.servers)
        return draft.commit()


def jobs_with_servers(**columns: Any) -> Any:
    return trace_of(
        [(0, 100, 2)], model=["m"], num_servers=[2], max_servers=[4], min_servers=[0],
        min_workers=[1], max_workers=[4], **columns,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("workers", "servers", "done_s"),
    [(2, 2, 100), (4, 4, 50), (1, 1, 200), (4, 1, 125), (1, 3, 100 * 10 / 7.5)],
)
def test_servers_and_workers(workers: int, servers: int, done_s: float) -> None:
    """The trace says 100 s with two of each, where the curve has 10 samples a second."""
    policy = Holds([(0, workers)], [(0, servers)])
    physics = Physics(curves=servers_curve())
    result = simulate(cluster_of([4]), jobs_with_servers(), policy, physics=physics)
    assert result.done_s.tolist() == pytest.approx([done_s])


def test_samples_say_what_a_second_of_the_trace_is_worth() -> None:
    policy, physics = Holds([(0, 2)], [(0, 2)]), Physics(curves=servers_curve())
    trace = jobs_with_servers(samples=[500.0])
    assert simulate(cluster_of([4]), trace, policy, physics=physics).done_s.tolist() == [50]


@pytest.mark.parametrize(
    ("share", "done_s"), [([(1, 2)], 100), ([(0, 2)], 300), ([(0, 1), (1, 1)], 600)]
)
def test_the_slowest_gpu_type_and_the_nodes_spanned(
    share: list[tuple[int, int]], done_s: float
) -> None:
    """A trace's duration is what a job takes at its requested size where it is fastest."""
    cluster = cluster_of([2, 2], gpu_types=("slow", "fast"), type=np.array([0, 1]))
    trace = trace_of([(0, 100, 2)], model=["m"])
    result = simulate(cluster, trace, Holds(share), physics=Physics(curves=types_curve()))
    assert result.done_s.tolist() == pytest.approx([done_s])


def test_away_from_the_requested_size_a_power_law_holds() -> None:
    trace = trace_of([(0, 100, 4)], min_workers=[1], max_workers=[4])
    for scaling, done_s in ((1.0, 400), (0.5, 200), (0.0, 100)):
        physics = Physics(scaling=scaling)
        assert simulate(cluster_of([4]), trace, Holds([(0, 1)]), physics=physics).done_s == done_s


def test_what_policies_see_of_the_curves() -> None:
    def first(sight: Any, **more: Any) -> Snapshot:
        policy = Holds([(0, 2)], [(0, 2)], **more)
        physics = Physics(curves=servers_curve(), sight=sight, sight_error=0.2)
        when = Conditions(hide_durations=True)
        simulate(cluster_of([4]), jobs_with_servers(), policy, when, seed=1, physics=physics)
        return policy.seen[0]

    true = servers_curve().speed
    assert np.array_equal(first("true").curves.speed, true)  # type: ignore[union-attr]
    noisy = first("noisy").curves.speed  # type: ignore[union-attr]
    off = np.log(noisy[true > 0] / true[true > 0])
    assert 0.05 < off.std() < 0.4
    assert first("hidden").curves is None
    guess = first("observed").curves
    assert guess is not None
    assert guess.names != ("m",)
    assert np.isnan(first("true").jobs.remaining_s).all()
    told = first("hidden", oracle=True)
    assert np.array_equal(told.curves.speed, true)  # type: ignore[union-attr]
    assert told.jobs.remaining_s.tolist() == [100]


def test_a_job_ends_with_its_slot_if_it_must() -> None:
    trace = trace_of([(0, 100, 1), (0, 290, 1)])
    when = Conditions(slot_s=60, whole_slots=True)
    result = simulate(cluster_of([1]), trace, make_policy("fifo"), when)
    assert result.done_s.tolist() == [120, 420]
    with pytest.raises(ConfigError, match="whole_slots needs slots"):
        Conditions(whole_slots=True)


def test_a_job_that_has_done_its_work_holds_on_to_the_end_of_its_slot_and_cannot_fail() -> None:
    # Its work is done at 100, its slot ends at 120. A failure due at 110 strikes nobody; one at 70
    # does: back to the checkpoint at 60, started again at 120, 40 s left, so it ends with the
    # slot at 180.
    when = Conditions(slot_s=60, whole_slots=True, checkpoint_s=60)
    for fails_s, ends_s, lost_s in ((110.0, 120.0, 0.0), (70.0, 180.0, 10.0)):
        faults = Scripted(jobs=((fails_s, 1e9),))
        result = simulate(
            cluster_of([1]), trace_of([(0, 100, 1)]), make_policy("fifo"),
            replace(when, faults=faults),
        )  # fmt: skip
        assert (result.done_s.tolist(), result.lost_s.tolist()) == ([ends_s], [lost_s])


@pytest.mark.parametrize("slot_s", [0.0, 60.0])
def test_who_sits_at_speed_0_for_ever_is_named(slot_s: float) -> None:
    policy, physics = Holds([(0, 2)], []), Physics(curves=servers_curve())
    with pytest.raises(PolicyError, match="2 workers and 0 servers, where its speed is 0"):
        simulate(
            cluster_of([4]), jobs_with_servers(), policy, Conditions(slot_s=slot_s),
            physics=physics,
        )  # fmt: skip


def test_a_trace_that_the_curves_do_not_know_is_refused() -> None:
    physics = Physics(curves=servers_curve())
    with pytest.raises(InputError, match=r"line 7: job '0' trains 'x', for which there is no"):
        simulate(
            cluster_of([4]), trace_of([(0, 1, 1)], model=["x"], line=[7]), make_policy("fifo"),
            physics=physics,
        )  # fmt: skip
    with pytest.raises(InputError, match="1 workers and 0 servers, at which 'm' has no speed"):
        simulate(
            cluster_of([4]), trace_of([(0, 1, 1)], model=["m"]), make_policy("fifo"),
            physics=physics,
        )  # fmt: skip
    with pytest.raises(ConfigError, match="no speeds for GPU type 'odd'"):
        simulate(
            cluster_of([4], gpu_types=("odd",)), jobs_with_servers(), make_policy("fifo"),
            physics=physics,
        )  # fmt: skip


@pytest.mark.parametrize(
    "broken",
    [
        lambda: Physics(sight="blind"),  # type: ignore[arg-type]
        lambda: Physics(scaling=-1),
        lambda: Drift(sd=-0.1),
        lambda: Drift(sd=0.1, correlation=1.0),
        lambda: Billing(grain_s=0),
        lambda: Curves(("m",), ("gpu",), np.full((1, 1, 2, 2), np.nan), True, np.ones((1, 2))),
        lambda: Curves(("m",), ("gpu",), np.ones((2, 1, 2, 2)), True, np.ones((1, 2))),
        lambda: Curves(("m",), ("gpu",), np.ones((1, 1, 0, 2)), True, np.ones((1, 2))),
        lambda: Curves(("m",), ("gpu",), np.ones((1, 1, 2, 2)), True, np.ones(2)),
    ],
)
def test_laws_that_make_no_sense_are_refused(broken: Any) -> None:
    with pytest.raises(ConfigError):
        broken()
