"""The policies that know about speed, contention or price: one class each, named here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from rota.policies.settings import Setting, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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


def one_of(*words: str) -> Callable[[str], str]:
    """Reads one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return read


def flag(text: str) -> bool:
    """Reads 0 or 1."""
    return bool(("0", "1").index(text))


_LEASE: Final = {
    "lease": Setting("seconds of a round", lambda t: number(t, 1.0), "seconds, 1 or more")
}
_AT_LEAST_0 = "a number, 0 or more"
_HULL: Final = {
    "a": Setting("how much shortness counts", lambda t: number(t, 0.0), _AT_LEAST_0),
    "weight": Setting("what a gain in speed is weighed by",
                      one_of("hull", "total", "remaining", "time"),
                      "hull, total, remaining or time"),
    "keep": Setting("leave jobs alone whose size would change by so many units or less",
                    lambda t: number(t, 0.0), _AT_LEAST_0),
}  # fmt: skip
_BUNDLES: Final = {
    "best": Setting("whether a job stops at its fastest number of bundles", flag, "0 or 1"),
}


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
    "hull-greedy": Aware(
        "Every job climbs the concave hull of its speed; best gain first, short jobs favoured.",
        "marginal-gain greedy; weight (gain / full speed) / (time left)^a",
        "rota.policies.elastic.hull:HullGreedy", _HULL),
    "optimus": Aware(
        "A worker or server more where it saves most remaining time for its cost.",
        "Optimus, EuroSys 2018", "rota.policies.elastic.optimus:Optimus",
        {"lookahead": Setting("whether several tasks may be added at once", flag, "0 or 1")}),
    "drf-bundles": Aware(
        "Bundles of a worker and a server by dominant share; passes over what does not fit.",
        "DRF, NSDI 2011, in DL2's bundles", "rota.policies.elastic.bundles:Bundles", _BUNDLES,
        {"rule": "drf"}),
    "srtf-bundles": Aware(
        "Shortest remaining time first, in bundles of a worker and a server.",
        "textbook, in DL2's bundles", "rota.policies.elastic.bundles:Bundles", _BUNDLES,
        {"rule": "srtf"}),
    "equal-units": Aware(
        "Equal shares of the cluster, each used at its best number of servers and workers.",
        "textbook", "rota.policies.elastic.bundles:Bundles", preset={"rule": "equal"}),
    **{
        f"dl2-{rule}": Aware(
            f"{rule.upper() if rule in ('drf', 'fifo', 'srtf') else rule.title()} as the baselines "
            "of DL2 have it: least used node only, stops at the first failure.",
            "DL2, TPDS 2021, public code", "rota.policies.published.dl2_published:Published",
            preset={"rule": rule})
        for rule in ("drf", "fifo", "srtf", "tetris", "optimus")
    },
    "gavel-max-min": Aware(
        "Max-min fair throughput over GPU types, by linear programs; rounds of leases.",
        "Gavel, OSDI 2020",
        "rota.policies.gpu_types.gavel:Gavel",
        _LEASE,
        {"fair": True},
    ),
    "gavel-min-jct": Aware(
        "Most remaining work completed per second over GPU types; rounds of leases.",
        "after Gavel, OSDI 2020",
        "rota.policies.gpu_types.gavel:Gavel",
        _LEASE,
        {"fair": False},
    ),
    "pollux": Aware(
        "Elastic: the best power mean of speedups that a search of `evals` moves finds.",
        "after Pollux, OSDI 2021",
        "rota.policies.gpu_types.pollux:Pollux",
        {
            **_LEASE,
            "evals": Setting(
                "moves tried per decision", lambda t: int(number(t, 0)), "a whole number, 0 or more"
            ),
            "p": Setting(
                "power of the mean of speedups; 1 is the sum",
                lambda t: number(t, -20.0),
                "a number, −20 or more",
            ),
            "seed": Setting(
                "seeds the search", lambda t: int(number(t, 0)), "a whole number, 0 or more"
            ),
        },
    ),
    "contention-greedy": Aware(
        "Where it gains most per GPU, the losses of its neighbours counted; the whole queue.",
        "rota", "rota.policies.contention.greedy:ContentionGreedy", _GREEDY),
    "contention-rollout": Aware(
        "The greedy rule's best placements or waiting, each played out on the known jobs.",
        "rota; rollouts: Bertsekas, 1997",
        "rota.policies.contention.greedy_rollout:ContentionRollout",
        {**_GREEDY,
         "k": Setting("placements tried beside waiting", lambda t: int(number(t, 1)),
                      "a whole number, 1 or more"),
         "window": Setting("waiting jobs that are looked at, as many of each type",
                           lambda t: int(number(t, 1)), "a whole number, 1 or more")}),
}  # fmt: skip
