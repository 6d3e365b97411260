"""`optimus`: more workers and servers for the job whose remaining time falls most per cost.

Every job first gets the cheapest size at which it runs, the shortest job first. Then tasks are
added where they save most remaining time for the share of the cluster that they take. As
described, Optimus adds them one at a time and so stops wherever a measured curve happens to
dip; with look-ahead it judges several tasks at once and walks across dips.
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
    from rota.policies.elastic.climb import Fits
    from rota.policies.elastic.sizes import Point, Sizes


@dataclass(frozen=True)
class Optimus:
    """Peng et al., EuroSys 2018, on the curves and remaining work that the snapshot shows."""

    name: str = "optimus"
    oracle: bool = False
    """Whether it is shown the truth where a scenario hides it."""
    lookahead: bool = True
    """Whether it may add several tasks at once, or only ever one."""
    known: Known = field(default_factory=Known, repr=False, compare=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        view = survey(snapshot, self.known)
        work = known_or_typical(view.work).tolist()

        def step(
            job: int, sizes: Sizes, at: Point, fits: Fits | None
        ) -> tuple[tuple[float, ...], Point] | None:
            if not at.workers:
                first = next((p for p in sizes.frontier[1:] if fits is None or fits(p)), None)
                return first and ((0.0, work[job] / first.speed), first)
            for saved, point in sizes.steps(at, not self.lookahead):
                if fits is None or fits(point):
                    return (1.0, -work[job] * saved), point
            return None

        return fill(view, climb(view, step))


POLICIES: Final = {
    "optimus": PolicyEntry(
        "A worker or server more where it saves most remaining time for its cost.",
        "Optimus, EuroSys 2018",
        Optimus,
        {"lookahead": Setting("whether several tasks may be added at once", flag, "0 or 1")},
    ),
}
