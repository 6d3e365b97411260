"""A process that has imported what trainings need, and forks agents: jobs start in no time.

An agent that was born here has the modules already, and so have the members that it forks. The
daemon starts it, and it ends with the daemon; the agents do not.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rota.elastic.agent import detach
from rota.elastic.job import LAUNCH_S
from rota.elastic.nursery import preload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.elastic.protocol import JobSpec

_LINKED: Final = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""What a process cannot change any more once it runs."""


class Cradle:
    """The daemon's end: it may be asked by several threads, one at a time is served."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules, self._lock = tuple(modules), threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rota.elastic.cradle", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the daemon
        )

    def fits(self, spec: JobSpec) -> bool:
        """Whether a job can be born here: the same Python, and modules that are here."""
        here = {**os.environ, **spec.env}
        same = all(here.get(key) == os.environ.get(key) for key in _LINKED)
        program = shutil.which(spec.command[0], path=here.get("PATH"))
        known = bool(spec.preload) and set(spec.preload) <= set(self.modules)
        return same and known and program == sys.executable and self._process.poll() is None

    def launch(self, folder: Path) -> str | None:
        """Have an agent for the job in `folder`; what went wrong, if anything did."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(f"{json.dumps(str(folder))}\n")
                self._process.stdin.flush()
                if not select.select([self._process.stdout], [], [], LAUNCH_S)[0]:
                    self._process.kill()  # lest everybody waits for it; agents live on
                line = self._process.stdout.readline()
            except (OSError, ValueError):
                line = ""
        return (json.loads(line) or None) if line else "the process to fork it from has ended."

    def close(self) -> None:
        """End it; agents live on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):  # it may be gone with what was to be said to it
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    """Import, then fork agents until standard input ends."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    preload(sys.argv[1:])
    while line := sys.stdin.readline():
        print(json.dumps(_bear(Path(json.loads(line)))), flush=True)


def _bear(folder: Path) -> str:
    """Fork an agent; what went wrong, or nothing."""
    heard, said = os.pipe()
    if not (child := os.fork()):
        os.close(heard)
        error = detach(folder)
        os.write(said, error.encode())
        os._exit(0)
    os.close(said)
    with os.fdopen(heard) as answer:
        error = answer.read()
    os.waitpid(child, 0)
    return error


if __name__ == "__main__":
    main()
