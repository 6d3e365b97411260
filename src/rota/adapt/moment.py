"""What an agent is shown when it is asked whether, and how, a network shall grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rota.adapt.growth import Growth


@dataclass(frozen=True)
class LayerFacts:
    """A linear or convolutional layer of a network, in numbers."""

    name: str
    """Its qualified name, by which growths call it."""
    kind: Literal["linear", "conv1d", "conv2d"]
    inputs: int
    """Features or channels that it reads."""
    outputs: int
    kernel: int
    """Elements of its kernel along one axis; 1 for a linear layer."""
    stride: int
    positions: int
    """Places of the output that it computes per sample; 1 for a linear layer of vectors."""
    parameters: int
    """Its own, and its norm's."""
    flops: float
    """Multiplications per sample."""
    norm: bool
    activation: str
    """Name of the function that follows, such as "relu"; empty: none."""
    residual: bool
    """Whether its output is added to something else."""
    added: int
    """How many growths have put layers behind it, or made it wider."""
    original: bool
    """Whether it was there before any growth."""


@dataclass(frozen=True)
class GrowthChoice:
    """One thing an agent may answer."""

    growth: Growth | None
    """None: the network stays as it is."""
    layer: int
    """Which of the moment's layers grows; −1: none."""
    epoch_s: float
    """Seconds that an epoch takes afterwards, on the GPUs that the job has now."""
    parameters: int
    """Parameters that the network has afterwards."""


@dataclass(frozen=True)
class Moment:
    """A job that may grow its network now."""

    layers: tuple[LayerFacts, ...]
    """In the order in which data pass through them."""
    tokens: tuple[str, ...]
    """Every leaf module as it prints itself, in order: what the published agent reads."""
    choices: tuple[GrowthChoice, ...]
    """The last one is to leave the network as it is."""
    left_s: float
    """Seconds to the deadline."""
    total_s: float
    """Seconds from the beginning of the training to its deadline."""
    epoch_s: float
    """Seconds that an epoch takes now."""
    gpus_before: float
    """GPUs that the job had before they changed."""
    gpus: float
    accuracy: float
    """On the validation split after the last epoch; NaN: not measured."""
    slope: float
    """Change of that accuracy over the last epochs, per epoch; NaN: not known."""
    loss: float
    """Mean training loss of the last epoch; NaN: not measured."""
    learning_rate: float
    step: int
    """How many decisions were taken before this one since the resources changed."""
