"""What growth is given that makes no sense is refused clearly, before anything changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn, optim

from rota.adapt.growth import Growth
from rota.adapt.operations import candidates, costs, grow, history, layers_of, replay
from rota.adapt.shrink import distil
from rota.errors import ConfigError, GrowthError

X = torch.linspace(-1, 1, 24).view(6, 4)
WIDEN = Growth("widen", "0")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


@pytest.mark.parametrize("growth", [None, "widen 0", {"operation": "widen", "layer": "0"}])
def test_what_is_no_growth_is_refused(growth: Any) -> None:
    model = network()
    with pytest.raises(GrowthError, match="is no Growth"):
        grow(model, growth, X, seed=0)
    with pytest.raises(GrowthError, match="is no Growth"):
        replay(model, [growth])
    assert history(model) == ()


def test_a_factor_of_any_size_is_refused_in_a_line() -> None:
    with pytest.raises(ConfigError, match="at most 64") as caught:
        Growth("widen", "0", 10**400)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("ask", [candidates, costs, layers_of])
def test_what_needs_a_batch_says_so(ask: Any) -> None:
    with pytest.raises(GrowthError, match="this is None"):
        ask(network(), None)
    with pytest.raises(GrowthError, match="has no samples"):
        ask(network(), X[:0])
    with pytest.raises(GrowthError, match="this is array") as caught:
        ask(network(), X.numpy())
    assert len(str(caught.value)) < 200


def test_a_lazy_layer_is_named() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.Linear(3, 2))
    with pytest.raises(GrowthError, match=r"0\.weight has no shape yet"):
        candidates(model, X)


def test_an_optimizer_of_another_network_is_refused() -> None:
    model, other = network(), network()
    optimizer = optim.Adam(other.parameters())
    with pytest.raises(GrowthError, match="holds no parameter of this network"):
        grow(model, Growth("deepen", "0"), X, seed=0, optimizer=optimizer)
    with pytest.raises(GrowthError, match="holds no parameter of this network"):
        replay(model, [WIDEN], optimizer=optimizer)
    assert len(optimizer.param_groups[0]["params"]) == 4


def test_parameters_that_could_not_learn_are_not_made() -> None:
    model = network()
    with torch.inference_mode(), pytest.raises(GrowthError, match="inference_mode"):
        grow(model, WIDEN, X, seed=0)
    with torch.no_grad():
        grow(model, WIDEN, X, seed=0)
    model(X).sum().backward()
    assert model[0].weight.grad is not None


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (lambda s, x: s.b(s.a(x).clamp(min=s.bound)), "clamp combines its units with a parameter"),
        (lambda s, x: s.b(torch.reshape(s.a(x), shape=(-1, 3))), "reshape is told its shape by"),
    ],
)
def test_tensors_and_sizes_by_name_are_not_overlooked(way: Any, message: str) -> None:
    class Bounded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(3, 2)
            self.register_buffer("bound", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return way(self, x)  # type: ignore[no-any-return]

    assert Growth("widen", "a") not in candidates(Bounded(), X)
    with pytest.raises(GrowthError, match=message):
        grow(Bounded(), Growth("widen", "a"), X, seed=0)


def test_a_student_is_not_spoilt_by_a_teacher_that_is() -> None:
    student, teacher = network(), network()
    with torch.no_grad():
        teacher[0].weight.fill_(torch.nan)
    before = [p.detach().clone() for p in student.parameters()]
    batches = [(X, torch.zeros(6, dtype=torch.long))]
    with pytest.raises(GrowthError, match="loss of step 0 is nan"):
        distil(student, teacher, batches, optim.SGD(student.parameters(), 0.1), steps=2)
    with pytest.raises(GrowthError, match="steps=-1"):
        distil(student, teacher, batches, optim.SGD(student.parameters(), 0.1), steps=-1)
    assert all(map(torch.equal, before, student.parameters()))


def test_momentum_that_is_divided_by_the_size_of_gradients_is_repeated() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    optimizer = optim.RMSprop(model.parameters(), 1e-3, momentum=0.9)
    for p in model.parameters():
        optimizer.state[p] = {
            "step": torch.tensor(9.0),
            "square_avg": torch.full_like(p, 12.0),
            "momentum_buffer": torch.full_like(p, 6.0),
        }
    grow(model, Growth("widen", "0", 3.0), torch.ones(2, 1), seed=0, optimizer=optimizer)
    state = optimizer.state[model[0].weight]
    torch.testing.assert_close(state["square_avg"], torch.full((3, 1), 12.0 / 9.0))
    assert state["momentum_buffer"].tolist() == [[6.0]] * 3


def test_a_mean_of_weights_begins_anew_where_weights_are_shared_out() -> None:
    model = network()
    optimizer = optim.ASGD(model.parameters(), 0.1)
    model(X).square().mean().backward()
    optimizer.step()
    grow(model, WIDEN, X, seed=0, optimizer=optimizer)
    assert model[2].weight not in optimizer.state
    assert model[2].bias in optimizer.state
    model(X).square().mean().backward()
    optimizer.step()
