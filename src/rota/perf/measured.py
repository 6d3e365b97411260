"""The measured tables that ship, in a compact form; NOTICE says where they come from.

`data/dl2_measured.csv` has one row per model and number of servers, and a column per number of
workers; an empty cell was not run. `data/deepshare_measured.json` has the runs of six jobs alone,
what each keeps beside each other one, and the samples in a whole job.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.perf.profile_file import Profile
from rota.perf.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def dl2_speeds() -> Profile:
    """Samples/s by model, servers and workers, failed runs as 0."""
    name = "dl2_measured.csv"
    text = (files("rota.perf") / "data" / name).read_text(encoding="utf-8")
    header, *rows = csv.reader(text.splitlines())
    found = [
        (line, model, int(batch), int(servers), int(workers), float(cell))
        for line, (model, batch, servers, *cells) in enumerate(rows, 2)
        for workers, cell in zip(header[3:], cells, strict=False)  # rows end with their last cell
        if cell
    ]
    columns = ("model", "total_batch_size", "num_ps", "num_workers", "sum_worker_speed")
    return _profile(name, columns, found)


def deepshare_speeds() -> Profile:
    """Samples/s of each job alone, by GPUs and nodes."""
    runs = shipped("deepshare_measured")["runs"]
    columns = ("model", "num_gpus", "num_nodes", "samples_per_s")
    return _deepshare(columns, runs)


def deepshare_samples() -> Profile:
    """Samples in a whole job of each model and size."""
    samples = shipped("deepshare_measured")["samples"]
    rows = [(model, int(gpus), n) for model, sizes in samples.items() for gpus, n in sizes.items()]
    return _deepshare(("model", "num_gpus", "total_samples"), rows)


def deepshare_pairs() -> Profile:
    """What is left of job a's speed beside job b."""
    facts = shipped("deepshare_measured")
    kinds = [tuple(run[:3]) for run in facts["runs"]]
    rows = [
        (*a, *b, ratio)
        for a, row in zip(kinds, facts["ratios"], strict=True)
        for b, ratio in zip(kinds, row, strict=True)
    ]
    names = [f"{what}_{who}" for who in "ab" for what in ("model", "num_gpus", "num_nodes")]
    return _deepshare((*names, "ratio_a"), rows)


def _deepshare(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Profile:
    return _profile("deepshare_measured.json", columns, [(k, *row) for k, row in enumerate(rows)])


def _profile(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Profile:
    """Rows of (line, cell, cell, …) as a profile."""
    line, *cells = zip(*rows, strict=True)
    arrays = {column: np.array(own) for column, own in zip(columns, cells, strict=True)}
    return Profile(name, arrays, np.array(line, np.int64))
