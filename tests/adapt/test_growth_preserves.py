"""Growth keeps what a network computes, in evaluation and in training, for networks of any form."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from growing_networks import Branching, Convolutions, Perceptron, Residual, digits_like
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from rota.adapt.operations import candidates, costs, grow, history, replay

if TYPE_CHECKING:
    from torch import Tensor

Network = Any
Maker = Callable[[], Network]

ACTIVATIONS = [nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU]


@st.composite
def makers(draw: st.DrawFn) -> Maker:
    """How to build a network, the same each time."""
    kind = draw(st.sampled_from([Perceptron, Convolutions, Residual, Branching]))
    widths = draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    norm = draw(st.sampled_from(["none", "batch", "batch", "layer", "group"]))
    act, bias = draw(st.sampled_from(ACTIVATIONS)), draw(st.booleans())
    more: dict[str, Any] = {}
    if kind is Convolutions:
        more["dims"] = draw(st.integers(1, 2))
        more["end"] = draw(st.sampled_from(["flatten", "mean", "view", "fixed"]))
        more["kernel"] = draw(st.sampled_from([1, 2, 3]))
    seed = draw(st.integers(0, 99))

    def make() -> Network:
        torch.manual_seed(seed)
        return kind(widths, norm, act, bias, **more)

    return make


@torch.no_grad()
def answer(network: nn.Module, x: Tensor) -> Tensor:
    return network.eval()(x)  # type: ignore[no-any-return]


@torch.no_grad()
def loss_in_training(network: nn.Module, x: Tensor, y: Tensor) -> float:
    return F.cross_entropy(copy.deepcopy(network).train()(x), y).item()


def train(network: nn.Module, optimizer: Any, x: Tensor, y: Tensor, steps: int) -> float:
    network.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(makers(), st.data())
def test_three_growths_in_a_row_change_nothing_and_train_on(
    make: Maker, data: st.DataObject
) -> None:
    network = make()
    x, y = digits_like(0, network.sample)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    train(network, optimizer, x, y, 2)  # statistics and weights that are not those of the beginning
    newcomer = make()
    for number in range(3):
        factor = data.draw(st.sampled_from([1.3, 1.5, 2.0, 3.0]))
        growth = data.draw(st.sampled_from(candidates(network, x, factor=factor)))
        (expected,) = costs(network, x, [growth])
        before, loss = answer(network, x), loss_in_training(network, x, y)
        kept = dict(network.named_parameters())
        moments = {name: copy.deepcopy(optimizer.state[p]) for name, p in kept.items()}
        state = torch.get_rng_state()
        network.train()

        grow(network, growth, x, seed=number, optimizer=optimizer)

        assert network.training
        assert torch.equal(torch.get_rng_state(), state)
        after = answer(network, x)
        assert float((after - before).abs().max()) <= 1e-5 * max(1.0, float(before.abs().max()))
        assert abs(loss_in_training(network, x, y) - loss) <= 1e-3 * loss
        assert costs(network, x) == (expected,)
        fresh = [p for name, p in network.named_parameters() if name not in kept]
        for name, p in network.named_parameters():
            if name in kept and p.shape == kept[name].shape:
                assert p is kept[name]
                for key, value in moments[name].items():
                    assert torch.equal(optimizer.state[p][key], value)
            elif name in kept:
                assert optimizer.state[p]["exp_avg"].shape == p.shape
                assert optimizer.state[p]["step"] == moments[name]["step"]
        assert {id(p) for g in optimizer.param_groups for p in g["params"]} == {
            id(p) for p in network.parameters()
        }
        train(network, optimizer, x, y, 1)
        assert all(p.grad is not None for p in network.parameters())
        if fresh:  # where factors are zero, only they learn in the first step
            assert any(float(p.grad.abs().max()) > 0 for p in fresh if p.grad is not None)
        replay(newcomer, [growth])
        assert shapes(newcomer) == shapes(network)

    assert history(newcomer) == history(network)
    newcomer.load_state_dict(network.state_dict())
    copied = copy.deepcopy(network)
    answered = answer(network, x)
    assert torch.equal(answer(newcomer, x), answered)
    assert torch.equal(answer(copied, x), answered)
    loss = loss_in_training(network, x, y)
    assert train(network, optimizer, x, y, 8) < loss
    assert torch.equal(answer(copied, x), answered)  # a copy shares nothing


def shapes(network: nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, value.shape) for name, value in network.state_dict().items()]
