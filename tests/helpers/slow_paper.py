"""DeepShare as published, one cluster in plain Python: what it sees, and what its actions do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rota.core.snapshot import Snapshot

PAIRS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


class SlowPaper:
    """One round, from the snapshot at its beginning."""

    def __init__(self, snapshot: Snapshot, *, hybrid: bool = False, one: bool = False) -> None:
        self.snapshot, self.hybrid, self.one = snapshot, hybrid, one
        self.rows = snapshot.jobs.rows
        self.held = {
            j: {node: workers for node, workers, _ in snapshot.share(j)}
            for j in range(len(self.rows)) if self.rows[j]["share_len"] > 0
        }  # fmt: skip
        ratios = {j: self.ratio(j) for j in self.held}
        stopped = [j for j, ratio in ratios.items() if ratio <= 0.6]
        for j in stopped:
            del self.held[j]

        def since(j: int) -> float:
            row = self.rows[j]
            if j in stopped:
                return snapshot.time_s
            return float(row["submit_s"] if np.isnan(row["started_s"]) else row["settled_s"])

        waiting = [j for j in range(len(self.rows)) if j not in self.held]
        self.queue = sorted(waiting, key=lambda j: (since(j), j))

    def ratio(self, j: int) -> float:
        """The worst of all others on its nodes, as the pairs were measured."""
        laws = self.snapshot.contention
        assert laws is not None

        def kind(j: int) -> int:
            return int(laws.kind[self.rows[j]["curve"], len(self.held[j]), self.rows[j]["gpus"]])

        others = [o for o in self.held if o != j and set(self.held[o]) & set(self.held[j])]
        return max(laws.floor, min((laws.ratio[kind(j), kind(o)] for o in others), default=1.0))

    def code(self, j: int) -> int:
        return 3 * int(self.rows[j]["curve"]) + [2, 4, 8].index(self.rows[j]["gpus"]) + 1

    def heads(self) -> list[int]:
        """The candidates, 2 GPUs first."""
        return [
            next(j for j in self.queue if self.rows[j]["gpus"] == gpus)
            for gpus in (2, 4, 8) if any(self.rows[j]["gpus"] == gpus for j in self.queue)
        ]  # fmt: skip

    def image(self) -> Any:
        rows = [
            [self.code(j) for j in sorted(self.held) for _ in range(self.held[j].get(n, 0))]
            for n in range(4)
        ]
        image = np.array([row + [0] * (16 - len(row)) for row in rows])
        cells = {2: [(1, 2), (2, 1)], 4: [(1, 4), (2, 2), (4, 1)], 8: [(1, 8), (2, 4), (4, 2)]}
        for j in self.heads():
            for nodes, gpus in cells[int(self.rows[j]["gpus"])]:
                image[nodes - 1, 8 + gpus - 1] = self.code(j)
        return image

    def free(self, n: int) -> int:
        return 8 - sum(held.get(n, 0) for held in self.held.values())

    def put(self, j: int, nodes: Any) -> bool:
        each, rest = divmod(int(self.rows[j]["gpus"]), len(nodes))
        if rest or any(self.free(n) < each for n in nodes):
            return False
        self.held[j] = dict.fromkeys(nodes, each)
        self.queue.remove(j)
        return True

    def act(self, action: int) -> bool:
        """Whether the round is over."""
        done = False
        if action < 7:
            nodes = PAIRS[action] if action < 6 else (0, 1, 2, 3)
            done = any(self.put(j, nodes) for j in self.heads())
        if not done and (self.hybrid or not self.held):
            done = any(self.first_fit(j) for j in self.heads())
        return self.one or not done

    def first_fit(self, j: int) -> bool:
        for span in (4, 2):
            each = int(self.rows[j]["gpus"]) // span
            able = [n for n in range(4) if each and self.free(n) >= each][:span]
            if len(able) == span:
                return self.put(j, able)
        return False
