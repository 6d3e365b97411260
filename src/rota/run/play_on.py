"""A cluster from one snapshot on, as a backend: what happens if its jobs go on as they did.

Jobs go on at the pace at which they were seen. No job comes, none fails, no node goes or comes
back. Time passes only in numbers. The simulator plays whole traces; this one takes any snapshot of
a live cluster, with nodes that are drained while jobs run there and jobs that others have placed.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.jobs import JobTable
from rota.core.layout import RUNNING, SHARE, WAITING
from rota.core.plan import Stop, Tune

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.plan import Plan, Share
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats

_DONE_S: Final = 1e-6
"""Seconds of work that count as none, after rounding."""


class PlayOn:
    """Plays a snapshot on under plans; a Backend."""

    def __init__(self, snapshot: Snapshot, work_s: Floats) -> None:
        """`work_s` is what is left of each job (J,), in seconds at the size that it asks for."""
        self._first, self.now_s = snapshot, snapshot.time_s
        self._rows = snapshot.jobs.rows.copy()
        self._rows["settled_s"] = self.now_s
        self._work_s = np.array(work_s, np.float64)
        self._index = {int(uid): j for j, uid in enumerate(self._rows["uid"])}
        self._held: dict[int, Share] = {
            j: tuple(snapshot.share(j)) for j in np.flatnonzero(snapshot.jobs.running).tolist()
        }
        self._there = np.full(len(self._rows), True)
        self._wake_s, self._asked = inf, False
        self._faster = np.ones(len(self._rows))
        for j in self._held:
            seen, usual = float(self._rows[j]["pace"]), self._pace(j)
            if seen > 0 and usual > 0:
                self._faster[j] = seen / usual
            self._rows[j]["pace"] = self._pace(j)
        self.started_s: dict[int, float] = {}
        """When each job that waited was given something for the first time, by uid."""

    def observe(self) -> Snapshot:
        """All that is known now."""
        kept = np.flatnonzero(self._there)
        rows, nodes = self._rows[kept], self._first.cluster.empty()
        entries: list[tuple[int, int, int]] = []
        place = {int(j): k for k, j in enumerate(kept)}
        for j, share in sorted(self._held.items()):
            row = rows[place[j]]
            row["share_at"], row["share_len"] = len(entries), len(share)
            entries += share
            for node, workers, servers in share:
                nodes[node]["free"] -= workers * row["gpus_per_worker"]
                for what in ("cpus", "memory_gb"):
                    nodes[node][f"free_{what}"] -= (
                        workers * row[f"{what}_per_worker"] + servers * row[f"{what}_per_server"]
                    )
        nodes["up"] = self._first.nodes["up"]
        for what in ("free", "free_cpus", "free_memory_gb"):
            nodes[what] = np.where(nodes["up"], np.maximum(nodes[what], 0), 0)
        return replace(
            self._first, time_s=self.now_s, jobs=JobTable(rows), nodes=nodes,
            shares=np.array(entries, SHARE),
        )  # fmt: skip

    def apply(self, plan: Plan) -> None:
        """Change what jobs hold, at no time passed; settings of jobs stay as they are."""
        self._wake_s, self._asked = plan.decision.wake_s, self._asked and not len(plan)
        for action in plan:
            if isinstance(action, Tune):
                continue
            j = self._index[action.uid]
            if isinstance(action, Stop):
                self._stop(j)
            else:
                self._give(j, action.share)

    def wait(self, wake_s: float) -> bool:
        """Go to the next end of a job, or to `wake_s`; False if nothing is to come.

        Before that it stays once where it is, so that a policy is asked about the end of all.
        """
        ends_s = {j: self._ends_s(j) for j in self._held}
        next_s = min(min(ends_s.values(), default=inf), max(min(wake_s, self._wake_s), self.now_s))
        if next_s == inf or not self._there.any():
            goes_on, self._asked = not self._asked, True
            return goes_on
        self._advance(next_s)
        for j, end_s in ends_s.items():
            if end_s <= next_s or self._work_s[j] <= _DONE_S:
                self._there[j] = False
                del self._held[j]
        return True

    def _advance(self, to_s: float) -> None:
        for j in self._held:
            row = self._rows[j]
            done_s = float(row["pace"]) * max(0.0, to_s - max(row["settled_s"], row["resume_s"]))
            gpus = int(row["held_workers"]) * int(row["gpus_per_worker"])
            row["attained_gpu_s"] += gpus * (to_s - row["settled_s"])
            row["progress_s"] += done_s
            row["remaining_s"] = np.maximum(row["remaining_s"] - done_s, 0.0)  # NaN stays
            row["settled_s"] = to_s
            self._work_s[j] -= done_s
        self.now_s = to_s

    def _ends_s(self, j: int) -> float:
        row = self._rows[j]
        if not row["pace"] > 0:
            return inf
        return float(max(self.now_s, row["resume_s"]) + max(0.0, self._work_s[j]) / row["pace"])

    def _give(self, j: int, share: Share) -> None:
        row, ran = self._rows[j], j in self._held
        again = not np.isnan(row["started_s"])
        pause_s = float(row["resize_s"] if ran else row["restart_s"] if again else 0.0)
        self._held[j] = share
        row["status"], row["since_s"] = RUNNING, self.now_s
        row["settled_s"], row["resume_s"] = self.now_s, self.now_s + pause_s
        row["held_workers"], row["held_servers"] = (sum(e[k] for e in share) for k in (1, 2))
        row["share_len"] = len(share)
        if not again:
            row["started_s"] = self.now_s
        row["pace"] = self._pace(j)
        self.started_s.setdefault(int(row["uid"]), self.now_s)

    def _stop(self, j: int) -> None:
        del self._held[j]
        row = self._rows[j]
        row["status"], row["since_s"], row["pace"] = WAITING, np.nan, 0.0
        row["held_workers"] = row["held_servers"] = row["share_len"] = 0
        row["preemptions"] += 1

    def _pace(self, j: int) -> float:
        """Progress per second with what a job holds: by its curve or else by its workers."""
        row, share = self._rows[j], self._held[j]
        workers = sum(entry[1] for entry in share)
        usual = workers / max(1, int(row["workers"]))
        return float(self._faster[j]) * (self._by_curve(row, share, workers) or usual)

    def _by_curve(self, row: np.void, share: Sequence[tuple[int, int, int]], workers: int) -> float:
        """The pace that its curve gives; 0 where it has none or the curve ends before."""
        curves = self._first.curves
        if curves is None or not 0 <= row["curve"] < len(curves.names) or not share:
            return 0.0
        other = len(share) if curves.by_nodes else sum(entry[2] for entry in share)
        if other >= curves.speed.shape[2] or workers >= curves.speed.shape[3]:
            return 0.0
        types = [int(self._first.cluster.type[entry[0]]) for entry in share]
        return float(curves.speed[row["curve"], types, other, workers].min())
