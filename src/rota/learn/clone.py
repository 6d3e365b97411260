"""Behaviour cloning: a network learns to choose what a teacher chose (cross-entropy).

A copy that makes a mistake reaches states that its teacher never does, and makes more mistakes
there. So cloning may be repeated with states that the copy's own choices lead to, labelled with
what the teacher would do there (DAgger; Ross et al., 2011).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from rota.errors import ConfigError, TrainingError
from rota.learn.choices import chances
from rota.learn.states import Allowed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.learn.demonstrations import Demonstrations

JOURNAL: Final = "journal:"
"""The prefix of a teacher that is a journal."""


@dataclass(frozen=True, kw_only=True)
class CloneConfig:
    """Settings of the warm-up by behaviour cloning."""

    teacher: str = ""
    """Whose decisions are copied: a policy, as the scenario names it, or "journal:PATH"; empty: no
    warm-up."""
    samples: int = 60_000
    """States of the teacher to learn from."""
    every: int = 1
    """Keep one state of this many, at random: states of the same round are very similar."""
    again: int = 0
    """Repetitions (DAgger): the copy plays, the teacher says what it would do, and the copy learns
    from as many of these states and as many of the earlier ones."""
    any_order: bool = False
    """Whether every action that leads to the teacher's counts is right; otherwise only the first
    one that the lens names. For systems that decide step by step."""
    clusters: int = 8
    """Clusters that the teacher schedules at once."""
    epochs: int = 8
    """Passes over the states."""
    batch: int = 256
    """States per gradient step."""
    learning_rate: float = 3e-3
    """Adam's step size; falls linearly to 0."""
    held_out: float = 0.1
    """Part of the states that is not learned from and only measures how well the copy agrees."""
    smooth: float = 0.0
    """Part of the probability that is taught to all allowed actions equally, so that the copy still
    explores when reinforcement learning begins."""
    loss: str = "cross-entropy"
    """Or "square" or "absolute": distances between probabilities, DL2's two alternatives."""

    def __post_init__(self) -> None:
        if self.loss not in ("cross-entropy", "square", "absolute"):
            raise ConfigError(
                f"loss = {self.loss!r} must be 'cross-entropy', 'square' or 'absolute'."
            )
        for name in ("samples", "clusters", "epochs", "batch", "every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)} must be 1 or more.")
        if self.again < 0:
            raise ConfigError(f"again = {self.again} must be 0 or more.")
        if self.any_order and self.loss != "cross-entropy":
            raise ConfigError(
                f"any_order = true goes with loss = 'cross-entropy', not {self.loss!r}."
            )
        if self.teacher.startswith(JOURNAL) and (self.again or self.any_order or self.every > 1):
            raise ConfigError(
                f"teacher = {self.teacher!r} is a journal, which cannot be asked in new states: "
                "again, any_order and every are for teachers that are policies; leave them out."
            )
        if not (0 < self.held_out < 1 and 0 <= self.smooth < 1):
            raise ConfigError(
                f"held_out = {self.held_out} and smooth = {self.smooth} must be between 0 and 1."
            )


def clone(
    network: torch.nn.Module, demonstrations: Demonstrations, config: CloneConfig,
    generator: torch.Generator,
) -> Iterator[dict[str, float]]:  # fmt: skip
    """Teach the network; yields after every epoch its losses and its agreement when held out."""
    demonstrations = demonstrations.taught()
    order = torch.randperm(len(demonstrations), generator=generator)
    held = max(1, int(len(order) * config.held_out))
    test, rest = order[:held], order[held:]
    if not len(rest):
        raise TrainingError(
            f"{len(demonstrations)} states in which the lens can do as the teacher did are too few "
            "to learn from; take a longer journal, more samples, or another teacher."
        )
    optimizer = torch.optim.Adam(network.parameters(), config.learning_rate)
    steps = config.epochs * -(-len(rest) // config.batch)
    step = 0
    for _ in range(config.epochs):
        shuffled = rest[torch.randperm(len(rest), generator=generator)]
        total = 0.0
        for rows in torch.split(shuffled, config.batch):
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * (1 - step / steps)
            loss, _ = _loss(network, demonstrations.take(rows.numpy()), config)
            if not torch.isfinite(loss):
                raise TrainingError(
                    "Cloning led to a loss that is not finite; lower clone.learning_rate = "
                    f"{config.learning_rate}."
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(rows)
            step += 1
        with torch.inference_mode():
            test_loss, agrees = _loss(network, demonstrations.take(test.numpy()), config)
        yield {
            "loss": total / len(rest), "test_loss": float(test_loss), "agreement": float(agrees)
        }  # fmt: skip


def _loss(
    network: torch.nn.Module, part: Demonstrations, config: CloneConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, and the part of decisions in which the likeliest action is right."""
    logits, _ = network(part.seen.tensors())
    action, options = part.decisions["action"], part.decisions.allowed
    taught = np.flatnonzero(action >= 0)
    wanted, options = torch.from_numpy(action[taught]), options.take(taught)
    found = chances(part.decisions.allowed.of(logits, taught), options)
    likeliest = found.likeliest()
    agrees = (likeliest == wanted).float().mean()
    if config.loss == "cross-entropy":
        loss = -found.of(wanted).mean()
        if options.right is not None:
            loss = -found.among(torch.from_numpy(options.right)).mean()
            good = Allowed(options.right, options.begins).allows(likeliest.numpy())
            agrees = torch.from_numpy(good).float().mean()
        return (1 - config.smooth) * loss + config.smooth * -found.even().mean(), agrees
    return found.gap(wanted, square=config.loss == "square").mean(), agrees
