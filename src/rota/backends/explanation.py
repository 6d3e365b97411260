"""Why a job waits, or what became of it: plain data, which `rota explain` prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rota.run.wait_reason import Tier

LEVELS: Final[dict[str, int]] = {
    "never": 1, "full": 2, "unplaced": 2, "leaving": 2, "passed": 3, "undecided": 3,
    "preempted": 3, "held": 4, "outside": 4, "left": 4,
}  # fmt: skip
"""1: there is no such capacity; 2: it is not free now; 3: a policy decided so; 4: somebody else."""


@dataclass(frozen=True)
class Why:
    """One reason for which a job waits."""

    tier: Tier | str
    """One of `WaitReason`'s, or `left`: another scheduler starts it."""
    text: str
    next: str = ""
    holders: tuple[tuple[str, float], ...] = ()
    """Jobs by name, and how much each holds of what is short."""
    unit: str = ""

    @property
    def level(self) -> int:
        """The tier as a number from 1 to 4; 0 for what passes by itself within seconds."""
        return LEVELS.get(self.tier, 0)


@dataclass(frozen=True)
class Expected:
    """When a job starts if everything goes on as it is."""

    start_at: float | None
    """Unix time; None: not known."""
    played_until: float | None = None
    """Unix time up to which was simulated."""
    position: int | None = None
    """Its place among the jobs that wait, by expected start, from 1."""
    waiting: int = 0
    before: tuple[str, ...] = ()
    """Jobs that start before it."""
    policy: str = ""
    why_not: str = ""
    """Why it is not known."""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """Something that happened to a job."""

    at: float
    """Unix time."""
    what: str
    on: tuple[str, ...] = ()
    """`node:workers` for all that it held from then on."""
    by: str = ""
    why: str = ""
    gainers: tuple[str, ...] = ()
    """Jobs that got nodes which it left."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All that is known of one job."""

    job: str
    uid: int | None
    state: str
    """waiting, starting, running, over, or left (to another scheduler)."""
    text: str
    """The answer in one sentence."""
    asks: str = ""
    reasons: tuple[Why, ...] = ()
    """The most telling one first; none unless it waits."""
    expected: Expected | None = None
    steps: tuple[Step, ...] = ()
    said: str = ""
    """What the cluster answered to the last order for this job, if it refused it."""
    waited_s: float | None = None
    """Until its first start."""
    ran_s: float | None = None
    """Runs that have come to an end."""
    as_of: float | None = None
    """Unix time of the round from which the reasons are."""
    daemon: bool = False
    """Whether a daemon runs now."""
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The same as JSON has it."""
        facts = asdict(self)
        for told, why in zip(facts["reasons"], self.reasons, strict=True):
            told["level"] = why.level
            told["holders"] = [{"job": job, "holds": amount} for job, amount in why.holders]
        return facts
