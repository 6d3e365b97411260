"""States and the decisions taken in them, as learners keep them: flat, and only those there were.

A *state* is what a lens shows of one cluster at one step. A *decision* is one choice of one option.
An agent that follows steps takes one per state; one that follows jobs takes one for every job that
the state shows. A decision's options are the columns of a table, if there are always as many; or
they are candidates of any number, which are kept in one list, decision by decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rota.core.types import Bools, Ints

MANY = "many"
"""The observation that says how many candidates a state has."""


def begins_of(counts: Ints) -> Ints:
    """Where each list of a flat array begins, and where the last one ends."""
    begins = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=begins[1:])
    return begins


def listed(begins: Ints, which: Ints) -> tuple[Ints, Ints]:
    """The places of all that is in these lists, and where each of them begins among these."""
    first = begins[which]
    counts = begins[which + 1] - first
    new = begins_of(counts)
    return np.repeat(first - new[:-1], counts) + np.arange(new[-1]), new


@dataclass(frozen=True)
class States:
    """Observations of S states."""

    arrays: dict[str, NDArray[Any]]  # (S, …) by name
    lists: tuple[str, ...] = ()
    """Names of arrays that hold one row per candidate instead, (C, …), state by state."""

    def __len__(self) -> int:
        return len(next(x for name, x in self.arrays.items() if name not in self.lists))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def take(self, which: Ints) -> States:
        """Some of the states, by number."""
        if not self.lists:
            return States({name: array[which] for name, array in self.arrays.items()})
        places, _ = listed(begins_of(self[MANY]), which)
        return States(
            {
                name: array[places if name in self.lists else which]
                for name, array in self.arrays.items()
            },
            self.lists,
        )

    def between(self, first: int, end: int) -> States:
        """Those from `first` to before `end`; nothing is copied."""
        begins = begins_of(self[MANY]) if self.lists else None
        arrays = {}
        for name, array in self.arrays.items():
            if begins is not None and name in self.lists:
                arrays[name] = array[begins[first] : begins[end]]
            else:
                arrays[name] = array[first:end]
        return States(arrays, self.lists)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The same, for a network."""
        return {name: torch.from_numpy(array) for name, array in self.arrays.items()}

    @classmethod
    def joined(cls, parts: Sequence[States]) -> States:
        """States of several origins, one after the other."""
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0].arrays}
        return cls(arrays, parts[0].lists)


@dataclass(frozen=True)
class Allowed:
    """What was allowed in D decisions."""

    flags: Bools  # (D, A), or (C,) with `begins`
    begins: Ints | None = None  # (D + 1,)
    right: Bools | None = None  # in the form of `flags`: all that a teacher would have chosen

    @property
    def free(self) -> Bools:
        """(D,) Whether more than one was allowed, so that there was a choice."""
        if self.begins is None:
            found: Bools = self.flags.sum(-1) > 1
            return found
        total = np.append(0, np.cumsum(self.flags))
        many: Bools = total[self.begins[1:]] - total[self.begins[:-1]] > 1
        return many

    def allows(self, action: Ints) -> Bools:
        """(D,) Whether these options were allowed; −1 never is."""
        at = np.maximum(action, 0)
        if self.begins is None:
            found: Bools = np.take_along_axis(self.flags, at[:, None], 1)[:, 0]
        else:
            found = self.flags[self.begins[:-1] + at]
        return found & (action >= 0)

    def take(self, which: Ints) -> Allowed:
        """Those of some decisions, by number."""
        places, begins = (which, None) if self.begins is None else listed(self.begins, which)
        right = None if self.right is None else self.right[places]
        return Allowed(self.flags[places], begins, right)

    def of(self, scores: torch.Tensor, which: Ints) -> torch.Tensor:
        """Of scores of all options, those of some decisions."""
        places = which if self.begins is None else listed(self.begins, which)[0]
        return scores[torch.from_numpy(places)]

    @classmethod
    def joined(cls, parts: Sequence[Allowed]) -> Allowed:
        """Those of several origins, one after the other."""
        flags = np.concatenate([part.flags for part in parts])
        rights = [part.right for part in parts if part.right is not None]
        right = np.concatenate(rights) if len(rights) == len(parts) else None
        begins = None
        if parts[0].begins is not None:
            counts = [np.diff(part.begins) for part in parts if part.begins is not None]
            begins = begins_of(np.concatenate(counts))
        return cls(flags, begins, right)


@dataclass(frozen=True)
class Decisions:
    """D decisions in S states, state by state."""

    allowed: Allowed
    columns: dict[str, NDArray[Any]]  # (D, …) by name: "action" (−1: nothing was allowed), …
    begins: Ints | None = None  # (S + 1,) of each state's; None: every state has one

    def __len__(self) -> int:
        return len(self.columns["action"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    @property
    def state(self) -> Ints:
        """(D,) The state of each."""
        if self.begins is None:
            return np.arange(len(self))
        return np.repeat(np.arange(len(self.begins) - 1), np.diff(self.begins))

    def having(self, **columns: NDArray[Any]) -> Decisions:
        """The same with more columns."""
        return replace(self, columns={**self.columns, **columns})

    def take(self, states: Ints) -> Decisions:
        """Those of some states, by number."""
        which, begins = (states, None) if self.begins is None else listed(self.begins, states)
        columns = {name: column[which] for name, column in self.columns.items()}
        return Decisions(self.allowed.take(which), columns, begins)

    @classmethod
    def joined(cls, parts: Sequence[Decisions]) -> Decisions:
        """Those of several origins, one after the other."""
        names = parts[0].columns
        columns = {name: np.concatenate([part[name] for part in parts]) for name in names}
        begins = None
        if parts[0].begins is not None:
            counts = [np.diff(part.begins) for part in parts if part.begins is not None]
            begins = begins_of(np.concatenate(counts))
        return cls(Allowed.joined([part.allowed for part in parts]), columns, begins)
