"""A journal in shadow that can be worked out by hand: two jobs that a policy would have swapped.

At 10 s come job 1 of 100 s and job 2 of 10 s, each for all 4 GPUs. Slurm runs them in order: job 1
from 10 to 110, job 2 from 110 to 120. Shortest first, job 2 would have run from 10 to 20 and job 1
from 20 to 120.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hand_journals import event_arrays, live_journal

from rota.core.layout import ARRIVE, FINISH, ROUND, START

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hand_journals import Happening

    Turn = tuple[float, dict[str, Any], Sequence[Happening]]

ALL = ((0, 4),)
WISH = {"uid": 2, "do": "start", "share": [[0, 4, 0]]}
TURNS: Sequence[Turn] = (
    (10, {"by": "srtf", "shadow": [WISH]}, [(10, 0, ARRIVE, ()), (10, 1, ARRIVE, ())]),
    (12, {"by": "srtf"}, [(10, 0, START, ALL)]),
    (110, {"by": "srtf", "quiet": 3, "shadow": [WISH]}, [(110, 0, FINISH, ())]),
    (111, {"by": "srtf"}, [(110, 1, START, ALL)]),
    (115, {"by": "fifo-skip", "trouble": "Policy 'srtf' has not answered",
           "shadow": [{"uid": 2, "do": "stop", "share": []}]}, []),
    (120, {"by": "srtf"}, [(120, 1, FINISH, ())]),
)  # fmt: skip
"""Time, note, and the events written with it."""


def write_shadow_journal(
    path: Path,
    turns: Sequence[Turn] = TURNS,
    *,
    shadow: bool = True,
    submit_s: Sequence[float] = (10, 10),
    **columns: Any,
) -> None:
    """Write it; `columns` are those of its two jobs."""
    meta = {
        "policy": "srtf", "total_gpus": 4, "cluster": {"names": ["n1"], "gpus": [4]},
        "shadow": shadow,
    }  # fmt: skip
    usual = {"estimate_s": [100, 10], "restart_s": [5, 5], "stoppable": [0, 0]}
    with live_journal(path, meta, 1, [4, 4], submit_s, **{**usual, **columns}) as journal:
        for time_s, note, happened in turns:
            journal.add_events(*event_arrays(happened))
            journal.add_rounds(np.array([(time_s, 1, 1, 4, 4, 0)], ROUND), [note])
