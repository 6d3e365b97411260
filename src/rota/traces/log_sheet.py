"""A job log as cells of text, each row with the line it stands on.

A parser asks the sheet for numbers and texts by column name. What cannot be read is reported
with file, line, field and value; under `skip_bad` the row is marked and counted instead.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from rota.errors import TraceError
from rota.traces.columns import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rota.core.types import Bools, Floats, Ints

Layout: TypeAlias = Literal["commas", "pipes", "blanks", "tabs"]

HOW_TO_SKIP = "mend it, or pass over broken lines with --skip-bad"


@dataclass(frozen=True)
class Sheet:
    """The rows of one file, and what has been decided about each of them so far."""

    file: str
    kind: str
    """Name of the format that the file is read as."""
    cells: Mapping[str, Sequence[str]]  # column name -> (R,) texts
    line: Ints  # (R,) line on which each row begins
    skip_bad: bool = False
    broken: int = 0
    """Rows with too few or too many fields, already removed."""
    bad: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))  # (R,) updated in place
    merged: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))  # (R,) likewise
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What a user should know of how the file is read."""
    sources: dict[str, str] = field(default_factory=dict)
    """Columns of the file from which columns of the plain form with other names were read."""

    @property
    def live(self) -> Bools:
        """Rows that still stand for a job, (R,)."""
        return ~(self.bad | self.merged)

    @property
    def skipped(self) -> int:
        """Broken rows passed over so far."""
        return self.broken + int(self.bad.sum())

    def __contains__(self, column: str) -> bool:
        return column in self.cells

    def __len__(self) -> int:
        return self.line.size

    def require(self, *columns: str, advice: str = "") -> None:
        """Refuse the file unless it has all these columns."""
        missing = [column for column in columns if column not in self.cells]
        if missing:
            found = ", ".join(self.cells) or "none"
            if len(self.cells) == 1 and any(mark in found for mark in ";\t"):
                advice = "Columns must be separated by commas."
            raise TraceError(
                f"Column {', '.join(map(repr, missing))} is missing: read as format "
                f"{self.kind!r}, whose columns the file must name in its first line. "
                f"Found: {found}. {advice or '`rota traces` lists the formats.'}",
                file=self.file,
            )

    def numbers(self, column: str, *, empty: float | None = None) -> Floats:
        """Read a column as floats, (R,); `empty` is the value of an empty cell, if allowed."""
        cells = self.cells[column]
        try:
            if empty is not None and "" in cells:
                return np.array([float(cell) if cell else empty for cell in cells], np.float64)
            return np.array([*map(float, cells)], np.float64)
        except ValueError:
            return self._numbers_one_by_one(column, empty)

    def _numbers_one_by_one(self, column: str, empty: float | None) -> Floats:
        values = np.full(len(self), np.nan)
        wrong = np.zeros(len(self), np.bool_)
        for row, cell in enumerate(self.cells[column]):
            try:
                values[row] = empty if empty is not None and not cell.strip() else float(cell)
            except ValueError:
                wrong[row] = True
        self.refuse(wrong, column, self.cells[column], "is not a number")
        return values

    def refuse(
        self, rows: Bools, column: str, values: Sequence[object] | Floats, complaint: str
    ) -> None:
        """Report the first of these rows as broken, or mark them all under `skip_bad`."""
        rows = rows & self.live
        count = int(rows.sum())
        if not count:
            return
        if not self.skip_bad:
            row = int(rows.argmax())
            more = f" ({count - 1} more like it)" if count > 1 else ""
            raise TraceError(
                f"{show(values[row])} {complaint}{more}; {HOW_TO_SKIP}",
                file=self.file,
                line=int(self.line[row]),
                field=column,
            )
        self.bad[rows] = True

    def source(self, plain: str) -> str:
        """The column of the file that a column of the plain form was read from, if there is one."""
        column = self.sources.get(plain, plain)
        return column if column in self.cells else plain

    def refuse_plain(self, rows: Bools, plain: str, values: Floats, complaint: str) -> None:
        """Refuse rows for a column of the plain form, by what the file says there, if it does."""
        column = self.source(plain)
        cells = self.cells.get(column, [""] * len(self))
        written = [cell.strip() or value for cell, value in zip(cells, values, strict=True)]
        self.refuse(rows, column, written, complaint)

    def leave_out(self, rows: Bools, reason: str) -> None:
        """Drop rows that are sound but no jobs to replay, and count them under a reason."""
        rows = rows & self.live
        if count := int(rows.sum()):
            self.left_out[reason] = self.left_out.get(reason, 0) + count
            self.merged[rows] = True

    def merge(self, rows: Bools) -> None:
        """Drop rows that belong to a job that another row stands for."""
        self.merged[rows] = True


