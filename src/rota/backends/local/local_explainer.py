"""Explains jobs of `rota submit`, from the state directory and its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.backends.explanation import Explanation, Why
from rota.backends.local.queue_rows import QueueRows
from rota.backends.written_down import WrittenDown, clock, finite, runs_now
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.backends.explanation import Step
    from rota.backends.local.state_dir import StateDir
    from rota.core.seams import Policy
    from rota.run.job_story import JobStory
    from rota.run.last_round import Deciders

_OVER = ("done", "failed", "cancelled", "broken")


class LocalExplainer:
    """Jobs are known by their number, or by their name if only one has it."""

    def __init__(
        self, store: StateDir, make: Callable[[Deciders], tuple[Policy, Policy | None]]
    ) -> None:
        self._store = store
        self._kept = WrittenDown(store.root, make, store.origin)

    def explain(self, job: str) -> Explanation:
        """All that is known of a job."""
        rows = QueueRows(self._store)
        uid = int(job) if job.isdecimal() and len(job) < 16 else self._named(rows, job)
        found = rows.some([uid])
        story = self._kept.story(uid)
        if not found:
            if story is None:
                raise self._store.unknown(uid)
            return self._forgotten(uid, story)
        return self._told(found[0], story)

    def _named(self, rows: QueueRows, job: str) -> int:
        same = [row["job"] for row in rows.all(over=True) if row["name"] == job]
        if len(same) == 1:
            return int(same[0])
        if same:
            listed = ", ".join(map(str, same))
            raise ConfigError(f"Several jobs are called {job!r}; say which number: {listed}.")
        raise ConfigError(
            f"No job is called {job!r} in {self._store.root}; rota queue --all lists all."
        )

    def _nodes(self) -> tuple[str, ...]:
        return () if self._kept.last is None else self._kept.last.snapshot.cluster.names

    def _told(self, row: dict[str, Any], story: JobStory | None) -> Explanation:
        steps = self._kept.steps(story, self._nodes())
        state, reasons, expected = str(row["state"]), tuple[Why, ...](), None
        text = str(row["why"])
        if state in _OVER:
            ended = row.get("ended_s")
            when = f" at {clock(self._store.origin + ended)}" if ended else ""
            text = f"{state}{when}" + (f": {row['why']}" if row["why"] else "")
            state = "over"
        elif row["reasons"] or state in ("waiting", "held"):
            state, reasons = "waiting", self._reasons(row)
            text = reasons[0].text if reasons else text
            tier = next((one.tier for one in reasons if one.tier != "preempted"), "")
            expected = self._kept.expected(row["job"], tier)
        else:
            text = text or self._runs(row, steps)
        return Explanation(
            job=str(row["job"]), uid=row["job"], state=state, text=text, asks=_asks(row),
            reasons=reasons, expected=expected, steps=steps,
            waited_s=finite(story.waited_s) if story else None,
            ran_s=story.ran_s if story else None, as_of=self._kept.as_of, daemon=self._kept.daemon,
            notes=tuple(self._kept.notes),
        )  # fmt: skip

    def _reasons(self, row: dict[str, Any]) -> tuple[Why, ...]:
        """The reasons of the queue; those of the last round, too, if no daemon runs any more."""
        found = [
            Why(one["tier"], one["text"], one["next"],
                tuple((str(h["job"]), h["holds"]) for h in one["holders"]), one["unit"])
            for one in row["reasons"]
        ]  # fmt: skip
        last = None if self._kept.daemon else self._kept.reasons.get(row["job"])
        if last is not None and last.tier not in [one.tier for one in found]:
            found.insert(0, self._kept.why(last))
        return tuple(found)

    @staticmethod
    def _runs(row: dict[str, Any], steps: tuple[Step, ...]) -> str:
        if steps and steps[-1].on:
            return runs_now(steps)
        return f"{row['state']} on {row['where']} (node:GPUs)" if row["where"] else row["state"]

    def _forgotten(self, uid: int, story: JobStory) -> Explanation:
        """A job of which only the journal tells, because it was over long ago."""
        steps = self._kept.steps(story, self._nodes())
        end = story.end
        text = "only the journal tells of it"
        if end is not None:
            text = f"{end.what} at {clock(self._store.origin + end.time_s)}"
        return Explanation(
            job=str(uid), uid=uid, state="over", text=text, steps=steps,
            waited_s=finite(story.waited_s), ran_s=story.ran_s, as_of=self._kept.as_of,
            daemon=self._kept.daemon, notes=tuple(self._kept.notes),
        )  # fmt: skip


def _asks(row: dict[str, Any]) -> str:
    low, high = row["min_workers"], row["max_workers"]
    return f"{low} worker{'s' * (low != 1)}" if low == high else f"{low} to {high} workers"
