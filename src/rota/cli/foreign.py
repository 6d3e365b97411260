"""`rota run --backend NAME` for a backend of another package: the loop, without our state."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.core import Policy
    from rota.run.guard import Guard
    from rota.run.loop import Round


def run_on(
    backend: str, policies: Sequence[str], make: Callable[[str], Policy], guard: Guard,
    tell: Callable[[Round], object],
) -> None:  # fmt: skip
    """Run the first policy on the backend until this says that it is over, or until Ctrl-C.

    What happened is the backend's to keep; nothing is written to a state directory.
    """
    from rota.backends.plugged import make_backend
    from rota.core import Cluster
    from rota.run.loop import rounds
    from rota.run.rehearsal import rehearse

    made = make_backend(backend)
    for name in policies:  # compiled before the first round, whose deadline is short
        rehearse(make(name), Cluster.uniform(2, 8), guard.deadline_s)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for turn in rounds(make(policies[0]), made, guard=guard):
            tell(turn)
    finally:
        signal.signal(signal.SIGTERM, before)
        if callable(close := getattr(made, "close", None)):
            close()
