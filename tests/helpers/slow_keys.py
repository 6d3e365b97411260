"""The decoder of `malo` and `mosa` in plain Python: slow, and written another way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rota.core.layout import SLACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.policies.published.key_decoding_kernels import KeyedQueue

Share = list[tuple[int, int, int]]
"""(node, workers, servers)."""


@dataclass
class SlowKeys:
    """The room that is left while jobs are served one after the other."""

    queue: KeyedQueue
    free: list[tuple[float, float, float]] = field(default_factory=list)
    """By node: GPUs, CPUs, memory."""

    def __post_init__(self) -> None:
        q = self.queue
        room = zip(q.free.tolist(), q.free_cpus.tolist(), q.free_memory_gb.tolist(), strict=True)
        self.free = list(room)

    def decode(self, x: Sequence[float]) -> tuple[float, float, dict[int, Share]]:
        """Mean time, mean fee, and what each job that starts holds."""
        q, J, N = self.queue, len(self.queue.workers), len(self.free)
        times, fees, started = [], [], {}
        before = q.busy_gpu_s
        for j in sorted(range(J), key=lambda job: (x[job], job)):
            share = self.place(j, min(N - 1, int(x[J + j] * N)))
            gpus, run_s = int(q.workers[j] * q.gpus[j]), float(q.left_s[j])
            if share:
                started[j] = share
                run_s /= self.pace(j, share)
                times.append(run_s)
                hourly = sum(workers * q.gpus[j] * q.price[n] for n, workers, _ in share)
                fees.append(hourly * run_s / 3600)
            else:
                times.append(before / max(1, q.total_gpus) + run_s)
                fees.append(q.later_fee[j])
            if gpus <= q.total_gpus:
                before += gpus * run_s
        return sum(times) / J, sum(fees) / J, started

    def place(self, j: int, first: int) -> Share | None:
        """The first place that will do, taken from the room."""
        q = self.queue
        ring = [*range(first, len(self.free)), *range(first)]
        tries: list[list[int]] = []
        if q.most[j] >= q.workers[j]:
            tries += [[n] for n in ring if self.fit(j, n) >= q.workers[j]]
        if q.workers[j] > 1:
            T = q.pace.shape[1]
            kinds: Iterable[int] = ((q.type[first] + k) % T for k in range(T))
            tries += [[n for n in ring if q.type[n] == kind] for kind in kinds]
            tries += [ring] if T > 1 else []
        for nodes in tries:
            share = self.gang(j, nodes)
            if share and self.pace(j, share) > 0 and self.holds(j, share):
                for n, *_ in share:
                    self.free[n] = self.after(j, share, n)
                return share
        return None

    def gang(self, j: int, nodes: list[int]) -> Share | None:
        """As many workers as fit on each node in turn; None: not all do."""
        left, parts = int(self.queue.workers[j]), []
        for n in nodes:
            taken = min(left, self.fit(j, n))
            if taken:
                parts.append((n, taken))
                left -= taken
        each, rest = divmod(int(self.queue.servers[j]), max(1, len(parts)))
        return None if left else [(n, w, each + (k < rest)) for k, (n, w) in enumerate(parts)]

    def fit(self, j: int, n: int) -> int:
        """Workers for which node n has room."""
        q = self.queue
        if not q.up[n] or q.bound[j] not in (-1, q.type[n]):
            return 0
        gpus, cpus, memory_gb = self.free[n]
        room = [float(q.most[j])]
        room += [gpus // q.gpus[j]] if q.gpus[j] else []
        room += [(cpus + SLACK) / q.cpus[j, 0]] if q.cpus[j, 0] else []
        room += [(memory_gb + SLACK) / q.memory_gb[j, 0]] if q.memory_gb[j, 0] else []
        return max(0, int(min(room)))

    def pace(self, j: int, share: Share) -> float:
        """That of the slowest GPU type."""
        q = self.queue
        a = min(len(share), q.pace.shape[2] - 1)
        return min(float(q.pace[j, q.type[n], a]) for n, *_ in share)

    def after(self, j: int, share: Share, n: int) -> tuple[float, float, float]:
        """What is left of node n."""
        q, (gpus, cpus, memory_gb) = self.queue, self.free[n]
        workers, servers = next((w, s) for node, w, s in share if node == n)
        return (
            gpus - workers * q.gpus[j],
            cpus - (workers * q.cpus[j, 0] + servers * q.cpus[j, 1]),
            memory_gb - (workers * q.memory_gb[j, 0] + servers * q.memory_gb[j, 1]),
        )

    def holds(self, j: int, share: Share) -> bool:
        """Whether no node is overfull."""
        return all(min(self.after(j, share, n)) >= -SLACK for n, *_ in share)
