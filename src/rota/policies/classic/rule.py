"""What a compiled round needs to know of a policy: a handful of numbers."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rota.core.types import Floats

SKIP: Final = 0
"""Who does not fit is passed over."""
STRICT: Final = 1
"""Who does not fit holds up everybody behind."""
EASY: Final = 2
"""Later jobs may start if they do not delay the first that waits."""
CONSERVATIVE: Final = 3
"""Later jobs may start if they delay nobody who came before."""

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
    """While somebody waits, decide again after this long; inf: at events only."""
    depth: int = 100
    """CONSERVATIVE: how many waiting jobs get a reservation."""
    limits: Floats = np.zeros(0)
    """QUEUES, GITTINS: attained service (GPU-seconds) at which a job changes its class."""
    worth: Floats = np.zeros(1)
    """GITTINS: the index of each class; (len(limits) + 1,)."""
    typical: Floats = np.zeros(1)
    """FGD: how common each gang size is; (largest node's GPUs + 1,)."""
