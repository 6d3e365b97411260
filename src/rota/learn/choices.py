"""Probabilities of options under what was allowed, with gradients: in tables, or in lists.

In a list, a decision has a segment of any length, and softmax and entropy are of segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import torch

if TYPE_CHECKING:
    from rota.learn.states import Allowed

NEVER: Final = -1e9
"""The logit of actions that are not allowed; finite, so that their entropy is 0 and not NaN."""
LEAST_EXPONENT: Final = -80.0
"""exp() is eight times slower where the result underflows."""


class Chances(Protocol):
    """Log-probabilities of the options of n decisions."""

    def of(self, action: torch.Tensor) -> torch.Tensor:
        """(n,) Of one option of each."""
        ...

    def entropy(self) -> torch.Tensor:
        """(n,)"""
        ...

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """(n,) The mean of values of all options, each by its probability."""
        ...

    def likeliest(self) -> torch.Tensor:
        """(n,) The likeliest option."""
        ...

    def even(self) -> torch.Tensor:
        """(n,) The mean over the options that are allowed."""
        ...

    def among(self, flags: torch.Tensor) -> torch.Tensor:
        """(n,) Of all flagged options together."""
        ...

    def gap(self, action: torch.Tensor, *, square: bool) -> torch.Tensor:
        """(n,) The distance between probabilities and those that are 1 for `action`, 0 else."""
        ...


def chances(logits: torch.Tensor, options: Allowed) -> Chances:
    """The log-probabilities under `options`; logits in the form of its flags."""
    flags = torch.from_numpy(options.flags)
    if options.begins is None:
        return _Table(logits, flags)
    return _Lists(logits, flags, torch.from_numpy(options.begins))


class _Table:
    def __init__(self, logits: torch.Tensor, flags: torch.Tensor) -> None:
        self._flags = flags
        self.log_probs = torch.log_softmax(logits.masked_fill(~flags, NEVER), -1)  # (n, A)

    def of(self, action: torch.Tensor) -> torch.Tensor:
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        return -(self.log_probs.clamp_min(LEAST_EXPONENT).exp() * self.log_probs).sum(-1)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        return (self.log_probs.clamp_min(LEAST_EXPONENT).exp() * values).sum(-1)

    def likeliest(self) -> torch.Tensor:
        return self.log_probs.argmax(-1)

    def even(self) -> torch.Tensor:
        return (self.log_probs * self._flags).sum(-1) / self._flags.sum(-1)

    def among(self, flags: torch.Tensor) -> torch.Tensor:
        return self.log_probs.masked_fill(~flags, -torch.inf).logsumexp(-1)

    def gap(self, action: torch.Tensor, *, square: bool) -> torch.Tensor:
        wanted = torch.nn.functional.one_hot(action, self.log_probs.shape[-1])
        gap = self.log_probs.exp() - wanted
        return (gap.square() if square else gap.abs()).sum(-1)


class _Lists:
    def __init__(self, logits: torch.Tensor, flags: torch.Tensor, begins: torch.Tensor) -> None:
        self._flags, self._begins = flags, begins[:-1]
        self._owner = torch.repeat_interleave(begins.diff())  # (C,)
        scores = logits.masked_fill(~flags, NEVER)
        most = self._most(scores.detach())[self._owner]
        total = self._sum((scores - most).clamp_min(LEAST_EXPONENT).exp())
        self.log_probs = scores - most - total.log()[self._owner]  # (C,)

    def _sum(self, values: torch.Tensor) -> torch.Tensor:
        """(n,) The sum of each list."""
        return values.new_zeros(len(self._begins)).index_add(0, self._owner, values)

    def _most(self, values: torch.Tensor) -> torch.Tensor:
        """(n,) The largest of each list."""
        least = values.new_full((len(self._begins),), -torch.inf)
        return least.scatter_reduce(0, self._owner, values, "amax")

    def of(self, action: torch.Tensor) -> torch.Tensor:
        return self.log_probs[self._begins + action]

    def entropy(self) -> torch.Tensor:
        return -self._sum(self.log_probs.clamp_min(LEAST_EXPONENT).exp() * self.log_probs)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        return self._sum(self.log_probs.clamp_min(LEAST_EXPONENT).exp() * values)

    def likeliest(self) -> torch.Tensor:
        best = self.log_probs >= self._most(self.log_probs.detach())[self._owner]
        place = torch.arange(len(best)).masked_fill(~best, len(best))  # the first of equals
        first = place.new_full((len(self._begins),), len(best))
        return first.scatter_reduce(0, self._owner, place, "amin") - self._begins

    def even(self) -> torch.Tensor:
        return self._sum(self.log_probs * self._flags) / self._sum(self._flags.float())

    def among(self, flags: torch.Tensor) -> torch.Tensor:
        most = self._most(self.log_probs.detach().masked_fill(~flags, -torch.inf))
        rest = (self.log_probs - most[self._owner]).masked_fill(~flags, LEAST_EXPONENT)
        return most + self._sum(rest.clamp_min(LEAST_EXPONENT).exp() * flags).log()

    def gap(self, action: torch.Tensor, *, square: bool) -> torch.Tensor:
        gap = self.log_probs.exp()
        gap = gap.index_add(0, self._begins + action, -torch.ones(len(action)))
        return self._sum(gap.square() if square else gap.abs())
