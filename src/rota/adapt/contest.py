"""Agents against each other: what each takes, what it is worth, and how sure that is.

Everything is compared in pairs, case by case and replica by replica, so that what a case or the
luck of a seed is worth by itself drops out. Intervals come from drawing anew, with replacement,
whatever was itself drawn from many: seeds of trainings, start networks or cases, and replicas.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rota.adapt.growth_cases import accuracy_of, play, sequences
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    from rota.adapt.growth_cases import Cases, Chooser

Taken = tuple[int, ...]
Plans = tuple[tuple[Taken, ...], ...]
"""What is taken in every case and replica."""


@dataclass(frozen=True, eq=False)
class Table:
    """The accuracy of everything that can be taken in one case."""

    sequences: tuple[Taken, ...]
    accuracy: NDArray[np.float64]
    """(S, R) sequences and replicas"""

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """(S,) over the replicas"""
        return np.asarray(self.accuracy.mean(1))


@dataclass(frozen=True)
class Entry:
    """An agent in a contest."""

    name: str
    runs: tuple[Plans, ...]
    """What it takes, once per seed of its training; once if it does not learn by chance."""


@dataclass(frozen=True, eq=False)
class Control:
    """Trainings that no agent has decided about, to compare with."""

    name: str
    accuracy: NDArray[np.float64]
    """(C, R) cases and replicas"""


@dataclass(frozen=True)
class ContestLine:
    """How one agent does in one case."""

    case: str
    agent: str
    taken: Taken
    """What it takes most often, over its seeds and the replicas; the first of equals."""
    share: float
    """How often it takes just that."""
    accuracy: float
    """Mean over its seeds and the replicas, of what it takes in each."""
    gain: float
    """Mean of the paired gain over the same training without growth."""
    rank: int
    """1 + how many constant sequences have a higher mean over the replicas."""
    of: int


@dataclass(frozen=True)
class Difference:
    """By how much one agent's accuracy is above another's, with a 95 % interval."""

    agent: str
    baseline: str
    mean: float
    low: float
    high: float


def plans(chooser: Chooser, cases: Cases) -> Plans:
    """What a chooser takes."""
    return plans_apart([chooser] * len(cases.names), cases)


def plans_apart(choosers: Sequence[Chooser], cases: Cases) -> Plans:
    """What choosers take that are made for one case each."""
    if len(choosers) != len(cases.names):
        raise ConfigError(f"{len(choosers)} choosers do not fit {len(cases.names)} cases.")
    return tuple(
        tuple(play(chooser, cases, case, replica) for replica in range(cases.replicas))
        for case, chooser in enumerate(choosers)
    )


class Contest:
    """The tables of all cases, and the agents that are measured on them."""

    def __init__(self, cases: Cases) -> None:
        self.cases = cases
        self.tables = [_table(cases, case) for case in range(len(cases.names))]
        self._without = np.array(  # (C, R)
            [
                [cases.reference(case, replica) for replica in range(cases.replicas)]
                for case in range(len(self.tables))
            ]
        )
        self._row = [
            {taken: row for row, taken in enumerate(table.sequences)} for table in self.tables
        ]

    def hindsight(self) -> Plans:
        """The sequence of highest mean in every case: no agent that sees no replica is above it.

        It is picked among many noisy means, so its own mean is too high by the luck of the pick.
        """
        return tuple(
            (table.sequences[int(table.means.argmax())],) * self.cases.replicas
            for table in self.tables
        )

    def foresight(self) -> Plans:
        """For every replica, the sequence of highest mean over the other replicas.

        It is picked and measured on different trainings, so no luck flatters it: this is what
        knowing a case's other trainings by heart is worth.
        """
        if self.cases.replicas < 2:
            raise ConfigError("To pick on other replicas needs at least 2 of them.")
        return tuple(
            tuple(
                table.sequences[int(np.delete(table.accuracy, replica, 1).mean(1).argmax())]
                for replica in range(self.cases.replicas)
            )
            for table in self.tables
        )

    def accuracies(self, entry: Entry | Control) -> NDArray[np.float64]:
        """(T, C, R) over the seeds of its training, cases and replicas."""
        if isinstance(entry, Control):
            return entry.accuracy[None]
        return np.array([self._accuracies(run) for run in entry.runs])

    def _accuracies(self, run: Plans) -> list[list[float]]:
        return [
            [float(table.accuracy[rows[taken], replica]) for replica, taken in enumerate(case)]
            for table, rows, case in zip(self.tables, self._row, run, strict=True)
        ]

    def gain(self, entry: Entry | Control) -> float:
        """Mean gain over the same trainings without growth."""
        return float((self.accuracies(entry) - self._without).mean())

    def lines(self, entry: Entry) -> list[ContestLine]:
        """How an agent does, case by case."""
        found = self.accuracies(entry)
        return [self._line(entry, case, found[:, case]) for case in range(len(self.tables))]

    def _line(self, entry: Entry, case: int, found: NDArray[np.float64]) -> ContestLine:
        table = self.tables[case]
        counts = Counter(taken for run in entry.runs for taken in run[case])
        taken, count = counts.most_common(1)[0]
        mean = float(found.mean())
        # A mean of the same numbers in another order may differ in its last digits.
        above = int((table.means > mean + 1e-12).sum())
        return ContestLine(
            self.cases.names[case],
            entry.name,
            taken,
            count / counts.total(),
            mean,
            float((found - self._without[case]).mean()),
            above + 1,
            len(table.sequences),
        )

    def difference(
        self,
        agent: Entry | Control,
        baseline: Entry | Control,
        rng: Generator,
        *,
        clusters: Sequence[str] | None = None,
        draws: int = 4_000,
    ) -> Difference:
        """By how much an agent is better than a baseline, with a bootstrap interval.

        Drawn anew are the seeds of both trainings; the clusters of cases, such as their start
        networks (None: every case is its own); and within each case drawn, the replicas, the same
        for both agents. With few clusters, below ten or so, the interval is too narrow: it cannot
        know of networks that are unlike all of them.
        """
        mine, theirs = self.accuracies(agent), self.accuracies(baseline)
        labels = range(len(self.tables)) if clusters is None else clusters
        if len(labels) != len(self.tables):
            raise ConfigError(f"{len(labels)} clusters do not fit {len(self.tables)} cases.")
        groups = [
            [case for case, other in enumerate(labels) if other == label]
            for label in dict.fromkeys(labels)
        ]
        found = [_drawn(mine, theirs, groups, rng) for _ in range(draws)]
        low, high = np.percentile(found, [2.5, 97.5])
        mean = float(mine.mean() - theirs.mean())
        return Difference(agent.name, baseline.name, mean, float(low), float(high))


def _drawn(
    mine: NDArray[np.float64],
    theirs: NDArray[np.float64],
    groups: Sequence[Sequence[int]],
    rng: Generator,
) -> float:
    """The mean difference in a sample that is drawn anew from the one we have."""

    def seeds(found: NDArray[np.float64]) -> NDArray[np.float64]:
        mean: NDArray[np.float64] = found[rng.integers(len(found), size=len(found))].mean(0)
        return mean

    better = seeds(mine) - seeds(theirs)  # (C, R)
    cases = [
        case for group in rng.integers(len(groups), size=len(groups)) for case in groups[group]
    ]
    replicas = rng.integers(better.shape[1], size=(len(cases), better.shape[1]))
    return float(better[np.array(cases)[:, None], replicas].mean())


def _table(cases: Cases, case: int) -> Table:
    every = sequences(cases, case)
    accuracy = [
        [accuracy_of(cases, case, replica, taken) for replica in range(cases.replicas)]
        for taken in every
    ]
    return Table(tuple(every), np.array(accuracy))
