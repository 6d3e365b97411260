"""Gaussian process regression in compiled code: what `posterior` computes, for one job.

Systems hold the states that were observed at a machine; machines with the same ones share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rota.jit import part
from rota.systems.das.dense_kernels import dot

if TYPE_CHECKING:
    from rota.systems.das.agent_kernels import AgentScratch


@part
def regress(s: AgentScratch, noise: float, count: int) -> None:
    """Write what each past state contributes to a machine's mean, and its variance."""
    for t in range(s.gram.shape[0]):
        if t == 0 or s.useful[t - 1]:
            for other in range(t + 1):
                if other == 0 or s.useful[other - 1]:
                    s.gram[t, other] = dot(s.features[t], s.features[other])
    for k in range(count):
        twin = first_alike(s, k)
        if twin < k:
            s.variance[k] = s.variance[twin]
            for t in range(s.known.shape[0]):
                s.pull[k, t] = s.pull[twin, t]
        else:
            solve(s, noise, k)


@part
def first_alike(s: AgentScratch, k: int) -> int:
    """The first machine that was observed in the same states as machine k."""
    for other in range(k):
        alike = True
        for t in range(s.known.shape[0]):
            alike = alike and s.known[t, other] == s.known[t, k]
        if alike:
            return other
    return k


@part
def solve(s: AgentScratch, noise: float, k: int) -> None:
    """Solve machine k's system by a Cholesky factor.

    A pivot is never below the noise but for rounding, so it is raised to that.
    """
    n = 0
    for t in range(s.known.shape[0]):
        if s.known[t, k]:
            s.states[n] = t
            n += 1
    variance = s.gram[0, 0]
    for i in range(n):
        row = s.states[i] + 1
        for j in range(i + 1):
            found = s.gram[row, s.states[j] + 1]
            for m in range(j):
                found -= s.factor[i, m] * s.factor[j, m]
            if j < i:
                s.factor[i, j] = found / s.factor[j, j]
            else:
                s.factor[i, i] = np.sqrt(max(found + noise, noise))
        ask = s.gram[row, 0]
        for m in range(i):
            ask -= s.factor[i, m] * s.half[m]
        s.half[i] = ask / s.factor[i, i]
        variance -= s.half[i] * s.half[i]
    s.variance[k] = max(variance, 0.0)
    for i in range(n - 1, -1, -1):
        found = s.half[i]
        for m in range(i + 1, n):
            found -= s.factor[m, i] * s.pull[k, s.states[m]]
        s.pull[k, s.states[i]] = found / s.factor[i, i]
