"""What a daemon has written down, from which jobs are explained; asks no cluster, no daemon."""

from __future__ import annotations

from math import isfinite
from time import localtime, strftime
from typing import TYPE_CHECKING, Final

from rota.backends.explanation import Expected, Step, Why
from rota.backends.local.daemon_lock import daemon_of
from rota.backends.waits_file import WaitsFile
from rota.errors import RotaError
from rota.run.expected_start import expected_start
from rota.run.job_story import story_of, usual_length_s
from rota.run.last_round import read_last_round
from rota.run.reader import read_journal
from rota.run.wait_reason import MOST_NAMED, WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rota.core.plan import Share
    from rota.core.seams import Policy
    from rota.run.job_story import JobStory
    from rota.run.last_round import Deciders

JOURNAL: Final = "journal.db"
PENDING: Final = WaitReason(
    "pending", "no round has been about it yet", "It is considered in the next round."
)
_PLAYED: Final = ("full", "passed", "leaving", "undecided", "preempted", "pending")
"""Tiers of jobs that a policy would start sooner or later."""


class WrittenDown:
    """The reasons, the last round and the journal of one state directory."""

    def __init__(
        self,
        root: Path,
        make: Callable[[Deciders], tuple[Policy, Policy | None]],
        origin_s: float,
        call: Callable[[int], str] = str,
    ) -> None:
        """`make` gives the policy that decides, and its fallback; `call` the names of jobs.

        `origin_s` is the Unix time from which the backend counts seconds.
        """
        self.root, self._make, self._origin_s, self._call = root, make, origin_s, call
        self.daemon = daemon_of(root) is not None
        waits = WaitsFile(root)
        self.reasons, self.left = waits.read(), waits.left()
        self.last = read_last_round(root)
        self.notes: list[str] = []
        """What could not be read, in sentences."""

    @property
    def as_of(self) -> float | None:
        """Unix time of the last round that was kept."""
        return None if self.last is None else self.last.at

    def story(self, uid: int) -> JobStory | None:
        """What the journal tells; a note if it cannot be read."""
        try:
            with read_journal(self.root / JOURNAL) as view:
                return story_of(view, uid)
        except RotaError as error:
            self.notes.append(f"what happened to it is not known: {error}")
            return None

    def steps(self, story: JobStory | None, nodes: Sequence[str]) -> tuple[Step, ...]:
        """What happened, by Unix time and by names."""
        return tuple(
            Step(
                self._origin_s + one.time_s, one.what, places(one.share, nodes), one.by,
                one.why, tuple(map(self._call, one.gainers)),
            )
            for one in (story.happened if story else ())
        )  # fmt: skip

    def why(self, reason: WaitReason) -> Why:
        """A reason with names in place of numbers."""
        holders = tuple((self._call(uid), amount) for uid, amount in reason.holders)
        return Why(reason.tier, reason.text, reason.next, holders, reason.unit)

    def expected(self, uid: int, tier: str, *also: str) -> Expected | None:
        """When a job that waits will start; None if that is not a matter of policies.

        `also` says what else has to be assumed.
        """
        if tier not in _PLAYED:
            return None
        last = self.last
        if last is None:
            return Expected(None, why_not=f"there is no last round in {self.root}")
        if uid not in last.snapshot.jobs.uid:
            return Expected(None, why_not="it was not there yet in the last round that was kept")
        try:
            policy, fallback = self._make(last.deciders)
        except (RotaError, ImportError) as error:
            return Expected(None, why_not=f"its policy cannot be made here: {error}")
        found = expected_start(last, uid, policy, fallback, self._usual_s())
        start = found.start_s

        def unix(time_s: float) -> float:
            return last.at + (time_s - last.snapshot.time_s)

        return Expected(
            None if start is None else unix(start), unix(found.until_s),
            len(found.before) + 1 if start is not None else None, found.waiting,
            tuple(map(self._call, found.before)), last.by or last.deciders.policy, found.why_not,
            (*found.assumed, *also),
        )  # fmt: skip

    def _usual_s(self) -> float:
        try:
            with read_journal(self.root / JOURNAL) as view:
                return usual_length_s(view)
        except RotaError:
            return float("nan")


def places(share: Share, nodes: Sequence[str]) -> tuple[str, ...]:
    """Where a share is: `node:workers`."""
    return tuple(
        f"{nodes[node] if node < len(nodes) else node}:{workers}" for node, workers, _ in share
    )


def clock(at: float) -> str:
    """A Unix time as `rota queue` writes it."""
    return strftime("%a %H:%M:%S", localtime(at))


def on(places: Sequence[str]) -> str:
    """Where a job is, in a sentence."""
    more = len(places) - MOST_NAMED
    return ", ".join(places[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def finite(value: float | None) -> float | None:
    """The number, None if it is not one."""
    return value if value is not None and isfinite(value) else None


def told_of(steps: Sequence[Step]) -> str:
    """The last time that a job was stopped, moved or resized, in a sentence; "" if it never was."""
    for step in reversed(steps):
        if step.what in ("stopped", "moved", "resized"):
            names = ", ".join(step.gainers)
            by = f" by {step.by}" if step.by else ", not by a policy" * (step.what == "stopped")
            gain = f", for job{'s' * (len(step.gainers) > 1)} {names}" if names else ""
            why = f": {step.why}" if step.why else ""
            return f"{step.what} at {clock(step.at)}{by}{gain}{why}"
    return ""


def runs_now(steps: Sequence[Step]) -> str:
    """Where a job that holds nodes runs, since when, by which policy, and what was before."""
    last, before = steps[-1], told_of(steps)
    by = f" by {last.by}" if last.by else ""
    text = f"{last.what} at {clock(last.at)}{by} on {on(last.on)} (node:workers)"
    if before and last.what == "started":
        return f"{text}; before that it was {before}"
    return f"{text}, for {', '.join(last.gainers)}" if last.gainers else text
