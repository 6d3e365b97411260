"""The orderings: the code, the compiled score and the catalogue entry of each.

The lowest score is served first. Equal scores are served in order of submission, which is the
order of the job records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from rota.core.layout import RUNNING
from rota.jit import inline, part
from rota.ledger.work_kernels import remaining, service
from rota.policies.classic.gittins import gittins_table
from rota.policies.classic.rule import CONSERVATIVE, EASY, STRICT
from rota.policies.classic.sort_kernels import sort
from rota.policies.settings import Setting, limits, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.core.types import Floats, Ints, Records
    from rota.policies.classic.rule import Rule

_HOUR_S: Final = 3600.0

FIFO: Final = 0
SHORTEST: Final = 1
REMAINING: Final = 2
ATTAINED: Final = 3
QUEUES: Final = 4
GITTINS: Final = 5
FINISH_FAIR: Final = 6
PACKING: Final = 7
MAX_MIN: Final = 8
DOMINANT: Final = 9


@dataclass(frozen=True)
class Ordering:
    """A way to rank jobs, as the catalogue lists it."""

    summary: str
    source: str
    rule: Mapping[str, Any]
    """The fields of `Rule` that it sets; `order` says which score ranks the jobs."""
    settings: tuple[str, ...] = ()
    """Which of SETTINGS it takes."""
    placement: str = "best-fit"
    keeps_score: Literal["always", "waiting", "no"] = "no"
    """When a job's score stays as it is, by which waiting jobs can be indexed.

    "always": from the submission on. "waiting": it changes only while the job runs. "no": it
    changes while the job waits, or jobs are not served by it alone.
    """
    with_tables: Callable[[Rule, Floats, Ints, int], Rule] | None = None
    """The rule with tables from past jobs: their durations (J,), GPUs (J,), the number of classes.
    None: the ordering needs no past."""

    @property
    def preemptive(self) -> bool:
        """Whether running jobs may be stopped for others."""
        return bool(self.rule.get("preempt", False))

    @property
    def code(self) -> int:
        """Which score ranks the jobs."""
        return int(self.rule.get("order", FIFO))


def _gittins_tables(rule: Rule, duration_s: Floats, num_gpus: Ints, classes: int) -> Rule:
    limits, worth = gittins_table(duration_s * num_gpus, classes)
    return rule._replace(limits=limits, worth=worth)


_ESTIMATE = ("error",)
ORDERINGS: Final[dict[str, Ordering]] = {
    "fifo": Ordering("First come, first served; the head blocks.", "textbook",
                     {"passing": STRICT}, keeps_score="always"),
    "fifo-skip": Ordering("In order of arrival; a job that does not fit is passed over.",
                          "textbook", {}, keeps_score="always"),
    "fifo-easy": Ordering(
        "Later jobs may start if they do not delay the first that waits.",
        "EASY: Lifka, JSSPP 1995",
        {"passing": EASY}, _ESTIMATE, keeps_score="always"),
    "fifo-conservative": Ordering(
        "Later jobs may start if they delay no job before them.",
        "Mu'alem and Feitelson, TPDS 2001",
        {"passing": CONSERVATIVE}, (*_ESTIMATE, "depth"), keeps_score="always"),
    "sjf": Ordering("Shortest job first; the head blocks.", "textbook",
                    {"order": SHORTEST, "passing": STRICT}, _ESTIMATE, keeps_score="always"),
    "sjf-skip": Ordering("Shortest job first; a job that does not fit is passed over.", "textbook",
                         {"order": SHORTEST}, _ESTIMATE, keeps_score="always"),
    "srtf": Ordering("Shortest remaining time first, preemptive.", "Schrage, Oper. Res. 1968",
                     {"order": REMAINING, "preempt": True}, (*_ESTIMATE, "b"),
                     keeps_score="waiting"),
    "srsf": Ordering("Smallest remaining time × GPUs^b first (b = 1), preemptive.",
                     "Tiresias, NSDI 2019",
                     {"order": REMAINING, "preempt": True, "exponent": 1.0}, (*_ESTIMATE, "b"),
                     keeps_score="waiting"),
    "las": Ordering("Least attained service (GPU-seconds) first, preemptive.",
                    "Nuyens and Wierman, 2008",
                    {"order": ATTAINED, "preempt": True, "quantum_s": 900.0}, ("quantum",),
                    keeps_score="waiting"),
    "tiresias": Ordering("2D-LAS: queues by attained GPU-time, first come first served within.",
                         "Tiresias, NSDI 2019",
                         {"order": QUEUES, "preempt": True,
                          "limits": np.array([_HOUR_S, 10 * _HOUR_S])},
                         ("limits",), keeps_score="waiting"),
    "gittins": Ordering("Highest Gittins index of attained GPU-time, from past durations.",
                        "Gittins, 1979; Tiresias, NSDI 2019",
                        {"order": GITTINS, "preempt": True}, ("classes",),
                        keeps_score="waiting", with_tables=_gittins_tables),
    "max-min": Ordering("Max-min fair GPUs over users, least served job first; leases.",
                        "Gavel's baseline, OSDI 2020",
                        {"order": MAX_MIN, "preempt": True, "quantum_s": 900.0}, ("quantum",)),
    "drf": Ordering("Dominant resource fairness over users, by progressive filling.",
                    "Ghodsi et al., NSDI 2011", {"order": DOMINANT}),
    "tetris": Ordering("Demand along what is free, plus shortness.", "Grandl et al., SIGCOMM 2014",
                       {"order": PACKING}, _ESTIMATE),
    "themis": Ordering("Worst finish-time fairness first, preemptive; leases.", "Themis, NSDI 2020",
                       {"order": FINISH_FAIR, "preempt": True, "quantum_s": 900.0},
                       (*_ESTIMATE, "quantum")),
}  # fmt: skip

FIXED_SCORES: Final = frozenset(o.code for o in ORDERINGS.values() if o.keeps_score == "always")
"""Codes of the scores that are known when a job is submitted and never change."""
STILL_SCORES: Final = frozenset(o.code for o in ORDERINGS.values() if o.keeps_score == "waiting")
"""Codes of the scores that change only while a job runs."""
WITH_TABLES: Final = {o.code: o.with_tables for o in ORDERINGS.values() if o.with_tables}
"""By code: how an ordering draws its tables from past jobs."""


SETTINGS: Final[dict[str, Setting]] = {
    "b": Setting("exponent of the GPU count", lambda t: number(t, -10.0), "a number", "exponent"),
    "quantum": Setting("seconds until leases are reconsidered", lambda t: number(t, 1.0),
                       "seconds, 1 or more", "quantum_s"),
    "limits": Setting("GPU-seconds at which a job falls to the next queue", limits,
                      "rising numbers joined by /", "limits"),
    "depth": Setting("number of waiting jobs that get a reservation", lambda t: int(number(t, 1)),
                     "a whole number, 1 or more", "depth"),
    "classes": Setting("how finely attained service is told apart", lambda t: int(number(t, 2)),
                       "a whole number, 2 or more"),
    "error": Setting("sd of the log error of duration estimates", lambda t: number(t, 0.0),
                     "a number, 0 or more"),
}  # fmt: skip


TICK_S = 1e-6
"""Attained service this close to a limit (in GPU-seconds) counts as having reached it."""


@inline
def class_of(limits: Floats, attained: float) -> int:
    """The number of limits that have been reached."""
    low, high = 0, limits.size
    while low < high:
        k = (low + high) >> 1
        if attained + TICK_S >= limits[k]:
            low = k + 1
        else:
            high = k
    return low


@part
def score(rule: Rule, job: Any, now_s: float, live: int, total_gpus: int, demand: float) -> float:
    """The job's score; `demand` is what it asks for, as a share of what there is."""
    kind = rule.order
    if kind == FIFO or kind == DOMINANT:
        return 0.0
    if kind == SHORTEST:
        return job["estimate_s"]
    if kind == REMAINING:
        left = remaining(job, now_s)
        if rule.exponent == 0.0:
            return left
        if rule.exponent == 1.0:
            return left * job["gpus"]
        return left * job["gpus"] ** rule.exponent
    if kind == ATTAINED or kind == MAX_MIN:
        return service(job, now_s)
    if kind == QUEUES:
        return class_of(rule.limits, service(job, now_s))
    if kind == GITTINS:
        return -rule.worth[class_of(rule.limits, service(job, now_s))]
    if kind == FINISH_FAIR:
        # Time in the shared cluster, past and to come, over the time with a 1/live share of it.
        alone_s = job["estimate_s"] * max(1.0, job["gpus"] * live / total_gpus)
        return -(now_s - job["submit_s"] + remaining(job, now_s)) / alone_s
    # PACKING: demand along what is free, less a tenth for each order of magnitude of work.
    return 0.1 * np.log10(1.0 + remaining(job, now_s) * job["gpus"]) - demand


