"""The settings of DeepShare as published, and functions that build it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class PaperLensConfig:
    """How the actions of DeepShare as published are carried out."""

    hybrid: bool = False
    """Where an action does nothing, start the first candidate that fits anywhere; the round is
    over when none does. The authors train without and test with and without."""
    one_action: bool = False
    """One action per round, as the authors train; they test with many, up to the first that does
    nothing. Here both have many, so that a network is trained for what it does."""


@dataclass(frozen=True, kw_only=True)
class PaperNetworkConfig:
    """The form of its network."""

    width: int = 64
    """Units of both layers."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"network.width={self.width} must be 1 or more.")


def paper_lens(settings: PaperLensConfig) -> Any:
    """Its lens."""
    from rota.systems.deepshare.paper_lens import PaperLens

    return PaperLens(**asdict(settings))


def paper_network(settings: PaperNetworkConfig, lens: Any) -> nn.Module:
    """Its network."""
    from rota.systems.deepshare.paper_network import PaperNetwork

    return PaperNetwork(inputs=lens.inputs, actions=lens.actions, width=settings.width)


def paper_critic(settings: PaperNetworkConfig, lens: Any) -> nn.Module:
    """Its critic."""
    from rota.systems.deepshare.paper_network import PaperCritic

    return PaperCritic(inputs=lens.inputs, width=settings.width)
