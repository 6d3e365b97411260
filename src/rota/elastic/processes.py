"""The members of one host as processes: started, watched, ended by their process id."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.elastic.nursery import Forked, adopt_orphans, die_with_parent
from rota.elastic.protocol import ENV_KIND, ENV_MEMBER, LOGS
from rota.elastic.remains import (
    END_S,
    ENV_RUN,
    MEMBERS,
    Process,
    enlist,
    member_of,
    orphans,
    strike,
    with_offspring,
)
from rota.elastic.remains import kill_all as kill_processes
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.elastic.protocol import JobSpec, Member

TERM_S: Final = 5.0
"""Between SIGTERM and SIGKILL."""
_NURSERY: Final = "nursery"


@dataclass
class _Process:
    pid: int
    watch: int
    """A file descriptor that becomes readable when it ends."""
    born: subprocess.Popen[bytes] | None
    """Set if it is a child of this process by birth."""
    due_s: float = float("inf")
    warned: bool = False

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class Processes:
    """Every process that the agent has started and not yet seen end."""

    def __init__(
        self,
        folder: Path,
        spec: JobSpec,
        env: dict[str, str],
        selector: selectors.BaseSelector,
        began: Callable[[str, int], None],
        ended: Callable[[str, str], None],
    ) -> None:
        self.folder, self.spec, self._env = folder, spec, env
        self._selector, self._began, self._ended = selector, began, ended
        self._running: dict[str, _Process] = {}
        self._expected: set[str] = set()  # asked of the nursery
        self._gone: dict[str, int] = {}  # members that have ended, but not all they had started
        self._nursery: subprocess.Popen[bytes] | Forked | None = None
        for name in (LOGS, MEMBERS):
            (folder / name).mkdir(exist_ok=True)
        adopt_orphans()
        if spec.preload:
            self._open_nursery()

    def start(self, member: Member) -> None:
        """Start a member; `began` or `ended` will tell."""
        env = {
            **os.environ,
            "OMP_NUM_THREADS": str(self.spec.threads),
            "PYTHONUNBUFFERED": "1",
            **self.spec.env,
            **member.env,
            **self._env,
            ENV_MEMBER: member.name,
            ENV_KIND: member.kind,
            ENV_RUN: str(self.folder.resolve()),
        }
        log, cwd = self.folder / LOGS / f"{member.name}.log", self.folder / self.spec.cwd
        try:
            if self._nursery is None:
                born = _spawn(self.spec.command, env, cwd, log, self._enlist(member.name))
                self._adopt(member.name, born)
                return
            wish = {
                "name": member.name,
                "argv": self.spec.command[1:],
                "env": env,
                "cwd": str(cwd),
                "log": str(log),
                "folder": str(self.folder),
            }
            assert self._nursery.stdin is not None
            self._nursery.stdin.write(json.dumps(wish).encode() + b"\n")
            self._expected.add(member.name)
        except OSError as error:
            self._ended(member.name, self._obstacle(error))

    def runs(self, name: str) -> bool:
        """Whether a member is a process of this host."""
        return name in self._running

    def pids(self) -> dict[str, int]:
        """Process ids by name; a member is there until all that it has started is gone."""
        return self._gone | {name: process.pid for name, process in self._running.items()}

    def doom(self, name: str, after_s: float) -> bool:
        """See that a process ends: at once, or if it still runs after a while."""
        process = self._running.get(name)
        if process is None:
            return False
        if after_s <= 0:
            process.signal(signal.SIGKILL)
        else:
            process.due_s = min(process.due_s, monotonic() + after_s)
        return True

    def end(self, name: str, grace_s: float) -> None:
        """Ask a process to end by SIGTERM, and kill it if it still runs after a while.

        Only the process itself is asked: it shall not lose its data loaders before it knows.
        """
        if process := self._running.get(name):
            os.kill(process.pid, signal.SIGTERM)
            process.due_s, process.warned = monotonic() + grace_s, True

    def kill_due(self) -> list[str]:
        """Signal those whose time is over, SIGTERM first and SIGKILL later; their names."""
        now_s = monotonic()
        over = [name for name, process in self._running.items() if process.due_s <= now_s]
        for name in over:
            process = self._running[name]
            process.signal(signal.SIGKILL if process.warned else signal.SIGTERM)
            process.due_s, process.warned = now_s + TERM_S, True
        return over

    def kill_all(self) -> None:
        """End everybody at once."""
        for process in self._running.values():
            process.signal(signal.SIGKILL)
            _wait(process)
        names = [*self._running, *self._gone]
        self._running.clear()
        if self._nursery is not None:
            self._nursery.kill()
            self._nursery.wait()
            self._nursery = None
        until_s = monotonic() + END_S
        while (left := orphans(())) and monotonic() < until_s:
            kill_processes(with_offspring(left))
            self._expected.clear()
            self.bury()
        if not left:
            for name in names:
                strike(self.folder, name)

    def bury(self) -> None:
        """Take note of the end of orphans that nobody else will."""
        if self._expected:
            return  # one of them may be a member that the nursery has not told of yet
        self._reap_orphans()
        if self._gone:
            self._end_orphans()

    def _reap_orphans(self) -> None:
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid in self._watched():
                    return  # its own watch will tell
                os.waitpid(found.si_pid, 0)

    def _adopt(self, name: str, born: subprocess.Popen[bytes] | int) -> None:
        """Watch a process that has begun."""
        pid = born if isinstance(born, int) else born.pid
        try:
            watch = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended(name, "it ended at once")
            return
        self._running[name] = _Process(pid, watch, None if isinstance(born, int) else born)
        self._selector.register(watch, selectors.EVENT_READ, lambda: self._reap(name))
        self._began(name, pid)

    def _reap(self, name: str) -> None:
        """Take note of an end, and say how it came."""
        process = self._running.pop(name)
        self._selector.unregister(process.watch)
        os.close(process.watch)
        # Whatever it started, a data loader perhaps, goes with it; before the wait, while the
        # number of its process group cannot belong to anybody else.
        process.signal(signal.SIGKILL)
        why = self._reason(_wait(process), name)
        self._gone[name] = process.pid
        self._end_orphans()
        self._ended(name, why)

    def _end_orphans(self) -> None:
        """End what members that are gone have left behind, which is this process' by now."""
        left = orphans(self._watched())
        found = {pid: member_of(pid, self.folder) for pid in left if Process.of(pid)}
        kill_processes(with_offspring(pid for pid, name in found.items() if name in self._gone))
        for name, pid in list(self._gone.items()):
            if name not in found.values() and not _is_group(pid):
                del self._gone[name]
                strike(self.folder, name)

    def _watched(self) -> set[int]:
        """Processes whose end is told by a watch of their own."""
        pids = {process.pid for process in self._running.values()}
        return pids if self._nursery is None else {*pids, self._nursery.pid}

    def _enlist(self, name: str) -> Callable[[], None]:
        """What a member does before it becomes what it shall be."""

        def do() -> None:
            # The agent has one thread, so this is safe; no member outlives its agent.
            die_with_parent()
            enlist(self.folder, name)

        return do

    def _reason(self, code: int, name: str) -> str:
        """Why a process ended, or nothing if all went well."""
        if code == 0:
            return ""
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it exited with code {code}: {self._last_words(name)}"

    def _last_words(self, name: str) -> str:
        lines = []
        with suppress(OSError), (self.folder / LOGS / f"{name}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            lines = log.read(4096).decode(errors="replace").strip("\0\n ").splitlines()
        said = lines[-1][:300] if lines else "it printed nothing"
        return said if os.statvfs(self.folder).f_bavail else f"{said} (the disk is full)"

    def _obstacle(self, error: OSError) -> str:
        """Why a process could not be started."""
        what, cwd = str(error.filename or self.spec.command[0]), self.folder / self.spec.cwd
        if what == str(cwd):
            return f"its folder {what} cannot be entered: {error.strerror}"
        if what.startswith(str(self.folder / LOGS)):
            return f"its log {what} cannot be written: {error.strerror}"
        return f"{what} cannot be started: {error.strerror}"

    # The nursery.

    def _open_nursery(self) -> None:
        try:
            self._nursery = self._spawn_nursery()
        except OSError as error:
            raise JobError(self._obstacle(error).replace("its ", "the job's ", 1) + ".") from None
        assert self._nursery.stdout is not None
        self._selector.register(self._nursery.stdout, selectors.EVENT_READ, self._born)

    def _spawn_nursery(self) -> subprocess.Popen[bytes] | Forked:
        env = {**os.environ, "OMP_NUM_THREADS": str(self.spec.threads), **self.spec.env}
        env[ENV_RUN] = str(self.folder.resolve())
        with (self.folder / LOGS / f"{_NURSERY}.log").open("ab") as log:
            program = shutil.which(self.spec.command[0], path=env.get("PATH"))
            if program == sys.executable and sys.modules.keys() >= set(self.spec.preload):
                os.close(os.open(self.folder / self.spec.cwd, os.O_PATH | os.O_DIRECTORY))
                return Forked(log.fileno(), env)
            return subprocess.Popen(
                [self.spec.command[0], "-u", "-m", "rota.elastic.nursery", *self.spec.preload],
                cwd=self.folder / self.spec.cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
            )

    def _born(self) -> None:
        """A member was born in the nursery, or the nursery is no more."""
        nursery = self._nursery
        assert nursery is not None
        assert nursery.stdout is not None
        line = nursery.stdout.readline()
        if line:
            birth = json.loads(line)
            self._expected.discard(birth["name"])
            self._adopt(birth["name"], birth["pid"])
            return
        self._selector.unregister(nursery.stdout)
        why = self._reason(nursery.wait(), _NURSERY) or "it ended"
        why = why.replace("it ", "its nursery ", 1)
        self._nursery = None
        expected, self._expected = sorted(self._expected), set()
        for name in expected:
            self._ended(name, why)


def _spawn(
    command: tuple[str, ...],
    env: dict[str, str],
    cwd: Path,
    log: Path,
    first: Callable[[], None],
) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=first,  # noqa: PLW1509
        )


def _is_group(pid: int) -> bool:
    """Whether somebody is left in the process group that a process has led."""
    try:
        os.killpg(pid, 0)
    except OSError:
        return False
    return True


def _wait(process: _Process) -> int:
    """The exit code, negative for a signal."""
    if process.born is not None:
        return process.born.wait()
    return os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
