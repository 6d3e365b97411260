"""Jobs for chaos: they save after each step, and keep account from which their runs can be judged.

A book is a file of lines "WHAT TIME RUN FROM TO": a run begins, does steps, is stopped or ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
#!/bin/sh
# Does {steps} steps of {step_s} s, on n nodes n at a time; goes on where it has saved.
# A job that ends before its work is done says so by its exit code, or Slurm takes it for completed.
book="$SLURM_JOB_NAME" run="$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.$$"
note() {{ echo "$1 $(date +%s.%N) $run $2 $3" >> "$book.ledger"; }}
done=$(cat "$book.steps" 2>/dev/null || echo 0)
trap 'note stopped "$done" "$done"; exit 143' TERM
note began "$done" "$done"
while [ "$done" -lt {steps} ]; do
   sleep {step_s} & wait $!
   next=$((done + SLURM_JOB_NUM_NODES))
   echo "$next" > "$book.$$"; mv "$book.$$" "$book.steps"
   note step "$done" "$next"
   done=$next
done
note ended "$done" "$done"
"""


@dataclass(frozen=True)
class Line:
    """One line of a book."""

    what: str
    time_s: float
    run: str
    before: int
    after: int


def read_book(folder: Path, name: str) -> list[Line]:
    """What the runs of a job have noted, in order; without lines that a kill has torn."""
    path = folder / f"{name}.ledger"
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    whole = [row for row in rows if len(row) == 5]
    return [Line(row[0], float(row[1]), row[2], int(row[3]), int(row[4])) for row in whole]


def faults(book: list[Line]) -> list[str]:
    """What must never be: runs at the same time, and steps that are done twice or after the end."""
    found = []
    runs = list(dict.fromkeys(line.run for line in book))
    spans = {
        run: (min(times), max(times))
        for run in runs
        if (times := [line.time_s for line in book if line.run == run])
    }
    for k, run in enumerate(runs):
        found += [
            f"runs {other} and {run} overlap"
            for other in runs[:k]
            if spans[run][0] < spans[other][1] and spans[other][0] < spans[run][1]
        ]
    counted = 0
    for line in book:
        if line.what == "step":
            if line.before < counted:
                found.append(f"run {line.run} has done step {line.after} again")
            counted = max(counted, line.after)
    return found


def idle_runs(book: list[Line]) -> int:
    """Runs after the end of a job; they find all its steps done.

    Slurm makes them when it has not saved that a job is over before its controller is killed: it
    takes the job for running, and puts it back in line when it misses it.
    """
    ends = [line.time_s for line in book if line.what == "ended"]
    return sum(line.what == "began" and line.time_s > ends[0] for line in book) if ends else 0
