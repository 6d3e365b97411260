"""Calls of a network and its critic on states, without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.core.types import Ints
    from rota.learn.states import States


class Network(Protocol):
    """What plays: it scores the options of every decision that the states call for.

    It may offer `inputs(seen)`: many states in a form of its own, from which it takes some at a
    time (`Inputs`); and `player(lens)`, for deployment.
    """

    def __call__(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
        """Logits (n, A), or (C,) of candidates; and what its critic may read, or None."""
        ...


class Critic(Protocol):
    """What values states while a network learns; a policy has none.

    It is given the network's inputs, or observations of its own, which the lens writes for it
    alone. One that reads the network's inner layer says `needs_inner = True`; all others are asked
    once per rollout instead of at every step.
    """

    def __call__(self, seen: Any, inner: Any) -> torch.Tensor:
        """Values (n,), one for every decision that the states call for."""
        ...


class Inputs(Protocol):
    """Many states in a form from which a network takes some at a time."""

    def take(self, which: Ints) -> Any:
        """These, in the form that the network reads."""
        ...


class _Plain:
    """States as they are."""

    def __init__(self, states: States) -> None:
        self._states = states

    def take(self, which: Ints) -> dict[str, torch.Tensor]:
        return self._states.take(which).tensors()


def inputs_of(network: Any, states: States) -> Inputs:
    """States in the network's own form, if it has one."""
    found: Inputs = (
        network.inputs(states.tensors()) if hasattr(network, "inputs") else _Plain(states)
    )
    return found


def given_to(network: Any, states: States) -> Any:
    """States as a network takes them."""
    tensors = states.tensors()
    return network.inputs(tensors) if hasattr(network, "inputs") else tensors


def needs_inner(critic: Any) -> bool:
    """Whether a critic reads what is inside the network."""
    return bool(getattr(critic, "needs_inner", False))


def infer(network: Network, seen: States) -> NDArray[Any]:
    """Logits (n, A), or (C,) of candidates."""
    with torch.inference_mode():
        logits: NDArray[Any] = network(seen.tensors())[0].numpy()
    return logits


def infer_both(
    network: Network, critic: Critic, seen: States, judged: States | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Logits, and the values (n,) of a critic that reads the network's inner layer."""
    tensors = seen.tensors()
    with torch.inference_mode():
        logits, inner = network(tensors)
        given = tensors if judged is None else judged.tensors()
        return logits.numpy(), critic(given, inner).numpy()


def infer_values(
    network: Network, critic: Critic, seen: States, judged: States | None = None
) -> NDArray[Any]:
    """Values (n,) alone; `judged` is what the critic sees, if it is something else."""
    tensors = seen.tensors()
    with torch.inference_mode():
        inner = network(tensors)[1] if needs_inner(critic) else None
        given = tensors if judged is None else judged.tensors()
        values: NDArray[Any] = critic(given, inner).numpy()
    return values
