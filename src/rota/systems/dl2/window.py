"""What both of DL2's lenses share: a window of jobs, and its observation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from gymnasium import spaces

from rota.errors import ConfigError
from rota.jit_call import Caller
from rota.systems.dl2.window_kernels import GLOBALS

HUGE = 1e9
"""The upper bound of features that gymnasium asks for; none comes near it."""


@dataclass(frozen=True, kw_only=True)
class Window(ABC):
    """The first jobs by submission, a row of numbers each, and a few numbers about the cluster.

    The fields are explained in `StepLensConfig` and `OnePassLensConfig`.
    """

    places: ClassVar[bool] = False
    window: int = 20
    types: int = 8
    most: int = 16
    slot_s: float = 1200.0
    _run: Caller = field(default_factory=Caller, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("window", "types", "most", "slot_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"lens.{name}={getattr(self, name)} must be above 0.")

    @property
    @abstractmethod
    def features(self) -> int:
        """Numbers that describe a job, F."""

    @property
    def globals(self) -> int:
        """Numbers that describe the cluster, G."""
        return GLOBALS

    @property
    def observation_space(self) -> spaces.Dict:
        """Jobs (W, F), the cluster (G,) and which rows hold a job (W,)."""
        return spaces.Dict(
            {
                "jobs": spaces.Box(0.0, HUGE, (self.window, self.features), np.float32),
                "cluster": spaces.Box(0.0, HUGE, (GLOBALS,), np.float32),
                "present": spaces.Box(0.0, 1.0, (self.window,), np.float32),
            }
        )
