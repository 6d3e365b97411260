"""The settings of both forms of DL2, and functions that build them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class OnePassLensConfig:
    """What the one-pass form observes and may do."""

    window: int = 20
    """Jobs that it decides on, the oldest first; the others keep their minimum."""
    types: int = 8
    """Models (kinds of training) that it distinguishes."""
    most: int = 16
    """The most servers, and the most workers, of a job."""
    slot_s: float = 1200.0
    """Seconds that count as 1 where observations contain times."""


@dataclass(frozen=True, kw_only=True)
class OnePassNetworkConfig:
    """The form of its network."""

    width: int = 64
    """Units of each layer."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ConfigError(f"network.width={self.width} must be 1 or more.")


@dataclass(frozen=True, kw_only=True)
class StepLensConfig:
    """What DL2's own form observes and may do."""

    window: int = 20
    """Jobs that it observes at once, the oldest first."""
    types: int = 8
    """Models (kinds of training) that it distinguishes."""
    ordinal: bool = False
    """The model as one number, as in the original, instead of one-hot."""
    rescale: bool = True
    """Scale features to about the same size; the original has raw values."""
    one_hot: bool = False
    """Counts of workers and servers one-hot instead of as numbers."""
    keep_capped: bool = False
    """Keep jobs in the window that can get no more, so that their cost is observed."""
    mask_room: bool = True
    """Mask actions that do not fit; in the original such an action ends the slot."""
    bundle: bool = True
    """Offer the action that gives a worker and a server at once."""
    least_first: bool = True
    """Every slot begins with the minimum of each job, as in the original; otherwise with nothing,
    and a job that gets nothing waits."""
    lengths: bool = False
    """Observe the time that a job still needs, and not only the part of its work."""
    most: int = 16
    """The largest count of workers or servers that is distinguished, or that is scaled to 1."""
    slot_s: float = 1200.0
    """Seconds that count as 1 where observations contain times."""


@dataclass(frozen=True, kw_only=True)
class StepNetworkConfig:
    """The form of its network."""

    kind: str = "plain"
    """"plain": DL2's own; "shared": the same weights score every job."""
    layers: int = 2
    """Layers of a plain network."""
    width: int = 0
    """Units of each layer; 0: two thirds of the inputs, as in DL2, or 64 if shared."""
    cluster: bool = False
    """Whether a plain network observes the state of the cluster; DL2's does not."""
    scale: bool = False
    """Whether a plain network scales and shifts the output of each layer: all that the original's
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
    """Exploration: what replaces actions of the network while it learns."""

    kind: str = "none"
    """"none"; "job-aware": DL2's rules; "epsilon": random actions now and then."""
    balance: bool = True
    """Whether the job-aware rules include the one that helps jobs with far fewer tasks."""
    decay: float = 500.0
    """Updates over which random actions become rare (epsilon)."""

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


def one_pass_critic(settings: OnePassNetworkConfig, lens: Any) -> nn.Module:
    """Its critic."""
    from rota.systems.dl2.onepass_network import OnePassCritic

    return OnePassCritic(types=lens.types, features=lens.features, width=settings.width)


def step_lens(settings: StepLensConfig) -> Any:
    """The lens of DL2's own form."""
    from rota.systems.dl2.step_lens import StepByStep

    return StepByStep(**asdict(settings))


def step_explorer(settings: ExploreConfig, lens: Any, batch: int, rng: np.random.Generator) -> Any:
    """The explorer that may replace its actions."""
    from rota.systems.dl2.explore import Explorer

    return Explorer(settings, lens, batch, rng)


def step_network(settings: StepNetworkConfig, lens: Any) -> nn.Module:
    """Its network."""
    from rota.systems.dl2.network import PlainNetwork, SharedNetwork

    form = _form(settings, lens)
    if settings.kind == "shared":
        return SharedNetwork(actions=lens.actions, globals_=lens.globals, **form)
    return PlainNetwork(actions=lens.actions, globals_=lens.globals, **form)


def step_critic(settings: StepNetworkConfig, lens: Any) -> nn.Module:
    """Its critic."""
    from rota.systems.dl2.network import PlainCritic, SharedCritic

    form = _form(settings, lens)
    if settings.kind == "shared":
        return SharedCritic(features=lens.features, width=form["width"])
    return PlainCritic(globals_=lens.globals, **form)


def _form(settings: StepNetworkConfig, lens: Any) -> dict[str, Any]:
    """What network and critic of a kind are built with."""
    form = {"window": lens.window, "features": lens.features}
    if settings.kind == "shared":
        return {**form, "width": settings.width or 64}
    return {**form, "layers": settings.layers, "width": settings.width,
            "cluster": settings.cluster, "scale": settings.scale}  # fmt: skip
