"""Compare the speed of this tree with that of another commit, the two in turn.

Usage: python bench/against.py REV [REPEATS]

Each repeat runs `bench/run.py` of both trees, one after the other, so that a busy machine hits
both alike; of each row the best value counts. A ratio over 1 means that this tree is faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
SLOWER = 0.9
"""Rows below this ratio are marked."""


def measure(tree: Path) -> dict[str, tuple[float, str]]:
    """The rows of one run of the bench of `tree`: value and unit by name."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, str(tree / "bench" / "run.py")]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    rows, name, found = json.loads((tree / "bench" / "latest.json").read_text()), "", {}
    for row in rows:
        # "… 99th percentile" belongs to the row above it.
        name = f"{name} {row['name']}" if row["name"].startswith("…") else row["name"]
        found[name] = row["value"], row["unit"]
    return found


def better(a: float, b: float, unit: str) -> float:
    """The better of two values: more per second, or less of anything else."""
    return max(a, b) if unit.endswith("/s") else min(a, b)


def main(rev: str, repeats: int) -> int:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT.parent) as folder:
        other = Path(folder)
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", "--force", folder, rev], check=True)
        try:
            bests: list[dict[str, tuple[float, str]]] = [{}, {}]
            for _ in range(repeats):
                for side, tree in zip(bests, (other, ROOT), strict=True):
                    for name, (value, unit) in measure(tree).items():
                        side[name] = better(side.get(name, (value, unit))[0], value, unit), unit
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)
    return show(rev, *bests)


def show(rev: str, before: dict[str, tuple[float, str]], now: dict[str, tuple[float, str]]) -> int:
    """Print the table; returns how many rows are slower."""
    table = Table("", rev, "now", "", "ratio", title="this tree against another")
    slower = 0
    for name in (name for name in now if name in before):
        (old, unit), (new, _) = before[name], now[name]
        ratio = new / old if unit.endswith("/s") else old / new
        slower += ratio < SLOWER
        mark = " slower" if ratio < SLOWER else ""
        table.add_row(name, f"{old:,.4g}", f"{new:,.4g}", unit, f"{ratio:.2f}{mark}")
    Console().print(table)
    return slower


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(min(1, main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 2)))
