"""Standard Workload Format: 18 numbers a line, `;` begins a comment, -1 = unknown.

Extended forms have more numbers on a line; the first 18 mean the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.traces.columns import LARGEST_COUNT

if TYPE_CHECKING:
    from rota.traces.log_sheet import Sheet

# fmt: off
SWF_FIELDS: Final = (
    "job_number", "submit_time", "wait_time", "run_time", "allocated_processors",
    "average_cpu_time", "used_memory", "requested_processors", "requested_time", "requested_memory",
    "status", "user_id", "group_id", "executable", "queue", "partition", "preceding_job",
    "think_time",
)
# fmt: on

_PARTIAL: Final = (2, 3, 4)
"""Status of a line that is one stretch of a job which already has a line of its own."""


def is_swf(lines: list[str]) -> bool:
    """Recognise SWF by its comments and by 18 numbers or more on the first line that is none."""
    for line in lines:
        if not line.startswith(";"):
            cells = line.split()
            if len(cells) > len(SWF_FIELDS) and not all(map(_is_number, cells)):
                return False  # a long line of words
            return len(cells) >= len(SWF_FIELDS) and "," not in line
    return bool(lines)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def parse_swf(sheet: Sheet) -> dict[str, Any]:
    """Read processors as GPUs: allocated ones, or the requested where those are unknown."""
    submit_s, duration_s = sheet.numbers("submit_time"), sheet.numbers("run_time")
    allocated = sheet.numbers("allocated_processors")
    requested = sheet.numbers("requested_processors")
    gpus = np.where(allocated > 0, allocated, requested)
    limit_s, user = sheet.numbers("requested_time"), sheet.numbers("user_id")
    wait_s = sheet.numbers("wait_time")
    sheet.sources.update(
        submit_s="submit_time", duration_s="run_time", estimate_s="requested_time",
        started_s="wait_time", num_gpus="requested_processors", job_id="job_number",
        user="user_id",
    )  # fmt: skip
    odd = (allocated > LARGEST_COUNT) | (np.fmod(allocated, 1) > 0)
    sheet.refuse(
        odd, "allocated_processors", sheet.cells["allocated_processors"],
        "is not a whole number of processors",
    )  # fmt: skip

    sheet.leave_out(np.isin(sheet.numbers("status"), _PARTIAL), "part of another job")
    sheet.leave_out(submit_s == -1, "no submit time")
    sheet.leave_out(duration_s == -1, "no run time recorded")
    sheet.leave_out(duration_s == 0, "never ran")
    sheet.leave_out((gpus == -1) | (gpus == 0), "no processors recorded")
    return {
        "job_id": sheet.cells["job_number"],
        "submit_s": submit_s,
        "duration_s": duration_s,
        "num_gpus": gpus,
        "estimate_s": np.where(limit_s > 0, limit_s, np.nan),
        "started_s": np.where(wait_s >= 0, submit_s + wait_s, np.nan),
        "user": [
            cell if known else ""
            for cell, known in zip(sheet.cells["user_id"], user >= 0, strict=True)
        ],
    }
