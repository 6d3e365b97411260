"""The settings of DeepShare as rota has it, and functions that build it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class CandidateLensConfig:
    """Which placements are shown."""

    most: int = 16
    """Placements that are shown, the best by what they gain per GPU, beside waiting."""

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 1024:
            raise ConfigError(f"lens.most={self.most} must be from 1 to 1,024.")


@dataclass(frozen=True, kw_only=True)
class CandidateNetworkConfig:
    """The form of the network."""

    width: int = 64
    """Units of every layer."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"network.width={self.width} must be 1 or more.")


def candidate_lens(settings: CandidateLensConfig) -> Any:
    """Its lens."""
    from rota.systems.deepshare.candidate_lens import CandidateLens

    return CandidateLens(**asdict(settings))


def candidate_network(settings: CandidateNetworkConfig, _lens: Any) -> nn.Module:
    """Its network."""
    from rota.systems.deepshare.candidate_network import CandidateNetwork

    return CandidateNetwork(width=settings.width)
