"""What a learner plays: the protocol of a batch of clusters, and the data of one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.core.types import Bools, Floats, Ints

Observation: TypeAlias = "Mapping[str, NDArray[Any]]"
"""Arrays (B, …) by name. "rows" (B, W) holds job numbers, −1 where there is no job."""


class Choice(NamedTuple):
    """Actions, the masks they were chosen under, and their log-probabilities."""

    action: Ints  # (B,) or (B, W); −1 where nothing was allowed
    mask: Bools  # (B, A) or (B, W, A)
    log_prob: NDArray[Any]  # (B,) or (B, W)


class Last(NamedTuple):
    """The last state of K clusters whose episode was cut short while jobs were unfinished."""

    cluster: Ints  # (K,)
    seen: Observation  # (K, …)
    alive: Bools | None = None  # (K, J) jobs that had not ended
    potential: Floats | None = None  # (K,)


class Turn(NamedTuple):
    """The result of one step."""

    reward: Floats
    """(B,), or (B, W) where every job has its own."""
    over: Bools
    """(B,) The round ended, so time passed."""
    done: Bools
    """(B,) The episode ended; the next observation belongs to another one."""
    job: Ints | None = None
    """(B,) The job that the decision was about, −1: none; where a cluster decides step by step."""
    gains: Floats | None = None
    """(B, J) Each job's part of the reward."""
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

    def observe(self) -> Observation:
        """The present state of every cluster."""
        ...

    def choose(self, logits: NDArray[Any], chance: NDArray[Any] | None) -> Choice:
        """Allowed actions by these logits: drawn with `chance`, or the likeliest if it is None.

        logits  (B, A) or (B, W, A); chance (B,) or (B, W), uniform in [0, 1)
        """
        ...

    def step(self, actions: NDArray[Any]) -> Turn:
        """Carry the actions out."""
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
