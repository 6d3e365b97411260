"""Calls of a network on arrays: logits, values, or both, without gradients.

A *decision* is one choice of one action. A system that edits step by step takes one per cluster
and step; a one-pass system takes one per job, W at most. A decision is *live* if there is a job to
decide on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rota.core.types import Bools
    from rota.learn.rollout_env import Observation


class Network(Protocol):
    """Maps observations to one row of logits and one value per live decision.

    A network with separate layers for values may also offer `act(seen)` and `judge(seen)`. Then
    values are computed once per rollout, and not at all in greedy play.
    """

    def __call__(self, seen: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, A) and values (n,) of the n live decisions, cluster by cluster."""
        ...


class SplitNetwork(Protocol):
    """A network that computes logits and values separately."""

    def act(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Logits (n, A)."""
        ...

    def judge(self, seen: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Values (n,)."""
        ...


class Inputs(Protocol):
    """Many observations in a form from which a network takes some rows at a time."""

    def take(self, rows: torch.Tensor) -> Any:
        """These rows, in the form that the network reads."""
        ...


class _Plain(dict[str, torch.Tensor]):
    """Observations as they are."""

    def take(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: array[rows] for name, array in self.items()}


def inputs_of(network: Any, seen: Mapping[str, torch.Tensor]) -> Inputs:
    """Observations (n, …) in the network's own form, if it has one: `inputs(seen)`."""
    found: Inputs = network.inputs(seen) if hasattr(network, "inputs") else _Plain(seen)
    return found


def is_split(network: Any) -> TypeGuard[SplitNetwork]:
    """Whether a network is a `SplitNetwork`; faster than isinstance with a protocol."""
    return hasattr(network, "act") and hasattr(network, "judge")


def live_decisions(seen: Observation, batch: int) -> Bools:
    """Which decisions an observation calls for."""
    return seen["rows"] >= 0 if "rows" in seen else np.ones(batch, np.bool_)


def infer(
    network: Network, seen: Observation, batch: int
) -> tuple[NDArray[Any], NDArray[Any] | None, Bools]:
    """Logits (…, A), values (…) and which decisions are live; those of the others are 0.

    A `SplitNetwork` gives None for values.
    """
    live = live_decisions(seen, batch)
    tensors = {name: torch.from_numpy(array) for name, array in seen.items()}
    with torch.inference_mode():
        if is_split(network):
            return _spread(network.act(tensors), live), None, live
        logits, value = network(tensors)
    return _spread(logits, live), _spread(value, live), live


def infer_values(network: Network, seen: Observation, batch: int) -> NDArray[Any]:
    """Values (…) alone; 0 where a decision is not live."""
    tensors = {name: torch.from_numpy(array) for name, array in seen.items()}
    with torch.inference_mode():
        value = network.judge(tensors) if is_split(network) else network(tensors)[1]
    return _spread(value, live_decisions(seen, batch))


def _spread(flat: torch.Tensor, live: Bools) -> NDArray[Any]:
    """Results of the live decisions in the shape of `live`, with 0 for the others."""
    if live.ndim == 1:
        array: NDArray[Any] = flat.numpy()
        return array
    full = np.zeros((*live.shape, *flat.shape[1:]), np.float32)
    full[live] = flat.numpy()
    return full
