"""Which format a job log is in, told from its first lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rota.errors import TraceError
from rota.traces.formats import FORMATS, LOG_FORMATS
from rota.traces.sacct import ADVICE
from rota.traces.swf import is_swf

if TYPE_CHECKING:
    from rota.traces.formats import Format
    from rota.traces.log_sheet import Layout

_NOT_JOB_LOGS: Final = (
    (
        ("id", "job_num", "gpu_job_num"),
        "a summary per cluster (job counts and means), not a list of jobs",
    ),
    (("date", "total"), "a daily series of GPU quotas, not a list of jobs"),
    (("time", "vc", "running_gpu_num"), "a series of GPU usage over time, not a list of jobs"),
    (("time", "active", "total"), "a series of nodes in use over time, not a list of jobs"),
    (("machine_id", "num_gpus"), "a list of machines; it describes a cluster, not jobs"),
    (("vc", "num_nodes"), "a list of nodes per virtual cluster; it describes a cluster, not jobs"),
    (("sn", "cpu_milli", "gpu"), "a list of nodes; it describes a cluster, not jobs"),
    (("cap_gpu", "num_machines"), "a list of machine types; it describes a cluster, not jobs"),
    (("duration",), "a sample of durations without arrivals or GPU counts, not a list of jobs"),
)


def recognise(text: str, file: str) -> Format:
    """Tell the format from the first lines; what looks like no other is taken for the plain form.

    Files that hold something else than jobs are named for what they are.
    """
    lines = [line for line in text[:65536].splitlines() if line.strip()][:50]
    first = lines[0].strip()
    if first[0] in "{[":
        raise TraceError(
            f"This is JSON, which rota does not read as a job log. For Slurm: {ADVICE}", file=file
        )
    if "JobID" in first and "|" not in first and "," not in first:
        raise TraceError(f"This is sacct's table for the eye. {ADVICE}", file=file, line=1)
    if first.count("|") >= 3:
        return _richest(first, "pipes", "|") or FORMATS["sacct"]
    if is_swf(lines):
        return FORMATS["swf"]
    mark = "\t" if is_tabbed(text) else ","
    if found := _richest(first, "commas", mark):
        return found
    header = _names(first, mark)
    for columns, what in _NOT_JOB_LOGS:
        if {*columns} <= {*header} and (len(columns) > 1 or len(header) == 1):
            raise TraceError(f"This is {what}.", file=file)
    return FORMATS["csv"]


def is_tabbed(text: str) -> bool:
    """Whether a table has tabs between its columns: some in its first line, and no comma there."""
    first = text[:65536].lstrip().partition("\n")[0]
    return "\t" in first and "," not in first


def _names(line: str, mark: str) -> list[str]:
    return [name.strip().strip('"') for name in line.split(mark)]


def _richest(first: str, layout: Layout, mark: str) -> Format | None:
    """The first of ours whose columns are all there, or a plug-in's that asks for still more."""
    header = {*_names(first, mark)}

    def suits(known: Format) -> bool:
        return known.layout == layout and bool(known.columns) and {*known.columns} <= header

    found = next(filter(suits, FORMATS.values()), None)
    for known in filter(suits, LOG_FORMATS.plugged()[0].values()):
        if found is None or {*known.columns} > {*found.columns}:
            found = known
    return found
