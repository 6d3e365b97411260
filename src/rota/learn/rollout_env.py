"""What a learner plays: the protocol of a batch of clusters, and the data of one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.learn.states import Allowed, States


class Choice(NamedTuple):
    """The n decisions of one step, cluster by cluster."""

    actions: Ints
    """(B,) or (B, W) The same in the form in which they are carried out."""
    allowed: Allowed
    action: Ints  # (n,) −1 where nothing was allowed
    log_prob: NDArray[Any]  # (n,)
    job: Ints | None = None
    """(n,) The number of the job that each is about, unique in its episode; −1: none."""


class Last(NamedTuple):
    """The last states of K clusters whose episode was cut short while jobs were unfinished."""

    cluster: Ints  # (K,)
    seen: States
    judged: States | None = None  # what the critic sees, if it is something else
    alive: Bools | None = None  # (K, J) jobs that had not ended
    potential: Floats | None = None  # (K,)


class Turn(NamedTuple):
    """The result of one step."""

    reward: Floats
    """(B,)"""
    over: Bools
    """(B,) The round ended, so time passed."""
    done: Bools
    """(B,) The episode ended; the next observation belongs to another one."""
    gains: Floats | None = None
    """(B, J) Each job's part of the reward, of jobs in the window or not."""
    potential: Floats | None = None
    """(B,) The rounds' potential before the step."""
    potential_after: Floats | None = None
    """(B,) The potential after the edit, before time passed."""
    at_s: Floats | None = None
    """(B,) The time of the step."""
    passed_s: Floats | None = None
    """(B,) The time that passed in the step."""
    trace: Ints | None = None
    """(B,) Equal numbers where the same arrivals are replayed."""
    last: Last | None = None
    """The episodes that were cut short instead of coming to their end."""


class RolloutEnv(Protocol):
    """A batch of clusters as a learner plays them. Its arrays may be reused: copy to keep."""

    batch: int

    def observe(self) -> States:
        """The present state of every cluster; "rows" (B, W) are jobs, −1: none, if followed."""
        ...

    def judged(self) -> States | None:
        """What the critic sees of the same; None: what the network sees."""
        ...

    def choose(self, logits: NDArray[Any], rng: np.random.Generator | None) -> Choice:
        """Allowed options by these logits: drawn, or the likeliest without a generator.

        logits  (n, A), or (C,) of candidates
        """
        ...

    def step(self, actions: NDArray[Any]) -> Turn:
        """Carry the actions out."""
        ...

    def costs(self) -> Floats | None:
        """(B, A) What every action would lead to, inf: not allowed; None if nothing foresees it."""
        ...

    def potential(self) -> Floats:
        """(B,) The potential of the rounds as written so far."""
        ...

    def alive(self) -> Bools:
        """(B, J) Which jobs have arrived and not ended; only where turns give gains."""
        ...

    def inputs(self) -> Ints:
        """(B,) Equal numbers where the same arrivals are replayed at the same time."""
        ...
