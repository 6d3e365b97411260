"""How the gradients of several workers meet: the seam between a training and its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from rota.elastic.protocol import Limits


class Lost(Exception):  # noqa: N818, it is an event
    """The others do not answer; the step does not count."""


class Exchange(Protocol):
    """Whatever lets workers train one model together.

    `connect` and `cut` are called from other threads than the one that trains.
    """

    rank: int
    size: int
    """Workers in the group."""
    serves: bool
    """Whether this member keeps parameters, and takes no samples."""
    parking: bool
    """Whether the state is to be kept after this step: the first worker says so, before it, and all
    who have a part of the state learn of it in the step."""
    shards: Mapping[str, tuple[int, ...]]
    """Which parameters each server keeps; nothing without servers."""

    def connect(self, number: int, members: list[dict[str, Any]], limits: Limits) -> Any:
        """Meet the members of a group to come, beside the present one."""
        ...

    def catch_up(self, at: int) -> None:
        """Come to a step that others have come to, before the group was lost."""
        ...

    def adopt(self, circle: Any, order: dict[str, Any]) -> None:
        """Train with those who were met."""
        ...

    def leave(self, *, lost: bool = False) -> None:
        """Train with nobody; `lost` says that calls may still wait for the others."""
        ...

    def cut(self) -> None:
        """Let whatever waits for the others raise Lost at once."""
        ...

    def weight(self, samples: int, total: int) -> float:
        """What the gradient of a mean over so many samples counts for."""
        ...

    def backward(self, loss: torch.Tensor) -> None:
        """Add to this worker's gradients; those of others are not asked for."""
        ...

    def update(self, loss: torch.Tensor | None = None) -> None:
        """One step with the gradients of all, after a last backward; may raise Lost.

        The only place where gradients meet, once per step of each worker.
        """
        ...

    def serve(self) -> None:
        """One step of a member that keeps parameters; may raise Lost."""
        ...
