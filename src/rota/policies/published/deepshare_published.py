"""The baselines of DeepShare exactly as published, and the same with their orders put right.

Each round begins with an empty cluster, so every job may be stopped or moved. Jobs are placed one
after the other, each over as many nodes as divide it evenly, on the lowest ones with room, and
never on one node alone if it has several workers; the first job that does not fit ends the round.

As published, `deepshare-las` sorts by attained time, *most* first, and `deepshare-srtf` by the part
that is done, *least* first: each does nearly the opposite of its name. The forms called
`-corrected` sort by least attained time and by least remaining time. None of them knows how jobs
slow each other down; see `rota.policies.contention` for policies that do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.draft import Draft
from rota.policies.classic.placing import start_if_idle
from rota.policies.published.dl2_published import starting
from rota.policies.settings import PolicyEntry

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats

LAS: Final = "las"
SRTF: Final = "srtf"


@dataclass(frozen=True)
class DeepShareBaseline:
    """LAS or SRTF, spread as far as possible; the head of the queue blocks."""

    rule: str
    corrected: bool = False
    """Whether it sorts as its name says, and not as the authors' program does."""
    name: str = "deepshare"
    oracle: bool = False
    """Whether it is shown the truth where a scenario hides it."""

    def decide(self, snapshot: Snapshot) -> Decision:
        """One round."""
        draft = Draft(snapshot, blank=True)
        fixed = snapshot.pinned | starting(snapshot)
        for job in np.flatnonzero(fixed).tolist():
            held = snapshot.share(job)
            draft.place(job, [(n, w) for n, w, _ in held], [(n, s) for n, _, s in held])
        # A stable sort keeps the order of submission among equals.
        for job in np.argsort(self._rank(snapshot), kind="stable").tolist():
            if not fixed[job] and not spread(draft, job):
                break
        start_if_idle(draft)
        return draft.commit()

    def _rank(self, snapshot: Snapshot) -> Floats:
        """The key by which jobs are sorted, lowest first (J,)."""
        jobs = snapshot.jobs
        if self.rule == LAS:
            # Seconds, not GPU-seconds, as the authors count.
            ran_s = np.where(jobs.gpus > 0, jobs.attained_gpu_s / np.maximum(jobs.gpus, 1), 0.0)
            return ran_s if self.corrected else -ran_s
        if self.corrected:
            return np.where(np.isfinite(jobs.remaining_s), jobs.remaining_s, np.inf)
        whole_s = jobs.progress_s + jobs.remaining_s
        with np.errstate(invalid="ignore", divide="ignore"):
            done = jobs.progress_s / whole_s
        return np.where(np.isfinite(done), done, 0.0)


def spread(draft: Draft, job: int) -> bool:
    """Give a job equal parts of as many nodes as possible, the lowest with room; False: no room."""
    workers, nodes = int(draft.rows[job]["workers"]), len(draft.nodes)
    for span in range(min(workers, nodes), min(workers, 2) - 1, -1):
        each, rest = divmod(workers, span)
        if rest:
            continue
        able = [
            n for n in range(nodes) if draft.nodes[n]["up"] and draft.fits(job, [(n, each)], ())
        ]
        share = [(n, each) for n in able[:span]]
        if len(share) == span and draft.fits(job, share, draft.beside(job, share)):
            draft.place(job, share)
            return True
    return False


def _entry(rule: str, corrected: bool, order: str) -> PolicyEntry:
    return PolicyEntry(
        f"{rule.upper()} as a baseline of DeepShare, {order} first; most spread, head blocks.",
        "DeepShare, ICPADS 2023, public code", DeepShareBaseline,
        preset={"rule": rule, "corrected": corrected},
    )  # fmt: skip


POLICIES: Final = {
    "deepshare-las": _entry(LAS, False, "most attained time"),
    "deepshare-srtf": _entry(SRTF, False, "least done part"),
    "deepshare-las-corrected": _entry(LAS, True, "least attained time"),
    "deepshare-srtf-corrected": _entry(SRTF, True, "least remaining time"),
}
