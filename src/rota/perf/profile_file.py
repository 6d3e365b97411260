"""A file of measurements: columns of checked cells, each row with the line it stands on."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from rota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rota.core.types import Ints

_BELOW: Final = 1_000_000_000
"""All counts are smaller."""
Kind: TypeAlias = Literal["text", "count", "flag", "rate", "time", "share", "real"]


@dataclass(frozen=True)
class ProfileColumn:
    """What the cells of one column must be."""

    kind: Kind
    known: Sequence[str] = ()
    """For texts: the only ones there are."""
    blank: bool = False


@dataclass(frozen=True)
class Profile:
    """The rows of one file, by column, with the line each stands on."""

    file: str
    columns: Mapping[str, NDArray[Any]]
    line: Ints  # (R,)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.line)

    def where(self, rows: NDArray[np.bool_]) -> Profile:
        """The same columns, some of the rows."""
        kept = {name: values[rows] for name, values in self.columns.items()}
        return Profile(self.file, kept, self.line[rows])

    def of(self, **wanted: str | int) -> Profile:
        """Only the rows whose columns have these values."""
        rows = np.ones(len(self), np.bool_)
        for name, value in wanted.items():
            rows &= self[name] == value
        return self.where(rows)

    def some(self, **wanted: str | int) -> Profile:
        """Like `of`, but refuses a file without any such row."""
        rows = self.of(**wanted)
        if not len(rows):
            what = ", ".join(f"{name} {value!r}" for name, value in wanted.items())
            raise InputError(f"{self.file}: there is no row with {what}; is the file complete?")
        return rows

    def refuse_twins(self, *key: str) -> None:
        """Refuse a second row for one configuration."""
        seen: dict[tuple[Any, ...], int] = {}
        for line, *values in zip(self.line, *(self[name].tolist() for name in key), strict=True):
            first = seen.setdefault(tuple(values), line)
            if first != line:
                what = ", ".join(f"{name} {v!r}" for name, v in zip(key, values, strict=True))
                raise InputError(
                    f"{self.file}, row {line}: {what} was measured in row {first} already; "
                    "keep one of them."
                )


def _number(low: float, what: str, *, above: bool = False) -> Callable[[str], float]:
    def read(cell: str) -> float:
        value = float(cell)
        if not math.isfinite(value) or value < low or (above and value == low):
            raise ValueError(what)
        return value

    return read


def _count(cell: str) -> int:
    value = int(cell)
    if not 1 <= value < _BELOW:
        raise ValueError(f"must be 1 or more, and below {_BELOW}")
    return value


def _flag(cell: str) -> int:
    if cell not in ("0", "1"):
        raise ValueError("must be 0 or 1")
    return int(cell)


_READ: Final[dict[str, Callable[[str], Any]]] = {
    "text": str,
    "count": _count,
    "flag": _flag,
    "rate": _number(0.0, "must be a number of 0 or more"),
    "time": _number(0.0, "must be a number above 0", above=True),
    "share": _number(0.0, "must be a number above 0", above=True),
    "real": _number(-math.inf, "must be a finite number"),
}


def read_profile(
    path: Path, columns: Mapping[str, ProfileColumn], *, may_be_empty: bool = False
) -> Profile:
    """Read these columns of a CSV file, plain or gzipped; refuse it at the first bad cell."""
    header, rows = _rows(path)
    missing = [name for name in columns if name not in header]
    if missing:
        raise InputError(
            f"{path}: column {missing[0]!r} is missing; the file has {', '.join(header)}."
        )
    cells: dict[str, list[Any]] = {name: [] for name in columns}
    for line, row in rows:
        if len(row) != len(header):
            raise InputError(
                f"{path}, row {line}: {len(row)} cells where the header names {len(header)}; "
                "is the file complete?"
            )
        for name, column in columns.items():
            cells[name].append(_cell(path, line, name, column, row[header.index(name)].strip()))
    if not (rows or may_be_empty):
        raise InputError(f"{path}: the file has a header but no measurements.")
    arrays = {name: np.array(values) for name, values in cells.items()}
    return Profile(str(path), arrays, np.array([line for line, _ in rows], np.int64))


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        rows = [(k, row) for k, row in enumerate(csv.reader(text.splitlines()), 1) if row]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}).") from None
    except (EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: is garbled or cut short ({error}); fetch it again.") from None
    if not rows:
        raise InputError(f"{path}: the file is empty.")
    return [name.strip() for name in rows[0][1]], rows[1:]


def _cell(path: Path, line: int, name: str, column: ProfileColumn, cell: str) -> Any:
    where = f"{path}, row {line}, column {name!r}"
    if not cell:
        if column.blank:
            return ""
        raise InputError(f"{where}: the cell is empty; mend the row or take it out.")
    try:
        value = _READ[column.kind](cell)
    except ValueError as error:
        why = str(error) if str(error).startswith("must") else f"must be a {column.kind}"
        raise InputError(f"{where}: {cell!r} {why}.") from None
    if column.known and cell not in column.known:
        raise InputError(f"{where}: {cell!r} is unknown; known are {', '.join(column.known)}.")
    return value
