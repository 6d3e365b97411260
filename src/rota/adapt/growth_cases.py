"""What agents that grow networks learn from, and are measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rota.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.adapt.moment import Moment


class Cases(Protocol):
    """Situations in which networks may grow, each played to its deadline by look-up."""

    @property
    def names(self) -> Sequence[str]:
        """One per case: what begins and when, such as "cnn-narrow/early"."""
        ...

    @property
    def decisions(self) -> int:
        """Decisions per episode."""
        ...

    @property
    def replicas(self) -> int:
        """Trainings, each with its own seed, behind every number."""
        ...

    def moment(self, case: int, replica: int, taken: tuple[int, ...]) -> Moment:
        """What the agent is shown after it has taken those choices of the moments before.

        The same question is answered by the same object.
        """
        ...

    def accuracy(self, case: int, replica: int, taken: tuple[int, ...]) -> float:
        """How good a finished episode is at its deadline, on the validation split."""
        ...

    def reference(self, case: int, replica: int) -> float:
        """How good the same training is, from the same checkpoint and seed, if nothing grows."""
        ...


class Chooser(Protocol):
    """Whoever can be asked how a network shall grow."""

    def choose(self, moment: Moment) -> int:
        """Which of the moment's choices is taken."""
        ...


@dataclass(frozen=True)
class Part:
    """Some of the cases, and some of the replicas: to learn from, or to hold out."""

    whole: Cases
    chosen: Sequence[int]
    """Which cases."""
    seen: Sequence[int] | None = None
    """Which replicas; None: all."""

    def __post_init__(self) -> None:
        for what, numbers, count in (
            ("cases", self.chosen, len(self.whole.names)),
            ("replicas", self.seen or (), self.whole.replicas),
        ):
            wrong = [number for number in numbers if not 0 <= number < count]
            if wrong:
                raise ConfigError(f"There are {count} {what}, counted from 0, and no {wrong[0]}.")
        if not len(self.chosen) or (self.seen is not None and not len(self.seen)):
            raise ConfigError("A part of the cases needs at least one case and one replica.")

    @property
    def names(self) -> list[str]:
        """One per case that was chosen."""
        return [self.whole.names[case] for case in self.chosen]

    @property
    def decisions(self) -> int:
        """Decisions per episode."""
        return self.whole.decisions

    @property
    def replicas(self) -> int:
        """How many replicas are seen."""
        return self.whole.replicas if self.seen is None else len(self.seen)

    def moment(self, case: int, replica: int, taken: tuple[int, ...]) -> Moment:
        """What the whole says."""
        return self.whole.moment(self.chosen[case], self._replica(replica), taken)

    def accuracy(self, case: int, replica: int, taken: tuple[int, ...]) -> float:
        """What the whole says."""
        return self.whole.accuracy(self.chosen[case], self._replica(replica), taken)

    def reference(self, case: int, replica: int) -> float:
        """What the whole says."""
        return self.whole.reference(self.chosen[case], self._replica(replica))

    def _replica(self, replica: int) -> int:
        return replica if self.seen is None else self.seen[replica]


def sequences(cases: Cases, case: int) -> list[tuple[int, ...]]:
    """All that can be taken in a case, in order."""
    found: list[tuple[int, ...]] = [()]
    for _ in range(cases.decisions):
        found = [
            (*taken, choice)
            for taken in found
            for choice in range(len(cases.moment(case, 0, taken).choices))
        ]
    return found


def play(chooser: Chooser, cases: Cases, case: int, replica: int) -> tuple[int, ...]:
    """The choices that a chooser takes in one episode."""
    taken: tuple[int, ...] = ()
    for _ in range(cases.decisions):
        moment = cases.moment(case, replica, taken)
        choice = chooser.choose(moment)
        if not 0 <= choice < len(moment.choices):
            raise ConfigError(
                f"{type(chooser).__name__} took choice {choice} of {len(moment.choices)} in "
                f"{cases.names[case]!r}; choices are counted from 0."
            )
        taken += (int(choice),)
    return taken


def accuracy_of(cases: Cases, case: int, replica: int, taken: tuple[int, ...]) -> float:
    """The accuracy that an episode ends with; refused if it is no number."""
    return _finite(cases.accuracy(case, replica, taken), cases.names[case], f"after {taken}")


def gain_of(cases: Cases, case: int, replica: int, taken: tuple[int, ...]) -> float:
    """By how much an episode ends better than the same training without growth."""
    without = _finite(cases.reference(case, replica), cases.names[case], "without growth")
    return accuracy_of(cases, case, replica, taken) - without


def check_cases(cases: Cases) -> None:
    """Refuse cases that nothing can be learned from."""
    if not len(cases.names):
        raise ConfigError("There are no cases; an agent needs at least one to learn from.")
    for what, count in (("decisions", cases.decisions), ("replicas", cases.replicas)):
        if count < 1:
            raise ConfigError(f"{what}={count}: the cases need at least 1.")


def _finite(accuracy: float, name: str, what: str) -> float:
    if not np.isfinite(accuracy):
        raise TrainingError(
            f"Case {name!r} has the accuracy {accuracy!r} {what}; an agent learns from numbers "
            "only. Make the table again, or leave the case out."
        )
    return float(accuracy)
