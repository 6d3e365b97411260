"""A job log in columns: who wants how many GPUs, when, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import TraceError
from rota.traces.columns import COLUMNS, NAMES, faults, repeated, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from rota.core.types import Bools, Floats, Ints
    from rota.traces.columns import Strings


_REST: Final = ("gpu_types", "users", "models", "skipped", "left_out", "notes")
"""What a trace has beside its columns and its name."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """Jobs in the order of their submission; every array is read-only.

    Make one with `Trace.build`, which fills in what is not given, sorts and checks.
    Column by column the units and defaults are those of `rota.traces.columns.COLUMNS`.
    """

    name: str
    job_id: Strings  # (J,)
    submit_s: Floats  # (J,) non-decreasing
    duration_s: Floats  # (J,)
    num_gpus: Ints  # (J,)
    gpus_per_worker: Ints  # (J,)
    min_workers: Ints  # (J,)
    max_workers: Ints  # (J,)
    cpus_per_worker: Floats  # (J,)
    memory_gb_per_worker: Floats  # (J,)
    num_servers: Ints  # (J,)
    min_servers: Ints  # (J,)
    max_servers: Ints  # (J,)
    cpus_per_server: Floats  # (J,)
    memory_gb_per_server: Floats  # (J,)
    gpu_type: Ints  # (J,) index into gpu_types; -1 = any
    user: Ints  # (J,) index into users; -1 = none
    model: Ints  # (J,) index into models; -1 = none
    deadline_s: Floats  # (J,) inf = none
    restart_s: Floats  # (J,) NaN = not given
    resize_s: Floats  # (J,) NaN = not given
    checkpoint_s: Floats  # (J,) NaN = not given
    estimate_s: Floats  # (J,) NaN = not given
    samples: Floats  # (J,) NaN = not given
    started_s: Floats  # (J,) in the log's own record; NaN = not given
    ran_on_nodes: Floats  # (J,) in the log's own record; NaN or 0 = not given
    stoppable: Ints  # (J,) 0 = once it runs, it is never stopped, moved or resized; else 1
    line: Ints  # (J,) where the job stands in its file; 0 = it comes from no file
    gpu_types: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    skipped: int = 0
    """Broken lines that the reader passed over, on request."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Sound lines that are no jobs to replay: reason and count."""
    notes: tuple[str, ...] = ()
    """What a user should know of how the file was read, in whole sentences."""

    @classmethod
    def build(
        cls,
        name: str,
        *,
        submit_s: ArrayLike,
        duration_s: ArrayLike,
        num_gpus: ArrayLike,
        skipped: int = 0,
        left_out: Mapping[str, int] | None = None,
        notes: Sequence[str] = (),
        **optional: Any,
    ) -> Trace:
        """Fill in defaults, sort by submission (file order breaks ties) and check.

        `optional` takes every other column. `gpu_type`, `user` and `model` may be texts
        ("" = none), or codes together with `gpu_types`, `users` and `models`.
        """
        given = {"submit_s": submit_s, "duration_s": duration_s, "num_gpus": num_gpus, **optional}
        line = given.pop("line", None)
        names = {key: given.pop(key) for key in NAMES if key in given}
        known = {key: tuple(given.pop(f"{key}s", ())) for key in NAMES}
        columns = _as_arrays(name, given)
        _check(name, columns)
        columns = _with_defaults(columns)
        for key in NAMES:
            columns[key], known[key] = _as_codes(name, key, names.get(key), known[key], columns)
        columns["line"] = np.array(
            np.zeros(len(columns["submit_s"])) if line is None else line, np.int64
        )

        submitted = columns["submit_s"]
        if np.any(submitted[1:] < submitted[:-1]):
            order = np.argsort(submitted, kind="stable")
            columns = {key: column[order] for key, column in columns.items()}
        for column in columns.values():
            column.flags.writeable = False
        parts: dict[str, Any] = {**columns, **{f"{key}s": known[key] for key in NAMES}}
        return cls(
            name=name,
            skipped=skipped,
            left_out=MappingProxyType(dict(left_out or {})),
            notes=tuple(notes),
            **parts,
        )

    def __len__(self) -> int:
        return self.submit_s.size

    def take(self, rows: Bools | Ints | slice) -> Trace:
        """Keep some jobs, chosen by a mask, by indices (no repeats) or by a slice."""
        columns = {column.name: getattr(self, column.name)[rows] for column in COLUMNS}
        columns["line"] = self.line[rows]
        return Trace.build(self.name, **columns, **{key: getattr(self, key) for key in _REST})

    def without_gpu_types(self) -> Trace:
        """The same jobs, each of which accepts every GPU type."""
        any_type = np.full(len(self), -1)
        any_type.flags.writeable = False
        return replace(self, gpu_type=any_type, gpu_types=())

    def head(self, jobs: int) -> Trace:
        """Keep the first `jobs` jobs."""
        return self.take(slice(0, max(jobs, 0)))

    @property
    def gpu_seconds(self) -> float:
        """Work in the trace: GPUs times seconds, summed over all jobs."""
        return float(self.num_gpus @ self.duration_s)

    @property
    def span_s(self) -> float:
        """Seconds between the first and the last submission."""
        return float(self.submit_s[-1] - self.submit_s[0]) if len(self) else 0.0

    def load(self, total_gpus: int) -> float:
        """Work that arrives per unit of capacity; inf when all jobs come at once."""
        capacity = total_gpus * self.span_s
        return self.gpu_seconds / capacity if capacity else float("inf")

    def offered_load(self, total_gpus: int) -> float:
        """The same of the work that can be done while jobs arrive: none counts for longer."""
        if not self.span_s:
            return float("inf")
        offered_s = np.minimum(self.duration_s, self.span_s)
        return float(self.num_gpus @ offered_s) / (total_gpus * self.span_s)

    def names(self, column: str) -> list[str]:
        """Spell out `gpu_type`, `user` or `model`, with "" for none."""
        known = (*getattr(self, f"{column}s"), "")  # code -1 finds the last entry
        return [known[code] for code in getattr(self, column).tolist()]


