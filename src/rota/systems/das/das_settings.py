"""The settings of DAS, and functions that build it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class OrderPlaceLensConfig:
    """What both agents of DAS see and may do."""

    window: int = 16
    """Waiting jobs that are shown, of those that fit now: those that need fewest GPU-seconds; the
    oldest if it is not informed."""
    machines: int = 16
    """Machines that are shown: all, or those that suit the job best."""
    past: int = 8
    """τ: the last states of the machines that are remembered, one per round."""
    informed: bool = True
    """Whether it sees what the authors leave out: speed by GPU type, length, contention."""
    wait: bool = False
    """Whether the ordering agent may end a round while a job fits."""

    def __post_init__(self) -> None:
        for name, least, most in (("window", 1, 512), ("machines", 1, 512), ("past", 0, 256)):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(
                    f"lens.{name}={getattr(self, name)} must be from {least} to {most}."
                )


@dataclass(frozen=True, kw_only=True)
class TwoAgentsConfig:
    """The form of the networks of DAS."""

    width: int = 32
    """Units of every layer."""
    heads: int = 4
    """h: heads of the ordering agent's attention."""
    layers: int = 1
    """Layers of its attention."""
    terms: int = 4
    """Steps of the walks over machines."""
    form: str = "sub"
    """Transition matrices: "sub" (walks die where there is no room), "symmetric", "stochastic"."""
    communicate: bool = True
    """Whether jobs hear of the machines (MC in the paper)."""
    kernel: bool = True
    """Whether machines are scored by the random-walk Gaussian process (RWGP), or attention."""
    only_mean: bool = False
    """Whether jobs hear of machines' mean only, as published, and not of their maximum."""

    def __post_init__(self) -> None:
        for name in ("width", "heads", "layers", "terms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"network.{name}={getattr(self, name)} must be 1 or more.")
        if self.width % self.heads:
            raise ConfigError(
                f"network.width={self.width} must be a multiple of network.heads={self.heads}."
            )
        if self.form not in ("sub", "symmetric", "stochastic"):
            raise ConfigError(
                f"network.form={self.form!r} must be 'sub', 'symmetric' or 'stochastic'."
            )


def order_place_lens(settings: OrderPlaceLensConfig) -> Any:
    """Its lens."""
    from rota.systems.das.order_place_lens import OrderPlaceLens

    return OrderPlaceLens(**asdict(settings))


def two_agents(settings: TwoAgentsConfig, lens: Any) -> nn.Module:
    """Its network."""
    from rota.systems.das.das_network import TwoAgents

    return TwoAgents(actions=lens.actions, **asdict(settings))


def both_seen(settings: TwoAgentsConfig, _lens: Any) -> nn.Module:
    """Its critic."""
    from rota.systems.das.das_network import BothSeen

    return BothSeen(width=settings.width)
