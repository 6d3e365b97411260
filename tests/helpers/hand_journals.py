"""Journals written by hand: what happened, as tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.layout import EVENT, ROUND, SHARE
from rota.run.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.types import Records

Happening = tuple[float, int, int, Sequence[tuple[int, ...]]]
"""When, to which job or node, what, and what the job holds from then on: (node, workers) or (node,
workers, servers) each."""


def event_arrays(happened: Sequence[Happening]) -> tuple[Records, Records]:
    """Events and shares as a journal takes them."""
    events = [(time_s, job, kind, len(share)) for time_s, job, kind, share in happened]
    shares = [(*entry, 0)[:3] for *_, share in happened for entry in share]
    return np.array(events, EVENT), np.array(shares, SHARE)


def live_journal(
    path: Path, meta: dict[str, Any], first_uid: int, gpus: Sequence[int],
    submit_s: Sequence[float], **columns: Any,
) -> Journal:  # fmt: skip
    """The journal of a live cluster, with jobs of nobody whose lengths are not known."""
    journal = Journal.create(path, meta=meta)
    count = len(gpus)
    ids = [str(first_uid + k) for k in range(count)]
    more = {key: np.array(value, np.float64) for key, value in columns.items()}
    journal.add_jobs(ids, [-1] * count, [], gpus, submit_s, [np.nan] * count, more)
    return journal


def add_round(
    journal: Journal, now_s: float, happened: Sequence[Happening], note: dict[str, Any]
) -> None:
    """What has happened up to a round on 8 GPUs, and the round."""
    journal.add_events(*event_arrays(happened))
    journal.add_rounds(np.array([(now_s, 0, 0, 0, 8, 0)], ROUND), [note])
