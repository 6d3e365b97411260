"""What cannot grow is refused by name, and nothing has changed then."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from growing_networks import Residual
from torch import nn
from torch.nn.utils import parametrizations

from rota.adapt.growth import Growth
from rota.adapt.operations import candidates, costs, grow, history, layers_of, replay, tokens_of
from rota.errors import ConfigError, GrowthError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class Functional(nn.Module):
    """A network whose forward is given as a function of (self, x), for its short definition."""

    def __init__(self, way: Callable[[Any, Tensor], Tensor], **modules: nn.Module) -> None:
        super().__init__()
        self.way = way
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x)


class Doubtful(nn.Module):
    """A module whose way depends on its data."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) if x.sum() > 0 else x


def tied() -> nn.Module:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    network[2].weight = network[0].weight
    return network


def refused(network: nn.Module, growth: Growth, x: Tensor, message: str) -> None:
    """The growth is refused so, and leaves everything as it was."""
    optimizer = torch.optim.Adam(network.parameters())
    before, modes = copy.deepcopy(network.state_dict()), [m.training for m in network.modules()]
    state = torch.get_rng_state()
    with pytest.raises(GrowthError, match=message):
        grow(network, growth, x, seed=0, optimizer=optimizer)
    assert history(network) == ()
    assert "forward" not in vars(network)
    assert [m.training for m in network.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    for (name, value), (other, same) in zip(
        before.items(), network.state_dict().items(), strict=True
    ):
        assert name == other
        assert torch.equal(value, same)
    known = {id(p) for p in network.parameters()}
    assert {id(p) for p in optimizer.param_groups[0]["params"]} == known


DEEPEN, WIDEN = Growth("deepen", "a"), Growth("widen", "a")
X = torch.linspace(-1, 1, 16).view(4, 4)
PICTURE = torch.linspace(-1, 1, 4 * 4 * 9).view(4, 4, 3, 3)


def linears(way: Callable[[Any, Tensor], Tensor], **more: nn.Module) -> nn.Module:
    return Functional(way, a=nn.Linear(4, 4), b=nn.Linear(4, 2), **more)


@pytest.mark.parametrize(
    ("network", "growth", "message"),
    [
        (lambda: linears(lambda s, x: s.b(s.a(x))), Growth("widen", "c"), "no layer 'c'; .*: a, b"),
        (
            lambda: linears(lambda s, x: s.b(s.a(x))),
            Growth("widen", "b"),
            "b cannot become wider: b is an output of the network",
        ),
        (
            lambda: linears(lambda s, x: s.b(torch.tanh(s.a(x)))),
            Growth("deepen", "a", form="identity"),
            r"a is followed by tanh, .*tanh\(tanh\(x\)\) ≠ tanh\(x\).*residual",
        ),
        (
            lambda: linears(lambda s, x: s.b(s.n(s.a(x))), n=nn.LayerNorm(4)),
            Growth("deepen", "a", form="identity"),
            "a has a LayerNorm, which scales each sample",
        ),
        (
            lambda: linears(lambda s, x: s.b(s.n(s.a(x))), n=nn.LayerNorm(4)),
            Growth("widen", "a", 1.5),
            r"a cannot become wider: n \(LayerNorm\) takes means .* whole factor",
        ),
        (
            lambda: linears(lambda s, x: s.b(s.n(s.a(x))), n=nn.LayerNorm(4)),
            Growth("widen", "n"),
            "n is a LayerNorm; what grows is exactly of the class Linear",
        ),
        (
            lambda: linears(lambda s, x: s.b(x + s.a(x))),
            WIDEN,
            "add combines its units with an input of the network",
        ),
        (lambda: linears(lambda s, x: s.b(s.a(s.a(x)))), DEEPEN, "a is called in 2 places"),
        (lambda: linears(lambda s, x: s.b(s.a(s.a(x)))), WIDEN, "a is called in 2 places"),
        (
            lambda: linears(lambda s, x: s.b(F.softmax(s.a(x), dim=1))),
            WIDEN,
            "softmax divides by a sum over its units",
        ),
        (lambda: linears(lambda s, x: s.b(s.a(x)) if x.sum() > 0 else x), WIDEN, "cannot trace"),
        (
            lambda: linears(lambda s, x: s.b(s.a(x)) if s.training else s.b(s.a(x) + 1)),
            WIDEN,
            "another way in training than in evaluation",
        ),
        (
            lambda: linears(lambda s, x: s.b(s.a(x)) * random.random()),
            WIDEN,
            "something else than what torch.fx has traced|is given .* in training",
        ),
        (
            lambda: linears(lambda s, x: s.b(s.d(s.a(x))), d=Doubtful()),
            Growth("deepen", "d.inner"),
            "torch.fx cannot trace d, in which it lies",
        ),
        (lambda: linears(lambda s, x: s.b(s.d(s.a(x))), d=Doubtful()), WIDEN, "d is a Doubtful"),
        (
            lambda: linears(lambda s, x: s.b(s.a(x).chunk(2, 1)[0].repeat(1, 2))),
            WIDEN,
            "calls chunk, which cannot read its replicas",
        ),
        (lambda: linears(lambda s, x: s.b(s.a(x)) * s.a.weight.sum()), WIDEN, "would change what"),
    ],
)
def test_impossible_growths_name_the_layer(
    network: Callable[[], nn.Module], growth: Growth, message: str
) -> None:
    torch.manual_seed(0)
    refused(network(), growth, X, message)


def test_tied_and_computed_weights_are_refused() -> None:
    refused(tied(), Growth("widen", "0"), X, r"0\.weight is tied to 2\.weight")
    network = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    refused(network, Growth("widen", "0"), X, "0 .*computed from others|0 is a Parametrized")


def test_convolutions_in_groups_are_refused_where_groups_are_more_than_one_channel() -> None:
    grouped = nn.Conv2d(4, 4, 1, groups=2)
    network = nn.Sequential(nn.Conv2d(4, 4, 1), grouped, nn.Flatten(), nn.Linear(36, 2))
    refused(network, Growth("widen", "0"), PICTURE, "1 is a convolution in 2 groups")
    refused(network, Growth("widen", "1"), PICTURE, "1 is a convolution in 2 groups")
    grow(network, Growth("deepen", "1"), PICTURE, seed=0)  # a new layer in the same groups
    assert network.grown["1"].layer.groups == 2


def test_bad_numbers_are_refused() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    refused(network, Growth("widen", "0"), torch.full((4, 4), torch.nan), "not finite")
    refused(network, Growth("widen", "0"), torch.zeros(4, 5), "does not run on the given batch")
    with pytest.raises(GrowthError, match="noise=-1"):
        grow(network, Growth("widen", "0"), X, seed=0, noise=-1)
    with pytest.raises(GrowthError, match="this is 'x'"):
        grow(network, Growth("widen", "0"), "x", seed=0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="form='zero'"):
        Growth("deepen", "0", form="zero")  # type: ignore[arg-type]
    bn = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    refused(bn, Growth("deepen", "0"), X[:1], "does not train on the given batch|larger batch")


def test_an_optimizer_that_cannot_be_carried_stops_the_growth_before_anything_changes() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.LBFGS(network.parameters())
    before = list(network.parameters())
    with pytest.raises(GrowthError, match="LBFGS"):
        grow(network, Growth("deepen", "0"), X, seed=0, optimizer=optimizer)
    assert all(a is b for a, b in zip(before, network.parameters(), strict=True))
    assert not hasattr(network, "grown")


def test_wrapped_networks_are_refused() -> None:
    network = nn.DataParallel(nn.Linear(4, 4))
    refused(network, Growth("widen", "module"), X, "A DataParallel does not grow")


def test_no_candidate_is_ever_refused_and_impossible_ones_are_no_candidates() -> None:
    torch.manual_seed(0)
    network = Residual([3, 3], "layer", nn.GELU, True)
    x = torch.randn(4, *network.sample)
    found = candidates(network, x, factor=1.5)
    assert Growth("widen", "fc", 1.5) not in found
    assert Growth("deepen", "fc") in found
    # What is added up in the residual stream has no norm at its end; inside a block there is one.
    assert Growth("widen", "blocks.0.conv1", 1.5) not in found
    assert Growth("widen", "blocks.0.conv1", 2.0) in candidates(network, x, factor=2.0)
    for growth in found:
        grow(copy.deepcopy(network), growth, x, seed=0)


def test_what_decisions_need_is_kept_until_the_network_changes() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    layers = layers_of(network, X)
    assert layers_of(network, X) is layers
    assert costs(network, X)[0].flops == 24
    grow(network, Growth("widen", "0"), X, seed=0)
    assert costs(network, X)[0].flops == 48
    assert [(facts.outputs, facts.added) for facts in layers_of(network, X)] == [(8, 1), (2, 0)]
    assert tokens_of(network)[0] == "Linear(in_features=4, out_features=8, bias=True)"
    network[2] = nn.Linear(8, 3)  # a new head, by hand
    assert costs(network, X)[0].flops == 56


def test_a_failed_replay_leaves_the_network_as_it_was() -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.raises(GrowthError, match="no layer 'x'"):
        replay(network, [Growth("deepen", "0"), Growth("widen", "0"), Growth("widen", "x")])
    assert history(network) == ()
    assert len(list(network.children())) == 3
    assert network[0].out_features == 4
