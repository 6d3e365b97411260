"""Jobs that slow each other down: solved by hand, and against a twin that works all out anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slow_contention import Laws
from slow_sim import SlowJob, SlowSim
from worlds import assert_same, by_rounds, cluster_of, examples, trace_of, worlds

from rota.core.speed import LINKS, MACHINES, PAIRS, RANKS, Contention, Curves
from rota.errors import ConfigError
from rota.perf.physics import Billing, Drift, Physics
from rota.policies import make_policy
from rota.sim import Conditions, simulate

if TYPE_CHECKING:
    from worlds import Jobs

MODELS = ("a", "b", "c")
NODES, GPUS = 8, 64


def spread_curves(loss: float = 0.8) -> Curves:
    """Speed in proportion to workers, times `loss` for every further node."""
    w, a = np.arange(GPUS + 1.0), np.arange(NODES + 1.0)
    table = w[None, :] * loss ** (a[:, None] - 1) * (a[:, None] > 0)
    speed = np.stack([table[None] * (1 + m) for m in range(len(MODELS))])
    return Curves(MODELS, ("gpu",), speed, True, np.full((len(MODELS), 2), 64))


def laws(mode: int, **given: Any) -> Contention:
    """Model m is of kind m as soon as it spans nodes; on one node too if machines are shared."""
    kind = np.full((len(MODELS) + 1, NODES + 1, GPUS + 1), -1)
    kind[:3, 1 if mode == MACHINES else 2 :] = np.arange(3)[:, None, None]
    fields: dict[str, Any] = {
        "ratio": np.array([[0.9, 0.5, 0.7], [1.0, 0.8, 0.6], [0.4, 0.75, 0.95]]),
        "hurt": np.array([0.2, 0.5, 0.9]), "harm": np.array([0.6, 0.3, 0.8]), "floor": 0.3,
        "traffic_gbps": np.array([4.0, 10.0, 7.0]), "talk": np.array([0.3, 0.6, 0.5]),
        "link_gbps": np.full(NODES, 10.0), "uplink_gbps": np.full(4, 12.0), "spine_gbps": 15.0,
    }  # fmt: skip
    return Contention(mode=mode, kind=kind, **(fields | given))


def jobs_with_models(jobs: Jobs) -> Any:
    ordered = sorted(jobs, key=lambda job: job[0])
    return trace_of(ordered, model=[MODELS[i % 3] for i in range(len(jobs))])


def play(gpus: list[int], jobs: Jobs, name: str, physics: Physics, when: Conditions) -> Any:
    cluster, racks = cluster_of(gpus, rack=np.arange(len(gpus)) // 2), (len(gpus) + 1) // 2
    if physics.contention is not None and physics.contention.mode == LINKS:
        contention = physics.contention._replace(
            link_gbps=physics.contention.link_gbps[: len(gpus)],
            uplink_gbps=physics.contention.uplink_gbps[:racks],
        )
        physics = replace(physics, contention=contention)
    trace, policy = jobs_with_models(jobs), make_policy(name)
    fast = simulate(cluster, trace, policy, when, physics=physics)
    assert_same(fast, by_rounds(cluster, trace, policy, when, physics=physics))
    return fast


def agree(
    gpus: list[int], jobs: Jobs, name: str, contention: Contention, when: Conditions, **rules: Any
) -> None:
    curves = spread_curves()
    fast = play(gpus, jobs, name, Physics(curves=curves, contention=contention), when)
    twin = Laws(curves, contention, [n // 2 for n in range(len(gpus))], gpus)
    ratio = {PAIRS: twin.pairs, RANKS: twin.ranks, LINKS: twin.links}.get(
        contention.mode, lambda sim, job: twin.ranks(sim, job, by_share=True)
    )

    def law(sim: SlowSim, job: SlowJob) -> float:
        rest = max(contention.floor, ratio(sim, job)) if twin.kind(job) >= 0 else 1.0
        return twin.alone(job) * rest

    ordered = sorted(jobs, key=lambda job: job[0])
    slow = SlowSim(
        gpus, [SlowJob(i, *map(float, job[:2]), job[2]) for i, job in enumerate(ordered)],
        law=law, restart_s=when.restart_s, slot_s=when.slot_s, **rules,
    )  # fmt: skip
    np.testing.assert_allclose(fast.done_s, slow.run(), rtol=1e-9)


@pytest.mark.parametrize("mode", [PAIRS, RANKS, LINKS, MACHINES])
@examples(40)
@given(worlds(sizes=(1, 2, 4, 8)), st.sampled_from([0.0, 25.0]))
def test_who_arrives_and_leaves_changes_the_others(
    mode: int, world: tuple[list[int], Jobs], slot_s: float
) -> None:
    agree(*world, "fifo-skip+spread", laws(mode), Conditions(slot_s=slot_s), place="spread")


@pytest.mark.parametrize("mode", [PAIRS, LINKS, MACHINES])
@examples(40)
@given(worlds(sizes=(1, 2, 4, 8)), st.sampled_from([0.0, 7.0, 60.0]))
def test_with_preemption(mode: int, world: tuple[list[int], Jobs], restart_s: float) -> None:
    rules = {"order": "srtf", "preempt": True, "place": "worst-fit"}
    agree(*world, "srtf+worst-fit", laws(mode), Conditions(restart_s=restart_s), **rules)


def test_two_jobs_share_a_node_until_one_ends() -> None:
    """Each over both nodes: a runs at .5 beside b, b at 1 beside a; then a is alone again."""
    contention = laws(PAIRS)
    world = [2, 2], [(0, 100, 2), (0, 40, 2)]
    physics = Physics(curves=spread_curves(1.0), contention=contention)
    fast = play(*world, "fifo+spread", physics, Conditions())
    assert fast.done_s.tolist() == [120, 40]


def test_contention_about_other_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="about 3 models, the speeds about 0"):
        play([2], [(0, 1, 1)], "fifo", Physics(contention=laws(PAIRS)), Conditions())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"link_gbps": np.full(1, 10.0)}, "of 1 nodes .*this one .* has 2"),
        ({"link_gbps": np.full(NODES, 10.0)}, "of 8 nodes"),
        ({"uplink_gbps": np.zeros(0)}, "of 0 racks"),
        ({"uplink_gbps": np.full(4, 12.0)}, "of 4 racks .* has 1"),
        ({"link_gbps": np.array([10.0, np.nan])}, "link_gbps must be 0 or more"),
        ({"spine_gbps": np.nan}, "spine_gbps=nan must be"),
        ({"traffic_gbps": np.ones(2)}, "names 3 kinds of traffic, but Contention.traffic_gbps"),
        ({"talk": np.ones(0)}, "Contention.talk has shape"),
        ({"kind": np.full((4, 0, 3), -1)}, "kind has shape"),
        ({"kind": np.full((2, 2, 2), -1)}, "about 1 models, the speeds about 3"),
        ({"mode": 9}, "mode 9 is unknown"),
        ({"mode": PAIRS, "ratio": np.ones((2, 3))}, "Contention.ratio has shape"),
        ({"mode": PAIRS, "floor": np.nan}, "floor=nan must lie"),
        ({"mode": RANKS, "hurt": np.ones(2)}, "Contention.hurt has shape"),
        ({"mode": MACHINES, "harm": np.full(3, -1.0)}, "Contention.harm holds -1"),
    ],
)
def test_contention_made_for_another_cluster_is_refused(wrong: dict[str, Any], says: str) -> None:
    fits = {"link_gbps": np.full(2, 10.0), "uplink_gbps": np.full(1, 12.0)}
    contention = laws(LINKS)._replace(**(fits | wrong))
    with pytest.raises(ConfigError, match=says):
        simulate(
            cluster_of([2, 2]), jobs_with_models([(0, 10, 2)]), make_policy("fifo+spread"),
            physics=Physics(curves=spread_curves(), contention=contention),
        )  # fmt: skip


def test_a_full_link_is_shared_equally() -> None:
    """10 Gb/s for jobs that want 10 and 7: five each; one node alone has nothing to share."""
    contention = laws(LINKS, link_gbps=np.full(NODES, 10.0), spine_gbps=np.inf)
    jobs = [(0, 1e9, 1), (0, 100, 2), (0, 100, 2)]
    physics = Physics(curves=spread_curves(1.0), contention=contention)
    fast = play([3, 2], jobs, "fifo+spread", physics, Conditions())
    # b: talks .6 of its step and gets half of what it wants; c: .5, five of seven.
    b, c = 1 / (1 - 0.6 + 0.6 * 10 / 5), 1 / (1 - 0.5 + 0.5 * 7 / 5)
    assert fast.done_s[2] == pytest.approx(100 / c)
    assert fast.done_s[1] == pytest.approx(100 / c + (100 - 100 / c * b))


def test_machines_wander_around_their_speed() -> None:
    jobs: Jobs = [(0, 100_000, 1)]
    still = play([1], jobs, "fifo", Physics(drift=Drift(sd=0.0)), Conditions())
    assert still.done_s.tolist() == [100_000]
    ends = [
        simulate(
            cluster_of([1]), jobs_with_models(jobs), make_policy("fifo"), seed=seed,
            physics=Physics(drift=Drift(sd=0.2)),
        ).done_s[0]
        for seed in range(40)
    ]  # fmt: skip
    assert np.std(ends) > 100
    assert np.mean(ends) == pytest.approx(100_000, rel=0.02)


def test_a_fee_is_due_while_a_job_runs() -> None:
    """Two GPUs at 3.6 $/h for 100 s, then for 30 s more by the minute; queueing is free."""
    cluster = cluster_of([2], price_per_gpu_h=np.array([3.6]))
    trace, policy = trace_of([(0, 100, 2), (0, 30, 1)]), make_policy("fifo")
    assert simulate(cluster, trace, policy).fee == pytest.approx([0.2, 0.03])
    by_minute = Physics(billing=Billing(grain_s=60))
    assert simulate(cluster, trace, policy, physics=by_minute).fee == pytest.approx([0.24, 0.06])
    whole = Physics(billing=Billing(whole_nodes=True))
    assert simulate(cluster, trace, policy, physics=whole).fee == pytest.approx([0.2, 0.06])


def test_who_crosses_racks_is_freed_by_another_who_leaves() -> None:
    """Two jobs meet on no node, but on a spine of 8 Gb/s: 4 each of 4 and 10 wanted."""
    contention = laws(LINKS, link_gbps=np.full(4, 10.0), uplink_gbps=np.full(2, np.inf),
                      spine_gbps=8.0, floor=0.0)  # fmt: skip
    jobs: Jobs = [(0, 50, 2), (0, 100, 2)]
    physics = Physics(curves=spread_curves(1.0), contention=contention)
    cluster = cluster_of([1, 1, 1, 1], rack=np.array([0, 1, 0, 1]))
    fast = simulate(cluster, jobs_with_models(jobs), make_policy("fifo+spread"), physics=physics)
    # b: talks .6 of its step and gets 4, then 8, of the 10 it wants.
    beside, alone = 1 / (1 - 0.6 + 0.6 * 10 / 4), 1 / (1 - 0.6 + 0.6 * 10 / 8)
    assert fast.done_s[0] == 50
    assert fast.done_s[1] == pytest.approx(50 + (100 - 50 * beside) / alone)
