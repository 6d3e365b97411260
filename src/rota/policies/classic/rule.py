"""What a compiled round needs to know of a policy, as numbers."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rota.core.types import Floats

SKIP: Final = 0
"""A job that does not fit is passed over."""
STRICT: Final = 1
"""A job that does not fit holds up all jobs behind it."""
EASY: Final = 2
"""Later jobs may start if they do not delay the first that waits."""
CONSERVATIVE: Final = 3
"""Later jobs may start if they delay no job before them."""

RIGID: Final = 0
ELASTIC: Final = 1


class Rule(NamedTuple):
    """A policy as numbers; every kernel that decides takes one."""

    order: int = 0
    """Which score ranks the jobs: a code of `orderings`."""
    place: int = 0
    passing: int = SKIP
    preempt: bool = False
    sizing: int = RIGID
    exponent: float = 0.0
    """REMAINING: remaining time × GPUs^exponent."""
    quantum_s: float = np.inf
    """While jobs wait, decide again after this time; inf: at events only."""
    depth: int = 100
    """CONSERVATIVE: the number of waiting jobs that get a reservation."""
    limits: Floats = np.zeros(0)
    """QUEUES, GITTINS: attained service (GPU-seconds) at which a job changes its class."""
    worth: Floats = np.zeros(1)
    """GITTINS: the index of each class; (len(limits) + 1,)."""
    typical: Floats = np.zeros(1)
    """FGD: the share of past jobs with each number of GPUs; (largest number + 1,)."""
