"""Slurm's accounting log, as printed by `sacct --parsable2`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rota.traces import SACCT_COMMAND
from rota.traces.trace import encode
from rota.traces.tres import Resources, parse_instant_s, parse_memory_gb, parse_span_s, parse_tres

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.core.types import Floats, Ints
    from rota.traces.log_sheet import Sheet

ADVICE: Final = f"Export the log with: {SACCT_COMMAND}"
_RESOURCES: Final = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
_WAITING: Final = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_ALIVE: Final = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "STOPPED"}
)


def parse_sacct(sheet: Sheet) -> dict[str, Any]:
    """Read one job per JobID, het components joined; see docs/traces.md for what becomes of whom.

    The arrays returned have one entry per line; the first line of a job stands for it.
    """
    _require(sheet)
    ids = sheet.cells["JobID"]
    sheet.merge(np.array(["." in job for job in ids]))  # steps: 9.batch, 12.0, 12.extern
    submit_s = _parsed(sheet, "Submit", parse_instant_s, "is not a timestamp")
    ran_s = _run_times(sheet)
    resources = _resources(sheet)
    nameless = np.array([job.strip()[:1] in ("", "+") for job in ids])
    sheet.refuse(nameless, "JobID", ids, "names no job")
    sheet.refuse(ran_s < 0, "ElapsedRaw", ran_s, "is a negative run time")
    sheet.leave_out(np.isnan(submit_s), "no submit time")
    return _jobs(sheet, submit_s, ran_s, resources)


def _require(sheet: Sheet) -> None:
    sheet.require("JobID", "Submit", "State", advice=ADVICE)
    if not (
        {"ElapsedRaw", "Elapsed"} & sheet.cells.keys() or {"Start", "End"} <= sheet.cells.keys()
    ):
        sheet.require("ElapsedRaw", advice=ADVICE)
    if not any(column in sheet for column in _RESOURCES):
        sheet.require("AllocTRES", advice=ADVICE)


def _parsed(sheet: Sheet, column: str, parse: Callable[[str], float], complaint: str) -> Floats:
    """Apply `parse` to every live line; NaN where there is nothing to parse."""
    values, wrong = np.full(len(sheet), np.nan), np.zeros(len(sheet), np.bool_)
    cells = sheet.cells[column]
    for row in np.flatnonzero(sheet.live).tolist():
        try:
            values[row] = parse(cells[row].strip())
        except (ValueError, OverflowError):
            wrong[row] = True
    sheet.refuse(wrong, column, cells, complaint)
    return values


def _run_times(sheet: Sheet) -> Floats:
    """Seconds that each line ran, 0 where it did not."""
    if "ElapsedRaw" in sheet:
        ran_s = _parsed(sheet, "ElapsedRaw", _number_or_nan, "is not a number of seconds")
    elif "Elapsed" in sheet:
        ran_s = _parsed(sheet, "Elapsed", parse_span_s, "is not a span of time")
    else:
        start_s = _parsed(sheet, "Start", parse_instant_s, "is not a timestamp")
        ran_s = _parsed(sheet, "End", parse_instant_s, "is not a timestamp") - start_s
    return np.nan_to_num(ran_s, nan=0.0)


def _number_or_nan(text: str) -> float:
    return float(text) if text not in ("", "Unknown", "None") else float("nan")


def _resources(sheet: Sheet) -> list[Resources]:
    """What each line holds: as allocated, else as requested."""
    found = [Resources()] * len(sheet)
    wrong, wrong_host = np.zeros((2, len(sheet)), np.bool_)
    columns = [column for column in _RESOURCES if column in sheet]
    host = [column for column in ("ReqMem", "AllocCPUS") if column in sheet]
    cells = zip(*(sheet.cells[column] for column in columns), strict=True)
    texts = [next((text for text in line if text), "") for line in cells]
    for row in np.flatnonzero(sheet.live).tolist():
        try:
            found[row] = parse_tres(texts[row])
        except ValueError:
            wrong[row] = True
            continue
        try:
            found[row] = _with_host(sheet, row, found[row]) if host else found[row]
        except ValueError:
            wrong_host[row] = True
    sheet.refuse(wrong, columns[0], texts, "is no list of resources")
    if host:
        sheet.refuse(wrong_host, host[0], sheet.cells[host[0]], "is no amount of CPUs or memory")
    return found


def _with_host(sheet: Sheet, row: int, held: Resources) -> Resources:
    """Fill in CPUs and memory from AllocCPUS and ReqMem where the resources do not name them."""

    def cell(column: str) -> str:
        return sheet.cells[column][row].strip() if column in sheet else ""

    cpus = held.cpus or float(cell("AllocCPUS") or 0)
    memory_gb, asked = held.memory_gb, cell("ReqMem").strip("?")
    if not memory_gb and asked:
        # Before Slurm 21.08 a last letter says what the amount is for: 4Gc per CPU, 4Gn per node.
        each = {"c": cpus, "n": float(cell("AllocNodes") or 1)}.get(asked[-1], 1.0)
        memory_gb = parse_memory_gb(asked.rstrip("cn")) * each
    return replace(held, cpus=cpus, memory_gb=memory_gb)


def _jobs(
    sheet: Sheet, submit_s: Floats, ran_s: Floats, resources: Sequence[Resources]
) -> dict[str, Any]:
    """Write every job into the row of its first line, and drop its other lines."""
    held_gpus = np.array([held.gpus for held in resources])
    gangs = _gather(sheet, submit_s, held_gpus)
    duration_s, gpus, cpus, memory_gb = np.zeros((4, len(sheet)))
    # Incarnations follow each other, components of a het job run side by side.
    part_s = np.bincount(gangs.part, ran_s[gangs.row], gangs.last.size)
    np.maximum.at(duration_s, gangs.home, part_s)
    np.add.at(gpus, gangs.home, held_gpus[gangs.largest])
    np.add.at(cpus, gangs.home, [resources[row].cpus for row in gangs.largest])
    np.add.at(memory_gb, gangs.home, [resources[row].memory_gb for row in gangs.largest])

    types: list[set[str]] = [set() for _ in range(len(sheet))]
    waiting, alive, others = np.zeros((3, len(sheet)), np.bool_)
    for home, last, largest in zip(*map(np.ndarray.tolist, gangs[2:]), strict=True):
        state = _state(sheet, last)
        waiting[home] |= state == "waiting"
        alive[home] |= state == "alive"
        if resources[largest].gpus:
            types[home].add(resources[largest].gpu_type)
    others[gangs.row] = True
    others[gangs.home] = False
    sheet.merge(others)
    sheet.leave_out(waiting, "still queued")
    sheet.leave_out(alive, "still running")
    sheet.leave_out(duration_s == 0, "never ran")
    sheet.leave_out(gpus == 0, "no GPU")
    return {
        "job_id": [job.strip().partition("+")[0] for job in sheet.cells["JobID"]],
        "submit_s": submit_s - submit_s[sheet.live].min(initial=np.inf),
        "duration_s": duration_s,
        "num_gpus": gpus,
        "cpus_per_worker": cpus / np.maximum(gpus, 1),
        "memory_gb_per_worker": memory_gb / np.maximum(gpus, 1),
        "gpu_type": [next(iter(named)) if len(named) == 1 else "" for named in types],
        "estimate_s": _estimates(sheet),
        **{
            column: sheet.cells[source]
            for column, source in (("user", "User"), ("model", "JobName"))
            if source in sheet
        },
    }


class _Gangs(NamedTuple):
    """Which line belongs to which part (one JobID), and which part to which job."""

    row: Ints  # (L,) live lines in order of submission
    part: Ints  # (L,) the part that each of them belongs to
    home: Ints  # (P,) first line of the job that the part belongs to
    last: Ints  # (P,) last line of the part: how it ended
    largest: Ints  # (P,) line on which the part held most GPUs


def _gather(sheet: Sheet, submit_s: Floats, held_gpus: Ints) -> _Gangs:
    """Gather lines by JobID, and het components (8+0, 8+1) by job.

    Where an index repeats, assignment keeps the last value: that picks last and first lines.
    """
    live = np.flatnonzero(sheet.live)
    row = live[np.argsort(submit_s[live], kind="stable")]
    part, names = encode([sheet.cells["JobID"][at].strip() for at in row.tolist()])
    gang, gangs = encode([name.partition("+")[0] for name in names])
    last, largest = np.zeros((2, len(names)), np.int64)
    first = np.zeros(len(gangs), np.int64)
    last[part] = row
    by_size = np.argsort(held_gpus[row], kind="stable")
    largest[part[by_size]] = row[by_size]
    first[gang[part][::-1]] = row[::-1]
    return _Gangs(row, part, first[gang], last, largest)


def _state(sheet: Sheet, row: int) -> str:
    """Is the job "waiting", "alive" or "over" after this line?"""
    state = sheet.cells["State"][row].partition(" ")[0]  # CANCELLED by 1000
    if state in _WAITING:
        return "waiting"
    unfinished = "End" in sheet and sheet.cells["End"][row].strip() == "Unknown"
    return "alive" if state in _ALIVE or unfinished else "over"


def _estimates(sheet: Sheet) -> Floats:
    """The time limit in seconds, NaN where there is none."""
    if "TimelimitRaw" in sheet:  # minutes, or words such as UNLIMITED and Partition_Limit
        cells = sheet.cells["TimelimitRaw"]
        limit_s = np.array([60.0 * int(cell) if cell.isdecimal() else np.nan for cell in cells])
    elif "Timelimit" in sheet:
        limit_s = np.array([parse_span_s(cell.strip()) for cell in sheet.cells["Timelimit"]])
    else:
        limit_s = np.full(len(sheet), np.nan)
    return np.where(limit_s > 0, limit_s, np.nan)
