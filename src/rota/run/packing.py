"""How a journal stores data: records as BLOBs, everything else as JSON."""

from __future__ import annotations

import dataclasses
import json
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from rota.errors import JournalError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from rota.core.types import Records


def as_json(what: str, value: Any) -> str:
    """Compact JSON of plain values, arrays and dataclasses."""
    try:
        return json.dumps(value, default=_plain, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise JournalError(f"The journal cannot keep {what}: {error}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} is neither plain data nor an array nor a dataclass")


def pack(records: Records) -> bytearray:
    """The records as bytes of the file: a line of text with their field types, then the data.

    Integers get the narrowest type that holds the chunk. That halves the file and the time to
    write it; compressing would take longer than it saves.
    """
    dtype = np.dtype([(name, _narrow(records[name])) for name in records.dtype.names or ()])
    types = ",".join(dtype[name].str for name in dtype.names or ()).encode() + b"\n"
    blob = bytearray(len(types) + dtype.itemsize * len(records))
    blob[: len(types)] = types
    out = np.frombuffer(blob, dtype, offset=len(types))
    for name in dtype.names or ():  # much faster than a cast of whole records
        out[name] = records[name]
    return blob


def _narrow(column: Records) -> str:
    """The smallest little-endian type that holds all of an integer column; floats stay whole."""
    if column.dtype.kind == "f":
        return "<f8"
    reach = max(int(column.max()), -1 - int(column.min())) if len(column) else 0
    return next(f"<i{size}" for size in (1, 2, 4, 8) if 2 * reach < 256**size)


def checksum(row: Iterable[Any]) -> int:
    """CRC-32 of a row's BLOBs and texts, one after another."""
    crc = 0
    for value in row:
        if value is not None:
            crc = crc32(value.encode() if isinstance(value, str) else value, crc)
    return crc


def unpack(rows: Iterable[sqlite3.Row], name: str, dtype: np.dtype[Any]) -> Records:
    """The records of one BLOB column of several chunks; see `pack`."""
    blobs = (row[name].partition(b"\n") for row in rows)
    parts = []
    # A live run leaves many small chunks of few types: equal ones are taken together.
    for types, group in groupby(blobs, key=itemgetter(0)):
        kinds = [(f"f{k}", kind) for k, kind in enumerate(types.decode().split(","))]
        raw = np.frombuffer(b"".join(part[2] for part in group), kinds)
        part = np.zeros(len(raw), dtype)
        for field, column in zip(dtype.names or (), raw.dtype.names or (), strict=True):
            part[field] = raw[column]
        parts.append(part)
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def write_columns(
    jobs: int, more: Mapping[str, ArrayLike] | None, names: Mapping[str, Sequence[str]] | None
) -> tuple[str | None, bytearray | None]:
    """Further columns of some jobs: their names, as JSON, and their packed values."""
    if not more:
        return None, None
    columns = {name: np.asarray(column) for name, column in more.items()}
    wide = {name: np.float64 if c.dtype.kind == "f" else np.int64 for name, c in columns.items()}
    records = np.empty(jobs, list(wide.items()))
    for name, column in columns.items():
        if column.shape != (jobs,):
            raise JournalError(f"{name} has the shape {column.shape} for {jobs} jobs.")
        records[name] = column
    about = {"columns": list(columns), "names": {key: list(n) for key, n in (names or {}).items()}}
    return as_json("columns", about), pack(records)


def read_columns(rows: Sequence[sqlite3.Row]) -> dict[str, Any]:
    """The further columns of the jobs of some chunks."""
    stated = [dict(row).get("columns") for row in rows]
    if not any(stated):
        return {}
    parts = [_columns_of(list(group)) for _, group in groupby(rows, key=itemgetter("columns"))]
    columns = list(dict.fromkeys(name for part, _ in parts for name in part))
    names: dict[str, tuple[str, ...]] = {}
    for text in stated:
        for key, texts in json.loads(text or "{}").get("names", {}).items():
            names[key] = max(names.get(key, ()), tuple(texts), key=len)  # each extends the last
    return {
        # A newer rota may have added columns for the later jobs; the earlier ones get NaN.
        "more": {
            name: np.concatenate([part.get(name, np.full(count, np.nan)) for part, count in parts])
            for name in columns
        },
        "names": names,
    }


def _columns_of(rows: Sequence[sqlite3.Row]) -> tuple[dict[str, Any], int]:
    """The further columns of chunks that all have the same ones, and the number of jobs."""
    count = sum(row["count"] for row in rows)
    columns = json.loads(rows[0]["columns"] or "{}").get("columns", [])
    if not columns:
        return {}, count
    kinds = [np.dtype(t).kind for t in rows[0]["more"].partition(b"\n")[0].decode().split(",")]
    wide = np.dtype([(name, f"<{kind}8") for name, kind in zip(columns, kinds, strict=True)])
    records = unpack(rows, "more", wide)
    return {name: records[name].copy() for name in columns}, count
