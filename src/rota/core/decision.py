"""The allocation that is wanted: a state, not a list of commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import SLACK
from rota.core.plan import MOVE, RESIZE, START, STOP, Plan
from rota.errors import DecisionError, OverfillError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats, Ints, Records


@dataclass(frozen=True)
class Decision:
    """Who shall hold what, for every live job; a job without shares waits."""

    uid: Ints  # (J,) the jobs of the snapshot it answers, in the same order
    at: Ints  # (J+1,) job j shall hold shares[at[j] : at[j+1]]
    shares: Records  # (S,) SHARE, by job and node
    tunes: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Settings to change, by the job's index."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Why, by the job's index; kept in the journal, shown by `explain`."""
    wake_s: float = np.inf
    """The policy wants to be asked again no later than this, whatever happens."""

    def share(self, job: int) -> tuple[tuple[int, int, int], ...]:
        """What `job` (its index) shall hold: (node, workers, servers), by node."""
        return tuple(self.shares[int(self.at[job]) : int(self.at[job + 1])].tolist())

    def _owners(self) -> Ints:
        """Which job each share belongs to (S,)."""
        return np.repeat(np.arange(len(self.uid)), self.at[1:] - self.at[:-1])

    def check(self, snapshot: Snapshot) -> None:
        """Raise a DecisionError unless the cluster can carry this decision out."""
        rows, nodes = snapshot.jobs.rows, snapshot.nodes
        if len(self.uid) != len(rows) or not (self.uid is rows["uid"] or (self.uid == rows["uid"]).all()):
            raise DecisionError("The decision is about other jobs than the snapshot.")
        owner = self._owners()
        self._check_sizes(snapshot, owner)
        node, workers, servers = (self.shares[name] for name in ("node", "workers", "servers"))
        if len(node) and not (0 <= node.min() and node.max() < len(nodes)):
            raise DecisionError(f"There is no node {node.max()}: the cluster has {len(nodes)} nodes.")
        self._check_types(snapshot, owner, node, workers)
        capacity = np.where(nodes["up"], nodes["gpus"], 0)
        self._check_fill(snapshot, "GPUs", workers * rows["gpus_per_worker"][owner], capacity)
        for kind, per in (("CPUs", "cpus_per"), ("GB of memory", "memory_gb_per")):
            by_worker, by_server = rows[f"{per}_worker"], rows[f"{per}_server"]
            if by_worker.any() or by_server.any():
                wanted = workers * by_worker[owner] + servers * by_server[owner]
                self._check_fill(snapshot, kind, wanted, nodes[per.removesuffix("_per")])

    def _check_sizes(self, snapshot: Snapshot, owner: Ints) -> None:
        rows = snapshot.jobs.rows
        total = np.bincount(owner, self.shares["workers"], len(rows))
        wrong = (total > 0) & ((total < rows["min_workers"]) | (total > rows["max_workers"]))
        negative = len(owner) > 0 and min(self.shares["workers"].min(), self.shares["servers"].min()) < 0
        if wrong.any() or negative:
            job = int(wrong.argmax()) if wrong.any() else int(owner[self.shares["workers"].argmin()])
            row = rows[job]
            raise DecisionError(
                f"Job {row['uid']} runs with {row['min_workers']} to {row['max_workers']} workers; "
                f"the decision gives it {int(total[job])}."
            )

    def _check_types(self, snapshot: Snapshot, owner: Ints, node: Ints, workers: Ints) -> None:
        wanted = snapshot.jobs.rows["gpu_type"]
        if not (wanted != -1).any():
            return
        wrong = (wanted[owner] != -1) & (wanted[owner] != snapshot.nodes["type"][node]) & (workers > 0)
        if wrong.any():
            bad = int(wrong.argmax())
            types, name = snapshot.cluster.gpu_types, snapshot.cluster.names[int(node[bad])]
            raise DecisionError(
                f"Node {name!r} has GPUs of type {types[int(snapshot.nodes['type'][node[bad]])]!r}, "
                f"but job {self.uid[owner[bad]]} runs on another type only."
            )

    def _check_fill(self, snapshot: Snapshot, kind: str, wanted: Floats, has: Floats) -> None:
        used = np.bincount(self.shares["node"], wanted, len(has))
        if (used > has + SLACK).any():
            full = int((used > has + SLACK).argmax())
            here = self.shares["node"] == full
            users = [(int(self.uid[j]), float(w)) for j, w in
                     zip(self._owners()[here], wanted[here], strict=True) if w > 0]  # fmt: skip
            raise overfill(snapshot.cluster.names[full], kind, float(has[full]), users)

    def diff(self, snapshot: Snapshot) -> Plan:
        """What has to change to get there from `snapshot`."""
        rows = snapshot.jobs.rows
        held, want = rows["share_len"], self.at[1:] - self.at[:-1]
        changed = (held != want) | self._replaced(snapshot, held == want)
        job = changed.nonzero()[0]
        if not job.size:
            return Plan(self, job, job)
        workers, servers = self._totals(job)
        resized = (workers != rows["held_workers"][job]) | (servers != rows["held_servers"][job])
        kind = np.where(resized, RESIZE, MOVE)
        kind[want[job] == 0] = STOP
        kind[held[job] == 0] = START
        order = kind.argsort(kind="stable")
        return Plan(self, kind[order], job[order])

    def _replaced(self, snapshot: Snapshot, same_length: Bools) -> Bools:
        """Which jobs of equally many shares hold others than they shall (J,)."""
        owner = self._owners()
        before = (snapshot.jobs.rows["share_at"] - self.at[:-1])[owner] + np.arange(len(owner))
        before[~same_length[owner]] = 0
        changed = np.zeros(len(self.uid), np.bool_)
        if len(snapshot.shares) and len(owner):
            old = snapshot.shares.view(np.int32).reshape(-1, 3)[before]
            new = self.shares.view(np.int32).reshape(-1, 3)
            changed[owner[(old != new).any(1)]] = True
        return changed & same_length

    def _totals(self, job: Ints) -> tuple[Ints, Ints]:
        workers, servers = (
            np.concatenate(([0], self.shares[name].cumsum())) for name in ("workers", "servers")
        )
        start, stop = self.at[job], self.at[job + 1]
        return workers[stop] - workers[start], servers[stop] - servers[start]


def overfill(node: str, kind: str, has: float, users: list[tuple[int, float]]) -> OverfillError:
    """The error for a node that is asked for more than it has."""
    who = ", ".join(f"job {uid} wants {amount:g}" for uid, amount in users)
    total = sum(amount for _, amount in users)
    return OverfillError(
        f"Node {node!r} has {has:g} {kind} but the decision uses {total:g} ({who}). "
        "Build it with Draft.place(), which refuses to overfill."
    )
