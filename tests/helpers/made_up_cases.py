"""Made-up cases of growing networks whose best answers are known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rota.adapt.growth import Growth
from rota.adapt.moment import GrowthChoice, LayerFacts, Moment

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH_S = 10.0
TOTAL_S = 400.0
KINDS = ("conv2d", "conv2d", "linear")


def layer(name: str, kind: str = "conv2d", width: int = 8, *, original: bool = True) -> LayerFacts:
    return LayerFacts(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        inputs=width,
        outputs=width,
        kernel=3 if kind != "linear" else 1,
        stride=1,
        positions=64 if kind != "linear" else 1,
        parameters=width * width * 9,
        flops=float(width * width * 9 * 64),
        norm=kind != "linear",
        activation="relu",
        residual=False,
        added=0,
        original=original,
    )


def token(facts: LayerFacts) -> str:
    if facts.kind == "linear":
        return f"Linear(in_features={facts.inputs}, out_features={facts.outputs}, bias=True)"
    return f"Conv2d({facts.inputs}, {facts.outputs}, kernel_size=(3, 3), stride=(1, 1))"


@dataclass(frozen=True)
class Start:
    """A network and the time at which it may grow."""

    name: str
    left: float
    """Share of the time that is left."""
    width: int = 8
    accuracy: float = 0.6
    epoch_s: float = EPOCH_S
    total_s: float = TOTAL_S


@dataclass
class MadeUpCases:
    """Cases whose gain is a formula, seen through noise.

    Choices are to deepen one of the blocks that were there in the beginning, or to do nothing.
    """

    starts: list[Start]
    gain: Callable[[Start, tuple[int, ...]], float]
    """What an episode is worth, given the start and what was taken (blocks, 3: nothing)."""
    replicas: int = 5
    noise: float = 0.0
    seed: int = 0
    decisions: int = 3
    cost_s: float = 1.5
    """By how much longer an epoch takes for every layer that was put in."""
    kept: dict[tuple[int, int, tuple[int, ...]], Moment] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [start.name for start in self.starts]

    def moment(self, case: int, replica: int, taken: tuple[int, ...]) -> Moment:
        key = (case, replica, taken)
        if key not in self.kept:
            self.kept[key] = self._moment(self.starts[case], replica, taken)
        return self.kept[key]

    def _moment(self, start: Start, replica: int, taken: tuple[int, ...]) -> Moment:
        layers: list[LayerFacts] = []
        place: list[int] = []
        for block, kind in enumerate(KINDS):
            place.append(len(layers))
            layers.append(layer(f"block{block}", kind, start.width))
            layers += [
                layer(f"block{block}.{k}", kind, start.width, original=False)
                for k in range(taken.count(block))
            ]
        grown = sum(choice < len(KINDS) for choice in taken)
        epoch_s = start.epoch_s + self.cost_s * grown
        parameters = sum(each.parameters for each in layers)
        choices = [
            GrowthChoice(
                Growth("deepen", layers[at].name),
                at,
                epoch_s + self.cost_s,
                parameters + layers[at].parameters,
            )
            for at in place
        ]
        rng = np.random.default_rng([self.seed, replica, len(taken)])
        return Moment(
            layers=tuple(layers),
            tokens=tuple(x for each in layers for x in (token(each), "ReLU()")),
            choices=(*choices, GrowthChoice(None, -1, epoch_s, parameters)),
            left_s=start.left * start.total_s - epoch_s * len(taken),
            total_s=start.total_s,
            epoch_s=epoch_s,
            gpus_before=1.0,
            gpus=2.0,
            accuracy=start.accuracy + rng.normal(0.0, 0.01),
            slope=0.01 * start.left,
            loss=1.0,
            learning_rate=0.01,
            step=len(taken),
        )

    @cached_property
    def _noise(self) -> np.ndarray:
        rng = np.random.default_rng(self.seed)
        size = (len(self.starts), self.replicas, (len(KINDS) + 1) ** self.decisions)
        return rng.normal(0.0, self.noise, size)

    def accuracy(self, case: int, replica: int, taken: tuple[int, ...]) -> float:
        cell = int("".join(map(str, taken)), len(KINDS) + 1)
        start = self.starts[case]
        noise = self._noise[case, replica, cell]
        return start.accuracy + 0.01 * replica + self.gain(start, taken) + float(noise)

    def reference(self, case: int, replica: int) -> float:
        return self.accuracy(case, replica, (len(KINDS),) * self.decisions)


def timely(start: Start, taken: tuple[int, ...]) -> float:
    """Growth is worth it while there is time: convolutions early, nothing late.

    Block 0 gains .06 per use at the beginning and costs as much at the end; block 1 is as good in
    wide networks and half as good in narrow ones; block 2 does nothing but cost a little.
    """
    worth = 0.0
    for block, size in ((0, 0.06), (1, 0.06 if start.width > 16 else 0.03), (2, -0.01)):
        uses = taken.count(block)
        worth += size * (uses - 0.3 * max(uses - 1, 0)) * (start.left - 0.4 if block < 2 else 1.0)
    return worth


def spread(gain: Callable[[Start, tuple[int, ...]], float] = timely, **more: object) -> MadeUpCases:
    """Five times at which two networks may grow."""
    starts = [
        Start(f"{name}/{left:g}", left, width)
        for name, width in (("narrow", 8), ("wide", 32))
        for left in (0.1, 0.25, 0.5, 0.65, 0.85)
    ]
    return MadeUpCases(starts, gain, **more)  # type: ignore[arg-type]


def early_only(start: Start, taken: tuple[int, ...]) -> float:
    """The first block gains in the first half as much as it costs in the second."""
    return (0.05 if start.left > 0.5 else -0.05) * taken.count(0) - 0.02 * taken.count(2)


def early_and_late(noise: float = 0.01, **more: object) -> MadeUpCases:
    """Two early and two late starts: no constant sequence gains anything in the mean."""
    starts = [Start(f"net/{left:g}", left) for left in (0.1, 0.3, 0.7, 0.9)]
    return MadeUpCases(starts, early_only, noise=noise, **more)  # type: ignore[arg-type]


@dataclass
class ManyChoices:
    """Twelve growths at each of three decisions, of which one gains early, and none late."""

    names: tuple[str, ...] = ("net/0.1", "net/0.3", "net/0.7", "net/0.9")
    decisions: int = 3
    replicas: int = 1
    kept: dict[tuple[int, int], Moment] = field(default_factory=dict)

    def moment(self, case: int, replica: int, taken: tuple[int, ...]) -> Moment:
        key = (case, len(taken))
        if key not in self.kept:
            plain = early_and_late(replicas=1).moment(case, replica, ())
            growths = [
                GrowthChoice(
                    Growth("widen", plain.layers[at].name, factor), at, 8.0 + 2.0 * factor, 9_999
                )
                for at in range(3)
                for factor in (1.5, 2.0, 3.0)
            ]
            choices = (*plain.choices[:3], *growths, plain.choices[3])
            self.kept[key] = replace(plain, choices=choices, step=len(taken))
        return self.kept[key]

    def accuracy(self, case: int, _: int, taken: tuple[int, ...]) -> float:
        # Choice 7 makes the middle block twice as wide; 12 is to do nothing.
        return 0.6 + sum(self._worth(case, choice) for choice in taken)

    def _worth(self, case: int, choice: int) -> float:
        if choice == 12:
            return 0.0
        return (0.05 if choice == 7 else 0.01) if case >= 2 else -0.02

    def reference(self, *_: int) -> float:
        return 0.6
