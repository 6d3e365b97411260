"""What a recorder keeps of one round: the state of the cluster after it, and a note."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import ROUND
from rota.core.plan import Stop, Tune
from rota.run.job_story import STOPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.plan import Plan, Share
    from rota.core.types import Records
    from rota.run.loop import Round


def state_after(turn: Round, shares: Sequence[Share], now_s: float) -> Records:
    """The state of the cluster after a round (1,)."""
    nodes, used = turn.snapshot.nodes, np.zeros(len(turn.snapshot.nodes), np.int64)
    for each, share in zip(turn.snapshot.jobs.gpus_per_worker.tolist(), shares, strict=True):
        for node, workers, _ in share:
            used[node] += workers * each
    running = sum(1 for share in shares if share)
    up, has = nodes["up"], nodes["gpus"].astype(np.int64)
    # A job may still hold GPUs of a node that is down or drained; these count as up.
    stray = int((has - used)[up & (used > 0)].sum())
    there = int(np.where(up, has, used).sum())
    row = (now_s, len(shares) - running, running, int(used.sum()), there, stray)
    return np.array([row], ROUND)


def note_of(turn: Round) -> dict[str, Any]:
    """What the journal keeps of a round beside the state of the cluster."""
    note: dict[str, Any] = {"by": turn.by, **turn.note()}
    if stops := [action.uid for action in turn.plan if isinstance(action, Stop)]:
        note[STOPS] = stops
    if turn.trouble:
        note["trouble"] = turn.trouble
    if turn.shadow is not None and (actions := _actions(turn.shadow)):
        note["shadow"] = actions
    return note


def _actions(plan: Plan) -> list[dict[str, Any]]:
    """What a plan would have done, as plain data."""
    return [
        {
            "uid": action.uid,
            "do": type(action).__name__.lower(),
            "share": [] if isinstance(action, Stop) else [list(part) for part in action.share],
        }
        for action in plan
        if not isinstance(action, Tune)
    ]
