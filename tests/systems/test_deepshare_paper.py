"""DeepShare as published: its image and actions by hand, by a slow twin, and in the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from slow_paper import SlowPaper

from rota.core import Cluster, Job, Snapshot
from rota.envs import BatchEnv, LensPolicy, WorldPool
from rota.errors import ConfigError
from rota.learn.deploy import load_policy
from rota.learn.inference import infer
from rota.learn.recipe_file import load_recipe
from rota.learn.states import States
from rota.learn.trainer import Trainer
from rota.policies.contention.neighbours import PlacementModel
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.deepshare.paper_lens import PaperLens
from rota.systems.registry import system

if TYPE_CHECKING:
    from pathlib import Path

    from rota.scenarios.scenario import World

MOBILE, SAGE, FSDP, XL, DLRM, MOE = range(6)
NOTHING, ALL = 7, 6


def job(curve: int, gpus: int, **more: Any) -> Job:
    return Job(workers=gpus, curve=curve, **more)


def moment(*jobs: Job, held: dict[int, Any] | None = None, gpus: int = 8) -> Snapshot:
    """These jobs on DeepShare's cluster, in its world."""
    physics = load("deepshare-published").draw(0).physics
    return Snapshot.of(
        Cluster.uniform(4, gpus), list(jobs), held=held or {}, time_s=300.0,
        curves=physics.curves, contention=physics.contention,
    )  # fmt: skip


class Script:
    """Plays these actions and keeps what it saw; then it does nothing."""

    def __init__(self, *actions: int) -> None:
        self.actions = [*actions]
        self.images: list[Any] = []
        self.masks: list[Any] = []

    def __call__(self, obs: Any, mask: Any, _view: Any, _book: Any) -> list[int]:
        self.images.append(obs["image"].reshape(4, 16).astype(int).copy())
        self.masks.append(mask[0].copy())
        return [self.actions.pop(0) if self.actions else NOTHING]


def decided(snapshot: Snapshot, script: Script, **settings: bool) -> dict[int, Any]:
    """What every job holds after the round, as (node, workers)."""
    decision = LensPolicy(PaperLens(**settings), script).decide(snapshot)
    decision.check(snapshot)
    return {
        j: [(node, workers) for node, workers, _ in decision.share(j)]
        for j in range(len(snapshot.jobs)) if decision.share(j)
    }  # fmt: skip


def test_the_image_shows_jobs_by_gpu_and_the_first_of_each_size_by_spread() -> None:
    # Codes: 3 × model + 1, 2 or 3 for 2, 4 or 8 GPUs. Sage-4 = 5, DLRM-8 = 15 run; MobileNet-2
    # (1), Sage-2, FSDP-4 (8) and MoE-8 (18) wait, of which Sage-2 is not the first of its size.
    snapshot = moment(
        job(SAGE, 4), job(DLRM, 8), job(MOBILE, 2), job(SAGE, 2), job(FSDP, 4), job(MOE, 8),
        held={0: [(1, 2), (2, 2)], 1: [(2, 4), (3, 4)]},
    )  # fmt: skip
    script = Script()
    decided(snapshot, script)

    assert script.images[0].tolist() == [
        #                        1-GPU, 2-GPU … 8-GPU parts
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 18],  # on one node
        [5, 5, 0, 0, 0, 0, 0, 0, 1, 8, 0, 18, 0, 0, 0, 0],  # on two
        [5, 5, 15, 15, 15, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [15, 15, 15, 15, 0, 0, 0, 0, 8, 18, 0, 0, 0, 0, 0, 0],  # on four
    ]
    assert script.masks[0].all()  # nothing is masked


def test_actions_are_nodes_and_the_smallest_candidate_that_suits_them_goes_there() -> None:
    snapshot = moment(job(SAGE, 8), job(SAGE, 4), job(SAGE, 2), job(MOBILE, 2))
    # All four nodes suit 4 GPUs before 8, and never 2; pair {1, 3} suits 2 GPUs first.
    script = Script(ALL, 4, 0, ALL)
    assert decided(snapshot, script) == {
        1: [(0, 1), (1, 1), (2, 1), (3, 1)], 2: [(1, 1), (3, 1)], 3: [(0, 1), (1, 1)],
        0: [(0, 2), (1, 2), (2, 2), (3, 2)],
    }  # fmt: skip
    assert script.images[-1][:, :8].tolist() == [
        [6, 6, 5, 1, 0, 0, 0, 0], [6, 6, 5, 4, 1, 0, 0, 0],
        [6, 6, 5, 0, 0, 0, 0, 0], [6, 6, 5, 4, 0, 0, 0, 0],
    ]  # fmt: skip


