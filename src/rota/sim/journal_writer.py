"""From a simulation's log to a journal, which a thread of its own writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from rota.errors import RotaError
from rota.traces.plain_csv import spoken

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from rota.core.types import Records
    from rota.run.journal import Journal
    from rota.run.outcome import Outcome
    from rota.sim.simulator import Simulator
    from rota.traces.trace import Trace

Notes: TypeAlias = "list[dict[str, Any]] | None"
"""What a policy in Python took and said, round by round."""
_SUMS = ("begin_s", "end_s", "held_gpu_s", "up_gpu_s", "stray_gpu_s", "moves", "resizes", "kills",
         "rounds", "wall_s", "lost_s", "fee")  # fmt: skip
"""What of an outcome a journal keeps beside events and rounds."""


class JournalWriter:
    """Writes a journal, if there is one, in a thread beside the simulation, which needs no GIL."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._pool = ThreadPoolExecutor(1)
        self._pending: list[Future[Any]] = []

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._pool.shutdown()
        if kind is None:
            self._check()
        elif self._journal:
            with suppress(RotaError):  # a full disk, say: then that is the error
                self._journal.stop(str(error) or kind.__name__)

    def begin(self, trace: Trace) -> None:
        """Write down the jobs that the run is about."""
        if self._journal:
            self._submit(
                self._journal.add_jobs, trace.job_id, trace.user, trace.users, trace.num_gpus,
                trace.submit_s, trace.duration_s, *_further(trace),
            )  # fmt: skip

    def write(self, events: Records, entries: Records, rounds: Records, notes: Notes) -> None:
        """Write down what has happened since the last call."""
        self._check()
        if self._journal and len(events):
            self._submit(self._journal.add_events, events, entries)
        if self._journal and len(rounds):
            self._submit(self._journal.add_rounds, rounds, notes)

    def finish(self, outcome: Outcome) -> None:
        """Write down the run's sums, now that all else is written."""
        if self._journal:
            self._journal.finish(**{name: getattr(outcome, name) for name in _SUMS})

    def _submit(self, what: Callable[..., Any], *data: Any) -> None:
        self._pending.append(self._pool.submit(what, *data))

    def _check(self) -> None:
        """Raise what went wrong in the thread, such as a full disk."""
        while self._pending and self._pending[0].done():
            self._pending.pop(0).result()


def _further(trace: Trace) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """What a journal needs beside its own columns to give the trace back."""
    own = ("job_id", "user", "num_gpus", "submit_s", "duration_s")
    more = [column for column in spoken(trace) if column.name not in own]
    names = {c.name: getattr(trace, f"{c.name}s") for c in more if c.kind == "name"}
    return {column.name: getattr(trace, column.name) for column in more}, names


def take_log(sim: Simulator) -> tuple[Records, Records, Records]:
    """Empty the simulator's log: events, their shares, rounds."""
    s, clock = sim.state, sim.clock
    if clock["lost"]:
        raise RotaError(
            f"{clock['lost']} events did not fit into the simulator's log of {s.events.size}; "
            "empty it with take_log() whenever `log_is_full`."
        )
    counts = (s.events, "events"), (s.entries, "entries"), (s.rounds, "logged")
    events, entries, rounds_ = (log[: clock[count]].copy() for log, count in counts)
    clock["events"] = clock["entries"] = clock["logged"] = 0
    return events, entries, rounds_
