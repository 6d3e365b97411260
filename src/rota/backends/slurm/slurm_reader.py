"""What Slurm says of its nodes and jobs: through slurmrestd if there is one, else by commands."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.backends.slurm.replies import read_jobs, read_nodes
from rota.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.backends.slurm.replies import SlurmJob, SlurmNode
    from rota.backends.slurm.rest import Slurmrestd
    from rota.backends.slurm.tools import SlurmTools

AGAIN_S: Final = 30.0
"""Seconds until a slurmrestd that did not answer is tried again."""
MOST_WAITING: Final = 0.1
"""At most this share of the time is spent on waiting for one that hangs."""


class SlurmReader:
    """Reads all nodes and all jobs."""

    def __init__(
        self,
        tools: SlurmTools,
        rest: Slurmrestd | None = None,
        say: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._tools, self._rest, self._say, self._clock = tools, rest, say, clock
        self._again_s: float | None = None  # None: slurmrestd answers

    def look(self) -> tuple[list[SlurmNode], list[SlurmJob]]:
        """The nodes, and after them the jobs."""
        if self._rest is not None and (self._again_s is None or self._clock() >= self._again_s):
            seen = self._through(self._rest)
            if seen is not None:
                return seen
        nodes = read_nodes(self._tools.ask("sinfo", "--json"))
        return nodes, read_jobs(self._tools.ask("squeue", "--json"))

    def _through(self, rest: Slurmrestd) -> tuple[list[SlurmNode], list[SlurmJob]] | None:
        """What slurmrestd says; None if this look has to do without it."""
        began_s = self._clock()
        try:
            seen = rest.nodes(), rest.jobs()
        except BackendError as error:
            if self._again_s is None:
                said = str(error).rstrip(".")
                self._say(f"slurmrestd does not answer: {said}; asks squeue and sinfo")
            now_s = self._clock()
            self._again_s = now_s + max(AGAIN_S, (now_s - began_s) / MOST_WAITING)
            return None
        if self._again_s is not None:
            self._again_s = None
            self._say("slurmrestd answers again")
        return seen
