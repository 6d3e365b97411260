"""Explains jobs of a cluster that others run; its jobs are known by the cluster's own names."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from rota.backends.book_reader import read_book
from rota.backends.explanation import Explanation, Why
from rota.backends.written_down import (
    JOURNAL,
    PENDING,
    WrittenDown,
    clock,
    finite,
    runs_now,
    told_of,
)
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rota.backends.book_reader import BookReader
    from rota.backends.explanation import Step
    from rota.backends.job_book import KnownJob
    from rota.core.seams import Policy
    from rota.run.last_round import Deciders

UID: Final = "uid:"
"""Begins the number that rota gives a job, where the cluster has given one name twice."""
MOST_LISTED: Final = 8
MOST_NAMES: Final = 1000
"""Names among which one that is not known is looked for."""
MOST_DIGITS: Final = 18
"""Of a number that a table can hold."""
TAKEN_BACK: Final = "taken back"
"""What happened to a start that never came about."""
_SHAPED: Final = "any node with room is taken to do, whatever jobs ask of nodes"


class ClusterExplainer:
    """Reads the state directory of a daemon beside a cluster."""

    def __init__(
        self, root: Path, book: BookReader,
        make: Callable[[Deciders], tuple[Policy, Policy | None]],
    ) -> None:  # fmt: skip
        self._book = book
        self._kept = WrittenDown(root, make, book.origin_s, self._call)
        last = self._kept.last
        self._watches = last is not None and last.deciders.watches
        if self._watches:
            self._kept.notes.append(
                "rota only watches here (--shadow): the cluster's own scheduler starts jobs, and "
                "what is said of policies is what they would do"
            )

    @classmethod
    def of(
        cls, root: Path, make: Callable[[Deciders], tuple[Policy, Policy | None]]
    ) -> ClusterExplainer | None:
        """None if the journal is not that of a cluster which others run."""
        book = read_book(root / JOURNAL)
        return None if book is None else cls(root, book, make)

    def _call(self, uid: int) -> str:
        """The name by which users know a job."""
        known = self._book.job(uid)
        return f"{UID}{uid}" if known is None else known.name

    def explain(self, job: str) -> Explanation:
        """All that is known of a job."""
        job = job.encode(errors="replace").decode()  # a shell hands on bytes that are no text
        left = self._kept.left.get(job)
        known = self._known(job)
        if left is not None and (known is None or known.end):
            why = Why("left", f"it is left to its cluster's own scheduler: {left}",
                      "rota neither holds nor starts it; `squeue` says why it waits.")  # fmt: skip
            return Explanation(
                job=job, uid=None, state="left", text=why.text, reasons=(why,),
                as_of=self._kept.as_of, daemon=self._kept.daemon,
            )  # fmt: skip
        if known is None:
            raise self._unknown(job)
        return self._told(known)

    def _known(self, job: str) -> KnownJob | None:
        """The job of that name; of several, the only one that is not over."""
        if job.startswith(UID) and (number := job.removeprefix(UID)).isdecimal():
            return self._book.job(int(number)) if len(number) <= MOST_DIGITS else None
        same = self._book.called(job)
        if len(same) > 1:
            there = [one for one in same if not one.end]
            if len(there) != 1:
                listed = ", ".join(
                    f"{UID}{one.uid} (submitted {clock(one.submit_s)})" for one in same
                )
                raise ConfigError(f"Several jobs were called {job!r}; name one of {listed}.")
            return there[0]
        return same[0] if same else None

    def _unknown(self, job: str) -> ConfigError:
        if tasks := self._book.latest_names(MOST_NAMES, f"{job}_"):
            more = f" and {len(tasks) - MOST_LISTED} more" if len(tasks) > MOST_LISTED else ""
            listed = ", ".join(tasks[:MOST_LISTED])
            return ConfigError(f"Job {job} is an array; name one of its tasks: {listed}{more}.")
        close = get_close_matches(job, self._book.latest_names(MOST_NAMES), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return ConfigError(
            f"The journal in {self._kept.root} knows no job {job!r}.{hint} Jobs of partitions that "
            "rota does not manage, and those that were over before it came, are not there; of an "
            "array, rota looks at some tasks at a time."
        )

    def _told(self, known: KnownJob) -> Explanation:
        story = self._kept.story(known.uid)
        steps = self._steps(known, self._kept.steps(story, self._book.nodes))
        commands = self._book.commands(known.uid)
        said = commands[-1][3] if commands and commands[-1][2] == "refused" else ""
        about: dict[str, Any] = {
            "job": known.name, "uid": known.uid, "asks": asks_for(known.listing), "steps": steps,
            "said": said, "as_of": self._kept.as_of, "daemon": self._kept.daemon,
            "waited_s": finite(story.waited_s) if story and not _never_ran(known) else None,
            "ran_s": story.ran_s if story and not _never_ran(known) else None,
        }  # fmt: skip
        if known.end:
            about |= {"state": "over", "text": self._over(known, steps)}
        elif steps and steps[-1].on:
            state = "starting" if known.started_s is None else "running"
            about |= {"state": state, "text": runs_now(steps)}
        else:
            about |= self._waiting(known.uid, steps)
        return Explanation(**about, notes=tuple(self._kept.notes))

    def _steps(self, known: KnownJob, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """What happened, without what the journal, which keeps what jobs shall hold, cannot know:
        that others started a job, and that a start was taken back before it came about.
        """
        if not known.ours or self._watches:
            steps = tuple(replace(step, by="", why="", gainers=()) for step in steps)
        if _never_ran(known):
            steps = tuple(
                replace(step, what=TAKEN_BACK, why="it had not begun")
                if step.what == "stopped" else step
                for step in steps
            )  # fmt: skip
        return steps

    def _over(self, known: KnownJob, steps: tuple[Step, ...]) -> str:
        stopped = told_of(steps)
        return f"{known.end} at {clock(known.end_s)}" + (f"; it was {stopped}" if stopped else "")

    def _waiting(self, uid: int, steps: tuple[Step, ...]) -> dict[str, Any]:
        reason = self._kept.reasons.get(uid, PENDING)
        reasons, expected = [self._kept.why(reason)], self._kept.expected(uid, reason.tier, _SHAPED)
        if before := told_of(steps):
            reasons.append(Why("preempted", f"it ran before, and was {before}",
                               "It goes on when it is given nodes again."))  # fmt: skip
        return {"state": "waiting", "text": reason.text, "reasons": tuple(reasons),
                "expected": expected}  # fmt: skip


def _never_ran(known: KnownJob) -> bool:
    """Whether a job has been seen in no run; of one that is over, a short one may be missing."""
    return known.started_s is None and not known.end


def asks_for(listing: Mapping[str, Any]) -> str:
    """What a job asked for when it came, in words."""
    each, gpus = int(listing.get("gpus_per_worker") or 0), int(listing.get("num_gpus") or 0)
    low, high = (int(listing.get(f"{end}_workers") or 0) for end in ("min", "max"))
    workers = gpus // max(1, each)
    sizes = f" ({low} to {high})" if low != high else ""
    told = [f"{each} GPU{'s' * (each != 1)}"] if each else []
    told += [
        f"{amount:g} {unit.removesuffix('s') if amount == 1 else unit}"
        for name, unit in (("cpus_per_worker", "CPUs"), ("memory_gb_per_worker", "GB of memory"))
        if (amount := float(listing.get(name) or 0.0)) > 0
    ]
    each_of = f" with {', '.join(told)}{' each' * (workers > 1 or bool(sizes))}" if told else ""
    estimate_s = listing.get("estimate_s")
    lasts = f", for about {estimate_s:.0f} s" if estimate_s else ""
    return f"{workers} worker{'s' * (workers != 1)}{sizes}{each_of}{lasts}"