def encode(texts: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Number distinct texts in order of appearance; "" becomes -1."""
    codes: dict[str, int] = {"": -1}
    numbered = [codes.setdefault(text, len(codes) - 1) for text in texts]
    return np.array(numbered, np.int64), tuple(codes)[1:]


def _as_arrays(name: str, given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    expected = {column.name: column for column in COLUMNS}
    if unknown := sorted(given.keys() - expected.keys()):
        raise TypeError(f"Trace.build() knows no column {', '.join(map(repr, unknown))}")
    columns: dict[str, NDArray[Any]] = {}
    for key, values in given.items():
        # Copies, so that freezing them cannot freeze an array of the caller's.
        columns[key] = np.array(values, np.str_ if expected[key].kind == "id" else np.float64)
    jobs = columns["submit_s"].size
    for key, array in columns.items():
        if array.shape != (jobs,):
            raise TraceError(
                f"holds {array.size} values, but submit_s holds {jobs}", file=name, field=key
            )
    if "job_id" not in columns:
        columns["job_id"] = np.arange(jobs).astype(f"U{len(str(jobs))}")
    return columns


def _check(name: str, columns: Mapping[str, NDArray[Any]]) -> None:
    ids = columns["job_id"]
    for fault in faults(columns):
        row = int(fault.bad.argmax())
        value = show(columns[fault.field][row])
        raise TraceError(
            f"{value} {fault.complaint} (job {str(ids[row])!r})", file=name, field=fault.field
        )
    for row, first in repeated(ids).items():
        raise TraceError(
            f"{show(ids[row])} names both row {first} and row {row}; ids must be unique",
            file=name,
            field="job_id",
        )


def _with_defaults(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    jobs = columns["submit_s"].size
    filled: dict[str, NDArray[Any]] = {}
    for column in COLUMNS:
        if column.kind == "name":
            continue
        if column.name in columns:
            values = columns[column.name]
        elif column.name in ("min_servers", "max_servers"):  # rigid
            values = filled["num_servers"]
        elif column.default is None:  # min_workers and max_workers: rigid
            values = filled["num_gpus"] // np.maximum(1, filled["gpus_per_worker"])
        else:
            values = np.full(jobs, column.default, np.float64)
        filled[column.name] = values.astype(np.int64) if column.kind == "count" else values
    return filled


def _as_codes(
    name: str, key: str, given: Any, known: tuple[str, ...], columns: Mapping[str, NDArray[Any]]
) -> tuple[Ints, tuple[str, ...]]:
    jobs = columns["submit_s"].size
    if given is None:
        return np.full(jobs, -1, np.int64), known
    values = np.asarray(given)
    if values.size and values.dtype.kind in "UO":
        codes, known = encode(values.tolist())
    else:
        codes = np.array(values, np.int64)
    if codes.shape != (jobs,):
        raise TraceError(
            f"holds {codes.size} values, but submit_s holds {jobs}", file=name, field=key
        )
    if codes.size and not (codes.min() >= -1 and codes.max() < len(known)):
        raise TraceError(
            f"codes must lie in -1 … {len(known) - 1}, the entries of {key}s",
            file=name,
            field=key,
        )
    return codes, known
