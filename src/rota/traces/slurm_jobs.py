"""From the lines of a Slurm log to jobs: what `sacct` prints and what Slurm's database holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.traces.trace import encode
from rota.traces.tres import Resources, parse_tres

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rota.core.types import Floats, Ints
    from rota.traces.log_sheet import Sheet

WAITING, ALIVE, OVER = "waiting", "alive", "over"
"""How a job stands after one of its lines."""


@dataclass(frozen=True, kw_only=True)
class SlurmLines:
    """What a Slurm log says line by line (L,), whatever form it has."""

    job: Sequence[str]
    """The job's name: 8, 11_0 (array task) or 8+1 (component of a heterogeneous job)."""
    submit_s: Floats  # NaN: unknown
    ran_s: Floats  # 0: it did not run
    end_s: Floats  # NaN: unknown
    state: Callable[[int], str]
    """WAITING, ALIVE or OVER, by line."""
    held: Sequence[Resources]
    limit_s: Floats  # NaN: none
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """`user` and `model`, where the log has them."""


def resources_of(
    sheet: Sheet, columns: Sequence[str], read: Callable[[Sequence[str]], Resources]
) -> list[Resources]:
    """What each line holds: `read` makes it of the line's texts in these columns."""
    found = [Resources()] * len(sheet)
    wrong = np.full(len(sheet), -1)  # the column that cannot be read
    texts = [*zip(*(sheet.cells[column] for column in columns), strict=True)]
    for row in np.flatnonzero(sheet.live).tolist():
        try:
            found[row] = read(texts[row])
        except ValueError:
            wrong[row] = [*map(_is_readable, texts[row])].index(False)
    for k, column in enumerate(columns):
        sheet.refuse(
            wrong == k, column, sheet.cells[column],
            "is no list of resources, each with an amount of 0 or more",
        )  # fmt: skip
    return found


def _is_readable(text: str) -> bool:
    try:
        parse_tres(text)
    except ValueError:
        return False
    return True


def jobs_of(sheet: Sheet, lines: SlurmLines) -> dict[str, Any]:
    """Write every job into the row of its first line, and drop its other lines.

    Lines of one job follow each other (it was requeued or resized); components of a heterogeneous
    job run side by side. `started_s` is set so that the job ends when the log says: the time
    between two runs of a requeued job counts as waiting.
    """
    held_gpus = np.array([held.gpus for held in lines.held])
    gangs = _gather(sheet, lines, held_gpus)
    duration_s, gpus, cpus, memory_gb, nodes = np.zeros((5, len(sheet)))
    end_s = np.full(len(sheet), -np.inf)
    part_s = np.bincount(gangs.part, lines.ran_s[gangs.row], gangs.last.size)
    np.maximum.at(duration_s, gangs.home, part_s)
    np.maximum.at(end_s, gangs.home, np.nan_to_num(lines.end_s[gangs.last], nan=np.inf))
    held = [lines.held[row] for row in gangs.largest]
    np.add.at(gpus, gangs.home, held_gpus[gangs.largest])
    np.add.at(cpus, gangs.home, [one.cpus for one in held])
    np.add.at(memory_gb, gangs.home, [one.memory_gb for one in held])
    np.add.at(nodes, gangs.home, [one.nodes for one in held])
    types = _settle(sheet, lines, gangs)
    sheet.leave_out(duration_s == 0, "never ran")
    sheet.leave_out(gpus == 0, "no GPU")
    first_s = lines.submit_s[sheet.live].min(initial=np.inf)
    return {
        "job_id": [job.strip().partition("+")[0] for job in lines.job],
        "submit_s": lines.submit_s - first_s,
        "duration_s": duration_s,
        "num_gpus": gpus,
        "cpus_per_worker": cpus / np.maximum(gpus, 1),
        "memory_gb_per_worker": memory_gb / np.maximum(gpus, 1),
        "gpu_type": [next(iter(named)) if len(named) == 1 else "" for named in types],
        "estimate_s": lines.limit_s,
        "started_s": known_starts(sheet, lines.submit_s, end_s - duration_s) - first_s,
        "ran_on_nodes": np.where(nodes > 0, nodes, np.nan),
        **lines.names,
    }


def known_starts(sheet: Sheet, submit_s: Floats, started_s: Floats) -> Floats:
    """The recorded starts, NaN where there is none or where it lies before the submission."""
    early = sheet.live & (started_s < submit_s)
    if count := int(early.sum()):
        jobs = "1 job" if count == 1 else f"{count:,} jobs"
        sheet.notes.append(f"{jobs} started before the submission; these starts are not used.")
    return np.where(np.isfinite(started_s) & ~early, started_s, np.nan)


def _settle(sheet: Sheet, lines: SlurmLines, gangs: _Gangs) -> list[set[str]]:
    """Leave out jobs that are not over, drop all but first lines; returns the GPU types of each."""
    types: list[set[str]] = [set() for _ in range(len(sheet))]
    waiting, alive, others = np.zeros((3, len(sheet)), np.bool_)
    for home, last, largest in zip(*map(np.ndarray.tolist, gangs[2:]), strict=True):
        state = lines.state(last)
        waiting[home] |= state == WAITING
        alive[home] |= state == ALIVE
        if lines.held[largest].gpus:
            types[home].add(lines.held[largest].gpu_type)
    others[gangs.row] = True
    others[gangs.home] = False
    sheet.merge(others)
    sheet.leave_out(waiting, "still queued")
    sheet.leave_out(alive, "still running")
    return types


class _Gangs(NamedTuple):
    """Which line belongs to which part (one job name), and which part to which job."""

    row: Ints  # (L,) live lines in order of submission
    part: Ints  # (L,) the part that each of them belongs to
    home: Ints  # (P,) first line of the job that the part belongs to
    last: Ints  # (P,) last line of the part: how it ended
    largest: Ints  # (P,) line on which the part held most GPUs


def _gather(sheet: Sheet, lines: SlurmLines, held_gpus: Ints) -> _Gangs:
    """Gather lines by job name, and components (8+0, 8+1) by job.

    Where an index repeats, assignment keeps the last value: that picks last and first lines.
    """
    live = np.flatnonzero(sheet.live)
    row = live[np.argsort(lines.submit_s[live], kind="stable")]
    part, names = encode([lines.job[at].strip() for at in row.tolist()])
    gang, gangs = encode([name.partition("+")[0] for name in names])
    last, largest = np.zeros((2, len(names)), np.int64)
    first = np.zeros(len(gangs), np.int64)
    last[part] = row
    by_size = np.argsort(held_gpus[row], kind="stable")
    largest[part[by_size]] = row[by_size]
    first[gang[part][::-1]] = row[::-1]
    return _Gangs(row, part, first[gang], last, largest)
