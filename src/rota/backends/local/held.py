"""What a job of the state directory shall hold and has had, and how it ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from rota.backends.local.seating import decode_seats
from rota.errors import ConfigError, DamagedError
from rota.files import decode_as, is_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from rota.backends.local.request import Request
    from rota.backends.local.seating import Seats

STEADY_S: Final = 2.0
"""Seconds of undisturbed training from which a speed is taken."""


@dataclass
class Held:
    """What a job shall hold, and has held until now."""

    seats: Seats = field(default_factory=dict)
    leaving: Seats = field(default_factory=dict)
    """Of members that are to go and have not gone yet."""
    serial: int = 0
    """Number of the next member."""
    run: int = 0
    """Number of the present run, or of the last one."""
    open: bool = False
    """Whether that run has begun and is not known to be over."""
    stop_asked: bool = False
    """Whether its agent was told to end that run: then it has not failed when it is stopped."""
    started_s: float | None = None
    since_s: float | None = None
    changed_s: float | None = None
    """When it was last moved or resized, in its present run or before."""
    settled_s: float = 0.0
    """Up to when `attained_gpu_s` was counted."""
    attained_gpu_s: float = 0.0
    preemptions: int = 0
    failures: int = 0
    """Runs that failed; `faults` of them because the script failed."""
    faults: int = 0
    losses: int = 0
    """Agents lost in a row without progress beyond `lost_at` samples."""
    lost_at: int = 0
    parked: int = 0
    """The run that left its state behind, from which the next one goes on; 0: none."""
    rate: float = 0.0
    """Samples per second that count as pace 1."""
    samples: int = 0
    """Samples reported as done, of `total` if that is known (not 0)."""
    total: int = 0
    ran_s: float = 0.0
    """Running time of earlier runs."""
    starts: int = 0
    """Launches that were timed, to the first step; they took `starting_s` in all."""
    starting_s: float = 0.0
    seen: dict[str, list[float]] = field(default_factory=dict)
    """Samples done and seconds taken, by workers+servers, while nothing changed."""
    changes: int = 0
    """Resizes and moves of earlier runs; they paused it for `paused_s` in all."""
    paused_s: float = 0.0
    note: str = ""
    """What keeps its present run from going on, if anything does."""
    stopped: str = ""
    """When and why it was stopped the last time: by which policy, for which jobs."""

    def latest_s(self) -> float:
        """The latest time that is written down here."""
        return max(
            self.settled_s, self.since_s or 0.0, self.started_s or 0.0, self.changed_s or 0.0
        )

    def attained_by(self, now_s: float) -> float:
        """GPU-seconds that the job has held by now."""
        gpus = sum(len(seat.gpus) for seat in self.seats.values())
        return self.attained_gpu_s + gpus * max(0.0, now_s - self.settled_s)

    def rename(self, names: Iterable[str]) -> None:
        """Give members new names in their old seats, so that they are started anew."""
        seats = dict(self.seats)
        for name in names:
            seats[f"{name[0]}{self.serial}"] = seats.pop(name)
            self.serial += 1
        self.seats = seats

    def change_seats(
        self, seats: Seats, serial: int, now_s: float, *, may_run: Collection[str], preempted: bool
    ) -> None:
        """Hold these seats from now on; giving up all of them may count as a preemption.

        Only members in `may_run` can have a process that has to leave first.
        """
        if self.open:
            gone = {n: seat for n, seat in self.seats.items() if n in may_run and n not in seats}
            self.leaving = {**self.leaving, **gone}
        if self.seats and not seats:
            self.preemptions += preempted
            self.ran_s += now_s - (self.since_s or now_s)
        if self.seats and seats and seats.keys() != self.seats.keys():
            self.changed_s = now_s
        if not self.seats:
            self.since_s = now_s
            self.started_s = now_s if self.started_s is None else self.started_s
        if not seats:
            self.since_s = None
        self.seats, self.serial = seats, serial

    def let_go(self, there: Collection[str]) -> bool:
        """Free the seats of members that were to leave and are not `there`; True if any are."""
        gone = [name for name in self.leaving if name not in there]
        for name in gone:
            del self.leaving[name]
        return bool(gone)

    def speed(self, workers: int, servers: int) -> float:
        """Samples per second at a size: as measured, or in proportion; 0: not known."""
        done, span_s = self.seen.get(f"{workers}+{servers}", (0.0, 0.0))
        return done / span_s if span_s >= STEADY_S else self.rate

    def misfit(self, request: Request) -> str:
        """What a job cannot have been given that asked for this, if there is such a thing."""
        count = Counter[str](seat.kind for seat in self.seats.values())
        for kind, most in (("worker", request.max_workers), ("server", request.max_servers)):
            if count[kind] > most:
                return f"{count[kind]} {kind}s are more than it can have"
        for seat in (*self.seats.values(), *self.leaving.values()):
            if len(seat.gpus) != (request.gpus_per_worker if seat.kind == "worker" else 0):
                return f"a {seat.kind} with {len(seat.gpus)} GPUs is not what was asked for"
        return ""

    @classmethod
    def decode(cls, facts: dict[str, Any], path: Path) -> Held:
        """Read what `asdict` gave, or DamagedError."""
        if missing := sorted({"seats", "leaving", "serial", "run", "open"} - facts.keys()):
            raise DamagedError(path, f"{missing[0]} is missing")
        held = decode_as(cls, facts, path)
        try:
            held.seats, held.leaving = decode_seats(held.seats), decode_seats(held.leaving)
        except (ValueError, TypeError, ConfigError) as error:
            raise DamagedError(path, str(error).rstrip(".")) from None
        for tally in held.seen.values():
            if not (isinstance(tally, list) and len(tally) == 2 and all(map(is_number, tally))):
                raise DamagedError(path, "what was measured of its speed is no number")
        return held


@dataclass(frozen=True)
class Ended:
    """How a job ended, and when."""

    state: Literal["done", "failed", "cancelled"]
    time_s: float
    error: str = ""
    hint: str = ""
    """What ran, and what to do about `error`, if that is known."""
