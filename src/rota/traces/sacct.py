"""Slurm's accounting log, as printed by `sacct --parsable2`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.traces import SACCT_COMMAND
from rota.traces.slurm_jobs import ALIVE, OVER, WAITING, SlurmLines, jobs_of, resources_of
from rota.traces.tres import parse_instant_s, parse_memory_gb, parse_span_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.types import Floats
    from rota.traces.log_sheet import Sheet
    from rota.traces.tres import Resources

ADVICE: Final = f"Export the log with: {SACCT_COMMAND}"
_RESOURCES: Final = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
_WAITING: Final = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_ALIVE: Final = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "STOPPED"}
)


def parse_sacct(sheet: Sheet) -> dict[str, Any]:
    """Read one job per JobID, het components joined; docs/traces.md says what becomes of each line.

    The arrays returned have one entry per line; the first line of a job stands for it.
    """
    _require(sheet)
    ids = sheet.cells["JobID"]
    sheet.merge(np.array(["." in job for job in ids]))  # steps: 9.batch, 12.0, 12.extern
    submit_s = parsed(sheet, "Submit", parse_instant_s, "is not a timestamp")
    ran_s, end_s = _run_times(sheet)
    held = _resources(sheet)
    nameless = np.array([job.strip()[:1] in ("", "+") for job in ids])
    sheet.refuse(nameless, "JobID", ids, "names no job")
    sheet.refuse(ran_s < 0, "ElapsedRaw", ran_s, "is a negative run time")
    sheet.leave_out(np.isnan(submit_s), "no submit time")
    texts = (("user", "User"), ("model", "JobName"))
    return jobs_of(sheet, SlurmLines(
        job=ids, submit_s=submit_s, ran_s=ran_s, end_s=end_s, held=held,
        state=lambda row: _state(sheet, row), limit_s=_limits(sheet),
        names={column: sheet.cells[source] for column, source in texts if source in sheet},
    ))  # fmt: skip


def _require(sheet: Sheet) -> None:
    sheet.require("JobID", "Submit", "State", advice=ADVICE)
    if not (
        {"ElapsedRaw", "Elapsed"} & sheet.cells.keys() or {"Start", "End"} <= sheet.cells.keys()
    ):
        sheet.require("ElapsedRaw", advice=ADVICE)
    if not any(column in sheet for column in _RESOURCES):
        sheet.require("AllocTRES", advice=ADVICE)


def parsed(sheet: Sheet, column: str, parse: Callable[[str], float], complaint: str) -> Floats:
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


def _run_times(sheet: Sheet) -> tuple[Floats, Floats]:
    """Seconds that each line ran, 0 where it did not, and when it ended, NaN where unknown."""
    start_s, end_s = (
        parsed(sheet, column, parse_instant_s, "is not a timestamp")
        if column in sheet
        else np.full(len(sheet), np.nan)
        for column in ("Start", "End")
    )
    if "ElapsedRaw" in sheet:
        ran_s = parsed(sheet, "ElapsedRaw", _number_or_nan, "is not a number of seconds")
    elif "Elapsed" in sheet:
        ran_s = parsed(sheet, "Elapsed", parse_span_s, "is not a span of time")
    else:
        ran_s = end_s - start_s
    ran_s = np.nan_to_num(ran_s, nan=0.0)
    # A job that was suspended ended later than its start and its run time say.
    return ran_s, np.where(np.isnan(end_s), start_s + ran_s, end_s)


def _number_or_nan(text: str) -> float:
    return float(text) if text not in ("", "Unknown", "None") else float("nan")


def _resources(sheet: Sheet) -> list[Resources]:
    """What each line holds: as allocated, else as requested."""
    columns = [column for column in _RESOURCES if column in sheet]
    cells = zip(*(sheet.cells[column] for column in columns), strict=True)
    texts = [next((text for text in line if text), "") for line in cells]
    found = resources_of(sheet, texts, columns[0])
    host = [name for name in ("ReqMem", "AllocCPUS", "AllocNodes", "NNodes") if name in sheet]
    if not host:
        return found
    wrong = np.zeros(len(sheet), np.bool_)
    for row in np.flatnonzero(sheet.live).tolist():
        try:
            found[row] = _with_host(sheet, row, found[row])
        except (ValueError, OverflowError):
            wrong[row] = True
    sheet.refuse(wrong, host[0], sheet.cells[host[0]], "is no amount of CPUs, memory or nodes")
    return found


def _with_host(sheet: Sheet, row: int, held: Resources) -> Resources:
    """Fill in CPUs, memory and nodes from columns of their own where the resources lack them."""

    def cell(column: str) -> str:
        return sheet.cells[column][row].strip() if column in sheet else ""

    cpus = held.cpus or float(cell("AllocCPUS") or 0)
    nodes = held.nodes or int(cell("AllocNodes") or cell("NNodes") or 0)
    memory_gb, asked = held.memory_gb, cell("ReqMem").strip("?")
    if not memory_gb and asked:
        # Before Slurm 21.08 a last letter says what the amount is for: 4Gc per CPU, 4Gn per node.
        each = {"c": cpus, "n": float(nodes or 1)}.get(asked[-1], 1.0)
        memory_gb = parse_memory_gb(asked.rstrip("cn")) * each
    return replace(held, cpus=cpus, memory_gb=memory_gb, nodes=nodes)


def _state(sheet: Sheet, row: int) -> str:
    """How the job stands after this line."""
    state = sheet.cells["State"][row].partition(" ")[0]  # CANCELLED by 1000
    if state in _WAITING:
        return WAITING
    unfinished = "End" in sheet and sheet.cells["End"][row].strip() == "Unknown"
    return ALIVE if state in _ALIVE or unfinished else OVER


def _limits(sheet: Sheet) -> Floats:
    """The time limit in seconds, NaN where there is none."""
    if "TimelimitRaw" in sheet:  # minutes, or words such as UNLIMITED and Partition_Limit
        cells = sheet.cells["TimelimitRaw"]
        limit_s = np.array([60.0 * float(cell) if cell.isdecimal() else np.nan for cell in cells])
    elif "Timelimit" in sheet:
        limit_s = np.array([parse_span_s(cell.strip()) for cell in sheet.cells["Timelimit"]])
    else:
        limit_s = np.full(len(sheet), np.nan)
    return np.where(limit_s > 0, limit_s, np.nan)
