"""Builds a table of trainings: in parallel, and from where it stopped."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

import torch

from rota.adapt.clock import Clock, Occasion
from rota.adapt.network_training import play, pretrained
from rota.adapt.starts import growths, start
from rota.adapt.table_file import CONTROLS
from rota.errors import ConfigError, RotaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rota.adapt.network_training import RunCurve, Training
    from rota.adapt.table_file import TableFile, TableRun, TableSpec

_TOGETHER: Final = 12
"""Runs that a process makes before it hands them over."""


def build(
    table: TableFile, *, processes: int | None = None, watch: Callable[[int], None] | None = None
) -> int:
    """Make the runs that a table lacks; `watch` is told how many there are. Returns how many."""
    spec, done = table.spec, table.done()
    missing = [run for run in spec.runs() if run not in done]
    count = spec.size - len(missing)
    if watch:
        watch(count)
    if processes is None:
        processes = os.cpu_count() or 1
    if processes < 1:
        raise ConfigError(f"processes={processes} must be 1 or more.")
    for made in _made(spec, _pieces(missing), processes):
        for run, curve in made:
            table.add(run, curve)
        count += len(made)
        if watch:
            watch(count)
    return len(missing)


def _pieces(runs: list[TableRun]) -> Iterator[list[TableRun]]:
    """Runs that begin alike, a few at a time."""
    for _, alike in groupby(runs, key=lambda run: (run.start, run.seed, run.epoch)):
        while piece := list(islice(alike, _TOGETHER)):
            yield piece


def _made(
    spec: TableSpec, pieces: Iterator[list[TableRun]], processes: int
) -> Iterator[list[tuple[TableRun, RunCurve]]]:
    if processes == 1:
        yield from (make(spec, piece) for piece in pieces)
        return
    # Not forked: a process that has used torch's threads cannot be.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, torch.set_num_threads, (1,)) as pool:
        try:
            waiting = {pool.submit(make, spec, piece) for piece in islice(pieces, 2 * processes)}
            while waiting:
                over, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                waiting |= {pool.submit(make, spec, piece) for piece in islice(pieces, len(over))}
                for task in over:
                    yield task.result()
        except BrokenProcessPool:
            raise RotaError(
                "A process of the table was killed, perhaps for lack of memory. What was made is "
                "kept: call the same command again, or with fewer --processes."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def make(spec: TableSpec, runs: list[TableRun]) -> list[tuple[TableRun, RunCurve]]:
    """Make runs that have start network, seed and epoch in common."""
    name, epoch, _, seed = runs[0]
    begun = pretrained(start(name), seed, spec.rules, epoch)
    return [(run, _play(spec, begun.copy(), run)) for run in runs]


def _play(spec: TableSpec, training: Training, run: TableRun) -> RunCurve:
    chosen = growths(training.start, spec.menu)
    longest = Occasion("longest", run.epoch, 1.0, Clock().gpus_for(spec.speedup))
    if run.sequence in CONTROLS:
        restart = run.sequence == "restart"
        training.rules = replace(training.rules, reset="once" if restart else "grown")
        return play(training, [None] * spec.decisions, longest)
    return play(training, [chosen[int(k)] for k in run.sequence.split(",")], longest)
