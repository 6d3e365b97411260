"""What a forward does that torch.fx does not see is noticed, and nothing is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from rota.adapt.growth import Growth
from rota.adapt.operations import candidates, grow
from rota.errors import GrowthError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

X = torch.linspace(-1, 1, 24).view(4, 6)


class Writing(nn.Module):
    """A network whose forward is given as a function of (self, x), and has things to write."""

    def __init__(self, way: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.way = way
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)
        self.kept: Any = None
        self.calls = 0
        self.log: list[Tensor] = []
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, x)


def keeping(self: Any, x: Tensor) -> Tensor:
    hidden = F.relu(self.a(x))
    self.kept = hidden.mean()
    result: Tensor = self.b(hidden)
    return result


def logging(self: Any, x: Tensor) -> Tensor:
    self.log.append(x)
    result: Tensor = self.b(F.relu(self.a(x)))
    return result


def counting(self: Any, x: Tensor) -> Tensor:
    self.calls += 1
    result: Tensor = self.b(F.relu(self.a(x)))
    return result


def averaging(self: Any, x: Tensor) -> Tensor:
    self.mean += 1.0
    result: Tensor = self.b(F.relu(self.a(x - self.mean)))
    return result


@pytest.mark.parametrize(
    ("way", "name"),
    [(keeping, "kept"), (logging, "log"), (counting, "calls"), (averaging, "mean")],
)
def test_a_forward_that_writes_on_the_network_is_refused_and_leaves_nothing(
    way: Callable[[Any, Tensor], Tensor], name: str
) -> None:
    network = Writing(way)
    with pytest.raises(GrowthError, match=f"forward of Writing writes {name} as it runs"):
        candidates(network, X)
    with pytest.raises(GrowthError, match=f"forward of Writing writes {name} as it runs"):
        grow(network, Growth("deepen", "a"), X, seed=0)
    assert (network.kept, network.calls, network.log) == (None, 0, [])
    assert network.mean.tolist() == [0.0] * 6


def test_a_submodule_that_writes_is_taken_whole() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 8)
            self.penalty = torch.zeros(())

        def forward(self, x: Tensor) -> Tensor:
            hidden: Tensor = self.layer(x)
            self.penalty = hidden.square().mean()
            return hidden

    network = nn.Sequential(Inner(), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(GrowthError, match=r"cannot trace 0, .*its forward writes penalty"):
        grow(network, Growth("widen", "0.layer"), X, seed=0)
    before = network(X)
    grow(network, Growth("widen", "2"), X, seed=0)
    torch.testing.assert_close(network(X), before)
    inner = network[0]
    inner.penalty = torch.zeros(())
    network(X)
    assert inner.penalty.requires_grad  # written by every run, as ever


def test_what_only_the_first_run_writes_is_no_hindrance() -> None:
    def positioned(self: Any, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = torch.arange(6.0)
        result: Tensor = self.b(F.relu(self.a(x + self.kept)))
        return result

    network = Writing(positioned).eval()
    before = network(X)
    grow(network, Growth("widen", "a"), X, seed=0)
    torch.testing.assert_close(network(X), before)


def test_what_a_forward_keeps_from_learning_is_not_taught_by_growth() -> None:
    def frozen(self: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = F.relu(self.a(x))
        result: Tensor = self.b(hidden)
        return result

    with pytest.raises(GrowthError, match=r"gives a\.bias no gradient.*no_grad"):
        grow(Writing(frozen), Growth("deepen", "b"), X, seed=0)

    def detached(self: Any, x: Tensor) -> Tensor:
        result: Tensor = self.b(F.relu(self.a(x)).detach())
        return result

    network = Writing(detached)
    grow(network, Growth("deepen", "b"), X, seed=0)
    network(X).sum().backward()  # type: ignore[no-untyped-call]
    assert network.a.weight.grad is None


def test_an_argument_that_is_not_given_is_named_as_a_reason() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            hidden = F.relu(self.a(x))
            if mask is not None:
                hidden = hidden * mask
            return self.b(hidden)  # type: ignore[no-any-return]

    for ask in (candidates, lambda *a: grow(a[0], Growth("widen", "a"), a[1], seed=0)):
        with pytest.raises(GrowthError, match="an argument that is not given"):
            ask(Masked(), X)
    network, mask = Masked(), torch.ones(4, 1)
    before = network(X, mask)
    grow(network, Growth("widen", "a"), (X, mask), seed=0)
    torch.testing.assert_close(network(X, mask), before)
