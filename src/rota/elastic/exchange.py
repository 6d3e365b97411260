"""How the gradients of several workers are combined: the interface of a training to its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from rota.elastic.protocol import TimeLimits


class PeerLost(Exception):  # noqa: N818, it is an event
    """Other members do not answer; the step does not count."""


class Exchange(Protocol):
    """Lets several workers train one model together.

    `connect` and `cut` are called from other threads than the training thread.
    """

    rank: int
    size: int
    """Workers in the group."""
    serves: bool
    """Whether this member is a parameter server, which takes no samples."""
    parking: bool
    """Whether the state is to be saved after this step. The first worker sets it before the step,
    and all members that keep a part of the state learn of it in the step."""
    shards: Mapping[str, tuple[int, ...]]
    """Which parameters each server keeps; nothing without servers."""

    def connect(self, number: int, members: list[dict[str, Any]], limits: TimeLimits) -> Any:
        """Connect to the members of the next group, while the present one still trains."""
        ...

    def catch_up(self, at: int) -> None:
        """Bring this member to `at` steps, as others had made before the group was lost."""
        ...

    def adopt(self, group: Any, order: dict[str, Any]) -> None:
        """Train in a connected group from now on."""
        ...

    def equalize(self) -> None:
        """Let all workers have the parameters and buffers of the first one; may raise PeerLost."""
        ...

    def leave(self, *, lost: bool = False) -> None:
        """Leave the group; `lost` says that calls may still wait for other members."""
        ...

    def cut(self) -> None:
        """Let every call that waits for other members raise PeerLost at once."""
        ...

    def weight(self, samples: int, total: int) -> float:
        """The factor for the gradient of a mean over `samples` of the `total` of a step."""
        ...

    def backward(self, loss: torch.Tensor) -> None:
        """Add to this worker's own gradients, without communication."""
        ...

    def update(self, loss: torch.Tensor | None = None) -> None:
        """Make one step with the gradients of all workers; may raise PeerLost.

        A last `loss` is added first. This is the only call that combines gradients; every worker
        makes it once per step.
        """
        ...

    def serve(self) -> None:
        """Make one step of a parameter server; may raise PeerLost."""
        ...
