"""Jobs that their users have put on hold: not started, or stopped, until they are resumed."""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Final

from rota.errors import ConfigError, DamagedError
from rota.files import decode_as, read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.backends.local.live_job import LiveJob
    from rota.backends.local.state_dir import StateDir

HOLD: Final = "hold.json"


@dataclass(frozen=True)
class Hold:
    """A user's wish that a job does not run."""

    since: float = 0.0
    """Seconds since 1970."""
    force: bool = False
    """Stop it even if it has to begin again."""


def hold_job(store: StateDir, uid: int, *, force: bool = False) -> None:
    """Ask that a job is not started, or stopped if it runs, until `resume_job`."""
    store.check_live(uid)
    if store.cancelled(uid):
        raise ConfigError(f"Job {uid} is being cancelled; it cannot be held.")
    request, held = store.load(uid)
    if (held.seats or held.open) and not request.resumes and not force:
        raise ConfigError(
            f"Job {uid} runs and could not go on from where it was stopped: it would begin again. "
            "Say --force to stop it all the same; submit jobs that write checkpoints with "
            "--preemptible."
        )
    replace_file(store.folder(uid) / HOLD, {"since": time(), "force": force})
    store.announce(uid)


def resume_job(store: StateDir, uid: int) -> None:
    """Put a job that is on hold back in line."""
    store.check_live(uid)
    try:
        (store.folder(uid) / HOLD).unlink()
    except FileNotFoundError:
        raise ConfigError(f"Job {uid} is not held; `rota queue {uid}` says what it does.") from None
    store.announce(uid)


def hold_of(store: StateDir, uid: int) -> Hold | None:
    """The hold of a job, if it has one; a damaged file still holds it."""
    path = store.folder(uid) / HOLD
    try:
        facts = read_file(path)
        return None if facts is None else decode_as(Hold, facts, path)
    except DamagedError:
        return Hold()


def obey_hold(job: LiveJob, now_s: float, say: Callable[[str], None]) -> bool:
    """Hold or resume a job as its user asked; True if that changes anything. For the daemon."""
    hold = hold_of(job.store, job.uid)
    if (hold is not None) == job.on_hold or job.cancelled:
        return False
    if hold is None:
        job.on_hold = False
        say(f"job {job.uid}: resumed by its user")
    elif job.held.seats and not (job.request.resumes or hold.force):
        say(f"job {job.uid} is not held: it had started before, and would have to begin again")
        (job.store.folder(job.uid) / HOLD).unlink(missing_ok=True)
        return False
    else:
        job.on_hold = True
        try:
            if job.held.seats:
                job.take((), (), {}, now_s)
        except OSError:  # to be tried again: a job on hold that is not stopped would run on unseen
            job.on_hold = False
            raise
        say(f"job {job.uid}: put on hold by its user")
    return True
