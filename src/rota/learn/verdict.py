"""Whether weights that were learned on a journal may take the place of those that run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.run.stats import paired

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.learn.checkpoint import Checkpoint

TOLERANCE: Final = 0.01
"""The upper end of the 95 % interval of the change may be this: a mean JCT 1 % longer."""
SHORT: Final = 12
"""Digits of a digest that people and journals are told."""


@dataclass(frozen=True)
class Comparison:
    """New weights against those that run, on the same held-out stretches."""

    stretches: int
    """Those in which all jobs ended under the running weights."""
    unfinished: int
    """Of these, those in which not all jobs ended under the new weights."""
    change: float
    """mean JCT of the new weights / that of the running − 1."""
    ci95: tuple[float, float]
    """The 95 % interval of the change, over stretches."""

    @property
    def not_worse(self) -> bool:
        """The rule: all jobs end, the mean is no higher, and more than 1 % higher is unlikely."""
        ends = self.stretches > 0 and not self.unfinished
        return ends and self.change <= 0.0 and self.ci95[1] <= TOLERANCE

    def words(self) -> str:
        """The numbers, and what follows from them."""
        if not self.stretches:
            return "not comparable: in no held-out stretch did all jobs end under running weights"
        if self.unfinished:
            return f"worse: in {self.unfinished} held-out stretches some jobs did not end"
        low, high = self.ci95
        numbers = (
            f"mean JCT {self.change:+.1%} [{low:+.1%}, {high:+.1%}] on {self.stretches} held-out "
            "stretches"
        )
        if self.not_worse:
            return f"not worse: {numbers}"
        if self.change > 0:
            return f"worse: {numbers}"
        return f"not certain enough: {numbers}, and the upper end may be {TOLERANCE:+.0%} at most"


def compare(new_s: Floats, running_s: Floats) -> Comparison:
    """Compare mean JCTs stretch by stretch, infinite where a job did not end.

    Stretches that the running weights leave unfinished say nothing and are left out.
    """
    known = np.isfinite(running_s)
    new_s, running_s = new_s[known], running_s[known]
    unfinished = int((~np.isfinite(new_s)).sum())
    if unfinished or not len(new_s):
        return Comparison(len(new_s), unfinished, np.inf, (np.inf, np.inf))
    found = paired(new_s, running_s, np.random.default_rng(0))
    change = found.ratio or 0.0
    # Of a single stretch nothing follows for others.
    return Comparison(len(new_s), 0, change, found.ratio_ci or (-np.inf, np.inf))


def verdict_of(
    comparison: Comparison, new: Checkpoint, running: Checkpoint, journal: str
) -> dict[str, Any]:
    """What the new checkpoint says of itself."""
    return {
        "digest": new.digest,
        "parent": running.digest,
        "origin": origin_of(running),
        "not_worse": comparison.not_worse,
        "change": comparison.change,
        "ci95": list(comparison.ci95),
        "stretches": comparison.stretches,
        "journal": journal,
    }


def origin_of(found: Checkpoint) -> str:
    """The weights from which learning on journals began: its own, if it has not."""
    return str(found.about.verdict.get("origin", found.digest))


def short(digest: str) -> str:
    """A digest as people and journals are told it."""
    return digest[:SHORT]


def refusal(found: Checkpoint, running: Checkpoint) -> str:
    """Why a checkpoint may not take the place of the running one; "" if it may."""
    told, about, own = found.about.verdict, found.about, running.about
    if (about.system, about.version) != (own.system, own.version):
        return (
            f"it is for version {about.version} of {about.system}, and version {own.version} of "
            f"{own.system} runs"
        )
    if about.lens != own.lens or about.network != own.network:
        return "its network or its lens has other settings than the one that runs"
    if not told:
        return "nothing says that it was compared with the weights that run; `rota learn` does that"
    if told.get("digest") != found.digest:
        return "its weights are not those that its verdict is about; it is damaged or was changed"
    if told.get("parent") != running.digest:
        return (
            f"it was compared with the weights {short(str(told.get('parent')))}, but "
            f"{short(running.digest)} run; learn again from these"
        )
    if told.get("not_worse") is not True:
        return "it was found worse than the weights that run, or not certain to be no worse"
    return ""
