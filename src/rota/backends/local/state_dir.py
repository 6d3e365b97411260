"""The state directory: what was submitted, what every job holds, how it ended.

    STATE/origin.json        when its clock began
    STATE/daemon.lock        locked while a daemon runs
    STATE/daemon.json        its process number, policy and GPUs
    STATE/journal.db         what happened
    STATE/speeds.npz         speeds of jobs, as estimated until now
    STATE/waits.json         why jobs wait, as of the daemon's last round
    STATE/last.json          the number of the last job; numbers are never given again
    STATE/history.db         jobs that are over, in one file
    STATE/over/17/           what a job that is over has printed
    STATE/asked/17           there until the daemon has looked what the user of job 17 wants
    STATE/jobs/17/request.json   what was submitted; written by `rota submit`, daemon or not
                 /cancel         there if it is to be cancelled
                 /hold.json      there if its user has put it on hold
                 /held.json      what it shall hold, written before anything is done about it
                 /ended.json     how it ended; there exactly when it is over
                 /run-1/         its first run, see rota.elastic.protocol; run-2 its second
                 /parked-1/      the state that it left behind when it was stopped

Files are replaced whole, so that every reader, and a daemon after a crash, finds a sound one.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from rota.backends.local.daemon_lock import daemon_of, locked, seize
from rota.backends.local.held import Ended, Held
from rota.backends.local.history import History
from rota.backends.local.private import make_private
from rota.backends.local.request import Request
from rota.errors import ConfigError, DamagedError, JobError, JournalError
from rota.files import (
    decode_as,
    is_count,
    is_number,
    read_file,
    replace_file,
    sync_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

FORMAT: Final = 1
REQUEST, HELD, ENDED, CANCEL = "request.json", "held.json", "ended.json", "cancel"
ORIGIN, JOURNAL = "origin.json", "journal.db"
SPEEDS: Final = "speeds.npz"
LAST, SUBMIT = "last.json", "submit.lock"
SUBMIT_S: Final = 30.0
"""Seconds to wait for other submitters, which take some milliseconds each."""
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,14}")


def _refuse_clusters(root: Path) -> None:
    """Refuse the state of a daemon beside a cluster that others run: its jobs are the cluster's."""
    if (root / ORIGIN).exists() or not (root / JOURNAL).is_file():
        return
    from rota.backends.book_reader import read_book  # imports numpy, which to submit needs not

    with suppress(JournalError):  # a damaged one is told of by those who read it
        if read_book(root / JOURNAL) is not None:
            raise ConfigError(
                f"{root} belongs to `rota run --backend slurm`: its jobs are those of the cluster. "
                "`rota explain JOB` tells of them, squeue lists them, sbatch submits; for jobs of "
                "this machine choose another --state."
            )


