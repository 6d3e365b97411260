"""Read a job log from a file: recognise, parse, check, build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.errors import TraceError
from rota.traces.columns import COLUMNS, LONGEST_ID, faults, repeated
from rota.traces.formats import LOG_FORMATS
from rota.traces.log_sheet import HOW_TO_SKIP, read_sheet
from rota.traces.recognise import is_tabbed, recognise
from rota.traces.text_files import read_text
from rota.traces.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from rota.traces.formats import Format
    from rota.traces.log_sheet import Sheet


def read_trace(path: Path, *, kind: str | None = None, skip_bad: bool = False) -> Trace:
    """Read a job log; `kind` names a format and overrides what the content says."""
    text = read_text(path)
    chosen = LOG_FORMATS.get(kind) if kind else recognise(text, str(path))
    # `mysql --batch` writes its tables with tabs; all other tables have commas.
    tabs = chosen.layout == "commas" and is_tabbed(text)
    sheet = read_sheet(
        text,
        "tabs" if tabs else chosen.layout,
        file=str(path),
        kind=chosen.name,
        skip_bad=skip_bad,
        header=chosen.header,
    )
    return _read(sheet, chosen, _stem(path))


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".csv")


def _read(sheet: Sheet, kind: Format, name: str) -> Trace:
    columns = _as_arrays(sheet, kind.parse(sheet))
    for fault in faults(columns):
        sheet.refuse_plain(fault.bad, fault.field, columns[fault.field], fault.complaint)
    _refuse_repeated(sheet, columns["job_id"])
    live = sheet.live
    if not live.any():
        reasons = [f"{count} {reason}" for reason, count in sheet.left_out.items()]
        if sheet.skipped:
            reasons.append(f"{sheet.skipped} broken")
        notes = "".join(f" {note[0].upper()}{note[1:]}" for note in sheet.notes)
        raise TraceError(f"No job remains ({', '.join(reasons)}).{notes}", file=sheet.file)
    columns["line"] = sheet.line
    kept = columns if live.all() else {key: values[live] for key, values in columns.items()}
    return Trace.build(
        name, **kept, skipped=sheet.skipped, left_out=sheet.left_out, notes=sheet.notes
    )


def _as_arrays(sheet: Sheet, columns: dict[str, Any]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for column in COLUMNS:
        if column.name not in columns:
            continue
        values = columns[column.name]
        if column.kind not in ("id", "name"):
            arrays[column.name] = values
            continue
        # An array of texts is as wide as its longest: refuse the absurd before building it.
        if max(map(len, values)) > LONGEST_ID:
            long = np.array([len(text) > LONGEST_ID for text in values])
            complaint = f"is longer than {LONGEST_ID} characters"
            sheet.refuse(long, sheet.source(column.name), values, complaint)
            values = [text[:LONGEST_ID] for text in values]
        arrays[column.name] = np.array(values, np.str_)
    return arrays


def _refuse_repeated(sheet: Sheet, job_id: NDArray[np.str_]) -> None:
    rows = np.flatnonzero(sheet.live)
    for later, first in repeated(job_id[rows]).items():
        if not sheet.skip_bad:
            raise TraceError(
                f"{str(job_id[rows[later]])!r} is also the id of line {sheet.line[rows[first]]}; "
                f"ids must be unique; {HOW_TO_SKIP}",
                file=sheet.file,
                line=int(sheet.line[rows[later]]),
                field=sheet.source("job_id"),
            )
        sheet.bad[rows[later]] = True
