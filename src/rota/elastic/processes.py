"""The members of one host as processes: started, watched, ended by their process id."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.elastic.protocol import (
    ENV_AGENT,
    ENV_HOST,
    ENV_KIND,
    ENV_MEMBER,
    ENV_TOKEN,
    LOGS,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rota.elastic.protocol import JobSpec, Member

TERM_S: Final = 5.0
"""Between SIGTERM and SIGKILL."""
_PDEATHSIG: Final = 1


class Processes:
    """Every process that the agent has started and not yet seen end."""

    def __init__(self, folder: Path, spec: JobSpec, agent: str, token: str) -> None:
        self.folder, self.spec = folder, spec
        self._env = {ENV_AGENT: agent, ENV_TOKEN: token, ENV_HOST: spec.bind}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._due: dict[str, float] = {}
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        (folder / LOGS).mkdir(exist_ok=True)

    def start(self, member: Member) -> int:
        """Start a member; the file descriptor returned becomes readable when it ends."""
        env = {
            **os.environ,
            "OMP_NUM_THREADS": str(self.spec.threads),
            "PYTHONUNBUFFERED": "1",
            **self.spec.env,
            **member.env,
            **self._env,
            ENV_MEMBER: member.name,
            ENV_KIND: member.kind,
        }
        with (self.folder / LOGS / f"{member.name}.log").open("ab") as log:
            process = subprocess.Popen(
                self.spec.command,
                cwd=self.folder / self.spec.cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # The agent has one thread, so this is safe; no member outlives its agent.
                preexec_fn=lambda: self._prctl(_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
            )
        self._running[member.name] = process
        return os.pidfd_open(process.pid)

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def runs(self, name: str) -> bool:
        return name in self._running

    def doom(self, name: str, after_s: float) -> bool:
        """See that a process ends: at once, or if it still runs after a while."""
        process = self._running.get(name)
        if process is None:
            return False
        if after_s <= 0:
            _signal(process, signal.SIGKILL)
        else:
            due_s = monotonic() + after_s
            self._due[name] = min(self._due.get(name, due_s), due_s)
        return True

    def kill_due(self) -> list[str]:
        """Signal those whose time is over: SIGTERM first, SIGKILL later."""
        now_s = monotonic()
        over = [name for name, due_s in self._due.items() if due_s <= now_s]
        for name in over:
            process = self._running[name]
            if getattr(process, "warned", False):
                _signal(process, signal.SIGKILL)
                del self._due[name]
            else:
                _signal(process, signal.SIGTERM)
                process.warned = True  # type: ignore[attr-defined]
                self._due[name] = now_s + TERM_S
        return over

    def patience(self, most_s: float) -> float:
        """How long the agent may sleep."""
        return max(0.0, min([most_s, *(due_s - monotonic() for due_s in self._due.values())]))

    def reap(self, name: str) -> str:
        """Take note of an end, and say how it came."""
        process = self._running.pop(name)
        self._due.pop(name, None)
        # Whatever it started, a data loader perhaps, goes with it; before the wait, while the
        # number of its process group cannot belong to anybody else.
        _signal(process, signal.SIGKILL)
        code = process.wait()
        if code == 0:
            return "its script ended before the training did"
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it exited with code {code}: {self._last_words(name)}"

    def kill_all(self) -> None:
        """End everybody at once."""
        for process in self._running.values():
            _signal(process, signal.SIGKILL)
            process.wait()
        self._running.clear()

    def _last_words(self, name: str) -> str:
        with (self.folder / LOGS / f"{name}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it printed nothing"


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
