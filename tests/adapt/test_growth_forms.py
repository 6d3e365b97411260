"""Further ways to write a network: axes by name, norms over another axis, lengths in sums."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from rota.adapt.growth import Growth
from rota.adapt.operations import candidates, costs, grow, history, replay
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class Written(nn.Module):
    """A network whose forward is given as a function of (self, x)."""

    def __init__(self, way: Callable[[Any, Tensor], Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.way = way
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x)


def conv(way: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    return Written(way, a=nn.Conv1d(3, 8, 3), b=nn.Linear(8, 2))


SIGNAL = torch.linspace(-2, 1, 6 * 3 * 12).sin().view(6, 3, 12)
ROWS = torch.linspace(-2, 1, 36).cos().view(6, 6)


@pytest.mark.parametrize(
    "way",
    [
        lambda s, x: s.b(s.a(x).permute(dims=(0, 2, 1))),
        lambda s, x: s.b(s.a(x).transpose(dim0=1, dim1=2)),
        lambda s, x: s.b(s.a(x).swapaxes(axis0=-1, axis1=1)),
        lambda s, x: s.b(s.a(x).mT),
        lambda s, x: s.b(s.a(x).mean(axis=2)),
        lambda s, x: s.b(s.a(x).mean(2, keepdims=True).flatten(1)),
        lambda s, x: s.b(s.a(x).mean(2).T.t()),
        lambda s, x: (lambda h: s.b(torch.cat([h, h * 2], axis=-1).amax(2)))(s.a(x)),
        lambda s, x: (lambda h: s.b(h.view(h.size(0), h.shape[1], -1).mean(2)))(s.a(x)),
    ],
)
def test_axes_are_understood_by_name_and_by_position(way: Callable[[Any, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    network = conv(way).eval()
    before = network(SIGNAL)
    assert Growth("widen", "a", 1.5) in candidates(network, SIGNAL, factor=1.5)
    grow(network, Growth("widen", "a", 1.5), SIGNAL, seed=0)
    torch.testing.assert_close(network(SIGNAL), before, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "way",
    [
        lambda s, x: (lambda h: s.b(h.mean(2) / h.shape[1] ** 0.5) * 1e-5)(s.a(x)),
        lambda s, x: (lambda h: s.b(h.mean(2)) * h.size(1) * 1e-5)(s.a(x)),
        lambda s, x: (lambda h: s.b(h.mean(2)) / h.numel() * 1e-5)(s.a(x)),
    ],
)
def test_numbers_that_depend_on_the_width_are_refused_however_small(
    way: Callable[[Any, Tensor], Tensor],
) -> None:
    network = conv(way)
    with pytest.raises(
        GrowthError, match=r"a cannot become wider: .* with the number of its units"
    ):
        grow(network, Growth("widen", "a"), SIGNAL, seed=0)
    assert Growth("widen", "a") not in candidates(network, SIGNAL)


def test_weights_that_are_read_without_their_layer_do_not_become_wider() -> None:
    network = Written(
        lambda s, x: s.b(F.relu(s.a(x))) + 1e-7 * s.a.weight.square().sum(),
        a=nn.Linear(6, 8),
        b=nn.Linear(8, 2),
    )
    with pytest.raises(GrowthError, match=r"a\.weight is also read by itself"):
        grow(network, Growth("widen", "a"), ROWS, seed=0)


@pytest.mark.parametrize(
    ("norm", "forms"),
    [
        (nn.BatchNorm1d(3), ("identity", "residual")),
        (nn.GroupNorm(3, 3), ("residual",)),
        (nn.InstanceNorm1d(3, affine=True), ("residual",)),
    ],
)
def test_a_norm_behind_a_linear_layer_may_be_of_another_axis(
    norm: nn.Module, forms: tuple[Any, ...]
) -> None:
    for form in forms:
        start = nn.Sequential(nn.Linear(12, 8), norm, nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))
        network = copy.deepcopy(start)
        loss = network(SIGNAL).square().mean()
        before = network.eval()(SIGNAL)
        growth = Growth("deepen", "0", form=form)
        parameters = costs(network, SIGNAL, [growth])[0].parameters
        grow(network, growth, SIGNAL, seed=0)
        torch.testing.assert_close(network(SIGNAL), before, atol=1e-5, rtol=1e-5)
        assert sum(p.numel() for p in network.parameters()) == parameters
        newcomer = copy.deepcopy(start)
        replay(newcomer, history(network))
        newcomer.load_state_dict(network.state_dict())
        assert torch.equal(newcomer.eval()(SIGNAL), network(SIGNAL))
        torch.testing.assert_close(network.train()(SIGNAL).square().mean(), loss, rtol=1e-3, atol=0)


def test_some_gradient_reaches_every_new_layer() -> None:
    # A single output that is always positive, and a new weight that is negative: half of all seeds.
    for seed in range(8):
        network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
        with torch.no_grad():
            network[2].bias.fill_(3.0)
        grow(network, Growth("deepen", "2"), ROWS, seed=seed)
        network(ROWS).sum().backward()
        assert network.grown["1"].scale.weight.grad.abs().sum() > 0
