"""A lens in plain Python that may starve jobs: it starts them as they ask, one by one, or waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rota.core.cluster import Cluster
from rota.core.layout import RUNNING
from rota.envs import WorldPool
from rota.perf.physics import Physics
from rota.scenarios.scenario import World
from rota.sim import Conditions
from rota.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass
class Starter:
    """Action i starts the job in row i, the last one ends the round; nobody is stopped.

    Only jobs shorter than `below_s` are shown. With `endless`, no action ends a round.
    """

    places: ClassVar[bool] = False
    below_s: float = np.inf
    window: int = 4
    endless: bool = False
    opened: list[int] = field(default_factory=list)
    """How many clusters each round was opened for."""

    @property
    def observation_space(self) -> spaces.Dict:
        box = spaces.Box(0.0, 1.0, (self.window,), np.float32)
        return spaces.Dict({"present": box})

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.window + 1)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        return (self.window + 1,)

    def open(self, view: Any, book: Any, which: Any) -> None:
        for b in np.flatnonzero(which):
            up = view.nodes[b]["up"]
            book.gpus[b] = book.free_gpus[b] = view.nodes[b]["gpus"][up].sum()
            book.free_cpus[b] = book.free_memory_gb[b] = np.inf
            book.edits[b], book.rows[b], shown = 0, -1, 0
            for j in view.order[b, : view.live[b]]:
                job = view.jobs[b, j]
                runs = job["status"] == RUNNING
                book.servers[b, j], book.workers[b, j] = 0, job["held_workers"] if runs else 0
                book.free_gpus[b] -= book.workers[b, j]
                if not runs and job["estimate_s"] < self.below_s and shown < self.window:
                    book.rows[b, shown] = j
                    shown += 1
            book.shown[b] = shown

    def encode(self, _view: Any, book: Any, out: Any) -> None:
        out["present"][:] = book.rows >= 0

    def mask(self, view: Any, book: Any, out: Any) -> None:
        out[:] = False
        out[:, self.window] = True
        for b, rows in enumerate(book.rows):
            for i, j in enumerate(rows):
                out[b, i] = j >= 0 and self._fits(view, book, b, j)

    def _fits(self, view: Any, book: Any, b: int, j: int) -> bool:
        job = view.jobs[b, j]
        return bool(book.workers[b, j] == 0 and job["workers"] <= book.free_gpus[b])

    def act(self, view: Any, book: Any, actions: Any, ended: Any) -> None:
        for b, action in enumerate(actions):
            book.edits[b] += 1
            j = book.rows[b, action] if action < self.window else -1
            ended[b] = j < 0 or not self._fits(view, book, b, j)
            if not ended[b]:
                book.workers[b, j] = view.jobs[b, j]["workers"]
                book.free_gpus[b] -= book.workers[b, j]
            ended[b] &= not self.endless

    def jobs_of(self, book: Any, actions: Any) -> Any:
        rows = np.append(book.rows, np.full((len(book.rows), 1), -1), 1)
        return rows[np.arange(len(rows)), actions]


class Taste(nn.Module):
    """Starts whoever comes first, or waits for ever."""

    def __init__(self, *, waits: bool, window: int = 4) -> None:
        super().__init__()
        first = -torch.arange(window + 1.0)
        self.like = nn.Parameter(-first if waits else first)

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, None]:
        return self.like * torch.ones(len(seen["present"]), 1), None


class Alike(nn.Module):
    """A critic that values every state alike."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))

    def forward(self, seen: Mapping[str, torch.Tensor], _inner: None) -> torch.Tensor:
        return self.value * torch.ones(len(seen["present"]))


def pool_of(jobs: Sequence[tuple[float, float, int]], *, copies: int = 1, **when: Any) -> WorldPool:
    """Worlds of one node with 4 GPUs and jobs of (submitted, duration, GPUs)."""
    submit_s, duration_s, gpus = zip(*jobs, strict=True)
    trace = Trace.build(
        "toy", job_id=[str(k) for k in range(len(jobs))], submit_s=np.array(submit_s, float),
        duration_s=np.array(duration_s, float), num_gpus=np.array(gpus),
    )  # fmt: skip
    world = World(Cluster.uniform(1, gpus=4), trace, Conditions(**when), Physics())
    return WorldPool.of([world] * copies, list(range(copies)))
