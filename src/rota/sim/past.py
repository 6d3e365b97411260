"""A journal as a past: its jobs as a trace, and the machines that they ran on.

What a simulator wrote is given back as it was. The lengths of a live cluster's jobs were not known
beforehand; they follow from what the jobs have held and done since.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.cluster import Cluster
from rota.core.layout import FINISH, GIVE_UP, NODE_DOWN
from rota.errors import ConfigError, InputError, JournalError
from rota.run.journal_file import told
from rota.run.lengths import lengths
from rota.run.reader import read_journal
from rota.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rota.core.types import Bools, Floats, Ints
    from rota.run.lengths import Lengths
    from rota.run.reader import Jobs, JournalView

_SQLITE: Final = b"SQLite format 3"
_LEAST_S: Final = 1e-6
"""Work of a job that was over as soon as it had begun."""
_MORE_S: Final = 60.0
"""What a job that is not over is thought to have before it, beside as much as it has done."""


def is_journal(source: str | Path) -> bool:
    """Whether a file is a journal, or at least of its kind, by its first bytes."""
    try:
        with Path(source).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except (OSError, ValueError):
        return False


@contextmanager
def opened(path: str | Path) -> Iterator[JournalView]:
    """A journal that the user named: what is wrong with it is wrong with the input."""
    try:
        with read_journal(path) as view:
            yield view
    except JournalError as error:
        raise InputError(str(error)) from None


def past_jobs(path: str | Path) -> Trace:
    """The jobs of a journal, to be played again under another policy.

    Of a live journal those that are over and have run, each as long as its work; `left_out`
    counts the others.
    """
    with opened(path) as view:
        jobs = _listed(view)
        if np.isfinite(jobs.duration_s).all():
            return _trace(view, jobs, jobs.duration_s)
        seen = lengths(view)
        work_s = _worked(seen)
        ran = seen.most > 0
        wrong = {
            "it was cancelled or failed before it had run": seen.over & ~ran,
            "it was not over when the journal ended": ~seen.over,
            "it was not seen to take any time": seen.over & ran & ~(work_s > 0),
        }
        left_out = {why: int(bad.sum()) for why, bad in wrong.items() if bad.any()}
        keep = seen.over & ran & (work_s > 0)
        if not keep.any():
            told = "; ".join(f"{count} × {why}" for why, count in left_out.items())
            raise InputError(
                f"{view.path}: The journal holds no job whose length can be told ({told}); wait "
                "until some have ended."
            )
        return _trace(view, jobs, work_s, seen, keep, left_out)


def lived_jobs(view: JournalView) -> tuple[Trace, Ints, Floats]:
    """The jobs as they took part in the recorded run.

    Returns a trace, each job's row in it (J,), and when each row's job left, inf if it did not.
    If the recorded rounds are carried out again, every job ends when it did. One that is not over
    is taken to be half done; one that never held anything is left out: its row is −1.
    """
    jobs, events = _listed(view), view.events().events
    rows = np.full(len(jobs.submit_s), -1)
    if np.isfinite(jobs.duration_s).all():
        order = np.argsort(jobs.submit_s, kind="stable")
        rows[order] = np.arange(len(order))
        left_s, ends = np.full(len(order), np.inf), np.isin(events["kind"], (FINISH, GIVE_UP))
        left_s[events["job"][ends]] = events["time_s"][ends]
        return _trace(view, jobs, jobs.duration_s), rows, left_s[order]
    seen = lengths(view)
    kept = np.flatnonzero(seen.most > 0)
    if not len(kept):
        raise InputError(f"{view.path}: None of the journal's jobs has run yet.")
    order = kept[np.argsort(_submitted(jobs, seen)[kept], kind="stable")]
    rows[order] = np.arange(len(order))
    work_s = np.where(seen.over, seen.work_s, 2.0 * seen.work_s + _MORE_S)
    trace = _trace(view, jobs, np.maximum(work_s, _LEAST_S), seen, seen.most > 0)
    return trace, rows, seen.left_s[order]


def jobs_so_far(view: JournalView) -> tuple[Trace, Ints]:
    """The jobs of a live journal that have run, each as long as it has run by now.

    With the number that each has in the journal, by its row in the trace.
    """
    jobs, seen = _listed(view), lengths(view)
    work_s = _worked(seen)
    keep = (seen.most > 0) & (work_s > 0)
    if not keep.any():
        raise InputError(f"{view.path}: None of the journal's jobs has run yet; report later.")
    number = {name: k for k, name in enumerate(jobs.job_id.tolist())}
    trace = _trace(view, jobs, work_s, seen, keep)
    return trace, np.array([number[name] for name in trace.job_id.tolist()])


def _worked(seen: Lengths) -> Floats:
    """The work of each job (J,), in seconds at the size it asked for: measured, or by its runs."""
    work_s = np.where(seen.measured_s > 0, seen.measured_s, seen.work_s)
    return np.where(work_s > 0, work_s, seen.held_s)  # pauses cannot have been all of it


def past_cluster(meta: Mapping[str, Any]) -> Cluster | None:
    """The last cluster that a journal's facts describe; None if they describe none correctly."""
    try:
        columns: dict[str, Any] = {
            name: tuple(value) if name in ("names", "gpu_types") else np.asarray(value)
            for name, value in told(meta, "cluster")[-1].items()
        }
        return Cluster(**columns)
    except (LookupError, TypeError, AttributeError, ValueError, ConfigError):
        return None


