"""The time of a state directory: it runs forward only, also from one daemon to the next."""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING

from rota.errors import RotaError

if TYPE_CHECKING:
    from rota.backends.local.state_dir import StateDir


class StateClock:
    """Seconds since the state directory was made.

    It never runs backwards, nor is it earlier than any time on disk: a clock that was set back
    between two daemons takes no service from any job.
    """

    def __init__(self, store: StateDir) -> None:
        self._began_s, self._clock_s = max(0.0, time() - store.origin), monotonic()
        try:
            self.reach(store.history.last()[1])
        except (RotaError, OSError):
            return  # the history cannot be read; what jobs have written is still heeded

    @property
    def now_s(self) -> float:
        """The time now."""
        return self._began_s + monotonic() - self._clock_s

    def reach(self, time_s: float) -> None:
        """Be no earlier than a time that is on disk."""
        self._began_s += max(0.0, time_s - self.now_s)
