"""Growths that would once have changed something without a word, or died instead of refusing."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
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


class Free(nn.Module):
    """A network whose forward is given as a function of (self, x)."""

    def __init__(self, way: Callable[[Any, Tensor], Any], **parts: Any) -> None:
        super().__init__()
        self.way = way
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.way(self, x)


ROWS = torch.linspace(-2, 1, 72).cos().view(12, 6)
SIGNAL = torch.linspace(-2, 1, 6 * 3 * 10).sin().view(6, 3, 10)
WIDEN, DEEPEN = Growth("widen", "a"), Growth("deepen", "a")


def linears(way: Callable[[Any, Tensor], Any], **parts: Any) -> Free:
    torch.manual_seed(0)
    return Free(way, a=nn.Linear(6, 8), b=nn.Linear(8, 3), **parts)


def convs(way: Callable[[Any, Tensor], Any], units: int = 8, **parts: Any) -> Free:
    torch.manual_seed(0)
    return Free(way, a=nn.Conv1d(3, units, 3), **parts)


class Doubtful(nn.Module):
    """A module that torch.fx cannot look into."""

    def forward(self, x: Tensor, by: int) -> Tensor:
        return x * by if x.sum() < 1e9 else x


def refused(network: nn.Module, growth: Growth, x: Tensor, why: str) -> None:
    """Neither a candidate nor done."""
    assert growth.form or growth not in candidates(network, x)
    with pytest.raises(GrowthError, match=why):
        grow(network, growth, x, seed=0)


@pytest.mark.parametrize(
    "way",
    [
        lambda s, x: (lambda h: (s.b(h), h.shape[1]))(s.a(x)),
        lambda s, x: (lambda h: (s.b(h), h.shape))(s.a(x)),
        lambda s, x: (lambda h: s.b(h) + 1e-9 * s.o(x[:, :3], h.shape[1]))(s.a(x)),
    ],
)
def test_a_width_that_is_given_away_as_a_number_does_not_change(
    way: Callable[[Any, Tensor], Any],
) -> None:
    refused(linears(way, o=Doubtful()), WIDEN, ROWS, "a cannot become wider: .* with the number")


def test_axes_that_are_computed_are_refused_not_died_of() -> None:
    def mean(s: Any, x: Tensor) -> Tensor:
        h = s.a(x)
        return s.b(h.mean(h.dim() - 1))  # type: ignore[no-any-return]

    def joined(s: Any, x: Tensor) -> Tensor:
        h = s.a(x)
        return s.c(torch.cat([h, h], h.dim() - 1))  # type: ignore[no-any-return]

    refused(convs(mean, b=nn.Linear(8, 3)), WIDEN, SIGNAL, "runs over unknown axes")
    refused(linears(joined, c=nn.Linear(16, 3)), WIDEN, ROWS, "along an axis that is")


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_units_has_none_to_repeat() -> None:
    network = Free(lambda s, x: s.b(s.a(x)), a=nn.Linear(6, 0), b=nn.Linear(0, 3))
    refused(network, WIDEN, ROWS, "a has no units")


def test_groups_of_a_norm_need_their_own_replicas() -> None:
    def network(groups: int) -> nn.Module:
        norm = nn.GroupNorm(groups, 6)
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv1d(3, 2, 8), nn.Flatten(), norm, nn.Linear(6, 3)).eval()

    refused(network(3), Growth("widen", "0"), SIGNAL, "in their group")
    grows = network(2)
    before = grows(SIGNAL)
    grow(grows, Growth("widen", "0"), SIGNAL, seed=0)
    torch.testing.assert_close(grows(SIGNAL), before, atol=1e-5, rtol=1e-5)


def test_a_norm_without_statistics_is_no_identity_in_evaluation() -> None:
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    network = linears(lambda s, x: s.b(F.relu(s.n(s.a(x)))), n=norm)
    refused(network, Growth("deepen", "a", form="identity"), ROWS[:6], "keeps no statistics")


def test_a_new_activation_has_the_type_of_its_layer() -> None:
    network = linears(lambda s, x: s.b(s.p(s.a(x))), p=nn.PReLU(8)).double()
    for growth in candidates(network, ROWS.double()):
        grow(network, growth, ROWS.double(), seed=0)
    assert {p.dtype for p in network.parameters()} == {torch.float64}


def test_factors_of_other_units_are_not_taken_for_a_new_activation() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv1d(3, 2, 3), nn.PReLU(2), nn.Conv1d(2, 1, 1), nn.Linear(8, 2), nn.Flatten()
    )
    assert Growth("deepen", "3") in candidates(network, SIGNAL)
    grow(network, Growth("deepen", "3"), SIGNAL, seed=0)
    assert network.grown["1"].activation.num_parameters == 1


def test_the_axis_of_an_only_unit_cannot_be_told_from_a_new_one() -> None:
    network = convs(lambda s, x: s.b(s.a(x).unsqueeze(1)).flatten(1), 1, b=nn.Conv2d(1, 2, 1))
    refused(network, WIDEN, SIGNAL, "takes units apart")


def test_another_type_is_another_answer() -> None:
    def mixed(s: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return s.b(F.relu(s.a(x)))  # type: ignore[no-any-return]

    with pytest.raises(GrowthError, match=r"torch\.autocast"):
        grow(linears(mixed), DEEPEN, ROWS, seed=0)


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
def test_complex_numbers_are_compared_too() -> None:
    network = linears(lambda s, x: s.b(torch.tanh(s.a(x)))).to(torch.complex64)
    x = torch.complex(ROWS, ROWS.flip(0))
    before = network.eval()(x)
    grow(network, WIDEN, x, seed=0)
    torch.testing.assert_close(network(x), before, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        network.a.weight[0, 0] = complex(0.0, float("nan"))
    with pytest.raises(GrowthError, match="not finite"):
        grow(network, WIDEN, x, seed=0)


def test_a_number_that_changed_since_the_network_was_looked_at_is_read_anew() -> None:
    def dropped(s: Any, x: Tensor) -> Tensor:
        return s.b(F.dropout(s.a(x), s.share, s.training))  # type: ignore[no-any-return]

    network = linears(dropped, share=0.5)
    candidates(network, ROWS)
    network.share = 0.0
    grow(network, DEEPEN, ROWS, seed=0)
    assert torch.equal(network(ROWS), network(ROWS))


class Meter:
    """An object that is no module."""

    def __init__(self) -> None:
        self.count = 0

    def __len__(self) -> int:
        return self.count


@pytest.mark.parametrize("kind", ["list in dict", "set", "deque", "array", "object"])
def test_whatever_container_a_forward_writes_is_seen(kind: str) -> None:
    log: Any = {
        "list in dict": {"seen": []},
        "set": set(),
        "deque": deque(maxlen=9),
        "array": np.zeros(1),
        "object": Meter(),
    }[kind]

    def counted(s: Any, x: Tensor) -> Tensor:
        if kind == "set":
            s.log.add(len(s.log))
        elif kind == "array":
            s.log[0] += 1
        elif kind == "object":
            s.log.count += 1
        else:
            (s.log["seen"] if kind == "list in dict" else s.log).append(1)
        return s.b(s.a(x))  # type: ignore[no-any-return]

    with pytest.raises(GrowthError, match="writes log"):
        grow(linears(counted, log=log), DEEPEN, ROWS, seed=0)
    assert not (log["seen"] if kind == "list in dict" else log)  # the counts of tracing are undone


def test_hooks_of_a_part_of_the_network_are_still_called() -> None:
    calls: list[int] = []
    network = nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.ReLU()), nn.Linear(8, 3))
    network[0].register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(GrowthError, match=r"torch.fx cannot trace 0, .*hooks"):
        grow(network, Growth("deepen", "0.0"), ROWS, seed=0)
    grow(network, Growth("deepen", "1"), ROWS, seed=0)
    calls.clear()
    network(ROWS)
    assert calls == [1]


def test_what_was_put_on_a_parameter_is_kept_or_refused() -> None:
    network = linears(lambda s, x: s.b(F.relu(s.a(x))))
    network.a.weight.no_decay = True
    network(ROWS).sum().backward()
    old = {name: p.grad.clone() for name, p in network.named_parameters()}
    grow(network, WIDEN, ROWS, seed=0)
    assert network.a.weight.no_decay
    # Gradients that are still being added up: those of replicas add up to that of their unit.
    added = network.a.weight.grad.view(8, 2, 6).sum(1)
    torch.testing.assert_close(added, old["a.weight"])
    torch.testing.assert_close(network.b.weight.grad[:, ::2], old["b.weight"])
    network.b.weight.register_hook(lambda grad: grad * 2)
    with pytest.raises(GrowthError, match=r"b\.weight has a hook"):
        grow(network, WIDEN, ROWS, seed=0)


def test_the_factors_of_adafactor_begin_anew_whatever_their_shape() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 1), nn.Tanh(), nn.Linear(1, 5), nn.Tanh(), nn.Linear(5, 1))
    optimizer = torch.optim.Adafactor(network.parameters(), 1e-2)
    for layer in ("0", "2", "0"):
        for _ in range(2):
            optimizer.zero_grad()
            network(ROWS).square().sum().backward()
            optimizer.step()
        bias = network[int(layer)].bias
        squares = optimizer.state[bias]["variance"].clone()
        grow(network, Growth("widen", layer), ROWS, seed=0, optimizer=optimizer)
        after = optimizer.state[network[int(layer)].bias]["variance"]
        torch.testing.assert_close(after[::2], squares / 4)


def test_values_that_a_forward_has_read_are_not_kept_for_ever() -> None:
    def penalised(s: Any, x: Tensor) -> Tensor:
        return s.b(F.relu(s.a(x))) * (1 + sum(p.norm().item() for p in s.parameters()))  # type: ignore[no-any-return]

    def switched(s: Any, x: Tensor) -> Tensor:
        return s.b(s.a(x)) if s.warm else s.b(s.a(x)) * 2  # type: ignore[no-any-return]

    def divided(s: Any, x: Tensor) -> Tensor:
        return s.b(F.relu(s.a(x))) / s.heat.clamp(min=0.5)  # type: ignore[no-any-return]

    with pytest.raises(GrowthError, match="With other values in its parameters or buffers"):
        grow(linears(penalised), DEEPEN, ROWS, seed=0)
    network = linears(switched)
    network.register_buffer("warm", torch.tensor(True))
    with pytest.raises(GrowthError, match="cannot trace the forward"):
        grow(network, DEEPEN, ROWS, seed=0)
    network = linears(divided).eval()
    network.register_buffer("heat", torch.tensor(2.0))
    before = network(ROWS)
    grow(network, WIDEN, ROWS, seed=0)
    network.heat.fill_(4.0)
    torch.testing.assert_close(network(ROWS), before / 2, atol=1e-6, rtol=1e-5)


class Reversed(torch.autograd.Function):
    """The gradient the other way round, as to train against a part of a network."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        """As it is."""
        return x.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        """Negative."""
        return -gradient


def test_a_backward_of_the_users_own_is_not_lost() -> None:
    def reversed_(s: Any, x: Tensor) -> Tensor:
        return s.b(Reversed.apply(F.relu(s.a(x))))  # type: ignore[no-any-return]

    def told(s: Any, x: Tensor) -> Tensor:
        return s.b(s.a(x)) * (2 if torch.is_grad_enabled() else 1)  # type: ignore[no-any-return]

    for way in (reversed_, told):
        with pytest.raises(GrowthError, match=r"has traced it otherwise: the gradient of a\.bias"):
            grow(linears(way), DEEPEN, ROWS, seed=0)


@pytest.mark.parametrize(
    "way",
    [
        lambda s, x: s.b(F.relu(s.a(x + torch.arange(6)))),
        lambda s, x: s.b(F.relu(s.a(x @ torch.eye(6)))) * torch.tensor([1.0, 2.0, 3.0]),
    ],
)
def test_constants_that_a_forward_makes_are_kept(way: Callable[[Any, Tensor], Any]) -> None:
    network = linears(way).eval()
    before = network(ROWS)
    grow(network, WIDEN, ROWS, seed=0)
    torch.testing.assert_close(network(ROWS), before, atol=1e-5, rtol=1e-5)


def test_tables_of_positions_and_masks_are_cut_to_what_is_given() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(10, 8), nn.Linear(8, 3)
            self.register_buffer("places", torch.randn(9, 8))
            self.register_buffer("mask", torch.ones(9, 9).tril().bool())
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            length = x.shape[1]
            self.calls.add_(1)
            h = F.gelu(self.a(x)) + self.places[:length]
            seen = (h @ h.mT).masked_fill(~self.mask[:length, :length], float("-inf"))
            return self.b(seen.softmax(-1) @ h)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    network = Causal().eval()
    before = network(SIGNAL)
    for growth in candidates(network, SIGNAL):
        grow(network, growth, SIGNAL, seed=0)
    assert network.calls == 1
    torch.testing.assert_close(network(SIGNAL), before, atol=1e-5, rtol=1e-5)
    assert network.calls == 2


def test_random_numbers_that_depend_on_nothing_are_no_constants() -> None:
    def noisy(s: Any, x: Tensor) -> Tensor:
        return s.b(s.a(x)) + torch.randn(12, 3)  # type: ignore[no-any-return]

    with pytest.raises(GrowthError, match="random numbers"):
        grow(linears(noisy), DEEPEN, ROWS, seed=0)


def test_a_part_that_is_frozen_stays_so_while_the_rest_trains() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.norm(F.dropout(self.c(x), 0.5, self.training)))

    network = linears(lambda s, x: s.b(s.a(s.inner(x))), inner=Inner())
    for _ in range(5):
        network(ROWS + 1)
    network.inner.eval()
    before = network(ROWS)
    for growth in (Growth("deepen", "inner.c", form="identity"), WIDEN):
        grow(network, growth, ROWS, seed=0)
        torch.testing.assert_close(network(ROWS), before, atol=1e-5, rtol=1e-5)
    network.inner.train()
    assert not torch.equal(network(ROWS), network(ROWS))


def test_arguments_that_are_no_samples_are_given_whole() -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
            return self.b(edges @ F.relu(self.a(x * weights)))  # type: ignore[no-any-return]

    network, batch = Graph(), (ROWS, torch.eye(12).flip(0), torch.rand(6))
    before = network(*batch)
    assert DEEPEN in candidates(network, batch)
    grow(network, DEEPEN, batch, seed=0)
    torch.testing.assert_close(network(*batch), before, atol=1e-5, rtol=1e-5)


def test_coarse_numbers_inside_make_the_comparison_coarse() -> None:
    network = linears(lambda s, x: s.b(s.a(x.half())).float()).half()
    grow(network, WIDEN, ROWS, seed=0)
    assert network.a.out_features == 16


def test_weights_that_another_optimizer_trains_do_not_become_wider() -> None:
    network = linears(lambda s, x: s.b(F.relu(s.a(x))))
    optimizer = torch.optim.SGD(network.b.parameters(), 0.1)
    with pytest.raises(GrowthError, match=r"a\.weight .* learns, but not with this optimizer"):
        grow(network, WIDEN, ROWS, seed=0, optimizer=optimizer)
    assert network.a.out_features == 8
    network.a.requires_grad_(False)
    grow(network, WIDEN, ROWS, seed=0, optimizer=optimizer)
    assert optimizer.param_groups[0]["params"] == list(network.b.parameters())
