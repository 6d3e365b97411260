"""A lens: what one learned system sees of a cluster, and what each of its actions means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from gymnasium import spaces

    from rota.core.types import Bools, Ints
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.envs.wanted import Wanted
    from rota.sim.state import State

Arrays: TypeAlias = "dict[str, Any]"
"""An observation: arrays (B, …) by name."""


class Lens(Protocol):
    """The same code in training and when deployed, so that a network acts as it was trained.

    Every method works on a whole batch with one call into compiled code and fills arrays that
    the caller owns. A lens may have more: `candidates`, names of observations with one row per
    candidate, counted by the observation "many"; "agent" among its observations, the number of the
    agent that acts (`rota.systems.agents`); `choose`, `jobs_of` and `towards`, for learning;
    `carry`, which takes over what it remembers of former rounds into memory for more jobs; `fee`,
    what a dollar is worth where it is used. A `CriticLens` also shows a critic what no policy may
    see.
    """

    @property
    def window(self) -> int:
        """The number of jobs that it shows, W."""
        ...

    @property
    def places(self) -> bool:
        """Whether it edits drafts, node by node; else it counts tasks, which are then packed."""
        ...

    @property
    def observation_space(self) -> spaces.Dict:
        """The observations of one cluster."""
        ...

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The actions of one cluster."""
        ...

    @property
    def mask_shape(self) -> tuple[int, ...]:
        """The shape of one cluster's mask."""
        ...

    def memory(self, view: View) -> Any:
        """For a lens that places: what it works in beside the drafts, as `Book.own`."""
        ...

    def open(self, view: View, book: Book, which: Bools) -> None:
        """Begin a round for the clusters flagged in `which` (B,)."""
        ...

    def encode(self, view: View, book: Book, out: Arrays) -> None:
        """Fill `out` with the observations."""
        ...

    def mask(self, view: View, book: Book, out: Bools) -> None:
        """Fill `out` (B, *mask_shape) with which actions are allowed."""
        ...

    def act(self, view: View, book: Book, actions: Ints, ended: Bools) -> None:
        """One edit per cluster; ended[b] says whether its round is over."""
        ...

    def script(self, view: View, book: Book, wanted: Wanted, out: Ints) -> None:
        """Fill `out` with the next actions towards what a teacher wants."""
        ...


class CriticLens(Lens, Protocol):
    """A lens that writes observations for learning alone, from all that the simulator knows."""

    @property
    def critic_space(self) -> spaces.Dict:
        """What a critic sees of one cluster."""
        ...

    def encode_critic(self, state: State, view: View, book: Book, out: Arrays) -> None:
        """Fill `out` with what a critic sees."""
        ...


def check_array(name: str, array: Any, shape: tuple[int, ...], kind: type) -> None:
    """Refuse an array that compiled code would misread."""
    if array.shape != shape or array.dtype != kind or not array.flags.c_contiguous:
        raise TypeError(
            f"{name} must be a contiguous array of {kind.__name__} and shape {shape}, not of "
            f"{array.dtype} and shape {array.shape}."
        )


def new_arrays(space: spaces.Dict, batch: int) -> Arrays:
    """Memory for the observations of a batch."""
    return {
        name: np.zeros((batch, *(part.shape or ())), part.dtype) for name, part in space.items()
    }
