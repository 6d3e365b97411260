"""A format of job logs: a CSV file with columns of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.traces.formats import Format

if TYPE_CHECKING:
    from rota.traces.log_sheet import Sheet


def parse(sheet: Sheet) -> dict[str, Any]:
    """Hours become seconds; tickets that nobody approved are no jobs."""
    hours = sheet.numbers("hours")
    sheet.leave_out(hours == 0, "not approved")
    return {
        "job_id": sheet.cells["ticket"],
        "submit_s": 3600 * sheet.numbers("opened_h"),
        "duration_s": 3600 * hours,
        "num_gpus": sheet.numbers("cards"),
    }


FORMAT = Format(
    name="ticket",
    about="tickets of an imaginary help desk",
    columns=("ticket", "opened_h", "hours", "cards"),
    parse=parse,
)
