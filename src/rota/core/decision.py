"""The allocation that is wanted: a state, not a list of commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rota.core.layout import MOVE, RESIZE, SLACK, START, STOP
from rota.core.learning import check_tunes
from rota.core.plan import TURN, Plan
from rota.errors import DecisionError, OverfillError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats, Ints, Records


@dataclass(frozen=True)
class Decision:
    """What each live job shall hold; a job without shares waits."""

    uid: Ints  # (J,) the jobs of the snapshot it answers, in the same order
    at: Ints  # (J,) job j shall hold shares[at[j] : at[j] + length[j]]
    length: Ints  # (J,)
    shares: Records  # (S,) SHARE; a job's are ordered by node, and some may belong to no job
    tunes: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Settings to change, by the job's index."""
    reasons: Mapping[int, str] = field(default_factory=dict)
    """Why, by the job's index; kept in the journal, shown by `explain`."""
    wake_s: float = np.inf
    """The policy wants to be asked again no later than this, whatever happens."""
    drafted: Snapshot | None = None
    """The snapshot for which a draft wrote it, and about which `untouched` is."""
    untouched: Bools | None = None  # (J,) jobs known to hold what they held, if a draft says so

    def share(self, job: int) -> tuple[tuple[int, int, int], ...]:
        """What `job` (its index) shall hold: (node, workers, servers), by node."""
        at = int(self.at[job])
        return tuple(self.shares[at : at + int(self.length[job])].tolist())

    def flat(self, jobs: Ints) -> tuple[Ints, Records]:
        """All shares of `jobs` and, for each, which job it belongs to."""
        length = self.length[jobs]
        before = length.cumsum() - length
        place = np.repeat(self.at[jobs] - before, length) + np.arange(length.sum())
        return np.repeat(jobs, length), self.shares[place]

    def check(self, snapshot: Snapshot) -> None:
        """Raise a DecisionError unless the cluster can carry this decision out.

        No sums kept elsewhere are used: what the shares take is added up again.
        """
        rows, nodes = snapshot.jobs.rows, snapshot.nodes
        if len(self.uid) != len(rows) or not (self.uid == rows["uid"]).all():
            raise DecisionError("The decision is about other jobs than the snapshot.")
        self._check_form()
        if self.tunes and snapshot.learning is not None:
            check_tunes(self.tunes, snapshot.learning, self.uid, self.length)
        owner, shares = self.flat(np.arange(len(rows)))
        self._check_sizes(snapshot, owner, shares)
        node, workers, servers = (shares[name] for name in ("node", "workers", "servers"))
        if len(node) and not (node.min() >= 0 and node.max() < len(nodes)):
            wrong = int(node.min() if node.min() < 0 else node.max())
            raise DecisionError(f"There is no node {wrong}: the cluster has {len(nodes)} nodes.")
        self._check_up(snapshot, owner, node)
        self._check_types(snapshot, owner, node, workers)
        wanted = workers * rows["gpus_per_worker"][owner]
        self._check_fill(snapshot, "GPUs", owner, node, wanted, nodes["gpus"])
        for kind, has in (("CPUs", "cpus"), ("GB of memory", "memory_gb")):
            by_worker, by_server = rows[f"{has}_per_worker"], rows[f"{has}_per_server"]
            if by_worker.any() or by_server.any():
                wanted = workers * by_worker[owner] + servers * by_server[owner]
                self._check_fill(snapshot, kind, owner, node, wanted, nodes[has])

    def _check_form(self) -> None:
        """Whether jobs point at shares that exist, and tunes and reasons at jobs that do."""
        size = len(self.uid)
        if not len(self.at) == len(self.length) == size:
            raise DecisionError(
                f"The decision has {len(self.at)} × at and {len(self.length)} × length "
                f"for {size} jobs."
            )
        outside = (self.at < 0) | (self.at + self.length > len(self.shares))
        wrong = (self.length < 0) | ((self.length > 0) & outside)
        if wrong.any():
            raise DecisionError(
                f"Job {self.uid[int(wrong.argmax())]} points at shares outside the decision's "
                f"{len(self.shares)}."
            )
        for name, told in (("tunes", self.tunes), ("reasons", self.reasons)):
            if lost := [job for job in told if not 0 <= job < size]:
                raise DecisionError(
                    f"The decision's {name} name job {lost[0]}, an index; there are {size} jobs."
                )

    def _check_sizes(self, snapshot: Snapshot, owner: Ints, shares: Records) -> None:
        rows, servers = snapshot.jobs.rows, shares["servers"]
        total = np.bincount(owner, shares["workers"], len(rows))
        wrong = (total < np.maximum(rows["min_workers"], 1)) | (total > rows["max_workers"])
        wrong &= self.length > 0
        wrong[owner[(shares["workers"] < 0) | (servers < 0)]] = True
        if wrong.any():
            raise size_error(rows[int(wrong.argmax())], int(total[int(wrong.argmax())]))
        if rows["min_servers"].any() or servers.any():
            count = np.bincount(owner, servers, len(rows))
            wrong = (count < rows["min_servers"]) | (count > rows["max_servers"])
            # A job that keeps the number it has was given it by something else.
            wrong &= (self.length > 0) & (
                (count != rows["held_servers"]) | (rows["share_len"] == 0)
            )
            if wrong.any():
                raise server_error(rows[int(wrong.argmax())], int(count[int(wrong.argmax())]))

    def _check_up(self, snapshot: Snapshot, owner: Ints, node: Ints) -> None:
        """No job is placed on a node that is down; one that is there, unchanged, may stay."""
        down = ~snapshot.nodes["up"][node]
        for share in np.flatnonzero(down).tolist():
            job = int(owner[share])
            if self.share(job) != tuple(snapshot.share(job)):
                raise DecisionError(
                    f"Node {snapshot.cluster.names[int(node[share])]!r} is down: job "
                    f"{self.uid[job]} cannot be placed there."
                )

    def _check_types(self, snapshot: Snapshot, owner: Ints, node: Ints, workers: Ints) -> None:
        wanted = snapshot.jobs.rows["gpu_type"]
        if not (wanted != -1).any():
            return
        wrong = (
            (wanted[owner] != -1) & (wanted[owner] != snapshot.nodes["type"][node]) & (workers > 0)
        )
        if wrong.any():
            bad = int(wrong.argmax())
            where, cluster = int(node[bad]), snapshot.cluster
            raise DecisionError(
                f"Node {cluster.names[where]!r} has GPUs of type "
                f"{cluster.gpu_types[int(cluster.type[where])]!r}, "
                f"but job {self.uid[owner[bad]]} runs on another type only."
            )

    def _check_fill(
        self, snapshot: Snapshot, kind: str, owner: Ints, node: Ints, wanted: Floats, has: Floats
    ) -> None:
        used = np.bincount(node, wanted, len(has))
        if (used > has + SLACK).any():
            full = int((used > has + SLACK).argmax())
            here = (node == full) & (wanted > 0)
            users = list(zip(self.uid[owner[here]].tolist(), wanted[here].tolist(), strict=True))
            raise overfill(
                snapshot.cluster.names[full], kind, float(has[full]), users,
                " Build it with Draft.place(), which refuses to overfill.",
            )  # fmt: skip

    def diff(self, snapshot: Snapshot) -> Plan:
        """What has to change to get there from `snapshot`."""
        rows = snapshot.jobs.rows
        if self.drafted is snapshot and self.untouched is not None:
            job = (~self.untouched).nonzero()[0]
        else:
            job = ((rows["share_len"] > 0) | (self.length > 0)).nonzero()[0]
        held, want = rows["share_len"][job], self.length[job]
        changed = held != want
        if not changed.all():
            changed |= self._elsewhere(snapshot, job)
        if not changed.any():
            return Plan(self, job[:0], job[:0])
        job, held, want = job[changed], held[changed], want[changed]
        owner, shares = self.flat(job)
        size = len(rows)
        resized = np.bincount(owner, shares["workers"], size)[job] != rows["held_workers"][job]
        if shares["servers"].any() or rows["held_servers"].any():
            resized |= np.bincount(owner, shares["servers"], size)[job] != rows["held_servers"][job]
        kind = np.where(resized, RESIZE, MOVE)
        kind[want == 0] = STOP
        kind[held == 0] = START
        order = TURN[kind].argsort(kind="stable")
        return Plan(self, kind[order], job[order])

    def _elsewhere(self, snapshot: Snapshot, jobs: Ints) -> Bools:
        """Which of `jobs` have as many shares as before, but other ones."""
        rows = snapshot.jobs.rows
        same = (rows["share_len"][jobs] == self.length[jobs]) & (self.length[jobs] > 0)
        owner, new = self.flat(jobs[same])
        moved = np.zeros(len(rows), np.bool_)
        if len(owner):
            length = self.length[jobs[same]]
            before = length.cumsum() - length
            place = np.repeat(rows["share_at"][jobs[same]] - before, length) + np.arange(
                length.sum()
            )
            old = snapshot.shares[place]
            moved[owner[(old.view(np.int32) != new.view(np.int32)).reshape(-1, 3).any(1)]] = True
        return moved[jobs]


def size_error(row: np.void, workers: int) -> DecisionError:
    """The error for a job that is given a number of workers it does not run with."""
    return DecisionError(
        f"Job {row['uid']} runs with {row['min_workers']} to {row['max_workers']} workers; "
        f"the decision gives it {workers}. Use Draft.stop() to take everything from it."
    )


def server_error(row: np.void, servers: int) -> DecisionError:
    """The error for a job that is given a number of servers it does not run with."""
    return DecisionError(
        f"Job {row['uid']} runs with {row['min_servers']} to {row['max_servers']} parameter "
        f"servers; the decision gives it {servers}. Draft.place() takes them as `servers`."
    )


def overfill(
    node: str, kind: str, has: float, users: list[tuple[int, float]], hint: str = ""
) -> OverfillError:
    """The error for a node that is asked for more than it has."""
    who = ", ".join(f"job {uid} wants {amount:g}" for uid, amount in users)
    total = sum(amount for _, amount in users)
    return OverfillError(
        f"Node {node!r} has {has:g} {kind} but the decision uses {total:g} ({who}).{hint}"
    )
