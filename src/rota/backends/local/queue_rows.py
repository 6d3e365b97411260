"""What `rota queue` shows of each job, read from the state directory; the daemon need not run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from time import localtime, strftime, time
from typing import TYPE_CHECKING, Any, Final

from rota.backends.local.holds import hold_of
from rota.backends.local.overview import Overview
from rota.backends.waits_file import WaitsFile
from rota.errors import DamagedError, RotaError
from rota.run.wait_reason import WaitReason

if TYPE_CHECKING:
    from collections.abc import Collection

    from rota.backends.local.held import Ended, Held
    from rota.backends.local.holds import Hold
    from rota.backends.local.request import Request
    from rota.backends.local.state_dir import StateDir

    Row = dict[str, Any]

ANSWER_S: Final = 0.5
"""Seconds in which all agents together may report progress; then what is on disk is shown."""
NO_DAEMON: Final = WaitReason(
    "no-daemon", "no daemon runs", "Start one with `rota run`; jobs wait until then."
)
PENDING: Final = WaitReason(
    "pending", "the daemon has not decided about it yet", "It does within seconds."
)


class QueueRows:
    """Reads jobs as rows; one daemon, one set of reasons for all of them."""

    def __init__(self, store: StateDir) -> None:
        self.store, self.daemon = store, store.daemon()
        self._waits = {} if self.daemon is None else WaitsFile(store.root).read()
        self._missing = NO_DAEMON if self.daemon is None else PENDING
        self.error: RotaError | OSError | None = None
        """Why jobs that are over are missing, if they are."""
        self.missing: dict[int, RotaError | OSError] = {}
        """Why jobs that were named are missing."""

    def all(self, *, over: bool = False) -> list[Row]:
        """All jobs that wait or run; with `over` also those that are over."""
        past = self._past() if over else {}
        uids = sorted({*self.store.uids(), *past})
        overview = Overview(self.store)
        rows = [
            row
            for uid in uids
            if (row := self._fresh(overview, uid) or self._row(uid, past.get(uid), over=over))
        ]
        overview.keep(uids)
        self._ask_agents(rows)
        return rows

    def some(self, uids: Collection[int]) -> list[Row]:
        """The named jobs, over or not; `missing` says which there are not."""
        rows = []
        for uid in uids:
            try:
                rows.append(self._one(uid))
            except (RotaError, OSError) as error:
                self.missing[uid] = error
        self._ask_agents(rows)
        return rows

    def _one(self, uid: int) -> Row:
        past = None
        if not self.store.folder(uid).is_dir():
            if not self.store.history.has(uid):
                raise self.store.unknown(uid)
            with suppress(DamagedError):  # a damaged row: what is shown then says so
                past = self.store.history.get(uid)
        row = self._row(uid, past, over=True)
        assert row is not None
        return row

    def _past(self) -> dict[int, dict[str, Any] | None]:
        """The history; one that cannot be read hides no job that waits or runs."""
        try:
            return self.store.history.all()
        except (RotaError, OSError) as error:
            self.error = error
            return {}

    def _fresh(self, overview: Overview, uid: int) -> Row | None:
        """The row of a job that has never run."""
        facts = None
        with suppress(RotaError, OSError):
            facts = overview.fresh(uid)
        if facts is None:
            return None
        submitted_at = facts.pop("submitted_at")
        reasons = [self._waits.get(uid, self._missing)]
        return {
            "job": uid, "state": "waiting", "submit_s": round(submitted_at - self.store.origin, 3),
            "started_s": None, "ended_s": None, "age_s": max(0.0, time() - submitted_at),
            "workers": 0, "servers": 0, "where": "", "done": None, "preemptions": 0,
            "why": reasons[0].text, "reasons": [_told(one) for one in reasons], "stopped": "",
            "hint": "", **facts,
        }  # fmt: skip

    def _row(self, uid: int, past: dict[str, Any] | None, *, over: bool) -> Row | None:
        store, ended = self.store, None
        try:
            ended = store.ended(uid) if past is None else store.past_ended(uid, past)
            if ended is not None and not over:
                return None
            request, held = store.load(uid) if past is None else store.past_load(past)
        except (RotaError, OSError) as error:
            state = ended.state if ended else "broken"
            why, hint = (ended.error, ended.hint) if ended and ended.error else (str(error), "")
            return {"job": uid, "name": "?", "user": "?", "state": state, "age_s": 0.0, "kind": "?",
                    "workers": 0, "min_workers": 0, "max_workers": 0, "servers": 0, "where": "",
                    "done": None, "why": why, "reasons": [], "hint": hint}  # fmt: skip
        hold = hold_of(store, uid) if ended is None else None
        cancelled = ended is None and store.cancelled(uid)
        reasons = [] if ended or cancelled else self._reasons(uid, request, held, hold)
        submit_s = request.submitted_at - store.origin
        counts = [seat.kind for seat in held.seats.values()]
        return {
            "job": uid, "name": request.title, "user": request.user, "kind": request.kind,
            "state": ended.state if ended else "ending" if cancelled else _phase(held, hold),
            "submit_s": round(submit_s, 3), "started_s": held.started_s,
            "ended_s": ended and ended.time_s,
            "age_s": max(0.0, (ended.time_s if ended else time() - store.origin) - submit_s),
            "workers": counts.count("worker"), "servers": counts.count("server"),
            "min_workers": request.min_workers, "max_workers": request.max_workers,
            "where": _places(held), "done": _part(held.samples, held.total),
            "run": held.run if held.open else 0, "preemptions": held.preemptions,
            "why": _why(ended, held, reasons), "reasons": [_told(one) for one in reasons],
            "stopped": held.stopped, "hint": ended.hint if ended else "",
        }  # fmt: skip

    def _reasons(
        self, uid: int, request: Request, held: Held, hold: Hold | None
    ) -> list[WaitReason]:
        """Why a job waits, the most telling reason first; none if it runs."""
        if hold is not None:
            return [self._held(uid, request, held, hold)]
        if held.seats and held.open:
            return []
        reasons = []
        if held.stopped and not held.seats:
            reasons.append(WaitReason("preempted", held.stopped, _goes_on(request)))
        if held.open:
            reasons.append(
                WaitReason("leaving", "its last run is still ending", "Then it can start again.")
            )
        known = self._waits.get(uid, self._missing)
        # The file is of the last round: since then the job may have got its seats, or lost them.
        if (known.tier == "leaving") == bool(held.seats) or known is self._missing:
            reasons.append(known)
        return reasons or [self._missing]

    def _held(self, uid: int, request: Request, held: Held, hold: Hold) -> WaitReason:
        text = f"held by its user since {strftime('%a %H:%M', localtime(hold.since))}"
        if held.seats and self.daemon is None:
            return WaitReason("held", f"{text}; it runs until a daemon stops it", NO_DAEMON.next)
        if held.open:
            text += "; its processes are still ending"
        then = f" Then: {_goes_on(request)}" if held.run else ""
        return WaitReason("held", text, f"`rota resume {uid}` puts it back in line.{then}")

    def _ask_agents(self, rows: list[Row]) -> None:
        """Put in the progress that agents report in time; all are asked at once."""
        runs = [(row, run) for row in rows if (run := row.pop("run", 0)) and row["kind"] != "plain"]
        if not runs:
            return
        from concurrent.futures import wait

        from rota.backends.calls import Calls
        from rota.elastic import ElasticJob

        calls = Calls()
        asked = {
            calls.submit(ElasticJob(self.store.run_folder(row["job"], run)).observe): row
            for row, run in runs
        }
        for call in wait(asked, ANSWER_S).done:
            if call.exception() is None:
                status = call.result()
                said = _part(status.samples, status.total)
                asked[call]["done"] = max(filter(None, (said, asked[call]["done"])), default=None)


def _phase(held: Held, hold: Hold | None) -> str:
    if held.seats:
        return "running"
    return "waiting" if hold is None else "held"


def _why(ended: Ended | None, held: Held, reasons: list[WaitReason]) -> str:
    if ended is not None:
        return ended.error
    return held.note or (reasons[0].text if reasons else "")


def _told(reason: WaitReason) -> dict[str, Any]:
    """A reason as JSON has it."""
    holders = [{"job": uid, "holds": amount} for uid, amount in reason.holders]
    return {**asdict(reason), "holders": holders}


def _goes_on(request: Request) -> str:
    if request.kind != "plain":
        return "It goes on with the next sample when it is given GPUs again."
    if request.preemptible:
        return "It goes on from its checkpoint when it is given GPUs again."
    return "It begins again when it is given GPUs."


def _part(samples: int, total: int) -> float | None:
    """The part of its work that is done, if that is known."""
    return samples / total if total else None


def _places(held: Held) -> str:
    places: dict[int, list[int]] = {}
    for seat in held.seats.values():
        places.setdefault(seat.node, []).extend(seat.gpus)
    return " ".join(
        f"{node}:{','.join(map(str, sorted(gpus)))}" for node, gpus in sorted(places.items())
    )
