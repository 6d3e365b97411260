"""A lens that places: the job at the head of the queue goes to a pair of nodes, or is passed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from rota.core.layout import WAITING
from rota.envs.drafting_kernels import draft_of
from rota.jit import kernel, part
from rota.jit_call import Caller
from rota.ledger.edit_kernels import REFUSED, place, release


@part
def next_head(view: Any, book: Any, b: int, after: int) -> None:
    """Show the first waiting job behind the live job number `after`."""
    i = after + 1
    while i < view.live[b] and view.jobs[b, view.order[b, i]]["status"] != WAITING:
        i += 1
    book.shown[b] = i
    book.rows[b, 0] = view.order[b, i] if i < view.live[b] else -1


@kernel
def open_rounds(view: Any, book: Any, which: Any, stops: bool) -> None:
    for b in range(which.size):
        if which[b]:
            book.edits[b] = 0
            if stops:  # a running job in three, so that stops are carried out, too
                d = draft_of(book.drafts, b)
                for i in range(view.live[b]):
                    j = view.order[b, i]
                    job = view.jobs[b, j]
                    if job["status"] != WAITING and job["uid"] % 3 == view.live[b] % 3:
                        release(d, job, j)
            next_head(view, book, b, -1)


@kernel
def act(view: Any, book: Any, actions: Any, ended: Any) -> None:
    """Action n × N + m: half of the workers to node n, half to m; N × N: pass the job."""
    for b in range(actions.size):
        j, N = book.rows[b, 0], view.nodes.shape[1]
        book.edits[b] += 1
        ended[b] = j < 0
        if j < 0:
            continue
        first, second = actions[b] // N, actions[b] % N
        if first < N:
            job, wanted, count = view.jobs[b, j], book.drafts.spare[b], 0
            low, high = min(first, second), max(first, second)
            workers = job["workers"]
            wanted[0]["node"], wanted[0]["servers"] = low, 0
            wanted[0]["workers"], count = workers, 1
            if low != high and workers > 1:
                wanted[0]["workers"] = workers - workers // 2
                wanted[1]["node"], wanted[1]["workers"] = high, workers // 2
                wanted[1]["servers"], count = 0, 2
            used = place(draft_of(book.drafts, b), job, j, wanted, count, book.drafts.used[b])
            if used != REFUSED:
                book.drafts.used[b] = used
        next_head(view, book, b, book.shown[b])


@dataclass(frozen=True)
class HeadToNodes:
    """Sees the free GPUs of every node and what the head asks for; what does not fit is a pass."""

    nodes: int
    stops: bool = False
    places: ClassVar[bool] = True
    window: ClassVar[int] = 1
    _run: Caller = field(default_factory=Caller, init=False, repr=False, compare=False)

    @property
    def observation_space(self) -> spaces.Dict:
        parts = {"free": self.nodes, "workers": 1, "running": 1}
        return spaces.Dict({k: spaces.Box(0.0, 1e9, (n,), np.float32) for k, n in parts.items()})

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.nodes**2 + 1)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        return (self.nodes**2 + 1,)

    def memory(self, _view: Any) -> None:
        return None

    def open(self, view: Any, book: Any, which: Any) -> None:
        self._run(open_rounds, view, book, which, self.stops)

    def encode(self, view: Any, book: Any, out: Any) -> None:
        out["free"][:] = book.drafts.nodes["free"]
        each = np.arange(len(view.jobs) if view.jobs.size else 0)
        for b in each:
            live = view.order[b, : view.live[b]]
            out["workers"][b] = view.jobs[b, max(0, book.rows[b, 0])]["workers"]
            out["running"][b] = (book.drafts.length[b, live] > 0).sum()

    def mask(self, _view: Any, _book: Any, out: Any) -> None:
        out[:] = True

    def act(self, view: Any, book: Any, actions: Any, ended: Any) -> None:
        self._run(act, view, book, actions, ended)

    def script(self, *_: Any) -> None:
        raise NotImplementedError
