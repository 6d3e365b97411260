"""The policies that know about speed, contention or price: one class each, named here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rota.policies.settings import Setting, number

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Aware:
    """A policy with a class of its own.

    The class is made with `name`, `oracle` and the settings as keywords, and keeps the first two
    as attributes: an oracle is shown the truth where a scenario hides it.
    """

    summary: str
    source: str
    make: str
    """`module:Class`; imported when the policy is asked for."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """By the name of the keyword that it becomes."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Keywords that are always given."""


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


_GREEDY: Final = {
    "threshold": Setting("least gain per GPU, neighbours' losses counted; 1: alone at full speed",
                         lambda t: number(t, -100.0), "a number"),
    "min_ratio": Setting("no job may be slowed down below this part of its speed",
                         lambda t: number(t, 0.0), "a number, 0 or more"),
    "size": Setting("scores are divided by GPUs to this power", lambda t: number(t, -10.0),
                    "a number"),
    "fraction": Setting("count speed by the part of a job that it does", _flag, "0 or 1"),
}  # fmt: skip

AWARE: Final[dict[str, Aware]] = {
    "contention-greedy": Aware(
        "Where it gains most per GPU, the losses of its neighbours counted; the whole queue.",
        "rota", "rota.policies.contention:ContentionGreedy", _GREEDY),
    "contention-rollout": Aware(
        "The greedy rule's best placements or waiting, each played out on the known jobs.",
        "rota; rollouts: Bertsekas, 1997", "rota.policies.rollout:ContentionRollout",
        {**_GREEDY,
         "k": Setting("placements tried beside waiting", lambda t: int(number(t, 1)),
                      "a whole number, 1 or more"),
         "window": Setting("waiting jobs that are looked at, as many of each type",
                           lambda t: int(number(t, 1)), "a whole number, 1 or more")}),
}  # fmt: skip
