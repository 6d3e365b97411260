"""Checkpoints as `rota learn` writes them, made from weights that ship without any learning."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.learn import checkpoint
from rota.learn.checkpoint import Checkpoint
from rota.learn.verdict import compare, verdict_of
from rota.systems.registry import trained
from rota.weights_file import CRITIC

if TYPE_CHECKING:
    from pathlib import Path

NAME = "dl2-queue"
RUNNING = checkpoint.load(trained()[NAME])


def learned(running: Checkpoint, change: float = -0.1) -> Checkpoint:
    """Weights that differ a little, with the verdict on them."""
    weights = {name: np.array(array) for name, array in running.weights.items()}
    weights[min(name for name in weights if not name.startswith(CRITIC))].ravel()[0] += 0.5
    new = Checkpoint(replace(running.about, verdict={}), weights)
    seen = compare(np.full(6, 10.0 * (1 + change)), np.full(6, 10.0))
    return replace(new, about=replace(new.about, verdict=verdict_of(seen, new, running, "run.db")))


def changed(found: Checkpoint, **verdict: Any) -> Checkpoint:
    """The same with something else in its verdict."""
    return replace(found, about=replace(found.about, verdict={**found.about.verdict, **verdict}))


def put(path: Path, found: Checkpoint) -> None:
    """Write it as a command would."""
    checkpoint.save(path, found.about, found.weights)
