"""Compiles what several policies need side by side, so that a first run waits for one of them.

Numba compiles one kernel at a time in a process. Here further processes compile for the policies
that come later, while this one begins with the first; whoever needs a kernel that another process
is compiling waits for it (`rota.jit_lock`) and takes it from disk.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rota.sim.briefing import briefed
from rota.sim.replay_choice import warm_up
from rota.sim.setup import PLAIN
from rota.sim.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rota.core.cluster import Cluster
    from rota.core.seams import Policy
    from rota.perf.physics import Physics
    from rota.sim.setup import Conditions
    from rota.traces.trace import Trace


@contextmanager
def compiled_beside(
    policies: Sequence[Policy],
    cluster: Cluster,
    when: Conditions,
    trace: Trace,
    physics: Physics = PLAIN,
) -> Iterator[None]:
    """Meanwhile, compile for all of `policies` but the first, which the caller begins with.

    Does nothing where there is one core, or no safe way to copy a process. A process that fails
    is no loss: the caller then compiles for itself, and meets the error where it can be told.
    """
    helpers = min(_cores(), len(policies)) - 1
    pids = []
    for number in range(max(0, helpers)):
        pid = os.fork()
        if pid == 0:
            try:
                sys.stderr = open(os.devnull, "w")  # noqa: SIM115
                for policy in policies[1 + number :: helpers]:
                    # As `simulate` will: types depend on what a policy is told.
                    told, conditions, laws = briefed(policy, when, physics, trace)
                    warm_up(Simulator(cluster, trace, conditions, physics=laws), told)
            finally:
                os._exit(0)
        pids.append(pid)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)  # what it has compiled is on disk
                os.waitpid(pid, 0)


def _cores() -> int:
    """The cores that this process may use; 1 where processes cannot be copied safely."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
