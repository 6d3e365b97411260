"""An optimizer goes on with a network that has grown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn, optim

from rota.adapt.growth import Growth
from rota.adapt.operations import grow, replay

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.linspace(-1, 1, 24).view(6, 4)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


def step(model: nn.Module, optimizer: optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(X).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, 0.1),
        lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        lambda p: optim.Adam(p, amsgrad=True),
        lambda p: optim.AdamW(p, foreach=False),
        lambda p: optim.RMSprop(p, centered=True, momentum=0.9),
        optim.Adagrad,
        optim.Adadelta,
        optim.Adamax,
        optim.NAdam,
        optim.RAdam,
        optim.ASGD,
        optim.Adafactor,
    ],
)
def test_every_optimizer_goes_on(make: Callable[[Any], optim.Optimizer]) -> None:
    model = network()
    optimizer = make(model.parameters())
    step(model, optimizer)
    for seed, growth in enumerate(
        [Growth("deepen", "0"), Growth("widen", "0", 1.5), Growth("widen", "grown.1.layer")]
    ):
        grow(model, growth, X, seed=seed, optimizer=optimizer)
        before = [p.detach().clone() for p in model.parameters()]
        step(model, optimizer)
        step(model, optimizer)
        assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    for p in model.parameters():
        for value in optimizer.state[p].values():
            if isinstance(value, Tensor) and value.dim() == p.dim() and p.dim() > 1:
                assert value.shape[0] in (1, p.shape[0])
    make(model.parameters()).load_state_dict(optimizer.state_dict())


def test_moments_follow_the_gradients_of_replicas() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    optimizer = optim.Adam(model.parameters())
    for p, mean, square in zip(model.parameters(), (6.0, 5.0), (12.0, 7.0), strict=True):
        optimizer.state[p] = {
            "step": torch.tensor(9.0),
            "exp_avg": torch.full_like(p, mean),
            "exp_avg_sq": torch.full_like(p, square),
        }
    grow(model, Growth("widen", "0", 3.0), torch.ones(2, 1), seed=0, optimizer=optimizer)
    incoming, outgoing = (optimizer.state[p] for p in model.parameters())
    # A unit's gradient is divided among its three replicas; what reads them has the old one each.
    assert incoming["exp_avg"].tolist() == [[2.0], [2.0], [2.0]]
    torch.testing.assert_close(incoming["exp_avg_sq"], torch.full((3, 1), 12.0 / 9.0))
    assert outgoing["exp_avg"].tolist() == [[5.0, 5.0, 5.0]]
    assert outgoing["exp_avg_sq"].tolist() == [[7.0, 7.0, 7.0]]
    assert incoming["step"] == outgoing["step"] == 9.0


def test_new_parameters_join_the_groups_of_their_layer_and_schedules_stay() -> None:
    model = network()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0, "lr": 0.5}]
    )
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    groups = list(optimizer.param_groups)
    step(model, optimizer)
    grow(model, Growth("deepen", "0"), X, seed=0, optimizer=optimizer)
    grow(model, Growth("widen", "0"), X, seed=0, optimizer=optimizer)
    step(model, optimizer)
    schedule.step()

    assert all(a is b for a, b in zip(groups, optimizer.param_groups, strict=True))
    named = dict(model.named_parameters())
    of = {name: [any(p is q for q in g["params"]) for g in groups] for name, p in named.items()}
    for name, where in of.items():
        assert where == ([True, False] if named[name].dim() > 1 else [False, True]), name
    assert groups[1]["lr"] == 0.25
    newcomer = network()
    other = optim.AdamW(
        [
            {"params": [p for p in newcomer.parameters() if p.dim() > 1]},
            {"params": [p for p in newcomer.parameters() if p.dim() < 2]},
        ]
    )
    replay(newcomer, [Growth("deepen", "0"), Growth("widen", "0")], optimizer=other)
    for mine, theirs in zip(groups, other.param_groups, strict=True):
        assert [p.shape for p in mine["params"]] == [p.shape for p in theirs["params"]]


def test_named_parameters_keep_their_names() -> None:
    model = network()
    optimizer = optim.SGD(model.named_parameters(), 0.1)
    grow(model, Growth("deepen", "0", form="identity"), X, seed=0, optimizer=optimizer)
    assert optimizer.param_groups[0]["param_names"] == [n for n, _ in model.named_parameters()]


def test_frozen_layers_stay_frozen_and_out_of_the_optimizer() -> None:
    model = network()
    model[0].requires_grad_(False)
    optimizer = optim.Adam([p for p in model.parameters() if p.requires_grad])
    step(model, optimizer)
    grow(model, Growth("widen", "0"), X, seed=0, optimizer=optimizer)
    assert not model[0].weight.requires_grad
    assert all(p is not model[0].weight for p in optimizer.param_groups[0]["params"])
    grow(model, Growth("deepen", "0"), X, seed=0, optimizer=optimizer)
    assert model.grown["2"].layer.weight.requires_grad  # a frozen new layer would be for nothing
    step(model, optimizer)
    assert model.grown["2"].scale.weight.abs().max() > 0