def test_an_action_that_cannot_be_carried_out_ends_the_round() -> None:
    full = {0: [(0, 4), (1, 4)], 1: [(0, 4), (1, 4)]}
    jobs = [job(SAGE, 8), job(SAGE, 8), job(SAGE, 2), job(SAGE, 2)]
    script = Script(0, 5)  # {0, 1} is full
    assert decided(moment(*jobs, held=full), script) == full
    assert len(script.images) == 1

    script = Script(5, NOTHING, 5)
    assert decided(moment(*jobs, held=full), script) == {**full, 2: [(2, 1), (3, 1)]}
    assert len(script.images) == 2


def test_hybrid_starts_what_fits_most_spread_first_until_nothing_does() -> None:
    # 4 GPUs are free on every node. 2 GPUs have no spread over four nodes and take 1 of nodes 0
    # and 1; 4 take 1 of all; 8 take 2 of all, which leaves 0, 0, 1, 1, too little for job 3.
    held = {0: [(0, 4), (1, 4)], 1: [(2, 4), (3, 4)]}
    jobs = [job(SAGE, 8), job(SAGE, 8), job(SAGE, 8), job(SAGE, 8), job(MOBILE, 2), job(MOBILE, 4)]
    script = Script()
    assert decided(moment(*jobs, held=held), script, hybrid=True) == {
        **held, 4: [(0, 1), (1, 1)], 5: [(n, 1) for n in range(4)], 2: [(n, 2) for n in range(4)],
    }  # fmt: skip
    assert len(script.images) == 4

    script = Script(5)  # the first action counts, then the rule goes on
    assert decided(moment(*jobs, held=held), script, hybrid=True)[4] == [(2, 1), (3, 1)]


def test_one_action_per_round_if_wanted() -> None:
    jobs = [job(SAGE, 2), job(SAGE, 2)]
    script = Script(0, 0)
    assert decided(moment(*jobs), script, one_action=True) == {0: [(0, 1), (1, 1)]}


def test_an_idle_cluster_starts_something() -> None:
    jobs = [job(SAGE, 8), job(SAGE, 8)]
    assert decided(moment(*jobs), Script()) == {0: [(0, 2), (1, 2), (2, 2), (3, 2)]}


def test_jobs_that_keep_60_percent_or_less_are_stopped_and_queue_last() -> None:
    # FSDP-2 beside FSDP-2 keeps .51, beside MobileNet-2 .846; MobileNet-2 beside FSDP-2 .952.
    jobs = [job(FSDP, 2), job(FSDP, 2), job(MOBILE, 2), job(FSDP, 2), job(SAGE, 2)]
    held = {0: [(0, 1), (1, 1)], 1: [(1, 1), (2, 1)], 2: [(0, 1), (1, 1)], 3: [(2, 1), (3, 1)]}
    snapshot = moment(*jobs, held=held)
    script = Script(0)
    # 0 and 1 share node 1, 1 and 3 node 2. The one that waited comes first, then 0.
    assert decided(snapshot, script) == {2: held[2], 4: [(0, 1), (1, 1)]}
    assert script.images[0][0, :10].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 4]
    assert script.images[1][0, :10].tolist() == [1, 4, 0, 0, 0, 0, 0, 0, 0, 7]


def test_without_a_waiting_job_there_is_nothing_to_decide() -> None:
    script = Script()
    decided(moment(job(SAGE, 2), held={0: [(0, 1), (1, 1)]}), script)
    assert script.masks[0].tolist() == [False] * 7 + [True]


def test_other_clusters_and_jobs_are_refused() -> None:
    with pytest.raises(ConfigError, match="4 nodes of 8 GPUs"):
        decided(moment(job(SAGE, 2), gpus=4), Script())
    with pytest.raises(ConfigError, match="2, 4 or 8 workers"):
        decided(moment(job(SAGE, 3)), Script())
    scenario = load("deepshare-published", ["cluster.nodes=5"])
    with pytest.raises(ConfigError, match="of 5 nodes"):
        BatchEnv(WorldPool.draw(scenario, [1]), PaperLens(), batch=1).reset()
    with pytest.raises(ConfigError, match="no warm-up"):
        PaperLens().script(*[np.zeros(1, np.int64)] * 5)  # type: ignore[arg-type]


# -- in the simulator ------------------------------------------------------------------------


def worlds(jobs: int) -> list[World]:
    scenario = load("deepshare-published")
    return [replace(w, trace=w.trace.head(jobs)) for w in map(scenario.draw, (1, 2))]


def luck(now_s: float, edits: int) -> int:
    """An action without a pattern, by what both sides know."""
    return int(np.random.default_rng([int(now_s), edits]).integers(8))


