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
    """Placements of waiting jobs that are shown, the best by what they gain per GPU."""
    moves: int = 4
    """Moves of running jobs that are shown, the best by what they gain per GPU."""
    contention: bool = True
    """Whether it sees how jobs slow each other down; which candidates are shown is the same."""
    wait: bool = True
    """Whether it may wait while a job could start."""

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 1024:
            raise ConfigError(f"lens.most={self.most} must be from 1 to 1,024.")
        if not 0 <= self.moves <= 64:
            raise ConfigError(f"lens.moves={self.moves} must be from 0 to 64.")


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


def candidate_critic(settings: CandidateNetworkConfig, _lens: Any) -> nn.Module:
    """Its critic."""
    from rota.systems.deepshare.candidate_network import CandidateCritic

    return CandidateCritic(width=settings.width)


def check_rules(rules: tuple[str, ...]) -> None:
    """Refuse policies that cannot play on."""
    from rota.systems.deepshare.foresight import rule_numbers

    for name in rules:
        rule_numbers(name)


def candidate_foresight(env: Any, coming: int, rules: tuple[str, ...]) -> Any:
    """What gives the cost of every candidate."""
    from rota.systems.deepshare.foresight import Foresight

    foresight = Foresight(env.book, coming, rules)
    return lambda: foresight.costs(env.view, env.book)
