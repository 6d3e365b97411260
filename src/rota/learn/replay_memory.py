"""Prioritised experience replay (Schaul et al., 2016): a memory that drops the oldest states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.learn.states import MANY, Allowed, Decisions, States, begins_of
from rota.learn.sum_tree_kernels import draw, put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rota.core.types import Floats, Ints


class Played(NamedTuple):
    """Some states, what the critic sees of them if it is something else, and their decisions."""

    seen: States
    judged: States | None
    decisions: Decisions

    def take(self, which: Ints) -> Played:
        """Some of the states, by number."""
        judged = None if self.judged is None else self.judged.take(which)
        return Played(self.seen.take(which), judged, self.decisions.take(which))

    def beside(self, others: Played) -> Played:
        """These and others, joined."""
        judged = None
        if self.judged is not None and others.judged is not None:
            judged = States.joined([self.judged, others.judged])
        return Played(
            States.joined([self.seen, others.seen]), judged,
            Decisions.joined([self.decisions, others.decisions]),
        )  # fmt: skip


class ReplayMemory:
    """States and their decisions, the oldest replaced first, drawn in proportion to a priority.

    What all states have alike is kept in tables, lists of any length one by one.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self._next, self._count = capacity, 0, 0
        self._tree = np.zeros(2 << (capacity - 1).bit_length())
        self._tables: dict[str, NDArray[Any]] = {}
        self._lists: dict[str, list[NDArray[Any]]] = {}
        self._form: Played | None = None
        self.paid: Floats = np.zeros(capacity)
        """What was paid in each state, on average."""

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether all places are filled."""
        return self._count == self.capacity

    @property
    def priority(self) -> Floats:
        """The priorities of all rows, as a view."""
        half = self._tree.size // 2
        return self._tree[half : half + self._count]

    def add(self, batch: Played, paid: Floats, priority: Floats) -> None:
        """Add states, the oldest first; if they are more than the capacity, only the last ones."""
        count = min(len(priority), self.capacity)
        latest = np.arange(len(priority) - count, len(priority))
        batch, self._form = batch.take(latest), batch.take(latest[:0])
        place = (self._next + np.arange(count)) % self.capacity
        for name, array, begins in _parts(batch):
            if begins is None:
                if name not in self._tables:
                    self._tables[name] = np.zeros((self.capacity, *array.shape[1:]), array.dtype)
                self._tables[name][place] = array
                continue
            kept = self._lists.setdefault(name, [array[:0]] * self.capacity)
            for k, at in enumerate(place.tolist()):
                kept[at] = array[begins[k] : begins[k + 1]].copy()
        self.paid[place] = paid[latest]
        put(self._tree, place, np.ascontiguousarray(priority[latest]))
        self._next = (self._next + count) % self.capacity
        self._count = min(self._count + count, self.capacity)

    def take(self, place: Ints) -> Played:
        """The states at these places."""
        assert self._form is not None
        like = self._form.decisions
        lists = {name: [kept[at] for at in place.tolist()] for name, kept in self._lists.items()}
        found = {name: table[place] for name, table in self._tables.items()}
        found |= {name: np.concatenate(parts) for name, parts in lists.items()}
        begins = options = None
        if like.begins is not None:
            begins = begins_of(np.array([len(part) for part in lists["action"]]))
        if like.allowed.begins is not None:
            options = begins_of(found["options"])
        columns = {name: found[name] for name in like.columns}
        decisions = Decisions(Allowed(found["flags"], options), columns, begins)
        form = self._form
        judged = None if form.judged is None else _named("judged.", form.judged, found)
        return Played(_named("seen.", form.seen, found), judged, decisions)

    def draw(self, chance: Floats) -> Ints:
        """The places of n drawn rows, one from each of n equal parts of the sum of priorities.

        chance  (n,) uniform in [0, 1)
        """
        place = np.zeros(chance.size, np.int64)
        draw(self._tree, (np.arange(chance.size) + chance) / chance.size, place)
        return place

    def judge(self, place: Ints, priority: Floats) -> None:
        """Set the priorities of these rows."""
        put(self._tree, place, priority)


def _named(prefix: str, form: States, found: dict[str, NDArray[Any]]) -> States:
    return States({name: found[f"{prefix}{name}"] for name in form.arrays}, form.lists)


def _parts(batch: Played) -> Iterator[tuple[str, NDArray[Any], Ints | None]]:
    """All arrays by name, and where each state's list begins in them; None: they are tables."""
    for prefix, states in (("seen.", batch.seen), ("judged.", batch.judged)):
        if states is not None:
            candidates = begins_of(states[MANY]) if states.lists else None
            for name, array in states.arrays.items():
                yield f"{prefix}{name}", array, candidates if name in states.lists else None
    decisions = batch.decisions
    for name, array in decisions.columns.items():
        yield name, array, decisions.begins
    begins, options = decisions.begins, decisions.allowed
    if options.begins is None:
        yield "flags", options.flags, begins
        return
    yield "options", np.diff(options.begins), begins
    yield "flags", options.flags, options.begins if begins is None else options.begins[begins]