@pytest.mark.parametrize("settings", [{}, {"hybrid": True}, {"one_action": True}])
def test_image_actions_and_stops_are_those_of_the_slow_twin(settings: dict[str, bool]) -> None:
    env = BatchEnv(WorldPool.of(worlds(60), [1, 2]), PaperLens(**settings), batch=2)
    hybrid, one = settings.get("hybrid", False), settings.get("one_action", False)
    obs, info = env.reset()
    slow = [SlowPaper(env.snapshot(b), hybrid=hybrid, one=one) for b in range(2)]
    stops, rounds = 0, 0
    for t in range(500):
        for b in range(2):
            assert obs["image"][b].reshape(4, 16).tolist() == slow[b].image().tolist()
        actions = [luck(t, b) for b in range(2)]
        over = [slow[b].act(actions[b]) for b in range(2)]
        obs, _, ended, cut, info = env.step(actions)
        assert info["closed"].tolist() == over
        assert not cut.any()
        if ended.any():
            break
        for b in np.flatnonzero(over):
            before, snapshot = slow[b], env.snapshot(b)
            uids = snapshot.jobs.rows["uid"].tolist()
            for j, held in before.held.items():  # carried out as it was written
                uid = before.rows[j]["uid"]
                if uid in uids:
                    share = snapshot.share(uids.index(uid))
                    assert {node: workers for node, workers, _ in share} == held
            slow[b] = SlowPaper(snapshot, hybrid=hybrid, one=one)
            stops += len(snapshot.share(0)) > 0 and len(slow[b].held) < int(
                (snapshot.jobs.rows["share_len"] > 0).sum()
            )
            rounds += 1
    assert rounds > 50
    assert stops > 5


@pytest.mark.parametrize("hybrid", [False, True])
def test_what_is_played_in_a_batch_is_what_the_policy_decides(hybrid: bool) -> None:
    drawn, lens = worlds(80), PaperLens(hybrid=hybrid)
    env = BatchEnv(WorldPool.of(drawn, [1, 2]), lens, batch=2)
    env.reset()
    jcts, left = np.full((2, 80), np.nan), np.ones(2, bool)
    while left.any():
        now_s, edits = env.view.now_s, env.book.edits
        _, _, _, cut, info = env.step([luck(now_s[b], edits[b]) for b in range(2)])
        assert not cut.any()
        now = info["_episode"] & left
        if now.any():
            jcts[now] = info["episode"]["jcts_s"][now]
            left &= ~now

    def act(_obs: Any, _mask: Any, view: Any, book: Any) -> list[int]:
        return [luck(view.now_s[0], book.edits[0])]

    for k, world in enumerate(drawn):
        result = simulate(
            world.cluster, world.trace, LensPolicy(lens, act), world.when, seed=k + 1,
            physics=world.physics,
        )  # fmt: skip
        np.testing.assert_array_equal(result.done_s - result.submit_s, jcts[k])
        assert result.preemptions.sum() > 10


def test_the_network_has_layers_of_its_own_for_values_and_begins_near_uniform() -> None:
    kind = system("deepshare-paper")
    lens = kind.make_lens(kind.lens_settings())
    network = kind.make_network(kind.network_settings(), lens)
    critic = kind.make_critic(kind.network_settings(), lens)
    both = (network, critic)
    sizes = [tuple(weights.shape) for one in both for weights in one.parameters()]
    stack = [(64, 64), (64,), (64, 64), (64,)]
    assert sizes == [*stack, (8, 64), (8,), *stack, (1, 64), (1,)]

    logits = infer(network, States({"image": np.full((3, 64), 18.0, np.float32)}))
    assert np.abs(logits).max() < 0.2


def test_laws_without_curves_are_no_trouble() -> None:
    model = PlacementModel(Cluster.uniform(4), None, None)
    assert model.tables.speed.shape[0] == 0
    snapshot = Snapshot.of(Cluster.uniform(4), [Job(workers=4)])
    assert decided(snapshot, Script(ALL)) == {0: [(n, 1) for n in range(4)]}
    assert decided(Snapshot.of(Cluster.uniform(4), []), Script()) == {}


def test_it_trains_and_its_checkpoint_is_a_policy(tmp_path: Path) -> None:
    recipe = load_recipe("deepshare-paper-c", [
        'world.changes=["workload.jobs=12"]', "world.clusters=2", "world.pool=2",
        "world.validate=1000:1001", "ppo.steps=16", "ppo.minibatches=2", "run.updates=2",
    ])  # fmt: skip
    assert (recipe.world.contention_weight, recipe.world.utilisation_weight) == (0.5, 0.5)
    best = Trainer(recipe, tmp_path / "out").run()

    world = load("deepshare-published", ["workload.jobs=12"]).draw(1000)
    policy = load_policy(tmp_path / "out" / "best.ckpt")
    run = simulate(world.cluster, world.trace, policy, world.when, seed=1000, physics=world.physics)
    assert (run.done_s - run.submit_s).mean() == pytest.approx(300 * best)
