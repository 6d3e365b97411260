"""Choosing an action by its logit among those that are allowed."""

from __future__ import annotations

from math import exp, inf, log
from typing import TYPE_CHECKING, Any, Final

from rota.jit import kernel, part

if TYPE_CHECKING:
    from rota.core.types import Bools, Ints

GREEDY: Final = -1.0
"""In place of `chance`: take the likeliest action instead of a random one."""


@part
def likeliest(logits: Any, mask: Bools) -> int:
    """The allowed action of the largest logit, the first of equals; −1 if none is allowed."""
    best, most = -1, -inf
    for a in range(logits.size):
        if mask[a] and logits[a] > most:
            best, most = a, logits[a]
    return best


@part
def pick(logits: Any, mask: Bools, chance: float, log_prob: Any) -> int:
    """An action by masked softmax; −1 if none is allowed. Writes log_prob[0].

    chance  uniform in [0, 1), or GREEDY
    """
    best = likeliest(logits, mask)
    log_prob[0] = 0.0
    if best < 0:
        return best
    most, total = logits[best], 0.0
    for a in range(logits.size):
        if mask[a]:
            total += exp(logits[a] - most)
    if chance >= 0.0:
        left = chance * total
        for a in range(logits.size):
            if mask[a]:
                best = a  # rounding may leave a little at the end: then take the last one
                left -= exp(logits[a] - most)
                if left < 0.0:
                    break
    log_prob[0] = logits[best] - most - log(total)
    return best


@kernel
def pick_rows(logits: Any, mask: Bools, chance: Any, action: Ints, log_prob: Any) -> None:
    """One action per row: logits and mask (n, A), the others (n,)."""
    for row in range(len(action)):
        action[row] = pick(logits[row], mask[row], chance[row], log_prob[row : row + 1])


@kernel
def pick_listed(
    logits: Any, allowed: Bools, begins: Ints, chance: Any, action: Ints, log_prob: Any
) -> None:
    """One candidate per list: list k is logits[begins[k] : begins[k + 1]], and so `allowed`.

    action  (n,) the candidate's place in its list
    """
    for k in range(len(action)):
        at, end = begins[k], begins[k + 1]
        action[k] = pick(logits[at:end], allowed[at:end], chance[k], log_prob[k : k + 1])
