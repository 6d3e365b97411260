"""The lens of DAS: hand-solved rounds, env = simulate, teachers, memory, and the contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_training import small_trainer

from rota.core import Cluster, Job, Snapshot
from rota.core.speed import Curves
from rota.envs import BatchEnv, LensPolicy, PerfectCopy, WorldPool
from rota.learn.deploy import as_policy
from rota.policies import make_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.das.das_network import BothSeen, TwoAgents
from rota.systems.das.order_place_lens import OrderPlaceLens
from rota.systems.registry import system
from rota.testing import policy_cases

SMALL = ["workload.jobs=60"]


def first(_obs: Any, mask: Any, *_: Any) -> Any:
    """The first that is allowed: the oldest job, on the first machine."""
    return mask.argmax(1)


def watched(steps: list[Any], choose: Any = first) -> Any:
    """The same, and every step is written down."""

    def act(obs: Any, mask: Any, *_: Any) -> Any:
        action = choose(obs, mask)
        steps.append(({name: part[0].copy() for name, part in obs.items()}, mask[0].copy(), action))
        return action

    return act


def completions(policy: Any, world: Any, seed: int) -> Any:
    run = simulate(world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics)
    return run.done_s - run.submit_s


def two_machines(*jobs: Job, held: Any = None) -> Snapshot:
    return Snapshot.of(Cluster.uniform(2, 4), list(jobs), held)


def test_one_agent_names_a_job_and_the_other_its_machines() -> None:
    steps: list[Any] = []
    snapshot = two_machines(Job(workers=6), Job(workers=2), Job(workers=9))
    decision = LensPolicy(OrderPlaceLens(informed=False), watched(steps)).decide(snapshot)
    assert [int(obs["agent"]) for obs, _, _ in steps] == [0, 1, 1, 0, 1]
    assert decision.share(0) == ((0, 4, 0), (1, 2, 0))
    assert decision.share(1) == ((1, 2, 0),)
    assert decision.share(2) == ()
    # The job of 9 workers fits nowhere, so it is not shown; then only the second is left.
    assert [mask.sum() for _, mask, _ in steps] == [2, 2, 1, 1, 1]
    assert [obs["waiting"].sum() for obs, _, _ in steps] == [2, 2, 2, 1, 1]


def test_of_many_jobs_those_are_shown_that_need_least_or_the_oldest() -> None:
    lengths = (500.0, 300.0, 100.0, 400.0, 200.0)
    snapshot = two_machines(*(Job(workers=2, estimate_s=length) for length in lengths))
    for informed, expected in ((True, {1, 2, 3, 4}), (False, {0, 1, 2, 3})):
        lens = OrderPlaceLens(window=1, informed=informed)
        decision = LensPolicy(lens, watched([])).decide(snapshot)
        assert {j for j in range(5) if decision.share(j)} == expected


def test_a_teacher_that_wants_a_job_that_is_not_shown_does_not_stop_everything() -> None:
    snapshot = two_machines(Job(workers=2))
    lens = OrderPlaceLens(wait=True)
    decision = LensPolicy(lens, lambda *_: np.array([lens.window])).decide(snapshot)
    assert decision.share(0)


def test_machines_are_taken_in_any_order_but_shares_are_by_node() -> None:
    def last(_obs: Any, mask: Any, *_: Any) -> Any:
        return np.array([np.flatnonzero(mask[0])[-1]])

    decision = LensPolicy(OrderPlaceLens(), last).decide(two_machines(Job(workers=6)))
    assert decision.share(0) == ((0, 2, 0), (1, 4, 0))


def test_it_waits_only_if_it_may_and_something_runs() -> None:
    jobs = (Job(workers=2), Job(workers=2))
    one = {0: [(0, 2)]}
    for wait, held, allowed in ((True, one, True), (True, None, False), (False, one, False)):
        steps: list[Any] = []
        lens = OrderPlaceLens(wait=wait)
        LensPolicy(lens, watched(steps)).decide(two_machines(*jobs, held=held))
        assert bool(steps[0][1][lens.window]) is allowed


def test_an_empty_queue_and_a_full_cluster_end_the_round_at_once() -> None:
    for snapshot in (
        two_machines(),
        two_machines(Job(workers=4), held={0: [(0, 4)]}),
        two_machines(Job(workers=8), Job(workers=1), held={0: [(0, 4), (1, 4)]}),
    ):
        steps: list[Any] = []
        decision = LensPolicy(OrderPlaceLens(), watched(steps)).decide(snapshot)
        assert len(steps) == 1
        assert steps[0][1].tolist() == [False] * 16 + [True]
        decision.check(snapshot)


def test_who_places_sees_how_fast_the_job_is_where() -> None:
    speed = np.zeros((1, 2, 3, 5))
    speed[0, 0, 1:], speed[0, 1, 1:] = 1.0, 0.25
    curves = Curves(("a",), ("fast", "slow"), speed, by_nodes=True, measured=np.full((1, 2), 4))
    cluster = Cluster(gpus=[4, 4], gpu_types=("fast", "slow"), type=[1, 0], price_per_gpu_h=[1, 3])
    snapshot = Snapshot.of(cluster, [Job(workers=2, curve=0, estimate_s=100.0)], curves=curves)
    for informed in (True, False):
        steps: list[Any] = []
        LensPolicy(OrderPlaceLens(informed=informed), watched(steps)).decide(snapshot)
        pair, machines = steps[1][0]["pair"], steps[1][0]["machines"]
        assert pair[:2, 3].tolist() == ([0.25, 1.0] if informed else [0.0, 0.0])
        assert pair[:3, 0].tolist() == [1.0, 1.0, 0.0]
        assert machines[:2, 6].tolist() == [0.25, 0.75]
        assert (steps[0][0]["jobs"][0, 5:] != 0).any() == informed


def test_more_machines_than_rows_show_those_that_suit_the_job() -> None:
    jobs = [Job(workers=4)] * 5 + [Job(workers=6)]
    held = {j: [(j, 4)] for j in range(5)}
    snapshot = Snapshot.of(Cluster.uniform(7, 4), jobs, held)
    steps: list[Any] = []
    decision = LensPolicy(OrderPlaceLens(machines=1), watched(steps)).decide(snapshot)
    assert decision.share(5) == ((5, 4, 0), (6, 2, 0))
    assert [obs["usable"].sum() for obs, _, _ in steps] == [1, 1, 1]


def test_states_of_machines_are_remembered_also_when_jobs_become_many() -> None:
    steps: list[Any] = []
    policy = LensPolicy(OrderPlaceLens(past=3), watched(steps))
    held = {0: [(0, 2)]}
    filled = []
    for round_, count in enumerate((1, 2, 200, 3)):
        jobs = [Job(workers=2)] * count
        made = Snapshot.of(policy_cluster, jobs, held, time_s=100.0 * round_)
        policy.decide(made)
        filled.append(steps[-1][0]["known"][:, 0].sum())
    assert filled == [1, 2, 3, 3]
    # Time that goes back is another run: what was seen there means nothing here.
    policy.decide(Snapshot.of(policy_cluster, [Job(workers=2)], held, time_s=5.0))
    assert steps[-1][0]["known"][:, 0].sum() == 1


policy_cluster = Cluster.uniform(2, 4)


@pytest.mark.parametrize("lens", [OrderPlaceLens(), OrderPlaceLens(machines=5, window=3, past=0)])
def test_an_environment_plays_what_simulate_plays(lens: OrderPlaceLens) -> None:
    seeds = (1, 2)
    worlds = [load("das-small", SMALL).draw(seed) for seed in seeds]
    env = BatchEnv(WorldPool.of(worlds, seeds), lens, batch=2)
    obs, info = env.reset()
    found, left = np.full(env.ends.jcts_s.shape, np.nan), np.ones(2, bool)
    while left.any():
        obs, _, _, _, info = env.step(first(obs, info["mask"]))
        now = info["_episode"] & left
        if now.any():
            found[now] = info["episode"]["jcts_s"][now]
            left &= ~now
    for world, seed, jcts_s in zip(worlds, seeds, found, strict=True):
        np.testing.assert_array_equal(completions(LensPolicy(lens, first), world, seed), jcts_s)


def test_a_teacher_that_fills_machines_is_copied_to_the_letter() -> None:
    world = load("das-small", SMALL).draw(3)
    for teacher in ("fifo-skip+first-fit", "sjf-skip+best-fit"):
        copy = PerfectCopy(OrderPlaceLens(wait=True, window=64), make_policy(teacher))
        expected = completions(make_policy(teacher), world, 3).mean()
        assert completions(copy, world, 3).mean() == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("case", policy_cases(), ids=str)
def test_it_keeps_the_contract_with_any_network(case: Any) -> None:
    torch.manual_seed(0)
    lens = OrderPlaceLens(window=4, machines=3, past=2, wait=True)
    network = TwoAgents(actions=lens.actions, width=8, heads=2)
    case(as_policy(system("das-paper"), lens, network, "das-paper"))


def seen_in(lens: OrderPlaceLens) -> dict[str, torch.Tensor]:
    """All that is seen in a short run."""
    steps: list[Any] = []
    world = load("das-small", SMALL).draw(1)
    completions(LensPolicy(lens, watched(steps)), world, 1)
    some = [obs for obs, _, _ in steps[::5]]
    return {name: torch.from_numpy(np.stack([obs[name] for obs in some])) for name in some[0]}


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("communicate", [True, False])
def test_logits_do_not_depend_on_what_else_is_in_the_batch(kernel: bool, communicate: bool) -> None:
    torch.manual_seed(0)
    lens = OrderPlaceLens()
    network = TwoAgents(actions=lens.actions, kernel=kernel, communicate=communicate)
    seen = seen_in(lens)
    logits, _ = network(seen)
    assert torch.isfinite(logits).all()
    assert {0, 1} == set(seen["agent"].tolist())
    some = torch.tensor([3, 10, 11])
    alone, _ = network({name: part[some] for name, part in seen.items()})
    torch.testing.assert_close(alone, logits[some])
    assert torch.isfinite(BothSeen()(seen, None)).all()


def test_a_machine_is_scored_alike_wherever_it_stands() -> None:
    torch.manual_seed(0)
    lens = OrderPlaceLens(machines=8)
    network = TwoAgents(actions=lens.actions)
    seen = seen_in(lens)
    rows = torch.nonzero(seen["agent"] == 1).squeeze(-1)
    seen = {name: part[rows] for name, part in seen.items()}
    turn = torch.randperm(8)
    mixed = dict(seen)
    for name in ("machines", "usable", "pair"):
        mixed[name] = seen[name][:, turn]
    for name in ("past", "observed", "known"):
        mixed[name] = seen[name][:, :, turn]
    found, expected = network(mixed)[0][:, :8], network(seen)[0][:, turn]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_a_trained_network_decides_the_same_once_saved_and_loaded(tmp_path: Any) -> None:
    world = {"scenario": "das-small", "changes": SMALL, "reward": "jobs", "clusters": 4, "pool": 4}
    trainer = small_trainer(
        tmp_path, system="das-paper",
        tables={"world": world, "run": {"updates": 2, "validate_every": 1},
                "network": {"width": 8, "heads": 2}, "lens": {"window": 4, "machines": 8}},
    )  # fmt: skip
    trainer.run()
    drawn = load("das-small", SMALL).draw(5)
    loaded = make_policy(str(tmp_path / "out" / "best.ckpt"))
    again = make_policy(str(tmp_path / "out" / "best.ckpt"))
    jcts_s = completions(loaded, drawn, 5)
    np.testing.assert_array_equal(jcts_s, completions(again, drawn, 5))
    assert np.isfinite(jcts_s).all()
