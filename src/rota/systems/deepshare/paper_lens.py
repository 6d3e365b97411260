"""DeepShare's own lens: an image of four nodes, and a pair of nodes for the next job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium import spaces

from rota.errors import ConfigError
from rota.jit_call import Caller
from rota.policies.contention.neighbours import new_rooms
from rota.systems.deepshare import paper_kernels as kernels

if TYPE_CHECKING:
    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.envs.lens import Arrays
    from rota.envs.view import View


@dataclass(frozen=True, kw_only=True)
class PaperLens:
    """Actions 0 to 5 are pairs of nodes, 6 is all four, 7 does nothing.

    Which job goes there follows by rule: the first in the queue of 2, 4 or 8 GPUs, whichever the
    nodes suit first. A round begins by stopping every job that keeps 60 % of its speed or less.
    An action that does nothing ends the round, unless the cluster is idle: then the next job is
    started as with `hybrid`. The fields are explained in `PaperLensConfig`.

    The original does not show jobs that are about to end, but mixes up samples and seconds there,
    so that it nearly always does show them; here it always does.
    """

    hybrid: bool = False
    one_action: bool = False
    places: ClassVar[bool] = True
    window: ClassVar[int] = kernels.SIZES
    actions: ClassVar[int] = kernels.ACTIONS
    inputs: ClassVar[int] = kernels.NODES * kernels.WIDTH
    _run: Caller = field(default_factory=Caller, init=False, repr=False, compare=False)

    @property
    def observation_space(self) -> spaces.Dict:
        """The image, row by row; its numbers stand for kinds of jobs, 0 for none."""
        most = kernels.SIZES * kernels.MODELS
        return spaces.Dict({"image": spaces.Box(0.0, most, (self.inputs,), np.float32)})

    @property
    def action_space(self) -> spaces.Discrete:
        """One of eight."""
        return spaces.Discrete(self.actions)

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """One flag per action; all are allowed, unless no job waits."""
        return (self.actions,)

    def memory(self, view: View) -> Any:
        """What it takes to predict how much jobs slow each other down."""
        batch, jobs = view.jobs.shape
        nodes = view.nodes.shape[1]
        slots = kernels.GPUS + 1
        return new_rooms((batch,), jobs, nodes, view.laws, slots, kernels.NODES)

    def open(self, view: View, book: Book, which: Bools) -> None:
        """Begin a round: stop jobs that are slowed down too much."""
        found = kernels.OTHER_CLUSTER
        if view.nodes.shape[1] == kernels.NODES:
            found = self._run(kernels.open_rounds, view, book, which)
        if found == kernels.OTHER_CLUSTER:
            raise ConfigError(
                f"DeepShare as published knows {kernels.NODES} nodes of {kernels.GPUS} GPUs only, "
                f"and this cluster of {view.nodes.shape[1]} nodes is another; take the scenario "
                "'deepshare-published', or another system."
            )
        if found == kernels.OTHER_JOB:
            raise ConfigError(
                "DeepShare as published knows jobs of 2, 4 or 8 workers with one GPU each and no "
                "servers, and there is another; take the scenario 'deepshare-published', or "
                "another system."
            )

    def encode(self, view: View, book: Book, out: Arrays) -> None:
        """Fill `out` with the image."""
        self._run(kernels.encode, view, book, out["image"])

    def mask(self, view: View, book: Book, out: Bools) -> None:
        """Allow all, as the original does; nothing but waiting if no job waits."""
        del view
        self._run(kernels.mask, book, out)

    def act(self, view: View, book: Book, actions: Ints, ended: Bools) -> None:
        """One action per cluster."""
        self._run(kernels.act, view, book, self.hybrid, self.one_action, actions, ended)

    def script(self, view: View, book: Book, workers: Ints, servers: Ints, out: Ints) -> None:
        """Refuse: no counts say which nodes were meant."""
        del view, book, workers, servers, out
        raise ConfigError(
            "DeepShare as published has no warm-up: its actions are nodes, and a teacher gives "
            "counts; leave clone.teacher out."
        )
