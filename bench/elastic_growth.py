"""Measure what it costs a running training of four workers to let its network grow in place.

A pause, as members report it, is the part of the gap between two steps that is no step: the growth
itself, a new group, and the first worker's values for all. Asking is how much longer the step takes
in which the first worker is asked and tries the growth on a copy. Layers are made wider and put in
by turns. Results are printed and go to bench/elastic_growth.json; `--quick` leaves 25 M out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from rich.console import Console
from rich.table import Table

from elastic import job, lines, more_steps, say, survivors, wait
from rota.elastic import Member

WORKERS = 4
GROWTHS = {"26 k": 6, "2.5 M": 6, "25 M": 4}


def asking(out: Path, generation: int) -> float:
    """By how much the longest step of a group is longer than its shortest one."""
    found = [0.0]
    for rows in lines(out).values():
        ends = [end for end, group, _ in rows if group == str(generation)]
        steps = [after - before for before, after in pairwise(ends)]
        found += [max(steps) - min(steps)] if steps else []
    return max(found)


def measure(size: str) -> list[dict[str, Any]]:
    """Let a network grow again and again: a worker leaves, another joins, then it is asked."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        out.mkdir()
        names = [f"w{k}" for k in range(WORKERS)]
        facts = {"workers": WORKERS, "growths": GROWTHS[size]}
        with job(out, "growing", size, [Member(n) for n in names[:-1]], **facts) as run:
            run.settle()
            for k in range(GROWTHS[size]):
                more_steps(out, 3)
                names = [*names[: WORKERS - 1], f"x{k}"]
                since_s = monotonic()
                run.resize(names)
                wait(lambda k=k: run.observe().version == k + 1)
                wait(lambda: run.observe().state == "running")
                status = run.observe()
                more_steps(out, 3)
                last = status.last
                assert last is not None
                assert last.cause == "growth", (run.folder / "agent.log").read_text()[-6000:]
                found.append(
                    {
                        "growth": str(status.growth and status.growth["operation"]),
                        "pause": last.pause_s,
                        "gap": survivors(out, since_s),
                        "asking": asking(out, before(out, last.generation)),
                    }
                )
                say(f"{size}: {k + 1} of {GROWTHS[size]} growths, {found[-1]}")
                run.resize(names[:-1])
                run.settle()
    return found


def before(out: Path, generation: int) -> int:
    """The group before this one."""
    groups = {int(group) for rows in lines(out).values() for _, group, _ in rows}
    return max(group for group in groups if group < generation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the largest model out")
    options = parser.parse_args()
    results = {size: measure(size) for size in list(GROWTHS)[: 2 if options.quick else 3]}
    columns = ("parameters", "growth", "pause", "longest", "gap", "asking")
    table = Table(*columns, title=f"Growth in place, {WORKERS} workers")
    for size, rows in results.items():
        for kind in ("widen", "deepen"):
            own = [row for row in rows if row["growth"] == kind]
            typical = {key: median(row[key] for row in own) for key in ("pause", "gap", "asking")}
            longest = max(row["pause"] for row in own)
            times = (typical["pause"], longest, typical["gap"], typical["asking"])
            table.add_row(size, kind, *(f"{1e3 * seconds:,.0f} ms" for seconds in times))
    Console().print(table)
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
