"""The settings of DAS, and functions that build it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from rota.errors import ConfigError
from rota.policies.settings import Setting, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

FEE: Final = Setting(
    "what a dollar is worth, in seconds of completion time",
    lambda text: number(text, 0.0), "0 or more seconds",
)  # fmt: skip


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
    targets: str = "observed"
    """What is remembered of each machine, and the Gaussian process expects: "observed", the pace of
    jobs there; "actions", how much of it was given away (the other reading of the paper)."""
    fee: float = 0.0
    """What a dollar is worth where the policy is used, in seconds of completion time; for networks
    that see it (`network.fee`). In training, `world.dollar_s` says what it is worth."""

    def __post_init__(self) -> None:
        if self.targets not in ("observed", "actions"):
            raise ConfigError(f"lens.targets={self.targets!r} must be 'observed' or 'actions'.")
        if not 0 <= self.fee < float("inf"):
            raise ConfigError(f"lens.fee={self.fee} must be 0 or more seconds.")
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
    scores: str = "softmax"
    """"softmax": the next job or machine is drawn by its score (Plackett–Luce). "gaussian", as
    published: scores are drawn, machines' from the posterior, and the highest wins."""
    fee: bool = False
    """Whether it sees what a dollar is worth, so that one network serves all weights of the fee."""

    def __post_init__(self) -> None:
        for name in ("width", "heads", "layers", "terms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"network.{name}={getattr(self, name)} must be 1 or more.")
        if self.width % self.heads:
            raise ConfigError(
                f"network.width={self.width} must be a multiple of network.heads={self.heads}."
            )
        if self.scores not in ("softmax", "gaussian"):
            raise ConfigError(f"network.scores={self.scores!r} must be 'softmax' or 'gaussian'.")
        if self.form not in ("sub", "symmetric", "stochastic"):
            raise ConfigError(
                f"network.form={self.form!r} must be 'sub', 'symmetric' or 'stochastic'."
            )


def at_use(settings: TwoAgentsConfig) -> Mapping[str, Setting]:
    """What the name of a trained policy may carry: only what its network sees."""
    return {"fee": FEE} if settings.fee else {}


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

    return BothSeen(width=settings.width, fee=settings.fee)
