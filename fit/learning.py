"""Fit the learning curves that rota ships to a table of real trainings.

Usage: python fit/learning.py TABLE.csv [MODEL=MEASURED …]

Jobs of the scenario `growing` train the models of `rota.traces.daily_jobs`; `MODEL=MEASURED` says
which trainings of the table stand for one of them, where its name is not there itself.
The table has the columns `model`, `level`, `cost`, `epoch` and `accuracy`, one row per evaluation;
`level` counts the sizes of a model from 0, and `cost` is the work of an epoch, in any unit.
Prints how far each curve is off on the later half of its measurements, fitted to the first half.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rota.errors import InputError, RotaError
from rota.perf.learning_curves import extrapolation_error, fit_family, learning_curves
from rota.traces.daily_jobs import MODELS

OUT = Path(__file__).resolve().parent.parent / "src" / "rota" / "perf" / "data" / "learning.json"
COLUMNS = ("level", "cost", "epoch", "accuracy")


def read(path: Path) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """The measurements of each model: (rows, 4), by level and epoch."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"model", *COLUMNS} <= rows[0].keys():
        raise InputError(f"{path} needs rows with the columns model, {', '.join(COLUMNS)}.")
    found: dict[str, list[list[float]]] = {}
    for line, row in enumerate(rows, 2):
        try:
            found.setdefault(row["model"], []).append([float(row[name]) for name in COLUMNS])
        except (TypeError, ValueError):
            raise InputError(
                f"{path}, line {line}: {row} has something that is no number."
            ) from None
    return {name: np.array(sorted(own)) for name, own in found.items()}


def family(name: str, rows: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    """The fitted levels of one model; it trains as long as its longest measured training."""
    runs = []
    for level in np.unique(rows[:, 0]):
        own = rows[rows[:, 0] == level]
        epochs, accuracy = own[:, 2], own[:, 3]
        runs.append((float(np.median(own[:, 1])), epochs, accuracy))
        if len(own) > 1:
            off = extrapolation_error(epochs, accuracy)
            print(f"{name}, level {level:g}: {len(own)} measurements, later half off by {off:.4f}")
    return {"epochs": float(rows[:, 2].max()), "levels": [rounded(one) for one in fit_family(runs)]}


def rounded(level: dict[str, float]) -> dict[str, float]:
    """The level in six digits; equal starts stay equal, as `LearningCurves` wants them."""
    short = {key: round(value, 6) for key, value in level.items()}
    start = round(level["top"] - level["span"], 6)
    return {**short, "span": round(short["top"] - start, 6)}


def named(measured: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """The fitted families by the models that jobs train."""
    meant = dict(pair.partition("=")[::2] for pair in pairs)
    families = {}
    for model in MODELS:
        stands = meant.pop(model, model)
        if stands not in measured:
            raise InputError(
                f"Nothing in the table stands for {model!r}; it has {', '.join(measured)}. Say "
                f"which one does, such as {model}={next(iter(measured))}."
            )
        families[model] = measured[stands]
    if meant:
        raise InputError(f"No job trains {next(iter(meant))!r}; jobs train {', '.join(MODELS)}.")
    return families


def main() -> None:
    """Read the table, fit, check, write."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    path = Path(sys.argv[1])
    try:
        measured = {name: family(name, rows) for name, rows in read(path).items()}
        families = named(measured, sys.argv[2:])
        learning_curves(families)  # refuses what no simulation could use
    except (OSError, RotaError) as error:
        raise SystemExit(f"error: {error}") from None
    source = " ".join(["fitted: python fit/learning.py", path.name, *sys.argv[2:]])
    OUT.write_text(json.dumps({"source": source, "families": families}, indent=2) + "\n")


if __name__ == "__main__":
    main()
