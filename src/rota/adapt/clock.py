"""The simulated clock: what an epoch takes, and when resources change.

Measured seconds would make every result depend on the machine, and on small machines growing is
nearly free. Here an epoch of the start network on one GPU takes `epoch_s`; a larger network takes
longer in proportion to its multiplications, more GPUs help, and both have a fixed part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rota.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence

BUDGET: Final = 18
"""Epochs of the start network, on the GPUs it begins with, until the deadline."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Seconds that an epoch takes."""

    epoch_s: float = 10.0
    """Of the start network on one GPU."""
    fixed: float = 0.3
    """Share of it that does not depend on the size of the network."""
    overhead: float = 0.2
    """What each further GPU adds to the work: n GPUs are n / (1 + overhead · (n − 1)) as fast."""

    def __post_init__(self) -> None:
        fine = 0 < self.epoch_s < math.inf and 0 <= self.fixed < 1 and 0 <= self.overhead < math.inf
        if not fine:
            raise ConfigError(
                f"epoch_s={self.epoch_s} must be above 0, fixed={self.fixed} from 0 to below 1, "
                f"overhead={self.overhead} 0 or more."
            )

    def speedup(self, gpus: float) -> float:
        """How many times as fast a step is on these GPUs as on one."""
        return gpus / (1.0 + self.overhead * (gpus - 1.0))

    def gpus_for(self, speedup: float) -> float:
        """GPUs that are so many times as fast as one."""
        if not 0 < speedup * self.overhead < 1:
            raise ConfigError(f"No number of GPUs is {speedup:g} times as fast as one.")
        return speedup * (1.0 - self.overhead) / (1.0 - self.overhead * speedup)

    def epoch(self, work: float, gpus: float) -> float:
        """Seconds of an epoch of a network with `work` times the start's multiplications."""
        return self.epoch_s * (self.fixed + (1.0 - self.fixed) * work) / self.speedup(gpus)


@dataclass(frozen=True)
class Occasion:
    """When a job is given other resources, which, and how long until its deadline."""

    name: str
    epoch: int
    """Epochs of the start network that are over when resources change."""
    before: float
    """GPUs until then."""
    gpus: float
    """GPUs from then on."""
    budget: int = BUDGET
    """The deadline: epochs of the start network on the GPUs it begins with."""

    def __post_init__(self) -> None:
        for label, value in (("before", self.before), ("gpus", self.gpus)):
            if not 0 < value < math.inf:
                raise ConfigError(f"{self.name}: {label}={value} GPUs; it must be above 0.")
        if self.before == self.gpus:
            raise ConfigError(
                f"{self.name}: the job has {self.gpus:g} GPUs before and after, so nothing "
                "changes and no agent is asked; give other numbers of GPUs."
            )
        if not 1 <= self.epoch < self.budget:
            raise ConfigError(
                f"{self.name}: resources change after epoch {self.epoch}, the deadline is after "
                f"epoch {self.budget}; let them change from epoch 1 to epoch {self.budget - 1}."
            )

    def total_s(self, clock: Clock) -> float:
        """Seconds from the beginning to the deadline."""
        return self.budget * clock.epoch(1.0, self.before)

    def left_s(self, clock: Clock) -> float:
        """Seconds from the change of resources to the deadline."""
        return (self.budget - self.epoch) * clock.epoch(1.0, self.before)

    def epochs(self, clock: Clock, work: Sequence[float]) -> int:
        """Whole epochs to the deadline; epoch k has work[k], the last one's goes on."""
        left = self.left_s(clock)
        done = 0
        for share in work[:-1]:
            took = clock.epoch(share, self.gpus)
            if took > left * (1 + 1e-9):
                return done
            left -= took
            done += 1
        return done + int(left * (1 + 1e-9) / clock.epoch(work[-1], self.gpus))


EPOCHS: Final = {"early": 3, "early-middle": 6, "middle": 9, "middle-late": 12, "late": 15}
"""After which of the 18 epochs resources change: the published five times, rounded to epochs."""
HELD_OUT: Final = ("early-middle", "middle-late")
"""Times that no agent learns on."""
RESIZES: Final = {"1to2": (1.0, 2.0), "2to4": (2.0, 4.0), "2to1": (2.0, 1.0)}


def occasions_at(epoch: int, when: str = "") -> list[Occasion]:
    """All changes of resources after an epoch."""
    return [
        Occasion(f"{when or f'epoch{epoch}'}-{resize}", epoch, before, gpus)
        for resize, (before, gpus) in RESIZES.items()
    ]


OCCASIONS: Final = {
    found.name: found for when, epoch in EPOCHS.items() for found in occasions_at(epoch, when)
}
FASTEST: Final = max(Clock().speedup(gpus) / Clock().speedup(was) for was, gpus in RESIZES.values())
"""The largest gain in speed of these; a table of trainings goes as far as that needs."""


def occasion(name: str) -> Occasion:
    """The occasion called so."""
    if name not in OCCASIONS:
        raise UnknownNameError("occasion", name, OCCASIONS)
    return OCCASIONS[name]
