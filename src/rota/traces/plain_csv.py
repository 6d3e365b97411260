"""rota's plain CSV form: one line per job, columns in any order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.traces.columns import COLUMNS
from rota.traces.text_files import write_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rota.traces.columns import TraceColumn
    from rota.traces.log_sheet import Sheet
    from rota.traces.trace import Trace


def parse_plain(sheet: Sheet) -> dict[str, Any]:
    """Read the columns that the sheet has; others are ignored."""
    sheet.require(*(column.name for column in COLUMNS if column.required))
    found: dict[str, Any] = {}
    for column in COLUMNS:
        if column.name not in sheet:
            continue
        if column.kind in ("id", "name"):
            found[column.name] = sheet.cells[column.name]
        elif column.name in ("min_workers", "max_workers"):
            found[column.name] = _workers(sheet, column.name)
        elif column.name in ("min_servers", "max_servers"):
            found[column.name] = _servers(sheet, column.name)
        else:
            found[column.name] = sheet.numbers(column.name, empty=column.default)
    return found


def _workers(sheet: Sheet, name: str) -> NDArray[np.float64]:
    """An empty cell means rigid: as many workers as `num_gpus` makes."""
    workers = sheet.numbers(name, empty=-np.inf)
    size = sheet.numbers("gpus_per_worker", empty=1) if "gpus_per_worker" in sheet else 1
    with np.errstate(invalid="ignore"):
        most = sheet.numbers("num_gpus") // np.maximum(1, size)
    return np.where(workers == -np.inf, most, workers)


def _servers(sheet: Sheet, name: str) -> NDArray[np.float64]:
    """An empty cell means as many servers as `num_servers` says."""
    servers = sheet.numbers(name, empty=-np.inf)
    asked = sheet.numbers("num_servers", empty=0) if "num_servers" in sheet else 0
    return np.where(servers == -np.inf, asked, servers)


def write_csv(trace: Trace, path: str | Path) -> None:
    """Write a trace in the plain form, gzipped if the name ends in `.gz`.

    Only columns that say something are written, every number so that reading gives it back
    exactly. The file appears whole or not at all.
    """
    columns = spoken(trace)
    header = ",".join(column.name for column in columns)
    rows = zip(*(_cells(trace, column) for column in columns), strict=True)
    write_text(Path(path), "\n".join([header, *map(",".join, rows), ""]))


def spoken(trace: Trace) -> list[TraceColumn]:
    """The columns that must be written down to have the trace again."""
    return [column for column in COLUMNS if column.required or _says_something(trace, column)]


def _default(trace: Trace, column: TraceColumn) -> Any:
    if column.kind == "name":
        return -1
    if column.name in ("min_servers", "max_servers"):
        return trace.num_servers
    if column.default is None:
        return trace.num_gpus // np.maximum(1, trace.gpus_per_worker)
    return column.default


def _says_something(trace: Trace, column: TraceColumn) -> bool:
    values = getattr(trace, column.name)
    return not np.array_equal(
        values,
        np.broadcast_to(_default(trace, column), values.shape),
        equal_nan=column.kind in ("time", "amount"),
    )


def _cells(trace: Trace, column: TraceColumn) -> list[str]:
    if column.kind == "name":
        return [*map(_quoted, trace.names(column.name))]
    values = getattr(trace, column.name)
    if column.kind == "id":
        return [*map(_quoted, values.tolist())]
    if column.kind == "count":
        return [*map(str, values.tolist())]
    # `repr` is the shortest text that reads back exactly; whole seconds need no ".0".
    texts = [repr(value).removesuffix(".0") for value in values.tolist()]
    return ["" if text in ("nan", "inf") else text for text in texts]


def _quoted(text: str) -> str:
    # Not left to csv.writer: in Python 3.11 it lets a lone carriage return pass unquoted.
    if any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
