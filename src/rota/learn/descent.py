"""What all learners share: probabilities under a mask, and gradient steps that can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rota.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NEVER = -1e9
"""The logit of actions that are not allowed; finite, so that their entropy is 0 and not NaN."""


def masked(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the allowed actions."""
    return torch.log_softmax(logits.masked_fill(~mask, NEVER), -1)


def entropy_of(log_probs: torch.Tensor) -> torch.Tensor:
    """The entropy of each row of log-probabilities, as `masked` gives them."""
    # exp() is eight times slower where the result underflows.
    return -(log_probs.clamp_min(-80.0).exp() * log_probs).sum(-1)


def mean(values: torch.Tensor) -> torch.Tensor:
    """The mean; 0 if there are no values, where torch gives NaN."""
    return values.sum() / max(1, values.numel())


def is_free(mask: Any) -> Any:
    """Which rows of a mask (…, A) allow more than one action, so that there is a choice."""
    return mask.sum(-1) > 1


class Descent:
    """Adam on a network. An update that leads to values that are not finite is undone."""

    def __init__(
        self, network: torch.nn.Module, *, table: str, rate: float, max_gradient: float,
        patience: int, epsilon: float = 1e-5,
    ) -> None:  # fmt: skip
        self._network, self._table, self._patience = network, table, patience
        self._max_gradient = max_gradient
        self._adam = torch.optim.Adam(network.parameters(), rate, eps=epsilon, fused=True)
        self.failed = 0
        """Updates in a row that were undone."""

    def set_rate(self, rate: float) -> None:
        """Set the step size of the next steps."""
        for group in self._adam.param_groups:
            group["lr"] = rate

    def step(self, loss: torch.Tensor) -> None:
        """One gradient step."""
        if not torch.isfinite(loss):
            raise FloatingPointError
        self._adam.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._max_gradient)
        self._adam.step()

    def attempt(self, update: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Run an update that takes steps, and undo it if it fails."""
        good = {name: tensor.clone() for name, tensor in self._network.state_dict().items()}
        try:
            facts = update()
        except FloatingPointError:
            return self._undo(good)
        if not all(bool(torch.isfinite(p).all()) for p in self._network.parameters()):
            return self._undo(good)
        self.failed = 0
        return facts

    def _undo(self, good: dict[str, torch.Tensor]) -> dict[str, float]:
        self.failed += 1
        self._network.load_state_dict(good)
        self._adam.state.clear()  # its moments may not be finite either
        if self.failed >= self._patience:
            raise TrainingError(
                f"{self.failed} updates in a row led to values that are not finite; lower "
                f"{self._table}.learning_rate or look at the rewards."
            )
        return {"failed": float(self.failed)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Adam's moments, for a resumed training."""
        return {
            f"adam.{number}.{name}": np.asarray(value)
            for number, entry in self._adam.state_dict()["state"].items()
            for name, value in entry.items()
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Continue from what `state` gave."""
        state: dict[int, dict[str, torch.Tensor]] = {}
        weights = list(self._network.parameters())
        for key, value in arrays.items():
            _, number, name = key.split(".")
            kept, own = torch.from_numpy(np.array(value)), weights[int(number)]
            # In the memory layout of the weights, or Adam computes in another order.
            same = torch.empty_like(own).copy_(kept) if kept.shape == own.shape else kept
            state.setdefault(int(number), {})[name] = same.detach()
        self._adam.load_state_dict({**self._adam.state_dict(), "state": state})
