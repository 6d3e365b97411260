"""Real trainings of small networks that grow on the way: one run, epoch by epoch.

How an epoch of a run turns out depends on start network, seed, the epoch at which the resources
change and the growths, and on no clock. So one run answers for every number of GPUs and every
deadline: those only say how many of its epochs there is time for (`rota.adapt.clock`).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import nn

from rota.adapt.clock import Clock
from rota.adapt.operations import grow, layers_of
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rota.adapt.clock import Occasion
    from rota.adapt.growth import Growth
    from rota.adapt.starts import StartNetwork
    from rota.adapt.tasks import Data, Split

    Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class TrainingRules:
    """How networks are trained."""

    batch: int = 64
    learning_rate: float = 0.01
    """Of Adam, at first and again after a growth."""
    decay: float = 0.9
    """By which the learning rate is multiplied after every epoch."""
    reset: Literal["grown", "always", "once"] = "grown"
    """When optimizer and learning rate begin anew: where the network has grown; before each epoch
    from the change of resources on, as in the published runs (B1); or at that change, as the
    control that tells growth from a restart of the learning rate."""
    calibrated: bool = True
    """Whether new norms are set by a batch; the published ones were not (B3)."""

    def __post_init__(self) -> None:
        if self.batch < 1 or not 0 < self.learning_rate < math.inf or not 0 < self.decay <= 1:
            raise ConfigError(
                f"batch={self.batch} must be 1 or more, learning_rate={self.learning_rate} above "
                f"0, decay={self.decay} above 0 and at most 1."
            )
        if self.reset not in ("grown", "always", "once"):
            raise ConfigError(f"reset={self.reset!r} must be 'grown', 'always' or 'once'.")


@dataclass(frozen=True)
class RunCurve:
    """What became of a run, epoch by epoch from its beginning: entry e is after e epochs."""

    validation: Floats  # (E + 1,) accuracy
    test: Floats  # (E + 1,)
    loss: Floats  # (E + 1,) mean training loss of the epoch that ended there
    rate: Floats  # (E + 1,) learning rate of the next epoch, as long as nothing grows
    work: tuple[float, ...]
    """Multiplications against the start network's: in the first epochs after the change of
    resources, then in all others."""
    parameters: tuple[int, ...]
    """Of the network in the same epochs."""


class Training:
    """One network on its way: model, optimizer, learning rate, epoch."""

    def __init__(self, start: StartNetwork, seed: int, rules: TrainingRules, data: Data) -> None:
        self.start, self.seed, self.rules, self.data = start, seed, rules, data
        self.model = start.build(seed)
        self.optimizer = _adam(self.model, rules)
        self.epoch = 0
        self.rate, self.loss = rules.learning_rate, math.nan
        """The learning rate of the next epoch, and the mean loss of the last one."""
        self.seen: list[tuple[float, float, float, float]] = []
        """Accuracies, loss and learning rate after each epoch, as `RunCurve` has them."""
        self.flops = self.counted()

    def counted(self) -> float:
        """Multiplications per sample, as the network is now."""
        return sum(layer.flops for layer in layers_of(self.model, self.data.train.inputs[:2]))

    def look(self) -> None:
        """Note how good the network is now."""
        data = self.data
        validation, test = self.accuracy(data.validation), self.accuracy(data.test)
        self.seen.append((validation, test, self.loss, self.rate))

    def train(self) -> None:
        """Train for an epoch."""
        inputs, labels = self.data.train
        order = np.random.default_rng([self.seed, self.epoch]).permutation(len(labels))
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.model.train()
        total = 0.0
        for batch in torch.split(torch.from_numpy(order), self.rules.batch):
            loss = nn.functional.cross_entropy(self.model(inputs[batch]), labels[batch])
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += float(loss.detach()) * len(batch)
        self.epoch += 1
        self.rate *= self.rules.decay
        self.loss = total / len(order)

    def accuracy(self, split: Split) -> float:
        """The share of samples that the network gets right."""
        self.model.eval()
        with torch.no_grad():
            right = self.model(split.inputs).argmax(1) == split.labels
        return float(right.float().mean())

    def grow(self, growth: Growth) -> None:
        """Let the network grow; its learning rate begins anew."""
        before = {name for name, _ in self.model.named_modules()}
        inputs = self.data.train.inputs[:256]
        grow(self.model, growth, inputs, seed=self.seed, optimizer=self.optimizer)
        if not self.rules.calibrated:
            for name, module in self.model.named_modules():
                if name not in before and isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.reset_parameters()
        if self.rules.reset == "grown":
            self.rate = self.rules.learning_rate

    def restart(self) -> None:
        """Begin with a new optimizer, and the first learning rate."""
        self.optimizer = _adam(self.model, self.rules)
        self.rate = self.rules.learning_rate

    def copy(self) -> Training:
        """The same training once more, before any growth."""
        other = Training(self.start, self.seed, self.rules, self.data)
        other.model.load_state_dict(self.model.state_dict())
        # A copy of it, since an optimizer takes over tensors that it loads.
        other.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        other.epoch, other.rate, other.loss = self.epoch, self.rate, self.loss
        other.seen = list(self.seen)
        return other


def _adam(model: nn.Module, rules: TrainingRules) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), lr=rules.learning_rate, fused=True)


def pretrained(start: StartNetwork, seed: int, rules: TrainingRules, epoch: int) -> Training:
    """The training of a start network as it stands after so many epochs."""
    training = Training(start, seed, rules, start.task.data(seed))
    training.look()
    while training.epoch < epoch:
        training.train()
        training.look()
    return training


def play(training: Training, growths: Sequence[Growth | None], occasion: Occasion) -> RunCurve:
    """Go on from a change of resources, with one decision before each of the first epochs.

    It goes as far as there is time for, on the clock as it comes; `training` is used up.
    """
    clock, start_flops, begun = Clock(), training.flops, training.epoch
    work: list[float] = []
    parameters: list[int] = []
    if training.rules.reset == "once":
        training.restart()
    for growth in growths:
        if growth is not None:
            training.grow(growth)
        work.append(training.counted() / start_flops)
        parameters.append(sum(p.numel() for p in training.model.parameters()))
        _train_on(training)
    while training.epoch - begun < occasion.epochs(clock, work):
        _train_on(training)
    validation, test, loss, rate = np.array(training.seen, np.float32).T
    return RunCurve(validation, test, loss, rate, tuple(work), tuple(parameters))


def _train_on(training: Training) -> None:
    if training.rules.reset == "always":
        training.restart()
    training.train()
    training.look()
