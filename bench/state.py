"""How long `rota queue` and `rota submit` take, and what an idle daemon costs, with many jobs.

    python bench/state.py [WAITING] [OVER]

The jobs are made by hand: WAITING that cannot start, since one other job has the only slot, and
OVER that have ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rota.backends.local.held import Ended, Held
from rota.backends.local.request import Request
from rota.backends.local.state_dir import StateDir
from rota.elastic.run_processes import end_processes

LOOK_S = 20.0
TIMES = 5


def request() -> Request:
    return Request(command=("sleep", "1000"), cwd="/", env=dict(os.environ), user="me",
                   submitted_at=time.time())  # fmt: skip


def fill(store: StateDir, waiting: int, over: int) -> None:
    """As submitters and daemons would have left it, without their care for the disk."""
    facts = json.dumps(request().encode())
    for uid in range(1, waiting + 2):
        folder = store.folder(uid)
        folder.mkdir()
        (folder / "request.json").write_text(facts)
        (folder / "request.json").chmod(0o600)
    past = {"request": {**request().encode(), "env": {}}, "held": Held().__dict__,
            "ended": Ended("done", 1.0).__dict__}  # fmt: skip
    first = waiting + 2
    store.history.add((uid, 1.0, past) for uid in range(first, first + over))


def took_s(*words: str) -> float:
    """The shortest of some runs of a command."""
    best = float("inf")
    for _ in range(TIMES):
        began_s = time.perf_counter()
        subprocess.run([sys.executable, "-m", "rota", *words], check=True, capture_output=True)
        best = min(best, time.perf_counter() - began_s)
    return best


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    waiting, over = (int(word) for word in [*sys.argv[1:], "3000", "100000"][:2])
    with tempfile.TemporaryDirectory() as place:
        store = StateDir(Path(place, "state"))
        fill(store, waiting, over)
        state = ("--state", str(store.root))
        daemon = subprocess.Popen(
            [sys.executable, "-m", "rota", "run", "-q", "--nodes", "1", "--gpus", "1", *state]
        )
        try:
            while not store.held(1).open:
                time.sleep(0.1)
            print(f"{waiting} jobs wait, {over} are over")
            print(f"rota queue   {took_s('queue', *state):.3f} s")
            print(f"rota submit  {took_s('submit', *state, '--', 'sleep', '1000'):.3f} s")
            print(f"rota --help  {took_s('--help'):.3f} s")
            time.sleep(5.0)
            before_s = cpu_s(daemon.pid)
            time.sleep(LOOK_S)
            part = (cpu_s(daemon.pid) - before_s) / LOOK_S
            print(f"the daemon   {part:.1%} of a core, over {LOOK_S:g} s")
            size = sum(path.stat().st_size for path in store.root.glob("history.db*"))
            print(f"history      {size / 1e6:.0f} MB")
        finally:
            daemon.terminate()
            daemon.wait()
            end_processes(*store.jobs.glob("*/run-*"))


if __name__ == "__main__":
    main()
