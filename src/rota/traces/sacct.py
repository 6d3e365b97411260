"""Slurm's accounting log, as printed by `sacct --parsable2`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from rota.traces import SACCT_COMMAND
from rota.traces.columns import LARGEST_TIME_S, show
from rota.traces.slurm_jobs import ALIVE, OVER, WAITING, SlurmLines, jobs_of, resources_of
from rota.traces.tres import (
    NOTHING,
    parse_amount,
    parse_count,
    parse_instant_s,
    parse_memory_gb,
    parse_span_s,
    parse_tres,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.core.types import Bools, Floats
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
    sheet.leave_out(np.isnan(submit_s), "no submit time")
    sheet.sources.update(job_id="JobID", submit_s="Submit", user="User", model="JobName")
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


def parsed(
    sheet: Sheet,
    column: str,
    parse: Callable[[str], float],
    complaint: str,
    among: Bools | Literal[True] = True,
) -> Floats:
    """Apply `parse` to every live line `among` these; NaN where there is nothing to parse."""
    values, wrong = np.full(len(sheet), np.nan), np.zeros(len(sheet), np.bool_)
    cells = sheet.cells[column]
    for row in np.flatnonzero(sheet.live & among).tolist():
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
        column = "ElapsedRaw"
        ran_s = parsed(sheet, column, _number_or_nan, "is not a number of seconds")
    elif "Elapsed" in sheet:
        column = "Elapsed"
        ran_s = parsed(sheet, column, parse_span_s, "is not a span of time")
    else:
        column = "End"
        ran_s = np.nan_to_num(end_s - start_s)
        sheet.refuse(ran_s < 0, column, sheet.cells[column], "lies before Start")
    cells = sheet.cells[column]
    sheet.refuse(ran_s < 0, column, cells, "is a negative run time")
    sheet.refuse(ran_s >= LARGEST_TIME_S, column, cells, "is too long for a run time in seconds")
    unknown = np.isnan(ran_s) & sheet.live
    for row in np.flatnonzero(unknown).tolist():
        unknown[row] = _state(sheet, row) == OVER
    sheet.leave_out(unknown, f"no run time in {column}")
    ran_s = np.nan_to_num(ran_s, nan=0.0)
    # A job that was suspended ended later than its start and its run time say.
    return ran_s, np.where(np.isnan(end_s), start_s + ran_s, end_s)


def _number_or_nan(text: str) -> float:
    if text in NOTHING:
        return float("nan")
    if np.isnan(seconds := float(text)):
        raise ValueError(text)
    return seconds


def _resources(sheet: Sheet) -> list[Resources]:
    """What each line holds: as allocated, else as requested."""
    columns = [column for column in _RESOURCES if column in sheet]
    found = resources_of(sheet, columns, _first_given)
    _note_lack_of_gpus(sheet, columns, found)
    return _with_host(sheet, found)


def _first_given(texts: Sequence[str]) -> Resources:
    """The resources of the first text that is not empty, GPUs of the first that names any."""
    held = parse_tres(next(filter(None, texts), ""))
    if not held.gpus:
        asked = next((one for one in map(parse_tres, texts) if one.gpus), held)
        held = replace(held, gpus=asked.gpus, gpu_type=asked.gpu_type)
    return held


def _note_lack_of_gpus(sheet: Sheet, columns: Sequence[str], found: Sequence[Resources]) -> None:
    """Say so if Slurm does not count GPUs among the resources that it keeps account of."""
    counted = [column for column in columns if column.endswith("TRES")]
    rows = np.flatnonzero(sheet.live).tolist()
    texts = {sheet.cells[column][row] for column in counted for row in rows}
    if not any(texts) or any("gpu" in text for text in texts):
        return
    others = [column for column in columns if column not in counted]
    taken = f"; they are taken from {' and '.join(others)}" if any(h.gpus for h in found) else ""
    sheet.notes.append(
        f"no job has GPUs in {' and '.join(counted)}{taken}. Slurm counts GPUs there only if "
        "AccountingStorageTRES in slurm.conf includes gres/gpu."
    )


def _with_host(sheet: Sheet, found: Sequence[Resources]) -> list[Resources]:
    """Fill in CPUs, memory and nodes from columns of their own where the resources lack them."""

    if not any(name in sheet for name in ("AllocCPUS", "AllocNodes", "NNodes", "ReqMem")):
        return [*found]

    def column(name: str, parse: Callable[[str], float], what: str, lacks: Bools) -> Floats:
        if name not in sheet:
            return np.zeros(len(sheet))
        return np.nan_to_num(
            parsed(sheet, name, lambda cell: parse(cell or "0"), f"is no {what}", lacks)
        )

    cpus, memory_gb, nodes = (
        np.array([getattr(held, name) for held in found], np.float64)
        for name in ("cpus", "memory_gb", "nodes")
    )
    cpus += column("AllocCPUS", parse_amount, "number of CPUs", cpus == 0)
    for name in ("AllocNodes", "NNodes"):
        nodes += column(name, parse_count, "number of nodes", nodes == 0)
    lacks = memory_gb == 0
    memory_gb += column("ReqMem", _asked_gb, "amount of memory", lacks)
    for row in np.flatnonzero(sheet.live & lacks & (memory_gb > 0)).tolist():
        # Before Slurm 21.08 a last letter says what the amount is for: 4Gc per CPU, 4Gn per node.
        last = sheet.cells["ReqMem"][row].strip().strip("?")[-1]
        memory_gb[row] *= {"c": cpus[row], "n": max(1.0, nodes[row])}.get(last, 1.0)
    host = zip(cpus.tolist(), memory_gb.tolist(), nodes.tolist(), strict=True)
    return [
        replace(held, cpus=c, memory_gb=m, nodes=int(n))
        for held, (c, m, n) in zip(found, host, strict=True)
    ]


def _asked_gb(text: str) -> float:
    return parse_memory_gb(text.strip("?").rstrip("cn") or "0")


def _state(sheet: Sheet, row: int) -> str:
    """How the job stands after this line."""
    state = sheet.cells["State"][row].partition(" ")[0]  # CANCELLED by 1000
    if state in _WAITING:
        return WAITING
    unfinished = "End" in sheet and sheet.cells["End"][row].strip() == "Unknown"
    return ALIVE if state in _ALIVE or unfinished else OVER


def _limits(sheet: Sheet) -> Floats:
    """The time limit in seconds, NaN where there is none; what cannot be read is noted."""
    limit_s = np.full(len(sheet), np.nan)
    column = next((name for name in ("TimelimitRaw", "Timelimit") if name in sheet), None)
    if column is None:
        return limit_s
    parse = _minutes_s if column == "TimelimitRaw" else parse_span_s
    cells, odd = sheet.cells[column], list[str]()
    for row in np.flatnonzero(sheet.live).tolist():
        try:
            limit_s[row] = parse(cells[row].strip())
        except (ValueError, OverflowError):
            odd.append(cells[row])
    sheet.refuse(limit_s >= LARGEST_TIME_S, column, cells, "is too long for a time limit")
    if odd:
        lines = "1 line has" if len(odd) == 1 else f"{len(odd):,} lines have"
        sheet.notes.append(
            f"{lines} no limit that can be read in {column}, such as {show(odd[0])}."
        )
    return np.where(limit_s > 0, limit_s, np.nan)


def _minutes_s(text: str) -> float:
    if text in NOTHING:
        return float("nan")
    if not (minutes := float(text)) >= 0:
        raise ValueError(text)
    return 60.0 * minutes
