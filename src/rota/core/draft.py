"""One round being written: edits that can never overfill a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.decision import Decision, overfill, server_error, size_error
from rota.core.layout import SHARE, SLACK
from rota.errors import DecisionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.snapshot import Snapshot
    from rota.core.types import Ints, Records

_DEMAND = ["cpus_per_worker", "memory_gb_per_worker", "cpus_per_server", "memory_gb_per_server"]


class Draft:
    """An allocation in the making; it begins with what every job holds now.

    `Draft(snapshot, blank=True)` begins with an empty cluster instead, for policies that
    place all jobs anew. Jobs and nodes are named by their index in the snapshot. Once it is
    committed, a draft refuses every edit: what was decided stays so.

    The arrays are public so that compiled kernels can edit a draft too: job j shall hold
    `shares[at[j] : at[j] + length[j]]`, new shares go behind `used`, and `nodes` says what is
    still free.
    """

    def __init__(self, snapshot: Snapshot, *, blank: bool = False) -> None:
        self.snapshot = snapshot
        self.rows: Records = snapshot.jobs.rows  # (J,) JOB
        self.nodes: Records = snapshot.nodes.copy()  # (N,) NODE
        self.at: Ints  # (J,)
        self.length: Ints  # (J,)
        self.shares: Records  # (S,) SHARE
        if blank:
            self.nodes["free"] = np.where(self.nodes["up"], self.nodes["gpus"], 0)
            self.nodes["free_cpus"] = self.nodes["cpus"]
            self.nodes["free_memory_gb"] = self.nodes["memory_gb"]
            self.at, self.length = np.zeros((2, len(self.rows)), np.int64)
            self.used = 0
        else:
            self.at = self.rows["share_at"].astype(np.int64)
            self.length = self.rows["share_len"].astype(np.int64)
            self.used = len(snapshot.shares)
        self.shares = np.empty(self.used + len(self.rows) + 64, SHARE)
        self.shares[: self.used] = snapshot.shares[: self.used]
        self._blank = blank
        self._resized: set[int] = set()
        self._tunes: dict[int, dict[str, float]] = {}
        self._reasons: dict[int, str] = {}
        self._committed = False
        self._free, self._up = _view(self.nodes["free"]), _view(self.nodes["up"])
        self._at, self._length = _view(self.at), _view(self.length)
        self._gpus, self._each = _view(self.rows["gpus"]), _view(self.rows["gpus_per_worker"])
        self._fewest, self._most = _view(self.rows["min_workers"]), _view(self.rows["max_workers"])
        self._servers = _view(self.rows["servers"])
        self._fewest_servers = _view(self.rows["min_servers"])
        self._most_servers = _view(self.rows["max_servers"])
        self._entries = _view(self.shares.view(np.int32))
        self._plain: bool | None = None

    def held(self, job: int) -> list[tuple[int, int, int]]:
        """What `job` holds in this draft: (node, workers, servers), by node."""
        at = int(self.at[job])
        return self.shares[at : at + int(self.length[job])].tolist()  # type: ignore[no-any-return]

    def free(self, node: int) -> int:
        """GPUs on `node` that no job holds."""
        return self._free[node]

    def gpus(self, job: int) -> int:
        """GPUs that `job` asks for."""
        return self._gpus[job]

    def gpus_per_worker(self, job: int) -> int:
        """GPUs that one worker of `job` needs."""
        return self._each[job]

    def servers(self, job: int) -> int:
        """Parameter servers that `job` asks for."""
        return self._servers[job]

    def place(
        self,
        job: int,
        share: Sequence[tuple[int, int]],
        servers: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Give `job` exactly `share`, as (node, workers) pairs, in place of what it holds.

        `servers` are (node, servers) pairs; left out, they are what the job asks for, evenly
        beside its workers. Refused, and nothing changed, if a node has not enough left, is of the
        wrong GPU type, or the number of workers or of servers is not one that the job runs with.
        """
        if servers is None and self._servers[job]:
            servers = self.beside(job, share)
        count = 0
        if len(share) == 1 and not servers:
            node, total = share[0]
            entries = [(node, total, 0)] if total else []
        else:
            entries = _merged(share, servers or ())
            total, count = sum(entry[1] for entry in entries), sum(entry[2] for entry in entries)
        if not self._fewest[job] <= total <= self._most[job] or (total == 0 and count > 0):
            raise size_error(self.rows[job], total)
        if total and (count < self._fewest_servers[job] or 0 < count > self._most_servers[job]):
            raise server_error(self.rows[job], count)
        self._replace(job, entries)

    def beside(self, job: int, share: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The servers that `job` asks for, as (node, servers) pairs, evenly beside its workers."""
        nodes = list(dict.fromkeys(node for node, workers in share if workers))
        if not nodes:
            return []
        each, rest = divmod(self._servers[job], len(nodes))
        return [(node, each + (k < rest)) for k, node in enumerate(nodes)]

    def fits(
        self, job: int, share: Sequence[tuple[int, int]], servers: Sequence[tuple[int, int]]
    ) -> bool:
        """Whether all the nodes have room left for these workers and servers, beside what is."""
        each = self._each[job]
        return all(
            workers * each <= self._free[node] and self._misfit(job, node, workers, count) is None
            for node, workers, count in _merged(share, servers)
        )

    def grow(self, job: int, node: int, workers: int = 1, servers: int = 0) -> None:
        """Give `job` more workers or servers on `node`."""
        self._check_change(node, workers, servers)
        before = self.held(job)
        total = sum(entry[1] for entry in before) + workers
        if total > self._most[job]:
            raise size_error(self.rows[job], total)
        count = sum(entry[2] for entry in before) + servers
        if servers and count > self._most_servers[job]:
            raise server_error(self.rows[job], count)
        self._resized.add(job)
        self._replace(job, _merged([(n, w) for n, w, _ in before] + [(node, workers)],
                                   [(n, s) for n, _, s in before] + [(node, servers)]))  # fmt: skip

    def shrink(self, job: int, node: int, workers: int = 1, servers: int = 0) -> None:
        """Take workers or servers on `node` away from `job`."""
        self._check_change(node, workers, servers)
        before = {n: (w, s) for n, w, s in self.held(job)}
        has_workers, has_servers = before.get(node, (0, 0))
        if workers > has_workers or servers > has_servers:
            raise DecisionError(
                f"Job {self._uid(job)} has {has_workers} workers and {has_servers} servers on node "
                f"{self.snapshot.cluster.names[node]!r}: cannot take {workers} and {servers} away."
            )
        before[node] = (has_workers - workers, has_servers - servers)
        self._resized.add(job)
        self._replace(job, [(n, w, s) for n, (w, s) in sorted(before.items()) if w or s])

    def _check_change(self, node: int, workers: int, servers: int) -> None:
        if not 0 <= node < len(self._free):
            raise DecisionError(
                f"There is no node {node}: the cluster has {len(self._free)} nodes."
            )
        if workers < 0 or servers < 0:
            raise DecisionError(f"Cannot change a job by {workers} workers and {servers} servers.")

    def stop(self, job: int) -> None:
        """Take everything from `job`; it waits."""
        self._check_open()
        self._undo(job, self.held(job))
        self.length[job] = 0

    def tune(self, job: int, **settings: float) -> None:
        """Change settings of the job itself, such as `grow`, the levels its network grows by."""
        self._check_open()
        self._tunes.setdefault(job, {}).update(settings)

    def reason(self, job: int, why: str) -> None:
        """Say why `job` got what it got; the journal keeps it."""
        self._check_open()
        self._reasons[job] = why

    def commit(self, *, wake_s: float = np.inf) -> Decision:
        """The decision this draft has become; it cannot be edited any more.

        The policy is asked again by `wake_s` at the latest.
        """
        for job in self._resized:
            self._check_size(job)
        self._committed = True
        for array in (self.at, self.length, self.shares):
            array.flags.writeable = False
        untouched = None
        if not self._blank:
            untouched = (self.at == self.rows["share_at"]) & (self.length == self.rows["share_len"])
        return Decision(
            self.rows["uid"], self.at, self.length, self.shares, self._tunes, self._reasons, wake_s,
            self.snapshot, untouched,
        )  # fmt: skip

    def _check_open(self) -> None:
        if self._committed:
            raise DecisionError(
                "This draft has been committed, and its decision may be in force already. "
                "Begin another: Draft(snapshot)."
            )

    def _check_size(self, job: int) -> None:
        """Refuse what grow() and shrink() have left of a job, unless it can run, or waits."""
        held = self.held(job)
        total, count = sum(entry[1] for entry in held), sum(entry[2] for entry in held)
        if held and total < max(1, self._fewest[job]):
            raise size_error(self.rows[job], total)
        # A job that keeps the number it has was given it by something else.
        same = count == self.rows["held_servers"][job] and self.rows["share_len"][job] > 0
        if held and not same and count < self._fewest_servers[job]:
            raise server_error(self.rows[job], count)

    def reserve(self, entries: int) -> None:
        """Make room for that many further shares; for kernels, which cannot."""
        self._check_open()
        if self.used + entries > len(self.shares):
            grown = np.empty(2 * (self.used + entries), SHARE)
            grown[: self.used] = self.shares[: self.used]
            self.shares = grown
            self._entries = _view(grown.view(np.int32))

    def _replace(self, job: int, entries: list[tuple[int, int, int]]) -> None:
        if self._committed:
            self._check_open()
        before = self.held(job) if self._length[job] else []
        if before:
            self._undo(job, before)
        try:
            self._take(job, entries)
        except DecisionError:
            self._undo(job, before, -1)  # not _take(), which refuses nodes that are down by now
            raise
        used, count = self.used, len(entries)
        if used + count > len(self.shares):
            self.reserve(count)
        self._at[job], self._length[job] = used, count
        written, k = self._entries, 3 * used
        for node, workers, servers in entries:
            written[k], written[k + 1], written[k + 2] = node, workers, servers
            k += 3
        self.used = used + count

    def _take(self, job: int, entries: list[tuple[int, int, int]]) -> None:
        each, free = self._each[job], self._free
        if self._plain is None:
            self._plain = not any(self.rows[name].any() for name in _DEMAND) and bool(
                (self.rows["gpu_type"] == -1).all()
            )
        for done, (node, workers, servers) in enumerate(entries):
            if not 0 <= node < len(free):
                self._undo(job, entries[:done])
                raise DecisionError(f"There is no node {node}: the cluster has {len(free)} nodes.")
            wrong: tuple[str, float] | None = None
            gpus, left = workers * each, free[node]
            if gpus > left or workers < 0 or servers < 0 or not self._up[node]:
                wrong = ("GPUs", gpus)
            elif not self._plain:
                wrong = self._misfit(job, node, workers, servers)
            if wrong:
                self._undo(job, entries[:done])
                raise self._refusal(job, node, *wrong)
            free[node] = left - gpus
            if not self._plain:
                self._add(job, node, -workers, -servers)

    def _misfit(self, job: int, node: int, workers: int, servers: int) -> tuple[str, float] | None:
        """What, beside GPUs, the node lacks for these numbers of workers and servers."""
        row, here = self.rows[job], self.nodes[node]
        if workers and row["gpu_type"] not in (-1, here["type"]):
            return "GPUs of its type", 1
        cpus = workers * row["cpus_per_worker"] + servers * row["cpus_per_server"]
        memory_gb = workers * row["memory_gb_per_worker"] + servers * row["memory_gb_per_server"]
        if cpus > here["free_cpus"] + SLACK:
            return "CPUs", float(cpus)
        if memory_gb > here["free_memory_gb"] + SLACK:
            return "GB of memory", float(memory_gb)
        return None

    def _add(self, job: int, node: int, workers: int, servers: int) -> None:
        """Give the node back the CPUs and memory of these numbers of workers and servers."""
        row, here = self.rows[job], self.nodes[node]
        here["free_cpus"] += workers * row["cpus_per_worker"] + servers * row["cpus_per_server"]
        here["free_memory_gb"] += (
            workers * row["memory_gb_per_worker"] + servers * row["memory_gb_per_server"]
        )

    def _undo(self, job: int, entries: list[tuple[int, int, int]], sign: int = 1) -> None:
        """Give the nodes back what these entries hold; with sign −1, take it again."""
        for node, workers, servers in entries:
            if self._up[node]:
                self._free[node] += sign * workers * self._each[job]
            if not self._plain:
                self._add(job, node, sign * workers, sign * servers)

    def _uid(self, job: int) -> int:
        return int(self.snapshot.jobs.uid[job])

    def _refusal(self, job: int, node: int, kind: str, need: float) -> DecisionError:
        """Say which node, what it has, and which jobs hold or want it."""
        name, rows = self.snapshot.cluster.names[node], self.snapshot.jobs.rows
        if kind == "GPUs of its type":
            return DecisionError(
                f"Node {name!r} has no GPUs of the type job {self._uid(job)} runs on."
            )
        if not self.nodes[node]["up"]:
            return DecisionError(
                f"Node {name!r} is down: job {self._uid(job)} cannot be placed there."
            )
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


def _view(array: Any) -> memoryview[int]:
    """The array for access one by one, for which a memory view is several times faster."""
    return memoryview(array)


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
