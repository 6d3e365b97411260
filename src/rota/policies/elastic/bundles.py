"""Simple baselines for jobs with parameter servers, which use little of what is known of speed.

`drf-bundles` and `srtf-bundles` grow jobs in bundles of one worker and one server, as DL2's
baselines do, without their defects: what does not fit is passed over, tasks of a bundle may
lie on different nodes, remaining time is time. `equal-units` shares the cluster out evenly
and lets every job make the best of its part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rota.policies.elastic.climb import Known, climb, survey
from rota.policies.elastic.filling import fill
from rota.policies.elastic.hull import known_or_typical
from rota.policies.settings import PolicyEntry, Setting, flag

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.policies.elastic.climb import Fits, Survey
    from rota.policies.elastic.sizes import Point, Sizes


@dataclass(frozen=True)
class Bundles:
    """One of the three."""

    rule: str
    name: str = "bundles"
    oracle: bool = False
    """Whether it is shown the truth where a scenario hides it."""
    best: bool = True
    """Whether a job stops at its fastest number of bundles, or takes all that it may have."""
    known: Known = field(default_factory=Known, repr=False, compare=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        view = survey(snapshot, self.known)
        time_left = self._time_left(view)

        def step(
            job: int, sizes: Sizes, at: Point, fits: Fits | None
        ) -> tuple[tuple[float, ...], Point] | None:
            after = [point for point in self._ladder(sizes) if point.workers > at.workers]
            if self.rule == "equal":
                after = [point for point in sizes.frontier if point.speed > at.speed]
            if self.rule == "srtf":
                after.reverse()  # all at once; fewer only where they do not fit
            to = next((p for p in after if fits is None or fits(p)), None)
            if to is None:
                return None
            return ((time_left[job],) if self.rule == "srtf" else (at.share,)), to

        return fill(view, climb(view, step))

    def _ladder(self, sizes: Sizes) -> list[Point]:
        """The bundles that a job may have, fewest first."""
        found = sizes.bundles
        if self.best and found:
            most = max(found, key=lambda point: point.speed)
            return found[: found.index(most) + 1]
        return found

    def _time_left(self, view: Survey) -> list[float]:
        """Remaining time with as many bundles as the job may have (J,)."""
        if self.rule != "srtf":
            return []
        work = known_or_typical(view.work).tolist()
        ladders = [self._ladder(sizes[0]) for sizes in view.sizes]
        return [
            left / (ladder[-1].speed if ladder else 1.0)
            for left, ladder in zip(work, ladders, strict=True)
        ]


_BEST: Final = {
    "best": Setting("whether a job stops at its fastest number of bundles", flag, "0 or 1"),
}
POLICIES: Final = {
    "drf-bundles": PolicyEntry(
        "Bundles of a worker and a server by dominant share; passes over what does not fit.",
        "DRF, NSDI 2011, in DL2's bundles", Bundles, _BEST, {"rule": "drf"}),
    "srtf-bundles": PolicyEntry(
        "Shortest remaining time first, in bundles of a worker and a server.",
        "textbook, in DL2's bundles", Bundles, _BEST, {"rule": "srtf"}),
    "equal-units": PolicyEntry(
        "Equal shares of the cluster, each used at its best number of servers and workers.",
        "textbook", Bundles, preset={"rule": "equal"}),
}  # fmt: skip
