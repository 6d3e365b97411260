"""One round being written: edits that can never overfill a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.core.decision import Decision, overfill
from rota.core.layout import SHARE, SLACK
from rota.errors import DecisionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.snapshot import Snapshot
    from rota.core.types import Ints, Records

_DEMAND = [
    "gpus_per_worker", "gpu_type", "min_workers", "max_workers", "cpus_per_worker",
    "memory_gb_per_worker", "cpus_per_server", "memory_gb_per_server",
]  # fmt: skip


class Draft:
    """An allocation in the making; it begins with what every job holds now.

    `Draft(snapshot, blank=True)` begins with an empty cluster instead, for policies that
    place everybody anew. Jobs and nodes are named by their index in the snapshot.

    The arrays are public so that compiled kernels can edit a draft too: job j shall hold
    `shares[at[j] : at[j] + length[j]]`, new shares go behind `used`, and `nodes` says what is
    still free.
    """

    def __init__(self, snapshot: Snapshot, *, blank: bool = False) -> None:
        self.snapshot = snapshot
        rows = snapshot.jobs.rows
        self.at: Ints  # (J,)
        self.length: Ints  # (J,)
        if blank:
            self.nodes: Records = snapshot.nodes.copy()  # (N,) NODE
            self.nodes["free"] = np.where(self.nodes["up"], self.nodes["gpus"], 0)
            self.nodes["free_cpus"] = self.nodes["cpus"]
            self.nodes["free_memory_gb"] = self.nodes["memory_gb"]
            self.at, self.length = np.zeros((2, len(rows)), np.int64)
            self.shares: Records = np.empty(max(64, len(snapshot.shares)), SHARE)
            self.used = 0
        else:
            self.nodes = snapshot.nodes.copy()
            self.at, self.length = rows["share_at"].copy(), rows["share_len"].astype(np.int64)
            self.used = len(snapshot.shares)
            self.shares = np.empty(self.used + 64, SHARE)
            self.shares[: self.used] = snapshot.shares
        self._tunes: dict[int, dict[str, float]] = {}
        self._reasons: dict[int, str] = {}
        self._demand = rows[_DEMAND]
        self._free = memoryview(self.nodes["free"])  # ten times faster than NumPy, one by one

    def held(self, job: int) -> list[tuple[int, int, int]]:
        """What `job` holds in this draft: (node, workers, servers), by node."""
        at = int(self.at[job])
        return self.shares[at : at + int(self.length[job])].tolist()  # type: ignore[no-any-return]

    def free(self, node: int) -> int:
        """GPUs that nobody holds on `node`."""
        return self._free[node]

    def place(
        self,
        job: int,
        share: Sequence[tuple[int, int]],
        servers: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Give `job` exactly `share`, as (node, workers) pairs, in place of what it holds.

        `servers` are (node, servers) pairs. Refused, and nothing changed, if a node has not
        enough left, is of the wrong GPU type, or the number of workers is not the job's.
        """
        if len(share) == 1 and not servers:
            entries = [(share[0][0], share[0][1], 0)]
        else:
            entries = _merged(share, servers)
        _, _, fewest, most, *_ = self._demand[job].item()
        total = sum(entry[1] for entry in entries)
        if not fewest <= total <= most:
            raise DecisionError(
                f"Job {self._uid(job)} runs with {fewest} to {most} workers, not with {total}. "
                "Use stop() to take everything from it."
            )
        self._replace(job, entries)

    def grow(self, job: int, node: int, workers: int = 1, servers: int = 0) -> None:
        """Give `job` more workers or servers on `node`."""
        before = self.held(job)
        most = self._demand[job].item()[3]
        if sum(entry[1] for entry in before) + workers > most:
            raise DecisionError(f"Job {self._uid(job)} cannot use more than {most} workers.")
        self._replace(job, _merged([(n, w) for n, w, _ in before] + [(node, workers)],
                                   [(n, s) for n, _, s in before] + [(node, servers)]))  # fmt: skip

    def shrink(self, job: int, node: int, workers: int = 1, servers: int = 0) -> None:
        """Take workers or servers on `node` away from `job`."""
        before = {n: (w, s) for n, w, s in self.held(job)}
        has_workers, has_servers = before.get(node, (0, 0))
        if workers > has_workers or servers > has_servers:
            raise DecisionError(
                f"Job {self._uid(job)} has {has_workers} workers and {has_servers} servers on node "
                f"{self.snapshot.cluster.names[node]!r}: cannot take {workers} and {servers} away."
            )
        before[node] = (has_workers - workers, has_servers - servers)
        self._replace(job, [(n, w, s) for n, (w, s) in sorted(before.items()) if w or s])

    def stop(self, job: int) -> None:
        """Take everything from `job`; it waits."""
        self._give_back(job)
        self.length[job] = 0

    def tune(self, job: int, **settings: float) -> None:
        """Change settings of the job itself, such as its batch size."""
        self._tunes.setdefault(job, {}).update(settings)

    def reason(self, job: int, why: str) -> None:
        """Say why `job` got what it got; the journal keeps it."""
        self._reasons[job] = why

    def commit(self, *, wake_s: float = np.inf) -> Decision:
        """The decision this draft has become; the policy is asked again by `wake_s` at the latest."""
        at = np.concatenate(([0], self.length.cumsum()))
        owner_shift = np.repeat(self.at - at[:-1], self.length)
        shares = self.shares[owner_shift + np.arange(at[-1])]
        return Decision(self.snapshot.jobs.uid, at, shares, self._tunes, self._reasons, wake_s)

    def reserve(self, entries: int) -> None:
        """Make room for so many further shares; for kernels, which cannot."""
        if self.used + entries > len(self.shares):
            grown = np.empty(2 * (self.used + entries), SHARE)
            grown[: self.used] = self.shares[: self.used]
            self.shares = grown

    def _replace(self, job: int, entries: list[tuple[int, int, int]]) -> None:
        before = self.held(job) if self.length[job] else []
        if before:
            self._give_back(job)
        try:
            self._take(job, entries)
        except DecisionError:
            self._take(job, before)
            raise
        self.reserve(len(entries))
        self.at[job], self.length[job] = self.used, len(entries)
        for entry in entries:
            self.shares[self.used] = entry
            self.used += 1

    def _take(self, job: int, entries: list[tuple[int, int, int]]) -> None:
        gpus, gpu_type, _, _, cpus, memory, server_cpus, server_memory = self._demand[job].item()
        plain = gpu_type == -1 and not (cpus or memory or server_cpus or server_memory)
        for done, (node, workers, servers) in enumerate(entries):
            need = workers * gpus
            if not 0 <= node < len(self._free):
                self._undo(job, entries[:done])
                raise DecisionError(f"There is no node {node}: the cluster has {len(self._free)} nodes.")
            if need > self._free[node] or workers < 0 or servers < 0:
                self._undo(job, entries[:done])
                raise self._refusal(job, node, "GPUs", need)
            if not plain:
                here = self.nodes[node]
                need_cpus = workers * cpus + servers * server_cpus
                need_memory = workers * memory + servers * server_memory
                wrong = self._misfit(here, gpu_type if workers else -1, need_cpus, need_memory)
                if wrong:
                    self._undo(job, entries[:done])
                    raise self._refusal(job, node, *wrong)
                here["free_cpus"] -= need_cpus
                here["free_memory_gb"] -= need_memory
            self._free[node] -= need

    @staticmethod
    def _misfit(
        here: np.void, gpu_type: int, cpus: float, memory_gb: float
    ) -> tuple[str, float] | None:
        if gpu_type not in (-1, here["type"]):
            return "GPUs of its type", 1
        if cpus > here["free_cpus"] + SLACK:
            return "CPUs", cpus
        if memory_gb > here["free_memory_gb"] + SLACK:
            return "GB of memory", memory_gb
        return None

    def _undo(self, job: int, entries: list[tuple[int, int, int]]) -> None:
        gpus, _, _, _, cpus, memory, server_cpus, server_memory = self._demand[job].item()
        for node, workers, servers in entries:
            self._free[node] += workers * gpus
            here = self.nodes[node]
            here["free_cpus"] += workers * cpus + servers * server_cpus
            here["free_memory_gb"] += workers * memory + servers * server_memory

    def _give_back(self, job: int) -> None:
        self._undo(job, self.held(job))

    def _uid(self, job: int) -> int:
        return int(self.snapshot.jobs.uid[job])

    def _refusal(self, job: int, node: int, kind: str, need: float) -> DecisionError:
        """Say which node, what it has, and which jobs hold or want it."""
        name, rows = self.snapshot.cluster.names[node], self.snapshot.jobs.rows
        if kind == "GPUs of its type":
            return DecisionError(f"Node {name!r} has no GPUs of the type job {self._uid(job)} runs on.")
        if not self.nodes[node]["up"]:
            return DecisionError(f"Node {name!r} is down: job {self._uid(job)} cannot be placed there.")
        per = {"GPUs": "gpus_per", "CPUs": "cpus_per"}.get(kind, "memory_gb_per")
        users = []
        for other in np.flatnonzero(self.length):
            amount = sum(
                w * rows[f"{per}_worker"][other]
                + (s * rows[f"{per}_server"][other] if per != "gpus_per" else 0)
                for n, w, s in self.held(int(other)) if n == node and other != job
            )  # fmt: skip
            if amount:
                users.append((self._uid(int(other)), float(amount)))
        has = float(self.nodes[node][per.removesuffix("_per")])
        return overfill(name, kind, has, [*users, (self._uid(job), need)])


def _merged(
    share: Sequence[tuple[int, int]], servers: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Workers and servers as one list, each node once, by node."""
    by_node: dict[int, list[int]] = {}
    for node, workers in share:
        by_node.setdefault(int(node), [0, 0])[0] += int(workers)
    for node, count in servers:
        by_node.setdefault(int(node), [0, 0])[1] += int(count)
    return [(n, w, s) for n, (w, s) in sorted(by_node.items()) if w or s]
