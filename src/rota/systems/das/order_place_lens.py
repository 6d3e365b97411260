"""The lens of DAS: an ordering agent names a waiting job, a placement agent its machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from gymnasium import spaces

from rota.jit_call import Caller
from rota.systems.das import order_place_kernels as kernels
from rota.systems.das.machine_kernels import MACHINE, MachineMemory
from rota.systems.das.seen_kernels import JOB, PAIR, encode

if TYPE_CHECKING:
    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.envs.lens import Arrays
    from rota.envs.view import View
    from rota.envs.wanted import Wanted


@dataclass(frozen=True)
class OrderPlaceLens:
    """Sees waiting jobs that fit, and machines with their last states. The fields are explained in
    `OrderPlaceLensConfig`."""

    window: int = 16
    machines: int = 16
    past: int = 8
    informed: bool = True
    wait: bool = False
    targets: str = "observed"
    fee: float = 0.0
    places: ClassVar[bool] = True
    run: Caller = field(default_factory=Caller, init=False, repr=False, compare=False)
    """Calls its kernels."""

    @property
    def actions(self) -> int:
        """A job or the round's end for the one agent, a machine for the other."""
        return max(self.window + 1, self.machines)

    @property
    def observation_space(self) -> spaces.Dict:
        W, K, T = self.window, self.machines, self.past
        shapes = {
            "jobs": (W, JOB), "waiting": (W,), "job": (JOB,), "machines": (K, MACHINE),
            "usable": (K,), "pair": (K, PAIR), "past": (T, K, MACHINE), "observed": (T, K),
            "known": (T, K), "fee": (1,),
        }  # fmt: skip
        boxes = {n: spaces.Box(-np.inf, np.inf, shape, np.float32) for n, shape in shapes.items()}
        return spaces.Dict({**boxes, "agent": spaces.Box(0, 1, (), np.int64)})

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.actions)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        return (self.actions,)

    def memory(self, view: View) -> kernels.OrderPlaceMemory:
        B, J = view.jobs.shape
        N, K, T = view.nodes.shape[1], self.machines, self.past

        def ints(*shape: int) -> Ints:
            return np.zeros((B, *shape), np.int64)

        waits, informed = ints(1), ints(1)
        waits[:], informed[:] = self.wait, self.informed
        machines = MachineMemory(
            ints(N), np.zeros((B, N)), ints(N), np.zeros((B, N)),
            np.zeros((B, T, N, MACHINE), np.float32), np.zeros((B, T, N), np.float32),
            np.zeros((B, T, N), np.bool_), ints(2), np.full((B, 1), -np.inf),
            np.full((B, 1), self.targets == "actions"),
        )  # fmt: skip
        return kernels.OrderPlaceMemory(
            ints(1), ints(1), ints(1), ints(N), ints(N), ints(J), ints(K), waits,
            informed, np.zeros((B, self.window)), machines,
        )  # fmt: skip

    def carry(self, old: kernels.OrderPlaceMemory, new: kernels.OrderPlaceMemory) -> None:
        """Take over what is remembered of the machines into memory for more jobs."""
        for before, now in zip(old.machines, new.machines, strict=True):
            now[...] = before

    def open(self, view: View, book: Book, which: Bools) -> None:
        self.run(kernels.open_rounds, view, book, which)

    def encode(self, view: View, book: Book, out: Arrays) -> None:
        self.run(
            encode, view, book, self.informed, out["agent"], out["jobs"], out["waiting"],
            out["job"], out["machines"], out["usable"], out["pair"], out["past"], out["observed"],
            out["known"], out["fee"],
        )  # fmt: skip

    def mask(self, view: View, book: Book, out: Bools) -> None:
        self.run(kernels.mask, view, book, out)

    def act(self, view: View, book: Book, actions: Ints, ended: Bools) -> None:
        self.run(kernels.act, view, book, actions, ended)

    def script(self, view: View, book: Book, wanted: Wanted, out: Ints) -> None:
        """The next job or machine that a teacher wants; to wait if there is none."""
        self.run(kernels.script, view, book, wanted, out)
