"""What a training tells: its progress, and how its best network compares with other policies."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.run.stats import paired

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.core.types import Floats
    from rota.learn.copy_score import CopyScore


@dataclass(frozen=True, kw_only=True)
class Report:
    """The state of a training; JCTs are means over the validation traces, in `unit`."""

    phase: str
    """"copy" and "rivals" while these are measured; "clone", "rl" or "over"."""
    update: int = 0
    updates: int = 0
    unit: str = ""
    """The unit of JCTs, such as "hours"."""
    rate: float = 0.0
    """Decisions per second, playing and learning together."""
    validation: float | None = None
    """The latest validation: the network's JCT when it always takes its likeliest actions."""
    best: float | None = None
    """The lowest validation so far."""
    teacher: float | None = None
    """The teacher's JCT."""
    strongest: tuple[str, float] | None = None
    """The rival with the lowest JCT, and that JCT."""
    copy: CopyScore | None = None
    """A perfect copy of the teacher, once it is measured."""
    facts: dict[str, float] | None = None


@dataclass(frozen=True)
class Rival:
    """A policy, and the network's difference to it over the same traces."""

    policy: str
    jct: float
    change: float | None
    """Of the network's mean JCT against the policy's; −0.1: the network's is 10 % lower."""
    ci95: tuple[float, float] | None
    """The 95 % interval of the change, over traces; None if there is only one."""

    def words(self) -> str:
        """The change and its interval."""
        if self.change is None:
            return "-"
        ends = "" if self.ci95 is None else f" [{self.ci95[0]:+.1%}, {self.ci95[1]:+.1%}]"
        return f"{self.change:+.1%}{ends}"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The best network of a training and its rivals on the same validation traces."""

    scenario: str
    traces: str
    """Which traces, such as "50 validation traces (seeds 1000 to 1049)"."""
    unit: str
    jct: float
    """The network's mean JCT, in that unit."""
    teacher: str
    """The policy or journal that was copied; empty: none."""
    rivals: tuple[Rival, ...]

    @property
    def strongest(self) -> Rival | None:
        """The rival with the lowest mean JCT, the first of equals."""
        return min(self.rivals, key=lambda rival: rival.jct, default=None)

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON."""
        strongest = self.strongest
        return {**asdict(self), "strongest": None if strongest is None else strongest.policy}


def compared(own_s: Floats, rivals_s: Mapping[str, Floats], unit_s: float) -> tuple[Rival, ...]:
    """The network against each rival, by mean JCTs in seconds trace by trace."""
    found = []
    for name, jct_s in rivals_s.items():
        both = paired(own_s, jct_s, np.random.default_rng(0))
        found.append(Rival(name, float(jct_s.mean()) / unit_s, both.ratio, both.ratio_ci))
    return tuple(found)
