"""The jobs that were watched in shadow, as a world to play policies in, and how they really fared.

Every job asks for what it asked for and takes as long as it took; only when it starts, where, and
whether it is stopped is up to the policy. What is assumed beside that is told in `ASSUMED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import InputError
from rota.run.journal_file import told
from rota.sim.past import jobs_so_far, past_cluster
from rota.sim.setup import Conditions, job_records
from rota.sim.simulator import fitting
from rota.traces import Trace
from rota.traces.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rota.core.cluster import Cluster
    from rota.core.types import Bools, Floats, Ints
    from rota.run.outcome import Outcome
    from rota.run.reader import JournalView

AHEAD_S: Final = 1e-3
"""Jobs that ran when watching began are submitted so much earlier than those that waited."""
ASSUMED: Final = (
    "A job takes as long as it did, wherever it runs; one of another size goes with its workers.",
    "Policies see estimates and time limits, as live, and never the true lengths.",
    "A job that is stopped goes on where it was, after the restart cost that rota counts with.",
    "All nodes are up all the time; lists of nodes and features do not count.",
    "Limits on preemptions (--preempt-rate, --preempt-budget) do not hold.",
)
"""What a counterfactual takes for granted, in whole sentences."""


@dataclass(frozen=True, kw_only=True)
class ShadowWorld:
    """What policies are played on, and which of its jobs are compared."""

    trace: Trace
    cluster: Cluster
    when: Conditions
    record: Outcome
    """What really happened, of all jobs of the journal."""
    job: Ints  # (J,) number in the journal of each job of the trace
    compared: Bools  # (J,)
    wait_s: Floats  # (J,) as it really was
    aside: Mapping[str, int]
    """Jobs that are not compared: why, and how many."""

    @classmethod
    def of(cls, view: JournalView, foreign: Collection[str] = ()) -> ShadowWorld:
        """The world of a journal; `foreign` are the ids of jobs that are not the policy's."""
        cluster = past_cluster(view.meta)
        if cluster is None:
            raise InputError(f"{view.path}: The journal does not say which nodes were watched.")
        trace, job = jobs_so_far(view)
        record, when = view.outcome(), _conditions(view.meta)
        fits = fitting(cluster, job_records(trace, cluster, when, np.random.default_rng(0)))
        never = _never_ran(record, len(record.submit_s), job)
        trace, job = trace.take(fits), job[fits]
        theirs = np.isin(trace.job_id, list(foreign))
        trace, order = _with_arrivals(trace, record.started_s[job], theirs)
        job, theirs = job[order], theirs[order]
        ran_before = record.started_s[job] <= 0
        over = np.isfinite(record.done_s[job])
        compared = over & ~ran_before & ~theirs
        wait_s = record.done_s[job] - record.submit_s[job] - trace.duration_s
        aside = {
            "running already when watching began": ran_before,
            "not rota's to start": theirs & ~ran_before,
            "not over yet": ~over & ~theirs & ~ran_before,
        }
        counts = {why: int(mask.sum()) for why, mask in aside.items()} | never
        counts["larger than the cluster"] = int((~fits).sum())
        return cls(
            trace=trace, cluster=cluster, when=when, record=record, job=job, compared=compared,
            wait_s=np.maximum(0.0, wait_s), aside={why: n for why, n in counts.items() if n},
        )  # fmt: skip

    def waited_s(self, outcome: Outcome) -> Floats:
        """How long each job (J,) waits in a run over this world: all but its work."""
        submit_s = np.maximum(0.0, self.trace.submit_s)
        waited: Floats = np.maximum(0.0, outcome.done_s - submit_s - self.trace.duration_s)
        return waited


def _conditions(meta: Mapping[str, Any]) -> Conditions:
    return Conditions(min_run_s=float((told(meta, "min_run_s") or [0.0])[-1]), trust_trace=True)


def _never_ran(record: Outcome, jobs: int, ran: Ints) -> dict[str, int]:
    """Jobs that have never run, by what became of them."""
    never = np.ones(jobs, np.bool_)
    never[ran] = False
    gone = np.isfinite(record.done_s)
    return {
        "taken away before it ran": int((never & gone).sum()),
        "still waiting": int((never & ~gone).sum()),
    }


def _with_arrivals(trace: Trace, started_s: Floats, theirs: Bools) -> tuple[Trace, Ints]:
    """The jobs by when they are there for a policy, and the row that each had before.

    One that ran at the beginning is there first; one of others when it takes its room.
    """
    submit_s = np.where(theirs, started_s, trace.submit_s)
    submit_s = np.where(started_s <= 0, -AHEAD_S, submit_s)
    columns = {column.name: getattr(trace, column.name) for column in COLUMNS}
    columns["submit_s"] = submit_s
    kinds = {name: getattr(trace, name) for name in ("gpu_types", "users", "models")}
    return (
        Trace.build(trace.name, **columns, **kinds),
        np.argsort(submit_s, kind="stable"),
    )
