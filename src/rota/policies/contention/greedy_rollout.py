"""Looking ahead before placing: the policy `contention-rollout`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.policies.contention.greedy import SETTINGS, ContentionGreedy
from rota.policies.contention.neighbour_kernels import Occupancy
from rota.policies.contention.neighbours import found_of
from rota.policies.contention.placing_round_kernels import rollout_round
from rota.policies.settings import PolicyEntry, Setting, number

if TYPE_CHECKING:
    from rota.core.types import Ints, Records
    from rota.policies.contention.occupy_kernels import Rooms

WORK: Final = 2048
"""Waiting jobs × nodes that a play may have, which bounds the time of a round."""


@dataclass
class ContentionRollout(ContentionGreedy):
    """Try the greedy rule's best placements, and waiting, to the end of all known jobs.

    For each, the greedy rule plays on from there, without further arrivals, until all are done;
    the one with the least total completion time is taken, until that is to wait. The settings of
    the greedy rule are those of the play; a job of unknown length counts as an average one.
    """

    name: str = "contention-rollout"
    threshold: float = 0.2
    k: int = 8
    """Placements tried beside waiting."""
    window: int = 512
    """Waiting jobs in the play, as many of each type; at most 2,048 / nodes, but one of each."""

    def _play(
        self, rooms: Rooms, rows: Records, order: Ints, nodes: Records, shares: Records,
        now_s: float,
    ) -> bool:  # fmt: skip
        assert self._model is not None
        trial = Occupancy._make(np.zeros_like(column) for column in rooms.room)
        done: bool = rollout_round(
            self._model.tables, rooms, rows, order, nodes, shares, now_s, self._settings,
            found_of(rooms, 1), found_of(rooms, self.k), trial, np.zeros_like(rooms.options.end),
            min(self.window, WORK // len(nodes)),
        )  # fmt: skip
        return done


POLICIES: Final = {
    "contention-rollout": PolicyEntry(
        "The greedy rule's best placements or waiting, each played out on the known jobs.",
        "rota; rollouts: Bertsekas, 1997",
        ContentionRollout,
        {
            **SETTINGS,
            "k": Setting("placements tried beside waiting", lambda t: int(number(t, 1)),
                         "a whole number, 1 or more"),
            "window": Setting("waiting jobs that are looked at, as many of each type",
                              lambda t: int(number(t, 1)), "a whole number, 1 or more"),
        },
    ),
}  # fmt: skip
