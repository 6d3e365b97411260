"""A system of two agents: one chooses which waiting job goes next, the other where it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rota.envs.drafting_kernels import draft_of
from rota.jit import kernel, part
from rota.jit_call import Caller
from rota.ledger.edit_kernels import REFUSED, place
from rota.systems.agents import LearnedAgent
from rota.systems.registry import System

if TYPE_CHECKING:
    from collections.abc import Mapping

FEATURES = 4
AGENTS = (LearnedAgent(name="ordering"), LearnedAgent(name="placing", entropy=0.5))


@part
def show(view: Any, book: Any, b: int) -> None:
    """List the waiting jobs that fit on some node."""
    shown = 0
    for i in range(view.live[b]):
        j = view.order[b, i]
        fits = False
        for n in range(view.nodes.shape[1]):
            fits |= book.drafts.nodes[b, n]["free"] >= view.jobs[b, j]["workers"]
        if fits and book.drafts.length[b, j] == 0 and shown < book.rows.shape[1]:
            book.rows[b, shown] = j
            shown += 1
    book.shown[b] = shown
    book.rows[b, shown:] = -1


@kernel
def open_two(view: Any, book: Any, which: Any) -> None:
    for b in range(which.size):
        if which[b]:
            book.edits[b], book.own[b] = 0, -1
            show(view, book, b)


@kernel
def act_two(view: Any, book: Any, actions: Any, ended: Any) -> None:
    for b in range(actions.size):
        book.edits[b] += 1
        ended[b] = False
        j = book.own[b]
        if j < 0:
            ended[b] = actions[b] == 0
            book.own[b] = -1 if ended[b] else book.rows[b, actions[b] - 1]
            continue
        wanted = book.drafts.spare[b]
        wanted[0]["node"], wanted[0]["servers"] = actions[b], 0
        wanted[0]["workers"] = view.jobs[b, j]["workers"]
        used = place(draft_of(book.drafts, b), view.jobs[b, j], j, wanted, 1, book.drafts.used[b])
        if used != REFUSED:
            book.drafts.used[b] = used
        book.own[b] = -1
        show(view, book, b)


@dataclass(frozen=True)
class OrderAndPlace:
    """The ordering agent's candidates are to wait and the jobs, the placing agent's the nodes."""

    nodes: int = 2
    places: ClassVar[bool] = True
    window: ClassVar[int] = 4
    candidates: ClassVar[tuple[str, ...]] = ("candidate",)
    _run: Caller = field(default_factory=Caller, init=False, repr=False, compare=False)

    @property
    def most(self) -> int:
        return max(self.window + 1, self.nodes)

    @property
    def observation_space(self) -> spaces.Dict:
        return spaces.Dict({
            "candidate": spaces.Box(-1e9, 1e9, (self.most, FEATURES), np.float32),
            "many": spaces.Box(1, self.most, (), np.int64),
            "agent": spaces.Box(0, 1, (), np.int64),
        })  # fmt: skip

    @property
    def critic_space(self) -> spaces.Dict:
        return spaces.Dict({"left": spaces.Box(0.0, 1e9, (3,), np.float32)})

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.most)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        return (self.most,)

    def memory(self, view: Any) -> Any:
        return np.full(len(view.jobs), -1)

    def open(self, view: Any, book: Any, which: Any) -> None:
        self._run(open_two, view, book, which)

    def encode(self, view: Any, book: Any, out: Any) -> None:
        for b, j in enumerate(book.own.tolist()):
            out["agent"][b] = j >= 0
            out["many"][b] = self.nodes if j >= 0 else book.shown[b] + 1
            seen = out["candidate"][b]
            seen[:] = 0.0
            if j >= 0:
                seen[: self.nodes, 0] = book.drafts.nodes[b]["free"] / 4
                seen[: self.nodes, 1] = view.jobs[b, j]["workers"] / 4
                seen[: self.nodes, 2] = seen[: self.nodes, 0] - seen[: self.nodes, 1]
                continue
            seen[0, 3] = 1.0
            rows = view.jobs[b, book.rows[b, : book.shown[b]]]
            seen[1 : len(rows) + 1, 0] = rows["workers"] / 4
            seen[1 : len(rows) + 1, 1] = np.log10(rows["estimate_s"])

    def encode_critic(self, state: Any, view: Any, _book: Any, out: Any) -> None:
        for b in range(len(view.jobs)):
            left_s = np.nan_to_num(state.truth[b]["work_s"])  # what no policy may know
            out["left"][b] = left_s.sum() / 600, view.live[b] / 3, view.now_s[b] / 600

    def mask(self, view: Any, book: Any, out: Any) -> None:
        out[:] = False
        for b, j in enumerate(book.own.tolist()):
            if j >= 0:
                free = book.drafts.nodes[b]["free"]
                out[b, : self.nodes] = free >= view.jobs[b, j]["workers"]
                continue
            live = view.order[b, : view.live[b]]
            running = (book.drafts.length[b, live] > 0).any()
            out[b, 0] = running or book.shown[b] == 0
            out[b, 1 : book.shown[b] + 1] = True

    def act(self, view: Any, book: Any, actions: Any, ended: Any) -> None:
        self._run(act_two, view, book, actions, ended)

    def script(self, *_: Any) -> None:
        raise NotImplementedError


class TwoParts(nn.Module):
    """One part for each agent; a state's candidates are scored by the one that acts."""

    def __init__(self) -> None:
        super().__init__()
        self.ordering = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))
        self.placing = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, None]:
        places = torch.repeat_interleave(seen["agent"], seen["many"]) == 1
        order, where = self.ordering(seen["candidate"]), self.placing(seen["candidate"])
        return torch.where(places, where[:, 0], order[:, 0]), None


class TrueWork(nn.Module):
    """A critic that knows how much work is left."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, seen: Mapping[str, torch.Tensor], _inner: None) -> torch.Tensor:
        value: torch.Tensor = self.value(seen["left"])[:, 0]
        return value


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """There is nothing to set."""


SYSTEM = System(
    "two-agents", "Orders, then places.", NoSettings, NoSettings, lambda _: OrderAndPlace(),
    lambda *_: TwoParts(), lambda *_: TrueWork(), AGENTS,
)  # fmt: skip
