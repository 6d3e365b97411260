"""The observation space that both of DL2's lenses share."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from rota.systems.dl2.window_kernels import GLOBALS

HUGE = 1e9
"""No feature comes near; gymnasium wants a bound."""


def job_space(window: int, features: int) -> spaces.Dict:
    """Jobs (W, F), the cluster (G,) and which rows hold a job (W,)."""
    return spaces.Dict(
        {
            "jobs": spaces.Box(0.0, HUGE, (window, features), np.float32),
            "cluster": spaces.Box(0.0, HUGE, (GLOBALS,), np.float32),
            "present": spaces.Box(0.0, 1.0, (window,), np.float32),
        }
    )
