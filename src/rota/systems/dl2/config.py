"""The settings of both forms of DL2, and how to build them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class OnePassLensConfig:
    """What the one-pass form sees and may do."""

    window: int = 20
    """So many jobs, the oldest first, are decided on; others keep the least they run with."""
    types: int = 8
    """Models that are told apart."""
    most: int = 16
    """Most servers, and most workers, of a job."""
    slot_s: float = 1200.0
    """The unit of time."""


@dataclass(frozen=True, kw_only=True)
class OnePassNetworkConfig:
    """The form of its network."""

    width: int = 64

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"network.width={self.width} must be 1 or more.")


@dataclass(frozen=True, kw_only=True)
class StepLensConfig:
    """What DL2's own form sees and may do."""

    window: int = 20
    """So many jobs are seen at once."""
    types: int = 8
    """Models that are told apart."""
    ordinal: bool = False
    """The model as one number, as in the original, instead of one place for each."""
    rescale: bool = True
    """Features of about the same size; the original has raw values."""
    one_hot: bool = False
    """Counts of workers and servers as one place for each, instead of as numbers."""
    keep_capped: bool = False
    """Jobs that can get no more stay in the window, where their cost is seen."""
    mask_room: bool = True
    """Do not offer what does not fit; the original ends the slot at such a choice."""
    bundle: bool = True
    """Offer a worker and a server at once."""
    least_first: bool = True
    """Every slot begins with the least for each job, as in the original; if not, with nothing, and
    a job that gets nothing waits."""
    lengths: bool = False
    """See the time that a job still needs, not only the part of its work."""
    most: int = 16
    """Tasks of a role that are told apart, or count as 1 when rescaled."""
    slot_s: float = 1200.0
    """The unit of time."""


@dataclass(frozen=True, kw_only=True)
class StepNetworkConfig:
    """The form of its network."""

    kind: str = "plain"
    """"plain": DL2's own; "shared": one scorer for all jobs."""
    layers: int = 2
    """Of a plain network."""
    width: int = 0
    """Of every layer; 0: two thirds of the input, as DL2 has it, or 64 if shared."""
    cluster: bool = False
    """Whether a plain network sees the state of the cluster; DL2's does not."""
    scale: bool = False
    """Whether a plain network scales and shifts what each layer gives: all that the original's
    batch normalisation does, since it is never switched to training."""

    def __post_init__(self) -> None:
        if self.kind not in ("plain", "shared"):
            raise ConfigError(f"network.kind={self.kind!r} must be 'plain' or 'shared'.")
        if self.layers < 1 or self.width < 0:
            raise ConfigError(
                f"network.layers={self.layers} must be 1 or more, network.width={self.width} 0 or "
                "more."
            )


@dataclass(frozen=True, kw_only=True)
class ExploreConfig:
    """What overrules the network while it learns."""

    kind: str = "none"
    """"none"; "job-aware": DL2's rules; "epsilon": now and then any action."""
    balance: bool = True
    """Among the rules, the one that helps a job with far fewer tasks than others."""
    decay: float = 500.0
    """Updates over which random actions become rare."""

    def __post_init__(self) -> None:
        if self.kind not in ("none", "job-aware", "epsilon"):
            raise ConfigError(f"kind = {self.kind!r} must be 'none', 'job-aware' or 'epsilon'.")
        if not self.decay > 0:
            raise ConfigError(f"decay = {self.decay} must be above 0.")


def one_pass_lens(settings: OnePassLensConfig) -> Any:
    """The lens of the one-pass form."""
    from rota.systems.dl2.onepass import OnePass

    return OnePass(**asdict(settings))


def one_pass_network(settings: OnePassNetworkConfig, lens: Any) -> nn.Module:
    """Its network."""
    from rota.systems.dl2.onepass_network import OnePassNetwork

    return OnePassNetwork(
        types=lens.types, features=lens.features, globals_=lens.globals, actions=lens.actions,
        width=settings.width,
    )  # fmt: skip


def step_lens(settings: StepLensConfig) -> Any:
    """The lens of DL2's own form."""
    from rota.systems.dl2.lens import StepByStep

    return StepByStep(**asdict(settings))


def step_explorer(settings: ExploreConfig, lens: Any, batch: int, rng: np.random.Generator) -> Any:
    """What overrules its actions."""
    from rota.systems.dl2.explore import Explorer

    return Explorer(settings, lens, batch, rng)


def step_network(settings: StepNetworkConfig, lens: Any) -> nn.Module:
    """Its network."""
    from rota.systems.dl2.network import PlainNetwork, SharedNetwork

    form = {
        "window": lens.window, "features": lens.features, "globals_": lens.globals,
        "actions": lens.actions,
    }  # fmt: skip
    if settings.kind == "shared":
        return SharedNetwork(**form, width=settings.width or 64)
    return PlainNetwork(
        **form, layers=settings.layers, width=settings.width, cluster=settings.cluster,
        scale=settings.scale,
    )  # fmt: skip
