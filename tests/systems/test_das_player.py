"""DAS in one compiled call per round: the logits of torch, and the same rounds edit by edit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from rota.core import Cluster, Job, Snapshot
from rota.envs.lens import new_arrays
from rota.jit import wide_kernel
from rota.jit_call import Caller
from rota.learn.deploy import as_policy
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.das.agent_kernels import encode_row, see_machine
from rota.systems.das.das_network import TwoAgents
from rota.systems.das.das_player import scratch_for, weights_of
from rota.systems.das.dense_kernels import tanh_of
from rota.systems.das.order_place_lens import OrderPlaceLens
from rota.systems.das.ordering_kernels import score_jobs
from rota.systems.das.placing_kernels import FORBIDDEN, NOW, PAST, score_machines
from rota.systems.das.play_kernels import ORDERED
from rota.systems.das.walk import FORMS
from rota.systems.registry import system

if TYPE_CHECKING:
    from rota.systems.das.agent_kernels import Agents, AgentScratch

torch.set_num_threads(1)

VARIANTS: dict[str, dict[str, Any]] = {
    **{form: {"form": form} for form in FORMS},
    "attention": {"kernel": False},
    "deaf": {"communicate": False},
    "deaf attention": {"communicate": False, "kernel": False},
    "only mean": {"only_mean": True},
    "layers": {"layers": 3, "heads": 2, "terms": 1},
    "narrow": {"width": 3, "heads": 1, "terms": 7},
    "odd": {"width": 15, "heads": 5, "form": "symmetric"},
}
LENSES: dict[str, dict[str, Any]] = {
    "usual": {},
    "waits": {"wait": True},
    "no past": {"past": 0},
    "few": {"window": 3, "machines": 4, "past": 2, "informed": False},
    "many": {"window": 40, "machines": 40, "past": 12, "wait": True},
}


def made(lens: OrderPlaceLens, seed: int = 0, spread: float = 0.5, **form: Any) -> Any:
    """A policy of random weights, with a player."""
    torch.manual_seed(seed)
    network = TwoAgents(actions=lens.actions, **{"width": 16, "heads": 4, **form})
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(spread * torch.randn_like(weight) / max(weight.shape[-1:] or (1,)) ** 0.5)
    policy = as_policy(system("das-paper"), lens, network, "das-paper")
    assert policy.play is not None
    return policy, network


class Watch:
    """A policy's player, stopped after each edit and compared with torch.

    Machines that look the same score the same, but for rounding: either may be chosen.
    """

    def __init__(self, policy: Any, network: TwoAgents) -> None:
        self.play, self.network, self.lens = policy.play, network, policy.lens
        self.compared, self.agents = 0, set[int]()

    def __call__(self, view: Any, book: Any, most_edits: int) -> bool:
        seen = new_arrays(self.lens.observation_space, 1)
        mask = np.zeros((1, *self.lens.mask_shape), np.bool_)
        while book.edits[0] < most_edits:
            self.lens.encode(view, book, seen)
            self.lens.mask(view, book, mask)
            ended = self.play(view, book, int(book.edits[0]) + 1)
            if mask.sum() > 1:
                self.compare(seen, mask[0])
            if ended:
                return True
        return False

    def compare(self, seen: Any, mask: Any) -> None:
        with torch.inference_mode():
            logits, _ = self.network({n: torch.from_numpy(part) for n, part in seen.items()})
        expected = logits[0].numpy()
        scale = float(np.abs(expected[mask]).max())
        np.testing.assert_allclose(
            self.play.logits[mask], expected[mask], rtol=1e-4, atol=2e-5 * max(1.0, scale)
        )
        ours, best = np.where(mask, self.play.logits, -np.inf).argmax(), expected[mask].max()
        assert expected[ours] == best or best - expected[ours] < 1e-5 * max(1.0, scale)
        self.compared += 1
        self.agents.add(int(seen["agent"][0]))


def completions(policy: Any, seed: int = 1, *, prices: bool = False) -> Any:
    """Completion times in a short run; with `prices` no two machines look the same."""
    world = load("das-small", ["workload.jobs=60"]).draw(seed)
    cluster = world.cluster
    if prices:
        drawn = np.random.default_rng(seed).uniform(1.0, 9.0, len(cluster.gpus))
        cluster = replace(cluster, price_per_gpu_h=drawn)
    run = simulate(cluster, world.trace, policy, world.when, seed=seed, physics=world.physics)
    return run.done_s - run.submit_s


@pytest.mark.parametrize("sees", LENSES)
@pytest.mark.parametrize("form", VARIANTS)
def test_logits_are_those_of_torch_but_for_rounding(form: str, sees: str) -> None:
    policy, network = made(OrderPlaceLens(**LENSES[sees]), **VARIANTS[form])
    watch = Watch(policy, network)
    stopped = completions(replace(policy, play=watch))
    np.testing.assert_array_equal(completions(policy), stopped)
    assert watch.compared > 50
    assert watch.agents == {0, 1}


@pytest.mark.parametrize("targets", ["observed", "actions"])
def test_the_worth_of_a_dollar_and_other_targets_are_seen_as_in_torch(targets: str) -> None:
    policy, network = made(OrderPlaceLens(fee=300.0, targets=targets, wait=True), fee=True)
    watch = Watch(policy, network)
    completions(replace(policy, play=watch))
    assert watch.agents == {0, 1}


@pytest.mark.parametrize("form", VARIANTS)
@pytest.mark.parametrize("sees", ["usual", "waits", "few"])
def test_a_round_in_one_call_is_the_round_edit_by_edit(form: str, sees: str) -> None:
    policy, _ = made(OrderPlaceLens(**LENSES[sees]), seed=2, **VARIANTS[form])
    whole, edited = (
        completions(made_of, 2, prices=True) for made_of in (policy, replace(policy, play=None))
    )
    np.testing.assert_array_equal(whole, edited)


def priced(gpus: int, prices: Any) -> Cluster:
    """Machines with so many GPUs each, at these prices."""
    return Cluster(gpus=np.full(len(prices), gpus), price_per_gpu_h=np.array(prices, float))


def decided(policy: Any, snapshot: Snapshot) -> Any:
    decision = policy.decide(snapshot)
    decision.check(snapshot)
    return [decision.share(j) for j in range(len(snapshot.jobs))]


@pytest.mark.parametrize("form", ["sub", "attention"])
def test_edges_are_decided_as_edit_by_edit(form: str) -> None:
    one, two = Cluster.uniform(1, 4), priced(4, [1, 3])
    many = priced(2, np.linspace(1, 5, 40))
    waiting = [Job(workers=1 + i % 3, estimate_s=100.0 + i) for i in range(6)]
    held = {0: [(0, 1)]}
    for snapshot in (
        Snapshot.of(one, waiting),
        Snapshot.of(one, waiting, held),
        Snapshot.of(one, []),
        Snapshot.of(two, []),
        Snapshot.of(two, [Job(workers=8)] * 2, {0: [(0, 4), (1, 4)]}),
        Snapshot.of(two, waiting, held),  # nothing was observed on the second machine
        Snapshot.of(many, waiting, held),
    ):
        policy, _ = made(OrderPlaceLens(), **VARIANTS[form])
        edited = replace(policy, play=None)
        assert decided(policy, snapshot) == decided(edited, snapshot)


def test_a_player_goes_on_with_a_round_and_begins_another_in_the_same_memory() -> None:
    policy, network = made(OrderPlaceLens(window=4, machines=3))
    cluster = priced(4, [1, 5, 3, 2, 4])
    jobs = [Job(workers=w) for w in (2, 6, 3, 1, 9)]
    first = Snapshot.of(cluster, jobs)
    later = Snapshot.of(cluster, jobs, {1: [(0, 4), (2, 2)]}, time_s=500.0)
    by_steps = replace(policy, play=Watch(policy, network))
    edited = replace(policy, play=None)
    for snapshot in (first, later, first, later):
        shares = decided(policy, snapshot)
        assert shares == decided(by_steps, snapshot) == decided(edited, snapshot)
        assert any(shares)


def test_weights_that_are_not_numbers_still_end_a_round() -> None:
    policy, network = made(OrderPlaceLens())
    with torch.no_grad():
        for weight in network.parameters():
            weight.fill_(np.nan)
    broken = replace(policy, play=network.player(policy.lens))
    snapshot = Snapshot.of(Cluster.uniform(3, 4), [Job(workers=2)] * 9)
    assert sum(bool(share) for share in decided(broken, snapshot)) == 6


def test_tanh_is_that_of_numpy_but_for_rounding() -> None:
    plain: Any = getattr(tanh_of, "py_func", tanh_of)
    for x in (*np.linspace(-12, 12, 401, dtype=np.float32), np.float32(1e-6), np.float32(-1e30)):
        assert plain(x) == pytest.approx(np.tanh(x), rel=1e-6, abs=1e-7)


@wide_kernel
def score_drawn(
    a: Agents, s: AgentScratch, placing: bool, jobs: Any, machines: Any, past: Any, shown: int,
    count: int,
) -> None:  # fmt: skip
    """The logits of jobs, or of machines for the first job; the rest is in `s` already."""
    s.logits[:] = FORBIDDEN
    for i in range(shown):
        encode_row(a.job, jobs[i], s.line[: s.common.size], s.jobs[i])
    for k in range(count):
        see_machine(a, s, NOW if placing else ORDERED, k, machines[k])
        for t in range(past.shape[0]):
            see_machine(a, s, PAST + t, k, past[t, k])
    if placing:
        score_machines(a, s, 0, count)
    else:
        score_jobs(a, s, shown, count)


def drawn_state(lens: OrderPlaceLens, rng: Any, often: float) -> dict[str, Any]:
    """A state of random numbers; machines were observed so often."""
    shown, count = int(rng.integers(1, lens.window + 1)), int(rng.integers(1, lens.machines + 1))
    seen = {
        name: rng.normal(size=box.shape).astype(box.dtype)
        for name, box in lens.observation_space.spaces.items()
    }
    seen["waiting"][:] = np.arange(lens.window) < shown
    seen["usable"][:] = np.arange(lens.machines) < count
    seen["known"][:] = (rng.random(seen["known"].shape) < often) & (seen["usable"] > 0)
    for name in ("machines", "pair"):
        seen[name] *= seen["usable"][:, None]
    seen["job"] = seen["jobs"][0]
    return seen


@pytest.mark.parametrize("often", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize("form", VARIANTS)
def test_random_states_score_as_in_torch(form: str, often: float) -> None:
    rng = np.random.default_rng(1)
    lens = OrderPlaceLens(window=9, machines=7, past=6)
    _, network = made(lens, **VARIANTS[form])
    agents = weights_of(network, lens.window)
    scratch, run = scratch_for(agents, lens), Caller()
    for placing in (False, True) * 8:
        seen = drawn_state(lens, rng, often)
        seen["agent"] = np.array(int(placing))
        scratch.pair[:], scratch.observed[:] = seen["pair"], seen["observed"]
        scratch.known[:] = seen["known"] > 0
        shown, count = int(seen["waiting"].sum()), int(seen["usable"].sum())
        run(
            score_drawn, agents, scratch, placing, seen["jobs"], seen["machines"], seen["past"],
            shown, count,
        )  # fmt: skip
        with torch.inference_mode():
            logits, _ = network({n: torch.from_numpy(part[None]) for n, part in seen.items()})
        np.testing.assert_allclose(scratch.logits, logits[0].numpy(), rtol=1e-4, atol=3e-5)
