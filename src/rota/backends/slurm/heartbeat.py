"""What a job writes of its own progress into its working directory; read as if it were hostile."""

from __future__ import annotations

import json
import os
import stat
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Final

from rota.backends.driver import Progress

if TYPE_CHECKING:
    from rota.backends.slurm.replies import SlurmJob

MOST_BYTES: Final = 4096


def heartbeat_name(call: str) -> str:
    """The file's name, in the job's working directory."""
    return f"rota-heartbeat-{call}.json"


def read_heartbeat(job: SlurmJob) -> tuple[Progress | None, float | None]:
    """Progress, and when it was last saved (Unix time), as far as the job tells.

    {"time": Unix time, "samples": …, "total": …, "samples_per_s": …, "saved": Unix time}; only
    `samples` is needed. Elastic jobs add `nodes` and `pause_s` (see `Progress`). Links, pipes, and
    files of other users are not followed.
    """
    path = os.path.join(job.work_dir, heartbeat_name(job.call))
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None, None
    try:
        facts = os.fstat(number)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != job.user_id:
            return None, None
        told = json.loads(os.read(number, MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None, None
    finally:
        os.close(number)
    if not isinstance(told, dict):
        return None, None
    samples, saved_s = _number(told.get("samples")), _number(told.get("saved"))
    saved = saved_s if isfinite(saved_s) else None
    if not samples >= 0:
        return None, saved
    time_s, total = _number(told.get("time")), _number(told.get("total"))
    progress = Progress(
        time_s=min(time_s, facts.st_mtime) if isfinite(time_s) else facts.st_mtime,
        samples=samples, total=total if total >= samples else nan,
        samples_per_s=_number(told.get("samples_per_s")), nodes=_count_of(told.get("nodes")),
        pause_s=_number(told.get("pause_s")),
    )  # fmt: skip
    return progress, saved


def _count_of(value: Any) -> int:
    """A whole number, or 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _number(value: Any) -> float:
    """A finite number, or NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return nan
    try:
        found = float(value)
    except OverflowError:
        return nan
    return found if isfinite(found) else nan
