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


_LEASE: Final = {
    "lease": Setting("seconds of a round", lambda t: number(t, 1.0), "seconds, 1 or more")
}
AWARE: Final[dict[str, Aware]] = {
    "gavel-max-min": Aware(
        "Max-min fair throughput over GPU types, by linear programs; rounds of leases.",
        "Gavel, OSDI 2020",
        "rota.policies.gavel:Gavel",
        _LEASE,
        {"fair": True},
    ),
    "gavel-min-jct": Aware(
        "Most remaining work completed per second over GPU types; rounds of leases.",
        "after Gavel, OSDI 2020",
        "rota.policies.gavel:Gavel",
        _LEASE,
        {"fair": False},
    ),
    "pollux": Aware(
        "Elastic: the best power mean of speedups that a search of `evals` moves finds.",
        "after Pollux, OSDI 2021",
        "rota.policies.pollux:Pollux",
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
}
