"""`hull-greedy`: every job climbs the concave hull of its speed over cost.

At each decision the cluster is shared out anew, in steps from one corner of a job's hull to
the next. The step with the largest weight comes first; by default its gain, as a part of the
job's full speed and per unit of cost, divided by a small power of the time that the job would
still need at full speed. So short jobs come first, but not at any price.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.policies.elastic.climb import Known, climb, small_changes, survey
from rota.policies.elastic.filling import fill
from rota.policies.elastic.sizes import better
from rota.policies.settings import PolicyEntry, Setting, number, one_of

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats
    from rota.policies.elastic.climb import Fits, Survey
    from rota.policies.elastic.sizes import Point, Sizes


@dataclass(frozen=True)
class HullGreedy:
    """Steps along concave hulls, the most worthwhile first."""

    name: str = "hull-greedy"
    oracle: bool = False
    """Whether it is shown the truth where a scenario hides it."""
    a: float = 0.25
    """How much shortness counts: 0 not at all, 1 as much as gain. For the weight `hull`."""
    weight: str = "hull"
    """What a gain in speed is divided by: `hull` full speed × (time left at it)^a, `total` the
    whole work, `remaining` the work left; or `time`, the remaining time that it saves."""
    keep: float = 0.0
    """Running jobs whose size would change by this number of units or less keep their size."""
    known: Known = field(default_factory=Known, repr=False, compare=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        view = survey(snapshot, self.known)
        value = self._value(view)

        def step(
            job: int, sizes: Sizes, at: Point, fits: Fits | None
        ) -> tuple[tuple[float, ...], Point] | None:
            to = next_corner(sizes, at, fits)
            return None if to is None else (self._key(value[job], at, to), to)

        given = climb(view, step)
        if self.keep:
            given = climb(view, step, small_changes(view, given, self.keep))
        return fill(view, given)

    def _value(self, view: Survey) -> list[float]:
        """What one unit of speed is worth to each job; for `time`, its remaining work (J,)."""
        work = known_or_typical(view.total if self.weight == "total" else view.work)
        if self.weight == "time":
            return work.tolist()  # type: ignore[no-any-return]
        if self.weight in ("total", "remaining"):
            return (1 / work).tolist()  # type: ignore[no-any-return]
        full = np.array([view.fastest(job) or 1.0 for job in range(len(work))])
        left_s = known_or_typical(view.work / full)
        return (1 / full / left_s**self.a).tolist()  # type: ignore[no-any-return]

    def _key(self, value: float, at: Point, to: Point) -> tuple[float, ...]:
        more = max(to.share - at.share, 1e-12)
        if self.weight != "time":
            return (-value * (to.speed - at.speed) / more,)
        if not at.speed:  # waiting saves no time: the shortest first, before all others
            return (0.0, value / to.speed)
        return (1.0, -value * (1 / at.speed - 1 / to.speed) / more)


def next_corner(sizes: Sizes, at: Point, fits: Fits | None) -> Point | None:
    """The next corner of the hull; or else the fastest size that fits and is faster."""
    # A job that needs nothing costs nothing: its corners are no dearer than not to run at all.
    corner = next((p for p in sizes.hull if p.share >= at.share and p.speed > at.speed), None)
    if fits is None or (corner is not None and fits(corner)):
        return corner
    return better(sizes, at, fits)


def known_or_typical(amount: Floats) -> Floats:
    """What is not known is taken to be the geometric mean of what is; 1 if nothing is (J,)."""
    floor = np.where(np.isfinite(amount), np.maximum(amount, 1e-9), np.nan)
    known = floor[np.isfinite(floor)]
    typical = float(np.exp(np.log(known).mean())) if len(known) else 1.0
    return np.where(np.isfinite(floor), floor, typical)


POLICIES: Final = {
    "hull-greedy": PolicyEntry(
        "Every job climbs the concave hull of its speed; best gain first, short jobs favoured.",
        "marginal-gain greedy; weight (gain / full speed) / (time left)^a",
        HullGreedy,
        {
            "a": Setting("how much shortness counts", lambda t: number(t, 0.0),
                         "a number, 0 or more"),
            "weight": Setting("what a gain in speed is weighed by",
                              one_of("hull", "total", "remaining", "time"),
                              "hull, total, remaining or time"),
            "keep": Setting("leave jobs alone whose size would change by this many units or less",
                            lambda t: number(t, 0.0), "a number, 0 or more"),
        },
    ),
}  # fmt: skip
