"""What all learners share: gradient steps that can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rota.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def mean(values: torch.Tensor) -> torch.Tensor:
    """The mean; 0 if there are no values, where torch gives NaN."""
    return values.sum() / max(1, values.numel())


class Descent:
    """Adam on a network and its critic; undoes updates that lead to values that are not finite."""

    def __init__(
        self, network: torch.nn.Module, critic: torch.nn.Module, *, table: str, rate: float,
        max_gradient: float, patience: int, epsilon: float = 1e-5,
    ) -> None:  # fmt: skip
        self._both = torch.nn.ModuleList([network, critic])
        self._table, self._patience, self._max_gradient = table, patience, max_gradient
        self._adam = torch.optim.Adam(self._both.parameters(), rate, eps=epsilon, fused=True)
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
        torch.nn.utils.clip_grad_norm_(self._both.parameters(), self._max_gradient)
        self._adam.step()

    def attempt(self, update: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Run an update that takes steps, and undo it if it fails."""
        good = {name: tensor.clone() for name, tensor in self._both.state_dict().items()}
        try:
            facts = update()
        except FloatingPointError:
            return self._undo(good)
        if not all(bool(torch.isfinite(p).all()) for p in self._both.parameters()):
            return self._undo(good)
        self.failed = 0
        return facts

    def _undo(self, good: dict[str, torch.Tensor]) -> dict[str, float]:
        self.failed += 1
        self._both.load_state_dict(good)
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
        weights = list(self._both.parameters())
        for key, value in arrays.items():
            _, number, name = key.split(".")
            kept, own = torch.from_numpy(np.array(value)), weights[int(number)]
            # In the memory layout of the weights, or Adam computes in another order.
            same = torch.empty_like(own).copy_(kept) if kept.shape == own.shape else kept
            state.setdefault(int(number), {})[name] = same.detach()
        self._adam.load_state_dict({**self._adam.state_dict(), "state": state})