@part
def next_turn_s(rule: Rule, job: Any, now_s: float) -> float:
    """When the score of a job that runs, or starts now, jumps by itself: at its next limit."""
    if rule.order != QUEUES and rule.order != GITTINS:
        return np.inf
    attained = service(job, now_s)
    k = class_of(rule.limits, attained)
    if k == rule.limits.size:
        return np.inf
    if job["status"] == RUNNING:
        begin_s, pace = max(now_s, job["resume_s"]), job["pace"]
    else:
        again = job["started_s"] == job["started_s"]  # not NaN: it ran before
        begin_s, pace = now_s + (job["restart_s"] if again else 0.0), 1.0
    turn_s = begin_s + max((rule.limits[k] - attained) / (job["gpus"] * pace), TICK_S)
    return max(turn_s, np.nextafter(now_s, np.inf))  # a tick may be less than time can tell


@part
def rank(
    rule: Rule, jobs: Records, order: Ints, n: int, now_s: float, nodes: Records, key: Floats
) -> None:
    """Sort `order[:n]` by the policy's score."""
    if rule.order == FIFO or rule.order == DOMINANT:  # no scores: by submission
        k = 1
        while k < n and order[k - 1] < order[k]:
            k += 1
        if k >= n:
            return
    gpus, cpus, memory_gb, free, free_cpus, free_gb = 0, 0.0, 0.0, 0, 0.0, 0.0
    shared = rule.order == FINISH_FAIR or rule.order == PACKING  # only these look at the cluster
    for k in range(nodes.size if shared else 0):
        if nodes[k]["up"]:
            gpus, free = gpus + nodes[k]["gpus"], free + nodes[k]["free"]
            cpus, free_cpus = cpus + nodes[k]["cpus"], free_cpus + nodes[k]["free_cpus"]
            memory_gb, free_gb = (
                memory_gb + nodes[k]["memory_gb"],
                free_gb + nodes[k]["free_memory_gb"],
            )
    for i in range(n):
        job = jobs[order[i]]
        demand = 0.0
        if rule.order == PACKING:
            demand = job["gpus"] / gpus * (free / gpus) if gpus > 0 else 0.0
            if cpus < np.inf and cpus > 0.0:
                demand += job["workers"] * job["cpus_per_worker"] / cpus * (free_cpus / cpus)
            if memory_gb < np.inf and memory_gb > 0.0:
                demand += (
                    job["workers"] * job["memory_gb_per_worker"] / memory_gb * (free_gb / memory_gb)
                )
        turn = score(rule, job, now_s, n, max(1, gpus), demand)
        key[order[i]] = turn if turn == turn else np.inf  # of unknown length: after all others
    sort(order, n, key)