def count_clusters(meta: Mapping[str, Any]) -> int:
    """The number of clusters a journal tells of, one after another: it may outlive a cluster."""
    return len(told(meta, "cluster"))


def _listed(view: JournalView) -> Jobs:
    """The jobs, of which there are some, and none that the events alone speak of."""
    jobs, events = view.jobs, view.events().events
    if not len(jobs.submit_s):
        raise InputError(f"{view.path}: The journal holds no jobs to learn from or to replay.")
    job = events["job"][events["kind"] < NODE_DOWN]
    if len(job) and not (job.min() >= 0 and job.max() < len(jobs.submit_s)):
        raise InputError(f"{view.path}: The journal speaks of jobs that it does not list.")
    if np.any(np.diff(events["time_s"]) < 0):
        raise InputError(f"{view.path}: The journal's events are not in order of time.")
    return jobs


def _trace(
    view: JournalView,
    jobs: Jobs,
    duration_s: Floats,
    seen: Lengths | None = None,
    keep: Bools | slice = slice(None),
    left_out: Mapping[str, int] | None = None,
) -> Trace:
    """The jobs to `keep` as a trace; `seen`, if the journal is a live one's."""
    columns: dict[str, Any] = {"num_gpus": jobs.num_gpus, "user": jobs.user, **jobs.more}
    names: dict[str, Any] = {f"{key}s": texts for key, texts in jobs.names.items()}
    submit_s = jobs.submit_s
    if seen is not None:
        columns |= _shapes(jobs, seen) | _costs(jobs, seen)
        submit_s = _submitted(jobs, seen)
    return Trace.build(
        str(view.path), job_id=jobs.job_id[keep], submit_s=submit_s[keep],
        duration_s=duration_s[keep], left_out=left_out, users=jobs.users,
        **names, **{name: column[keep] for name, column in columns.items()},
    )  # fmt: skip


def _submitted(jobs: Jobs, seen: Lengths) -> Floats:
    """When each job came (J,): its submission, or the first sight of it if that is earlier."""
    came_s: Floats = np.fmin(jobs.submit_s, seen.came_s)
    return came_s


def _shapes(jobs: Jobs, seen: Lengths) -> dict[str, Any]:
    """What the jobs asked for (J,), at least as wide as what they were seen to hold."""

    def given(name: str, usual: Any) -> Any:
        column = jobs.more.get(name, np.full(len(jobs.num_gpus), np.nan))
        return np.where(np.isnan(column), usual, column)

    bare = jobs.num_gpus < 1  # workers without GPUs, which such a journal does not count
    each = np.where(bare, 0, given("gpus_per_worker", 1))
    gpus = np.where(bare, np.maximum(1, seen.most), jobs.num_gpus)
    asked = gpus // np.maximum(1, each)
    ran = seen.most > 0
    servers = given("num_servers", 0)
    return {
        "num_gpus": gpus,
        "gpus_per_worker": each,
        "min_workers": np.minimum(given("min_workers", asked), np.where(ran, seen.fewest, asked)),
        "max_workers": np.maximum(given("max_workers", asked), seen.most),
        "num_servers": servers,
        "min_servers": given("min_servers", servers),
        "max_servers": given("max_servers", servers),
        "cpus_per_worker": given("cpus_per_worker", 0),
        "memory_gb_per_worker": given("memory_gb_per_worker", 0),
        "model": given("model", -1).astype(np.int64),
        "gpu_type": given("gpu_type", -1).astype(np.int64),
        "stoppable": given("stoppable", 1),
    }


def _costs(jobs: Jobs, seen: Lengths) -> dict[str, Floats]:
    """What changes cost each job (J,): as was measured, or else thought, or as of the others."""
    thought_s = jobs.more.get("restart_s", np.full(len(jobs.num_gpus), np.nan))
    return {
        "restart_s": _filled(np.where(np.isnan(seen.restart_s), thought_s, seen.restart_s)),
        "resize_s": _filled(seen.resize_s),
    }


def _filled(cost_s: Floats) -> Floats:
    known = cost_s[np.isfinite(cost_s)]
    return np.where(np.isnan(cost_s), known.mean(), cost_s) if len(known) else cost_s
