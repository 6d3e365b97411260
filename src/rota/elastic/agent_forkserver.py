"""A fork server for agents: one process that has imported large modules, so that jobs start fast.

Its agents have the modules already, and so have the members that they fork. The daemon starts the
fork server, and it ends with the daemon; its agents go on.
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
from rota.elastic.member_forkserver import preload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.elastic.protocol import JobSpec

_FIXED_ENV: Final = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that have no effect on a process that already runs."""


class AgentForkServer:
    """The daemon's side; threads may share it, and their requests are served one at a time."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.modules, self._lock = tuple(modules), threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rota.elastic.agent_forkserver", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the daemon
        )

    def fits(self, spec: JobSpec) -> bool:
        """Whether it can fork the agent of a job: the same Python, and its modules are loaded."""
        here = {**os.environ, **spec.env}
        same = all(here.get(key) == os.environ.get(key) for key in _FIXED_ENV)
        program = shutil.which(spec.command[0], path=here.get("PATH"))
        known = bool(spec.preload) and set(spec.preload) <= set(self.modules)
        return same and known and program == sys.executable and self._process.poll() is None

    def launch(self, folder: Path) -> str | None:
        """Fork an agent for the job in `folder`; the error, or None if it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(f"{json.dumps(str(folder))}\n")
                self._process.stdin.flush()
                if not select.select([self._process.stdout], [], [], LAUNCH_S)[0]:
                    self._process.kill()  # other threads wait for it; its agents go on
                line = self._process.stdout.readline()
            except (OSError, ValueError):
                line = ""
        return (json.loads(line) or None) if line else "the fork server of agents has ended."

    def close(self) -> None:
        """End the fork server; its agents go on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):  # it may have ended with unread input
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    """Import, then fork agents until standard input ends."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for module in sys.argv[1:]:
        try:
            preload([module])
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            sys.exit(f"--warm {module} cannot be imported, so --warm has no effect ({why}).")
    while line := sys.stdin.readline():
        print(json.dumps(_fork_agent(Path(json.loads(line)))), flush=True)


def _fork_agent(folder: Path) -> str:
    """Fork an agent; its error, empty if it has started."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        error = detach(folder)
        os.write(writing, error.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        error = answer.read()
    os.waitpid(child, 0)
    return error


if __name__ == "__main__":
    main()
