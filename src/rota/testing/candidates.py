"""Every policy that ships, by a name that is drawn: base, settings, placement, sizing, view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.policies.catalogue import speed_aware
from rota.policies.classic.orderings import ORDERINGS
from rota.policies.classic.placing import PLACEMENTS
from rota.policies.own import parse_own
from rota.testing.drawing import FEW_ROUNDS

if TYPE_CHECKING:
    from rota.testing.drawing import Dice
    from rota.testing.worlds import WorldSpec

LEASES_S: Final = {"las": 900.0, "max-min": 900.0, "themis": 900.0, "gavel-max-min": 360.0,
                   "gavel-min-jct": 360.0, "pollux": 60.0}  # fmt: skip
"""Policies that decide again after this time by default, by a setting `quantum` or `lease`."""
EVALS: Final = 60
"""Moves of Pollux's search here, very few: it must keep the rules whatever it finds."""
_SETTINGS: Final = {
    "b": ("-1", "0.5", "1", "2"),
    "limits": ("60/600", "1/2/3", "1000"),
    "depth": ("1", "3"),
    "classes": ("2", "5"),
    "error": ("0.3", "3"),
    "a": ("0", "0.5", "2"),
    "weight": ("hull", "total", "remaining", "time"),
    "keep": ("0", "1", "3"),
    "best": ("0", "1"),
    "lookahead": ("0", "1"),
    "p": ("-5", "0", "1"),
    "seed": ("0", "7"),
    "k": ("1", "3"),
    "window": ("1", "4"),
    "threshold": ("0", "0.5"),
    "min_ratio": ("0", "0.5"),
    "size": ("0", "1"),
    "fraction": ("0", "1"),
}


def base_names() -> list[str]:
    """What a name can begin with."""
    return [*ORDERINGS, *speed_aware()]


def base_of(policy: str) -> str:
    """A policy's name without settings, placement and view."""
    if own := parse_own(policy):
        return f"{own.where}:{own.what}"
    return policy.partition("@")[0].partition("+")[0].partition(":")[0]


def draw_policies(dice: Dice, spec: WorldSpec, count: int) -> list[str]:
    """`count` different policies to try in this world."""
    left, names = base_names(), []
    for _ in range(min(count, len(left))):
        base = dice.of(left)
        left.remove(base)
        names.append(with_settings(dice, base, spec))
    return names


def with_settings(dice: Dice, base: str, spec: WorldSpec) -> str:
    """A policy with some of what its name may say beside its base."""
    takes = ORDERINGS[base].settings if base in ORDERINGS else tuple(speed_aware()[base].settings)
    chosen: dict[str, str] = {}
    for key in takes:
        if key in _SETTINGS and dice.chance(0.3):
            chosen[key] = dice.of(_SETTINGS[key])
    if base == "pollux":
        chosen["evals"] = str(EVALS)
    if base in LEASES_S and spec.span_s / LEASES_S[base] > FEW_ROUNDS:
        key = "lease" if "lease" in takes else "quantum"
        # Without an exponent: its + would begin a placement.
        chosen[key] = np.format_float_positional(spec.span_s / FEW_ROUNDS, 6, fractional=False)
    name = base + (":" if chosen else "") + ",".join(f"{k}={v}" for k, v in chosen.items())
    if base in ORDERINGS:
        if dice.chance(0.5):
            name += "+" + dice.of(list(PLACEMENTS))
        if dice.chance(0.25):
            name += "+elastic"
    return name + ("@oracle" if dice.chance(0.1) else "")
