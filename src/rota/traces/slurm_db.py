"""The job table of Slurm's database, as `mysql --batch` or a CSV export writes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.traces.slurm_jobs import ALIVE, OVER, WAITING, SlurmLines, jobs_of, resources_of
from rota.traces.tres import parse_tres

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.traces.log_sheet import Sheet
    from rota.traces.tres import Resources

COLUMNS_OF_DUMP: Final = ("id_job", "time_submit", "time_start", "time_end")
_RESOURCES: Final = ("tres_alloc", "tres_req")
_GRES: Final = ("gres_alloc", "gres_used", "gres_req")
_BASE: Final = 0xFF
"""The bits of a state that say how a job stands; the others say what is being done with it."""
_PENDING, _RUNNING, _SUSPENDED = 0, 1, 2
_NO_LIMIT: Final = 4_294_967_294  # minutes; one more stands for infinite
_NOTHING: Final = frozenset({"NULL", "\\N"})


def parse_slurm_db(sheet: Sheet) -> dict[str, Any]:
    """Read times in epoch seconds, states and resources by number; one job per id_job."""
    sheet.require(*COLUMNS_OF_DUMP, "state")
    if not any(column in sheet for column in (*_RESOURCES, *_GRES)):
        sheet.require("tres_alloc")
    # The rows and what is decided about them stay those of the sheet that was handed in.
    sheet = replace(sheet, cells={
        name: ["" if cell.strip() in _NOTHING else cell.strip() for cell in cells]
        for name, cells in sheet.cells.items()
    })  # fmt: skip
    submit_s, start_s, end_s = (
        sheet.numbers(column, empty=0) for column in ("time_submit", "time_start", "time_end")
    )
    state = sheet.numbers("state", empty=0)
    sheet.refuse(~((state >= 0) & (state < 2**31)), "state", state, "is no state by its number")
    ids = sheet.cells["id_job"]
    sheet.refuse(np.array([not job for job in ids]), "id_job", ids, "names no job")
    sheet.leave_out(~(submit_s > 0), "no submit time")
    began = start_s > 0
    ended = began & (end_s > 0)
    paused_s = sheet.numbers("time_suspended", empty=0) if "time_suspended" in sheet else 0.0
    span_s = np.where(ended, end_s - start_s, 0.0)
    sheet.refuse(span_s < 0, "time_end", end_s, "lies before time_start")
    ran_s = np.where((paused_s > 0) & (paused_s < span_s), span_s - paused_s, span_s)
    sheet.sources.update(
        job_id="id_job", submit_s="time_submit", duration_s="time_end", estimate_s="timelimit",
        user="id_user", model="job_name",
    )  # fmt: skip
    texts = (("user", "id_user"), ("model", "job_name"))
    return jobs_of(sheet, SlurmLines(
        job=_names(sheet), submit_s=submit_s, ran_s=ran_s,
        end_s=np.where(ended, end_s, np.nan),
        state=lambda row: _stands(int(state[row]), bool(began[row] & ~ended[row])),
        held=_resources(sheet),
        limit_s=_limits(sheet),
        names={column: sheet.cells[source] for column, source in texts if source in sheet},
    ))  # fmt: skip


def _stands(state: int, unfinished: bool) -> str:
    """How the job stands after a line with this state."""
    if state == _PENDING:  # with further bits it is the end of a line: requeued, resized, …
        return WAITING
    return ALIVE if unfinished or state & _BASE in (_RUNNING, _SUSPENDED) else OVER


def _names(sheet: Sheet) -> list[str]:
    """The names of the lines' jobs: 8+1 for a component of a heterogeneous job, else id_job."""
    own = [*sheet.cells["id_job"]]
    prefix = next((p for p in ("het_job", "pack_job") if f"{p}_id" in sheet), None)
    if prefix is None or f"{prefix}_offset" not in sheet:
        return own
    gangs, offsets = sheet.cells[f"{prefix}_id"], sheet.cells[f"{prefix}_offset"]
    return [
        f"{gang}+{offset}" if gang not in ("", "0") else job
        for job, gang, offset in zip(own, gangs, offsets, strict=True)
    ]


def _resources(sheet: Sheet) -> list[Resources]:
    """Each line's resources: as allocated, else as requested; GPUs also by name, where given."""
    counted, named = ([c for c in group if c in sheet] for group in (_RESOURCES, _GRES))

    def read(texts: Sequence[str]) -> Resources:
        groups = texts[: len(counted)], texts[len(counted) :]
        return parse_tres(",".join(next(filter(None, group), "") for group in groups))

    if any(any(sheet.cells[column]) for column in counted) and not any(
        "gpu" in text for column in named for text in sheet.cells[column]
    ):
        sheet.notes.append(
            "resources numbered 1001 and above are taken for GPUs, without a type: the names are "
            "in another table of the database."
        )
    return resources_of(sheet, [*counted, *named], read)


def _limits(sheet: Sheet) -> Floats:
    """The time limit in seconds, NaN where there is none."""
    if "timelimit" not in sheet:
        return np.full(len(sheet), np.nan)
    minutes = sheet.numbers("timelimit", empty=0)
    return np.where((minutes > 0) & (minutes < _NO_LIMIT), 60 * minutes, np.nan)