class StateDir:
    """A state directory, shared by submitters, one daemon and commands that show it."""

    def __init__(self, root: Path | str, *, create: bool = True) -> None:
        """Without `create` nothing is made: what is not there is an error, or has no jobs."""
        self.root = Path(root).expanduser().absolute()
        if "\n" in str(self.root):
            raise ConfigError(
                f"The state directory {str(self.root)!r} has a line break in its name; choose "
                "another with --state."
            )
        self.jobs, self.over = self.root / "jobs", self.root / "over"
        self.asked, self.history = self.root / "asked", History(self.root)
        try:
            if create:
                self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            elif not self.root.is_dir():
                raise ConfigError(
                    f"There is no state directory {self.root}; is --state what it was with submit?"
                )
            _refuse_clusters(self.root)
            make_private(self.root, self.root / ORIGIN)
            if create:
                for folder in (self.jobs, self.over, self.asked):
                    folder.mkdir(exist_ok=True, mode=0o700)
            self.origin = self._origin() if create or (self.root / ORIGIN).exists() else time()
        except OSError as error:
            raise ConfigError(
                f"The state directory {self.root} cannot be used: {error.strerror}; choose "
                "another with --state."
            ) from None

    def _origin(self) -> float:
        path = self.root / ORIGIN
        if (facts := read_file(path)) is None:
            with tempfile.NamedTemporaryFile("w", dir=self.root, delete=False) as part:
                json.dump({"format": FORMAT, "began_at": time()}, part)
                part.flush()
                os.fsync(part.fileno())
            with suppress(FileExistsError):
                os.link(part.name, path)  # the first of several wins
            Path(part.name).unlink()
            facts = read_file(path)
        if facts is None or not is_count(facts.get("format")):
            raise DamagedError(path, "format is no number")
        if facts["format"] != FORMAT:
            raise ConfigError(f"{path} is not of this version of rota; choose another --state.")
        if not is_number(facts.get("began_at")):
            raise DamagedError(path, "began_at is no time")
        return float(facts["began_at"])

    # Submitting.

    def submit(self, request: Request) -> int:
        """Put a job in line; returns its number."""
        try:
            part = Path(tempfile.mkdtemp(prefix=".new-", dir=self.jobs))
            try:
                replace_file(part / REQUEST, request.encode())
                uid = self._claim(part)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
        except OSError as error:
            raise JobError(
                f"Cannot submit a job to {self.root}: {error.strerror}; nothing was changed."
            ) from None
        return uid

    def _claim(self, part: Path) -> int:
        """Make a job of a folder; its number, which no job has had before.

        The number is written down before it is used: a job may be over, and gone, before another
        one is submitted.
        """
        with (self.root / SUBMIT).open("a") as lock:
            if not seize(lock, SUBMIT_S):
                raise OSError(errno.EAGAIN, f"another process holds {SUBMIT}")
            uid = self._last() + 1
            while self.folder(uid).exists():
                uid += 1
            replace_file(self.root / LAST, {"uid": uid})
            part.rename(self.folder(uid))
            sync_folder(self.jobs)
        return uid

    def _last(self) -> int:
        with suppress(DamagedError):
            uid: Any = (read_file(self.root / LAST) or {}).get("uid")
            if is_count(uid):
                return int(uid)
        # An older directory, or a damaged file: the largest number that can be found anywhere.
        over = [int(name) for name in os.listdir(self.over) if _NUMBER.fullmatch(name)]
        with suppress(DamagedError):
            over.append(self.history.last()[0])
        return max([*self.uids(), *over], default=0)

    def cancel(self, uid: int) -> None:
        """Ask for the end of a job."""
        self.check_live(uid)
        (self.folder(uid) / CANCEL).touch()
        self.announce(uid)

    def check_live(self, uid: int) -> None:
        """Raise a ConfigError if there is no such job, or if it is over."""
        there, ended = self.folder(uid).is_dir(), None
        try:
            ended = self.ended(uid)
        except DamagedError:
            if not there:
                raise
            return  # it cannot be told, so that it can be cancelled
        if ended is not None:
            raise ConfigError(f"Job {uid} is over already ({ended.state}).")
        if not there:
            raise self.unknown(uid)

    def announce(self, uid: int) -> None:
        """Have the daemon look soon what the user of a job wants."""
        with suppress(OSError):  # it looks from time to time, too
            (self.asked / str(uid)).touch()

    def unknown(self, uid: int) -> ConfigError:
        """The error for a number that no job has."""
        return ConfigError(f"There is no job {uid} in {self.root}; rota queue --all lists all.")

    # Looking.

    def uids(self) -> list[int]:
        """The numbers of all jobs that are not over, or not put away yet."""
        if not self.jobs.is_dir():
            return []
        with os.scandir(self.jobs) as entries:
            return sorted(
                int(entry.name)
                for entry in entries
                if _NUMBER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            )

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
        facts = read_file(self.folder(uid) / REQUEST)
        if facts is None:
            if (past := self.history.get(uid)) is None:
                raise self.unknown(uid)
            if not isinstance(facts := past.get("request"), dict):
                raise DamagedError(self.folder(uid) / REQUEST, "it was so when the job ended")
        return Request.decode(facts)

    def keeps_environment(self, uid: int) -> bool:
        """Whether the environment that a job was submitted with is still known."""
        return (self.folder(uid) / REQUEST).exists()

    def submit_s(self, request: Request) -> float:
        """When it was submitted, by the clock of this directory."""
        return max(0.0, request.submitted_at - self.origin)

    def cancelled(self, uid: int) -> bool:
        """Whether its user has asked for its end."""
        return (self.folder(uid) / CANCEL).exists()

    def held(self, uid: int) -> Held:
        """What it shall hold."""
        path = self.folder(uid) / HELD
        if (facts := read_file(path)) is not None:
            return Held.decode(facts, path)
        over = not path.parent.exists() or (path.parent / ENDED).exists()
        if over and (past := self.history.get(uid)):
            if not isinstance(facts := past.get("held"), dict):
                raise DamagedError(path, "it was so when the job ended")
            return Held.decode(facts, path)
        if self.run_folders(uid):
            raise DamagedError(path, "it is missing, but the job has run")
        return Held()

    def load(self, uid: int) -> tuple[Request, Held]:
        """What was submitted, and what it shall hold, if that can be true."""
        request, held = self.request(uid), self.held(uid)
        if why := held.misfit(request):
            raise DamagedError(self.folder(uid) / HELD, why)
        return request, held

    def run_folders(self, uid: int) -> list[Path]:
        """Of all runs that a job has had."""
        return sorted(self.folder(uid).glob("run-*"))

    def ended(self, uid: int) -> Ended | None:
        """How it ended, if it has."""
        path = self.folder(uid) / ENDED
        facts = read_file(path)
        if facts is None and not path.parent.exists():
            past = self.history.get(uid)
            return None if past is None else self.past_ended(uid, past)
        return None if facts is None else decode_as(Ended, facts, path)

    def past_ended(self, uid: int, past: dict[str, Any]) -> Ended:
        """How a job of the history ended."""
        if not isinstance(facts := past.get("ended"), dict):
            raise DamagedError(self.history.row(uid), "it does not say how the job ended")
        return decode_as(Ended, facts, self.history.row(uid))

    def past_load(self, past: dict[str, Any]) -> tuple[Request, Held]:
        """What a job of the history was, and has had, which may not be known."""
        request, facts, held = past.get("request"), past.get("held"), Held()
        if not isinstance(request, dict):
            raise JobError("What was submitted is not known: it was damaged when the job ended.")
        if isinstance(facts, dict):
            with suppress(DamagedError):
                held = Held.decode(facts, self.history.path)
        return Request.decode(request), held

    def log_folder(self, uid: int) -> Path:
        """Where what a job has printed is."""
        return self.folder(uid) if self.folder(uid).is_dir() else self.over / str(uid)

    # Keeping; the daemon's.

    def keep(self, uid: int, held: Held) -> None:
        """Write down what a job shall hold."""
        replace_file(self.folder(uid) / HELD, asdict(held))

    @contextmanager
    def changing(self, uid: int, held: Held) -> Iterator[None]:
        """Change what a job shall hold, on the disk and in memory, or in neither."""
        before = {**vars(held)}
        yield
        try:
            self.keep(uid, held)
        except OSError:
            vars(held).update(before)
            raise

    def end(self, uid: int, ended: Ended) -> None:
        """Write down how it ended."""
        path = self.folder(uid) / ENDED
        if path.is_dir() and not path.is_symlink():  # nothing of ours, and in the way
            path.rename(path.with_name(f"{ENDED}.damaged"))
        replace_file(path, asdict(ended))

    def locked(self, **facts: Any) -> AbstractContextManager[None]:
        """Be the only daemon of this directory; `facts` are for others to read."""
        return locked(self.root, **facts)

    def daemon(self) -> dict[str, Any] | None:
        """What the daemon that runs here says of itself; None if none runs."""
        return daemon_of(self.root)
