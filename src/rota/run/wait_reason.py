"""A reason why a job waits, as data: a scheduler writes it, `rota queue` shows it.

Without numpy, so that a command which only shows it starts fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Tier = Literal[
    "never",
    "full",
    "passed",
    "undecided",
    "preempted",
    "held",
    "leaving",
    "pending",
    "no-daemon",
    "unplaced",
    "outside",
]
"""What kind of reason it is.

never      it asks for more than the cluster has
full       it does not fit now, because of what other jobs hold
passed     it fits, but the policy did not start it
undecided  no policy has decided in the last round
preempted  it ran, and was stopped for other jobs
held       its user has put it on hold
leaving    it has its place, but processes of an earlier run are not gone yet
pending    it was submitted after the last round
no-daemon  no scheduler runs
unplaced   a policy gave it room, but none on the nodes that it may use
outside    it waits for something that is not rota's to give, or another scheduler starts it
"""
MOST_NAMED: Final = 4
"""Jobs that a sentence names; the others are counted."""


@dataclass(frozen=True)
class WaitReason:
    """Why a job waits, for its user."""

    tier: Tier
    text: str
    """One line that stands alone."""
    next: str = ""
    """What will happen, or what its user can do."""
    holders: tuple[tuple[int, float], ...] = ()
    """Jobs that hold what it needs, and how much each; the largest first."""
    unit: str = ""
    """What the amounts of `holders` count."""
    ahead: int | None = None
    """A job that the policy puts before it, if that is known."""


def name_jobs(uids: Iterable[int]) -> str:
    """Jobs in a sentence: `job 3`, `jobs 3 and 5`, `jobs 1, 2, 3, 4 and 7 more`."""
    names = [str(uid) for uid in uids]
    if len(names) == 1:
        return f"job {names[0]}"
    if len(names) > MOST_NAMED:
        return f"jobs {', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return f"jobs {', '.join(names[:-1])} and {names[-1]}"
