"""What was measured of a user's own jobs: alone by placement, and beside each other.

    FOLDER/isolated.csv   samples per second of a job alone, by workers and nodes
    FOLDER/pairs.csv      samples per second of job a beside job b on the same nodes
    FOLDER/measured.json  what the jobs in the tables ran, so that others do not pass for them

Every row has the number of windows it is the median of, and their relative spread. Files are
replaced whole after each measurement: a row that is there was measured completely.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rota.errors import DamagedError, InputError
from rota.files import is_count, read_file, replace_bytes, replace_file
from rota.perf.profile_file import ProfileColumn, read_profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

ISOLATED, PAIRS, MEASURED = "isolated.csv", "pairs.csv", "measured.json"
WINDOWS: Final = 5
"""Parts of a measurement whose speeds are compared."""
_SIDE: Final = {"model": "text", "num_workers": "count", "num_nodes": "count"}
_COLUMNS: Final[dict[str, dict[str, ProfileColumn]]] = {
    ISOLATED: {
        **{name: ProfileColumn(kind) for name, kind in _SIDE.items()},  # type: ignore[arg-type]
        "samples_per_s": ProfileColumn("time"),
        "windows": ProfileColumn("count"),
        "spread": ProfileColumn("rate"),
    },
    PAIRS: {
        **{
            f"{name}_{who}": ProfileColumn(kind)  # type: ignore[arg-type]
            for who in "ab"
            for name, kind in _SIDE.items()
        },
        "samples_per_s_a": ProfileColumn("time"),
        "windows": ProfileColumn("count"),
        "spread": ProfileColumn("rate"),
    },
}


class PlacedModel(NamedTuple):
    """A model in one placement: its workers, evenly over a number of nodes."""

    model: str
    workers: int
    nodes: int

    def __str__(self) -> str:
        spans = "" if self.nodes == 1 else f" over {self.nodes} nodes"
        return f"{self.model} × {self.workers}{spans}"


@dataclass(frozen=True)
class Throughput:
    """A median over windows, and how far these are apart."""

    value: float
    windows: int
    spread: float
    """Relative standard deviation, from the median distance to the median."""

    @classmethod
    def of(cls, rates: Sequence[float]) -> Throughput:
        """The median over windows, of one run or of several."""
        middle = float(np.median(rates))
        spread = 1.4826 * float(np.median(np.abs(np.asarray(rates) - middle))) / middle
        return cls(middle, len(rates), spread)

    def rounded(self) -> Throughput:
        """As tables have it."""
        value, windows, spread = _cells(self)
        return Throughput(float(value), windows, float(spread))

    def against(self, alone: Throughput) -> Throughput:
        """What is left of `alone`."""
        spread = float(np.hypot(self.spread, alone.spread))
        return Throughput(self.value / alone.value, self.windows, spread)


def window_rates(points: Sequence[tuple[float, float]], windows: int = WINDOWS) -> list[float]:
    """Work per second in each window, from (work done, time) at the ends of steps.

    The time is divided into windows that begin and end with a step; there are fewer where steps
    are few. Empty: there was no window with a speed, or one without.
    """
    kept = list(points[:1])
    for point in points[1:]:
        if point[1] > kept[-1][1]:
            kept.append(point)
    if len(kept) < 2:
        return []
    work, time_s = np.array(kept, np.float64).T
    cuts = np.linspace(time_s[0], time_s[-1], windows + 1)
    at = np.unique(np.abs(time_s[None, :] - cuts[:, None]).argmin(axis=1))
    rates = np.diff(work[at]) / np.diff(time_s[at])
    sound = np.isfinite(rates).all() and (rates > 0).all()
    return [float(rate) for rate in rates] if sound else []


class JobTables:
    """The tables of a folder; what is added is on the disk when `add_…` returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alone: dict[PlacedModel, Throughput] = {
            PlacedModel(*map(_plain, key)): found
            for key, found in self._read(ISOLATED, 3, "samples_per_s")
        }
        self.beside: dict[tuple[PlacedModel, PlacedModel], Throughput] = {
            (PlacedModel(*map(_plain, key[:3])), PlacedModel(*map(_plain, key[3:]))): found
            for key, found in self._read(PAIRS, 6, "samples_per_s_a")
        }
        """Speed of the first one beside the second one."""
        self._jobs: dict[str, Any] = read_file(folder / MEASURED) or {}

    @property
    def models(self) -> list[str]:
        """All models that were measured alone, in the order of the table."""
        return list(dict.fromkeys(placed.model for placed in self.alone))

    def gpus_per_worker(self, model: str) -> int:
        """GPUs that each worker of a model had."""
        facts = self._jobs.get(model, {})
        count: Any = facts.get("gpus_per_worker", 1) if isinstance(facts, dict) else None
        if not is_count(count):
            raise DamagedError(self.folder / MEASURED, f"gpus_per_worker of {model!r} is {count!r}")
        return int(count)

    @property
    def ratios(self) -> dict[tuple[PlacedModel, PlacedModel], Throughput]:
        """What is left of a job's speed beside another one, where its speed alone is known."""
        return {
            pair: found.against(self.alone[pair[0]])
            for pair, found in self.beside.items()
            if pair[0] in self.alone
        }

    def has_pair(self, a: PlacedModel, b: PlacedModel) -> bool:
        """Whether both were measured beside each other."""
        return (a, b) in self.beside and (b, a) in self.beside

    def check(self, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuse a job whose rows were measured with something else."""
        measured = {*self.models, *(placed.model for pair in self.beside for placed in pair)}
        for model, facts in jobs.items():
            before = self._jobs.get(model, facts)
            if not isinstance(before, dict):
                raise DamagedError(self.folder / MEASURED, f"{model!r} is {str(before)[:40]!r}")
            changed = [key for key in {**before, **facts} if before.get(key) != facts.get(key)]
            if changed and model in measured:
                key = changed[0]
                raise InputError(
                    f"{self.folder}: job {model!r} was measured with {key} = {before.get(key)!r}, "
                    f"and now has {facts.get(key)!r}; give it another name, or choose another "
                    "--out."
                )
        self._jobs |= {model: dict(facts) for model, facts in jobs.items()}

    def claim(self, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        """Check what jobs run, and write it down; only for who holds the lock of the folder."""
        self.check(jobs)
        replace_file(self.folder / MEASURED, self._jobs)

    def add_alone(self, placed: PlacedModel, found: Throughput) -> None:
        """Write down the speed of a job alone."""
        self.alone[placed] = found.rounded()
        self._write(ISOLATED, [(*placed, *_cells(one)) for placed, one in self.alone.items()])

    def add_pair(self, found: Mapping[tuple[PlacedModel, PlacedModel], Throughput]) -> None:
        """Write down the speed of each of two jobs beside the other one, both at once."""
        self.beside |= {pair: one.rounded() for pair, one in found.items()}
        self._write(PAIRS, [(*a, *b, *_cells(one)) for (a, b), one in self.beside.items()])

    def _read(self, name: str, key: int, value: str) -> list[tuple[tuple[Any, ...], Throughput]]:
        path = self.folder / name
        if not path.exists():
            return []
        profile = read_profile(path, _COLUMNS[name], may_be_empty=True)
        columns = list(_COLUMNS[name])[:key]
        profile.refuse_twins(*columns)
        for at in range(0, key, 3):
            _, workers, nodes = columns[at : at + 3]
            if (few := profile[workers] < profile[nodes]).any():
                row = int(few.argmax())
                raise InputError(
                    f"{path}, row {profile.line[row]}: {profile[workers][row]} workers cannot be "
                    f"on {profile[nodes][row]} nodes; mend the row or take it out."
                )
        cells = [profile[column].tolist() for column in (*columns, value, "windows", "spread")]
        return [(row[:key], Throughput(*row[key:])) for row in zip(*cells, strict=True)]

    def _write(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([list(_COLUMNS[name]), *rows])
        replace_bytes(self.folder / name, [text.getvalue().encode()])


def _plain(cell: Any) -> Any:
    return cell if isinstance(cell, str) else int(cell)


def _cells(found: Throughput) -> tuple[str, int, str]:
    return f"{found.value:.6g}", found.windows, f"{found.spread:.4f}"