def read_sheet(
    text: str, layout: Layout, *, file: str, kind: str, skip_bad: bool, header: Sequence[str] = ()
) -> Sheet:
    """Split a file into cells; without a `header` of its own, the first line is the header."""
    notes: list[str] = []
    if layout == "commas" and (columns := _split_evenly(text)):
        names = [name for name, *_ in columns]
        cells = [column[1:] for column in columns]
        line, broken = np.arange(2, len(columns[0]) + 1), 0
    else:
        rows, line = _split(text, layout, file)
        if not header:
            header, rows, line = rows[0], rows[1:], line[1:]
        names = [*header]
        if layout == "blanks":
            rows = _without_extra(rows, len(names), notes)
        rows, line, broken = _even(rows, line, names, file, skip_bad)
        cells = [[*column] for column in zip(*rows, strict=True)]
    names = [name.strip() for name in names]
    _refuse_twins(names, file)
    if not line.size:
        broke = f", {broken} broken lines apart" if broken else ""
        raise TraceError(f"The file has a header but no jobs{broke}.", file=file)
    return Sheet(
        file=file,
        kind=kind,
        cells=dict(zip(names, cells, strict=True)),
        line=line,
        skip_bad=skip_bad,
        broken=broken,
        bad=np.zeros(line.size, np.bool_),
        merged=np.zeros(line.size, np.bool_),
        notes=notes,
    )


def _without_extra(rows: list[list[str]], width: int, notes: list[str]) -> list[list[str]]:
    """Cut every row to `width` fields: extensions of a format add theirs behind the known ones."""
    longer = sum(len(row) > width for row in rows)
    if not longer:
        return rows
    lines = "1 line has" if longer == 1 else f"{longer:,} lines have"
    notes.append(f"{lines} more than {width} fields; the extra fields are ignored.")
    return [row[:width] for row in rows]


def _refuse_twins(names: Sequence[str], file: str) -> None:
    named = [name for name in names if name]
    if len(set(named)) < len(named):
        twin = next(name for name in named if named.count(name) > 1)
        raise TraceError("The header names this column twice.", file=file, line=1, field=twin)


def _split_evenly(text: str) -> list[list[str]] | None:
    """Split a simple CSV file into columns, header on top; None if it is not that simple.

    Most logs have no quotes and no broken lines. For them this takes a fifth of the time,
    because no row is ever built.
    """
    text = text.replace("\r\n", "\n").removesuffix("\n")
    if '"' in text or "\r" in text:
        return None
    commas = {line.count(",") for line in text.split("\n")}
    if len(commas) > 1 or commas == {0}:
        return None
    width = commas.pop() + 1
    cells = text.replace("\n", ",").split(",")
    return [cells[column::width] for column in range(width)]


def _split(text: str, layout: Layout, file: str) -> tuple[list[list[str]], Ints]:
    if layout == "commas":
        rows, line = _split_csv(text, file)
    else:
        lines = [one.rstrip("\r") for one in text.split("\n")]
        mark = {"pipes": "|", "tabs": "\t", "blanks": None}[layout]
        rows = [one.split(mark) for one in lines]
        if layout == "blanks":
            rows = [[] if row and row[0].startswith(";") else row for row in rows]
        else:
            rows = [row if row != [""] else [] for row in rows]
        line = np.arange(1, len(rows) + 1)
    if [] in rows:  # blank lines and comments
        line = line[[bool(row) for row in rows]]
        rows = [row for row in rows if row]
    return rows, line


def _split_csv(text: str, file: str) -> tuple[list[list[str]], Ints]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = list(reader)
        if reader.line_num == len(rows):
            return rows, np.arange(1, len(rows) + 1)
        # Some quoted cell spans lines: read again, asking for the line of each row.
        return rows, np.array([*_first_lines(text)], np.int64)
    except csv.Error as error:
        raise TraceError(
            f"This is not well-formed CSV ({error}); is a quotation mark left open?",
            file=file,
            line=reader.line_num,
        ) from None


def _first_lines(text: str) -> Iterator[int]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    before = 0
    for _ in reader:
        yield before + 1
        before = reader.line_num


def _even(
    rows: list[list[str]], line: Ints, header: Sequence[str], file: str, skip_bad: bool
) -> tuple[list[list[str]], Ints, int]:
    """Keep the rows that have as many fields as the header."""
    width = len(header)
    if {*map(len, rows)} <= {width}:
        return rows, line, 0
    # sacct does not escape `|`; behind the last separator it can only be part of the text.
    if header[-1] in ("Comment", "JobName"):
        rows = [
            [*row[: width - 1], "|".join(row[width - 1 :])] if len(row) > width else row
            for row in rows
        ]
    fits = np.array([len(row) == width for row in rows])
    if not skip_bad and not fits.all():
        at = int(np.argmin(fits))
        has = len(rows[at])
        what = (
            "The line is cut short"
            if has < width
            else "The line is too long (is a separator part of a value?)"
        )
        raise TraceError(
            f"{what}: it has {has} fields, the header names {width}; {HOW_TO_SKIP}",
            file=file,
            line=int(line[at]),
        )
    return [row for row, fit in zip(rows, fits, strict=True) if fit], line[fits], int((~fits).sum())
