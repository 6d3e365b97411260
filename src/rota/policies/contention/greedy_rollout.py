"""Looking ahead before placing: the policy `contention-rollout`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rota.policies.contention.greedy import SETTINGS, ContentionGreedy
from rota.policies.contention.neighbour_kernels import GreedySettings
from rota.policies.contention.rollout_kernels import rollout_round
from rota.policies.settings import PolicyEntry, Setting, number

if TYPE_CHECKING:
    from rota.policies.contention.neighbours import KernelArrays, PlacementModel

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

    def _play(self, arrays: KernelArrays, model: PlacementModel) -> None:
        options = arrays.options
        near = options._replace(end=options.end.copy())
        jobs = min(self.window, WORK // len(model.cluster))
        quota = max(1, -(-jobs // max(1, len(options.end))))
        settings = GreedySettings(self.threshold, self.min_ratio, self.size)
        rollout_round(
            model.law, options, near, arrays.room, arrays.trial(), arrays.scratch, settings,
            arrays.found(self.k), arrays.found(1), quota,
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
