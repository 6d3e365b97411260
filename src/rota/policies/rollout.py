"""Looking ahead before placing: the policy `contention-rollout`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.policies.contention import ContentionGreedy
from rota.policies.contention_kernels import Taste
from rota.policies.rollout_kernels import rollout_round

if TYPE_CHECKING:
    from rota.policies.contention_board import Board, World


@dataclass
class ContentionRollout(ContentionGreedy):
    """Try the greedy rule's best placements, and waiting, to the end of all known jobs.

    For each, the greedy rule plays on from there, without further arrivals, until all are done;
    the one with the least total completion time is taken, until that is to wait. The settings of
    the greedy rule are those of the play; a job of unknown length counts as an average one.
    """

    name: str = "contention-rollout"
    threshold: float = 0.2
    window: int = 256
    k: int = 8
    """Placements tried beside waiting."""

    def _play(self, board: Board, world: World) -> None:
        taste = Taste(self.threshold, self.min_ratio, self.size)
        rollout_round(
            world.law, board.menu, board.room, board.trial(), board.desk, taste,
            board.found(self.k), board.found(1), self.k,
        )  # fmt: skip
