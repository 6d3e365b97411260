"""The state directory: what was submitted, what every job holds, how it ended.

    STATE/origin.json        when its clock began
    STATE/daemon.lock        locked as long as a daemon runs
    STATE/daemon.json        who that is
    STATE/journal.db         what happened
    STATE/speeds.npz         what was learned of the speeds of jobs
    STATE/jobs/17/request.json   what was submitted; made whole by whoever submits, daemon or not
                 /cancel         there if it is to be cancelled
                 /held.json      what it shall hold, written before anything is done about it
                 /ended.json     how it ended; there exactly when it is over
                 /run-1/         its first run, see rota.elastic.protocol; run-2 its second
                 /parked-1/      the state that it left behind when it was stopped

Files are replaced whole, so that every reader, and a daemon after a crash, finds a sound one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import sleep, time
from typing import IO, TYPE_CHECKING, Any, Final, Literal

from rota.backends.local.request import Request
from rota.backends.local.seats import Seat
from rota.elastic.job import read_file, replace_file
from rota.errors import ConfigError, JobError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.backends.local.seats import Seats

FORMAT: Final = 1
STEADY_S: Final = 2.0
"""Seconds of undisturbed training from which a speed is taken."""
REQUEST, HELD, ENDED, CANCEL = "request.json", "held.json", "ended.json", "cancel"
LOCK, DAEMON, ORIGIN, JOURNAL = "daemon.lock", "daemon.json", "origin.json", "journal.db"
SPEEDS: Final = "speeds.npz"


@dataclass
class Held:
    """What a job shall hold and has had so far."""

    seats: Seats = field(default_factory=dict)
    leaving: Seats = field(default_factory=dict)
    """Of members that are to go and have not gone yet."""
    serial: int = 0
    """Number of the next member."""
    run: int = 0
    """Number of the present run, or of the last one."""
    open: bool = False
    """Whether that run has begun and is not known to be over."""
    started_s: float | None = None
    since_s: float | None = None
    settled_s: float = 0.0
    """Up to when `attained_gpu_s` was counted."""
    attained_gpu_s: float = 0.0
    preemptions: int = 0
    failures: int = 0
    parked: int = 0
    """The run that left its state behind, from which the next one goes on; 0: none."""
    rate: float = 0.0
    """Samples per second that count as pace 1."""
    samples: int = 0
    """Done, as far as was seen; of `total`, if that is known."""
    total: int = 0
    ran_s: float = 0.0
    """Running time of earlier runs."""
    starts: int = 0
    """Launches of which it was seen how long they took: `starting_s` in all, to the first step."""
    starting_s: float = 0.0
    seen: dict[str, list[float]] = field(default_factory=dict)
    """Samples done and seconds taken, by workers+servers, when nothing else was going on."""
    changes: int = 0
    """Resizes and moves of earlier runs, and what they paused in all: `paused_s`."""
    paused_s: float = 0.0

    def speed(self, workers: int, servers: int) -> float:
        """Samples per second at a size: as was seen, or in proportion; 0: not known."""
        done, span_s = self.seen.get(f"{workers}+{servers}", (0.0, 0.0))
        return done / span_s if span_s >= STEADY_S else self.rate

    @classmethod
    def decode(cls, facts: dict[str, Any]) -> Held:
        """Read what `asdict` gave."""
        for key in ("seats", "leaving"):
            facts[key] = {
                name: Seat(**{**seat, "gpus": tuple(seat["gpus"])})
                for name, seat in facts[key].items()
            }
        return cls(**facts)


@dataclass(frozen=True)
class Ended:
    """How a job ended, and when."""

    state: Literal["done", "failed", "cancelled"]
    time_s: float
    error: str = ""


class Store:
    """A state directory that submitters, a daemon and onlookers share."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).expanduser().absolute()
        self.jobs = self.root / "jobs"
        try:
            self.jobs.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.origin = self._origin()
        except OSError as error:
            raise ConfigError(
                f"The state directory {self.root} cannot be used: {error.strerror}; choose "
                "another with --state."
            ) from None

    def _origin(self) -> float:
        path = self.root / ORIGIN
        if (facts := self._read(path)) is None:
            with tempfile.NamedTemporaryFile("w", dir=self.root, delete=False) as part:
                json.dump({"format": FORMAT, "began_at": time()}, part)
            with suppress(FileExistsError):
                os.link(part.name, path)  # the first of several wins
            Path(part.name).unlink()
            facts = self._read(path)
        if facts is None or facts.get("format") != FORMAT:
            raise ConfigError(f"{path} is not of this version of rota; choose another --state.")
        return float(facts["began_at"])

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            return read_file(path)
        except ValueError:
            raise JobError(f"{path} is damaged: it is not JSON; restore or remove it.") from None

    # Submitting.

    def submit(self, request: Request) -> int:
        """Put a job in line; returns its number."""
        try:
            part = Path(tempfile.mkdtemp(prefix=".new-", dir=self.jobs))
            try:
                replace_file(part / REQUEST, request.encode())
                uid = max(self.uids(), default=0) + 1
                while not self._claim(part, uid):
                    uid += 1
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
        except OSError as error:
            raise JobError(
                f"Cannot submit a job to {self.root}: {error.strerror}; nothing was changed."
            ) from None
        return uid

    def _claim(self, part: Path, uid: int) -> bool:
        try:
            part.rename(self.folder(uid))
        except OSError as error:
            if self.folder(uid).exists():
                return False
            raise error from None
        return True

    def cancel(self, uid: int) -> None:
        """Ask for the end of a job."""
        self.request(uid)
        if ended := self.ended(uid):
            raise ConfigError(f"Job {uid} is over already ({ended.state}).")
        (self.folder(uid) / CANCEL).touch()

    # Looking.

    def uids(self) -> list[int]:
        """The numbers of all jobs ever submitted."""
        return sorted(int(name) for name in os.listdir(self.jobs) if name.isdigit())

    def folder(self, uid: int) -> Path:
        """Where all about a job is."""
        return self.jobs / str(uid)

    def run_folder(self, uid: int, run: int) -> Path:
        """Where one run of a job is."""
        return self.folder(uid) / f"run-{run}"

    def park_folder(self, uid: int, run: int) -> Path:
        """Where a run leaves the state of its training."""
        return self.folder(uid) / f"parked-{run}"

    def request(self, uid: int) -> Request:
        """What was submitted."""
        facts = self._read(self.folder(uid) / REQUEST)
        if facts is None:
            raise ConfigError(f"There is no job {uid} in {self.root}; rota queue --all lists all.")
        return Request.decode(facts)

    def submit_s(self, request: Request) -> float:
        """When it was submitted, by the clock of this directory."""
        return max(0.0, request.submitted_at - self.origin)

    def cancelled(self, uid: int) -> bool:
        """Whether somebody has asked for its end."""
        return (self.folder(uid) / CANCEL).exists()

    def held(self, uid: int) -> Held:
        """What it shall hold."""
        facts = self._read(self.folder(uid) / HELD)
        return Held() if facts is None else Held.decode(facts)

    def ended(self, uid: int) -> Ended | None:
        """How it ended, if it has."""
        facts = self._read(self.folder(uid) / ENDED)
        return None if facts is None else Ended(**facts)

    # Keeping; the daemon's.

    def keep(self, uid: int, held: Held) -> None:
        """Write down what a job shall hold."""
        replace_file(self.folder(uid) / HELD, asdict(held))

    def end(self, uid: int, ended: Ended) -> None:
        """Write down how it ended."""
        replace_file(self.folder(uid) / ENDED, asdict(ended))

    @contextmanager
    def locked(self, **facts: Any) -> Iterator[None]:
        """Be the only daemon of this directory; `facts` are for others to read."""
        with (self.root / LOCK).open("a") as lock:
            if not _seize(lock):
                other = (self.daemon() or {}).get("pid", "unknown")
                raise ConfigError(
                    f"A daemon runs on {self.root} already (process {other}); stop it first, or "
                    "choose another --state."
                )
            replace_file(self.root / DAEMON, {"pid": os.getpid(), "since": time(), **facts})
            try:
                yield
            finally:
                (self.root / DAEMON).unlink(missing_ok=True)

    def daemon(self) -> dict[str, Any] | None:
        """Who schedules here now, or None."""
        facts = self._read(self.root / DAEMON)
        if facts is None:
            return None
        with (self.root / LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return facts
        return None  # it was killed


def _seize(lock: IO[str]) -> bool:
    """Take the lock; onlookers, such as `daemon()`, hold it for a moment only."""
    for _ in range(5):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(0.1)
        else:
            return True
    return False
