"""The columns of a job log: their names, units, defaults and the rules they keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rota.core.types import Bools, Floats

Strings: TypeAlias = NDArray[np.str_]
Kind: TypeAlias = Literal["id", "time", "count", "amount", "name"]


@dataclass(frozen=True)
class TraceColumn:
    """One column of the plain form, which is also one field of a `Trace`."""

    name: str
    kind: Kind
    about: str
    default: float | None = None
    """Value where none is given; None when the column is required or follows from others."""
    required: bool = False


COLUMNS: Final = (
    TraceColumn("job_id", "id", "unique name of the job", required=True),
    TraceColumn(
        "submit_s", "time", "submission, seconds on any clock, may be negative", required=True
    ),
    TraceColumn("duration_s", "time", "seconds the job runs on `num_gpus`", required=True),
    TraceColumn("num_gpus", "count", "GPUs of the whole gang", required=True),
    TraceColumn(
        "gpus_per_worker",
        "count",
        "GPUs that one worker holds; 0 = none, then `num_gpus` counts the workers",
        1,
    ),
    TraceColumn("min_workers", "count", "fewest workers; default: all of `num_gpus`"),
    TraceColumn("max_workers", "count", "most workers; default: all of `num_gpus`"),
    TraceColumn("cpus_per_worker", "amount", "CPU cores per worker, 0 = no demand", 0),
    TraceColumn("memory_gb_per_worker", "amount", "host memory per worker in GB, 0 = no demand", 0),
    TraceColumn("num_servers", "count", "parameter servers", 0),
    TraceColumn("min_servers", "count", "fewest parameter servers; default: `num_servers`"),
    TraceColumn("max_servers", "count", "most parameter servers; default: `num_servers`"),
    TraceColumn("cpus_per_server", "amount", "CPU cores per parameter server", 0),
    TraceColumn("memory_gb_per_server", "amount", "host memory per parameter server in GB", 0),
    TraceColumn("gpu_type", "name", "the only GPU type the job accepts; empty = any"),
    TraceColumn("user", "name", "who submitted it"),
    TraceColumn("model", "name", "what it trains"),
    TraceColumn("deadline_s", "time", "absolute deadline on the clock of `submit_s`", np.inf),
    TraceColumn("restart_s", "time", "seconds lost by a restart; empty = not given", np.nan),
    TraceColumn("resize_s", "time", "seconds lost by a resize or move; empty = not given", np.nan),
    TraceColumn("checkpoint_s", "time", "seconds between checkpoints; empty = not given", np.nan),
    TraceColumn(
        "estimate_s", "time", "the user's estimate or time limit; empty = not given", np.nan
    ),
    TraceColumn(
        "samples", "amount", "work in the units of its speed curve; empty = not given", np.nan
    ),
    TraceColumn(
        "started_s",
        "time",
        "start in the log's own record, on the clock of `submit_s`; empty = not given",
        np.nan,
    ),
    TraceColumn(
        "ran_on_nodes",
        "amount",
        "number of nodes in the log's own record; empty or 0 = not given",
        np.nan,
    ),
    TraceColumn("stoppable", "count", "0 = once it runs, no policy may stop, move or resize it", 1),
)
NAMES: Final = ("gpu_type", "user", "model")
"""The columns kept as integer codes into `gpu_types`, `users` and `models`."""

LONGEST_ID: Final = 256
"""Ids are stored at one common width, so a single absurd one would cost memory for all."""
LARGEST_COUNT: Final = 2**31 - 1
LARGEST_TIME_S: Final = 1e12
"""About 30,000 years. Above it lie only wrong units, such as epoch milliseconds."""


@dataclass(frozen=True)
class Fault:
    """A rule and the rows that break it."""

    field: str
    bad: Bools  # (J,)
    complaint: str
    """Continues a sentence that begins with the offending value."""


@dataclass(frozen=True)
class ColumnRule:
    """What must hold for the values of one column."""

    field: str
    holds: Callable[[Floats], Bools]
    complaint: str


def _time(values: Floats) -> Bools:
    return np.abs(values) < LARGEST_TIME_S  # false for NaN


def _positive(values: Floats) -> Bools:
    return (values > 0) & (values < LARGEST_TIME_S)


def _not_negative(values: Floats) -> Bools:
    return (values >= 0) & (values < LARGEST_TIME_S)


def _amount(values: Floats) -> Bools:
    return (values > 0) & (values < np.inf)


def _whole(least: int) -> Callable[[Floats], Bools]:
    return lambda v: (v >= least) & (v <= LARGEST_COUNT) & (v == np.floor(v))


def _if_given(holds: Callable[[Floats], Bools]) -> Callable[[Floats], Bools]:
    return lambda values: np.isnan(values) | holds(values)


_RULES: Final = (
    ColumnRule("submit_s", _time, "is not a time in seconds (are these milliseconds?)"),
    ColumnRule("duration_s", _positive, "is not a positive, finite number of seconds"),
    ColumnRule("num_gpus", _whole(1), "is not a whole number of GPUs, one or more"),
    ColumnRule("gpus_per_worker", _whole(0), "is not a whole number of GPUs, zero or more"),
    ColumnRule("min_workers", _whole(1), "is not a whole number of workers, one or more"),
    ColumnRule("max_workers", _whole(1), "is not a whole number of workers, one or more"),
    ColumnRule("num_servers", _whole(0), "is not a whole number of servers, zero or more"),
    ColumnRule("min_servers", _whole(0), "is not a whole number of servers, zero or more"),
    ColumnRule("max_servers", _whole(0), "is not a whole number of servers, zero or more"),
    ColumnRule("cpus_per_worker", _not_negative, "is not a number of cores, zero or more"),
    ColumnRule("memory_gb_per_worker", _not_negative, "is not a number of GB, zero or more"),
    ColumnRule("cpus_per_server", _not_negative, "is not a number of cores, zero or more"),
    ColumnRule("memory_gb_per_server", _not_negative, "is not a number of GB, zero or more"),
    ColumnRule("restart_s", _if_given(_not_negative), "is not a number of seconds, zero or more"),
    ColumnRule("resize_s", _if_given(_not_negative), "is not a number of seconds, zero or more"),
    ColumnRule("checkpoint_s", _if_given(_positive), "is not a positive, finite number of seconds"),
    ColumnRule("estimate_s", _if_given(_positive), "is not a positive, finite number of seconds"),
    ColumnRule("started_s", _if_given(_time), "is not a time in seconds (are these milliseconds?)"),
    ColumnRule("ran_on_nodes", _if_given(_whole(0)), "is not a whole number of nodes"),
    ColumnRule("stoppable", lambda v: (v == 0) | (v == 1), "is neither 0 nor 1"),
    ColumnRule("samples", _if_given(_amount), "is not a positive, finite number of samples"),
)


def faults(columns: Mapping[str, NDArray[Any]]) -> Iterator[Fault]:
    """Check columns (each (J,), counts still as floats) and yield every rule that is broken."""
    for rule in _RULES:
        if rule.field in columns:
            holds = rule.holds(columns[rule.field])
            if not holds.all():
                yield Fault(rule.field, ~holds, rule.complaint)
    for fault in _faults_between(columns):
        if fault.bad.any():
            yield fault


def _faults_between(columns: Mapping[str, NDArray[Any]]) -> Iterator[Fault]:
    gpus = columns["num_gpus"]
    size = columns.get("gpus_per_worker")
    if size is not None:
        # Workers without GPUs have a size of 0: then num_gpus counts them.
        odd = np.fmod(gpus, np.where(size >= 1, size, 1)) != 0
        yield Fault("num_gpus", odd, "GPUs cannot be shared out: not divisible by gpus_per_worker")
    if "min_workers" in columns or "max_workers" in columns:
        all_workers = gpus if size is None else gpus // np.where(size >= 1, size, 1)
        fewest = columns.get("min_workers", all_workers)
        most = columns.get("max_workers", all_workers)
        yield Fault(
            "min_workers" if "min_workers" in columns else "max_workers",
            fewest > most,
            "does not fit: min_workers exceeds max_workers (each is num_gpus / gpus_per_worker "
            "where not given)",
        )
        outside = (all_workers < fewest) | (all_workers > most)
        yield Fault("num_gpus", outside, "asks for workers outside min_workers … max_workers")
    if "min_servers" in columns or "max_servers" in columns:
        asked = columns.get("num_servers", np.zeros_like(gpus))
        low, high = columns.get("min_servers", asked), columns.get("max_servers", asked)
        yield Fault(
            "min_servers" if "min_servers" in columns else "max_servers",
            (low > asked) | (asked > high),
            "does not fit: num_servers lies outside min_servers … max_servers (each is num_servers "
            "where not given)",
        )
    if "deadline_s" in columns:
        late = ~(columns["deadline_s"] > columns["submit_s"])
        yield Fault(
            "deadline_s", late, "does not lie after submit_s; deadlines are absolute, not relative"
        )
    if "started_s" in columns:
        early = columns["started_s"] < columns["submit_s"]  # false for NaN
        yield Fault("started_s", early, "lies before submit_s; leave it empty if it is not known")
    if "job_id" in columns:
        ids = columns["job_id"]
        yield Fault("job_id", ids == "", "is empty; every job needs a name of its own")
        if ids.dtype.itemsize // 4 > LONGEST_ID:
            long = np.char.str_len(ids) > LONGEST_ID
            yield Fault("job_id", long, f"is longer than {LONGEST_ID} characters")


def repeated(job_id: Strings) -> dict[int, int]:
    """Find the rows whose id an earlier row already has: that row, and the earlier one."""
    ids = job_id.tolist()
    if len(set(ids)) == len(ids):
        return {}
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        first.setdefault(name, row)
    return {row: first[name] for row, name in enumerate(ids) if first[name] != row}


def show(value: object) -> str:
    """Write an offending value the way a log would: 4 rather than np.float64(4.0), or '4'."""
    if isinstance(value, (int, float, np.number)):
        return f"{float(value):.15g}"
    text = str(value)
    text = text if len(text) <= 60 else text[:57] + "…"
    try:
        float(text)
    except ValueError:
        return repr(text)
    return text.strip()
