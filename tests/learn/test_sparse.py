"""The sparse first layer of DL2's network against torch's own, and how little is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rota.envs import BatchEnv, WorldPool
from rota.learn import batch_rollout_env
from rota.learn.batch_rollout_env import BatchRolloutEnv, greedy_jct_s
from rota.learn.collect import play
from rota.learn.descent import Descent
from rota.scenarios import load
from rota.systems.dl2.network import PlainCritic, PlainNetwork
from rota.systems.dl2.sparse import SparseLinear, rows_of
from rota.systems.dl2.step_lens import StepByStep


def pair(inputs: int, outputs: int) -> tuple[SparseLinear, nn.Linear]:
    torch.manual_seed(0)
    sparse, dense = SparseLinear(inputs, outputs), nn.Linear(inputs, outputs)
    dense.load_state_dict(sparse.state_dict())
    return sparse, dense


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 9), st.integers(1, 40), st.integers(1, 40), st.floats(0, 1), st.integers(0))
def test_a_sparse_layer_is_torchs_layer(
    n: int, inputs: int, outputs: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, inputs), np.float32)
    rows *= rng.random((n, inputs)) < share
    wish = torch.from_numpy(rng.standard_normal((n, outputs), np.float32))
    sparse, dense = pair(inputs, outputs)
    x = torch.from_numpy(rows)
    a, b = sparse(rows_of(x)), dense(x)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    (a * wish).sum().backward()
    (b * wish).sum().backward()
    torch.testing.assert_close(sparse.weight.grad, dense.weight.grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sparse.bias.grad, dense.bias.grad, rtol=1e-5, atol=1e-5)


def test_begins_with_the_weights_that_torch_would() -> None:
    torch.manual_seed(3)
    sparse = SparseLinear(7, 5)
    torch.manual_seed(3)
    assert torch.equal(sparse.weight, nn.Linear(7, 5).weight)


def test_some_rows_are_those_rows() -> None:
    x = torch.tensor([[0, 1.0, 2], [0, 0, 0], [3, 0, 0]])
    some = rows_of(x).take(np.array([2, 1, 0, 2]))
    sparse, dense = pair(3, 4)
    torch.testing.assert_close(sparse(some), dense(x[[2, 1, 0, 2]]))


def test_refuses_rows_of_another_width() -> None:
    with pytest.raises(ValueError, match="rows have 4 inputs, the layer takes 3"):
        pair(3, 2)[0](rows_of(torch.ones(1, 4)))


def test_what_is_no_number_is_not_lost() -> None:
    sparse, _ = pair(3, 2)
    out = sparse(rows_of(torch.tensor([[0.0, np.nan, 0.0], [0.0, 1.0, 0.0]])))
    assert out.isnan().all(1).tolist() == [True, False]


def test_adam_goes_on_to_the_bit_with_weights_that_lie_input_by_input() -> None:
    def descent() -> tuple[Descent, nn.Module]:
        torch.manual_seed(0)
        net = SparseLinear(6, 4)
        whole = Descent(net, nn.Module(), table="ppo", rate=0.1, max_gradient=1.0, patience=1)
        return whole, net

    x = rows_of(torch.randn(5, 6, generator=torch.Generator().manual_seed(1)))
    whole, net = descent()
    for _ in range(4):
        whole.step(net(x).square().sum())
    first, half = descent()
    for _ in range(2):
        first.step(half(x).square().sum())
    second, rest = descent()
    rest.load_state_dict(half.state_dict())
    second.restore({name: np.ascontiguousarray(a) for name, a in first.state().items()})
    for _ in range(2):
        second.step(rest(x).square().sum())
    for a, b in zip(net.parameters(), rest.parameters(), strict=True):
        assert torch.equal(a, b)


def env_of(lens: Any, seeds: range) -> BatchEnv:
    pool = WorldPool.draw(load("dl2-small", ["workload.jobs=8"]), seeds)
    return BatchEnv(pool, lens, "progress", batch=len(seeds))


def network_of(lens: Any) -> PlainNetwork:
    torch.manual_seed(0)
    network = PlainNetwork(
        window=lens.window, features=lens.features, globals_=lens.globals, actions=lens.actions,
        width=16,
    )  # fmt: skip
    for part in network.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.3)
    return network


def test_values_are_worked_out_once_per_rollout_and_are_the_networks() -> None:
    lens = StepByStep(window=4, one_hot=True)
    network = network_of(lens)
    critic = PlainCritic(
        window=lens.window, features=lens.features, globals_=lens.globals, width=16
    )
    nn.init.normal_(critic.value[-1].weight, std=0.3)
    calls: list[int] = []
    judge = critic.forward

    def counted(seen: Any, inner: Any) -> Any:
        calls.append(len(seen["jobs"]))
        return judge(seen, inner)

    critic.forward = counted  # type: ignore[method-assign]
    envs = BatchRolloutEnv(env_of(lens, range(3)))
    rollout = play(envs, network, critic, 20, np.random.default_rng(0))
    assert calls == [60, 3]
    with torch.no_grad():
        logits, _ = network(rollout.seen.tensors())
        value = judge(rollout.seen.tensors(), None)
    np.testing.assert_allclose(rollout.value, value.numpy(), rtol=1e-5, atol=1e-5)
    mask = torch.from_numpy(rollout.decisions.allowed.flags)
    log_probs = torch.log_softmax(logits.masked_fill(~mask, -1e9), -1).numpy()
    taken = np.take_along_axis(log_probs, rollout.decisions["action"][:, None], 1)[:, 0]
    np.testing.assert_allclose(rollout.decisions["log_prob"], taken, rtol=1e-5, atol=1e-5)


def test_validation_needs_no_critic_and_plays_nobody_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lens = StepByStep(window=4)
    network, rows = network_of(lens), [0]
    act = network.forward

    def counted(seen: Any) -> Any:
        rows[0] += len(seen["jobs"])
        return act(seen)

    monkeypatch.setattr(network, "forward", counted)
    found = greedy_jct_s(lambda: env_of(lens, range(6)), network)
    few, rows[0] = rows[0], 0
    monkeypatch.setattr(batch_rollout_env, "_MANY_LEFT", 0.0)
    np.testing.assert_array_equal(found, greedy_jct_s(lambda: env_of(lens, range(6)), network))
    assert len(set(found.tolist())) == 6
    assert few < 0.9 * rows[0]


def test_clusters_that_are_kept_go_on_as_if_the_others_were_there() -> None:
    lens, rng = StepByStep(window=4), np.random.default_rng(0)
    worlds = range(5)
    whole, some = env_of(lens, worlds), env_of(lens, worlds)
    whole.reset()
    some.reset()
    for _ in range(30):
        actions = rng.integers(0, lens.actions, 5)
        whole.step(actions)
        some.step(actions)
    which = np.array([1, 3, 4])
    some.keep(which)
    for _ in range(200):
        actions = rng.integers(0, lens.actions, 5)
        a, b = whole.step(actions), some.step(actions[which])
        for name in a[0]:
            np.testing.assert_array_equal(a[0][name][which], b[0][name])
        for k in (1, 2, 3):
            np.testing.assert_array_equal(a[k][which], b[k])
        np.testing.assert_array_equal(a[4]["mask"][which], b[4]["mask"])
