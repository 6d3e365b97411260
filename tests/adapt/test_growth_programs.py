"""Whatever network one writes: a growth that is offered keeps it, and all others are refused."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING

import pytest
import torch
from growing_programs import SAMPLE, Program
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from rota.adapt.growth import Growth
from rota.adapt.operations import candidates, costs, grow, history, layers_of, replay
from rota.errors import GrowthError

if TYPE_CHECKING:
    from torch import Tensor, nn


def trained(network: nn.Module, x: Tensor) -> tuple[float, dict[str, Tensor | None]]:
    """The loss in training, and its gradients."""
    copied = copy.deepcopy(network).train()
    loss = copied(x).square().mean()
    loss.backward()
    return loss.item(), {name: p.grad for name, p in copied.named_parameters()}


def close(one: Tensor, other: Tensor, tolerance: float, least: float) -> bool:
    return float((one - other).abs().max()) <= tolerance * max(least, float(one.abs().max()))


@settings(
    max_examples=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a program has no smaller ones
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(st.integers(0, 2**32), st.integers(2, 7), st.data())
def test_offered_growths_keep_a_program_and_others_are_refused(
    seed: int, length: int, data: st.DataObject
) -> None:
    network = Program(seed, length).eval()
    generator = torch.Generator().manual_seed(seed)
    x, other = (torch.randn(9, *SAMPLE, generator=generator) for _ in range(2))
    with torch.no_grad():
        before = [network(x), network(other * 1.5)]
    assume(all(bool(y.isfinite().all()) and float(y.abs().max()) < 1e3 for y in before))
    loss, old = trained(network, x)
    optimizer = torch.optim.SGD(network.parameters(), 0.0, momentum=0.9)
    for name, p in network.named_parameters():
        p.grad = old[name]
    optimizer.step()
    optimizer.zero_grad()
    for _ in range(2):
        growths = [
            *(Growth("widen", layer.name, 1.5) for layer in layers_of(network, x)),
            *(Growth("deepen", layer.name) for layer in layers_of(network, x)),
        ]
        growth = data.draw(st.sampled_from(growths))
        if growth not in candidates(network, x, factor=1.5):
            _refuse(network, growth, x, before[0])
            continue
        (expected,) = costs(network, x, [growth])
        grow(network, growth, x, seed=seed % 97, optimizer=optimizer)
        assert costs(network, x) == (expected,)

    with torch.no_grad():
        after = [network(x), network(other * 1.5)]
    assert all(close(a, b, 1e-5, 1.0) for a, b in zip(before, after, strict=True))
    grown, new = trained(network, x)
    assert abs(grown - loss) <= 1e-3 * loss + 1e-6
    largest = max(float(g.abs().max()) for g in old.values() if g is not None)
    for name, p in network.named_parameters():
        momentum = optimizer.state.get(p, {}).get("momentum_buffer")
        gradient, now = old.get(name), new[name]
        if gradient is None:
            assert name not in old or now is None
            continue
        assert now is not None
        assert momentum is not None
        assert momentum.shape == p.shape
        if p.shape == gradient.shape:
            assert close(gradient, now, 2e-3, largest)
            assert torch.equal(momentum, gradient)
    newcomer = Program(seed, length)
    replay(newcomer, history(network), batch=x)
    newcomer.load_state_dict(network.state_dict())
    assert torch.equal(newcomer.eval()(x), after[0])


def _refuse(network: Program, growth: Growth, x: Tensor, before: Tensor) -> None:
    """Refused for a reason that is known beforehand, and nothing has changed."""
    state, known = copy.deepcopy(network.state_dict()), history(network)
    with pytest.raises(GrowthError, match=re.escape(growth.layer)) as refused:
        grow(network, growth, x, seed=0)
    assert "failed, and" not in str(refused.value)
    assert "would change what the network computes" not in str(refused.value)
    assert history(network) == known
    assert all(
        torch.equal(a, b)
        for a, b in zip(state.values(), network.state_dict().values(), strict=True)
    )
    with torch.no_grad():
        assert close(before, network(x), 1e-5, 1.0)
