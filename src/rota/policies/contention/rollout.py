"""Looking ahead before placing: the policy `contention-rollout`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rota.policies.contention.greedy import SETTINGS, ContentionGreedy
from rota.policies.contention.greedy_kernels import Taste
from rota.policies.contention.rollout_kernels import rollout_round
from rota.policies.settings import PolicyEntry, Setting, number

if TYPE_CHECKING:
    from rota.policies.contention.neighbours import Board, World

WORK: Final = 2048
"""Waiting jobs × nodes that a play may have, which bounds the time of a round."""
MOST_PICKS: Final = 32
"""Placements of a round that are looked into; the greedy rule makes the others."""


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

    def _play(self, board: Board, world: World) -> None:
        menu = board.menu
        near = menu._replace(end=menu.end.copy())
        jobs = min(self.window, WORK // len(world.cluster))
        quota = max(1, -(-jobs // max(1, len(menu.end))))
        taste = Taste(self.threshold, self.min_ratio, self.size)
        rollout_round(
            world.law, menu, near, board.room, board.trial(), board.desk, taste,
            board.found(self.k), board.found(1), self.k, quota, MOST_PICKS,
        )  # fmt: skip


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
