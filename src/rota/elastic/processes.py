"""The member processes of the agent's host: started, watched, and ended by their process ids."""

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

from rota.elastic.failures import Failures
from rota.elastic.member_forkserver import ForkedServer, adopt_orphans, die_with_parent
from rota.elastic.protocol import ENV_KIND, ENV_MEMBER, LOGS
from rota.elastic.run_processes import (
    END_S,
    ENV_RUN,
    MEMBERS,
    Process,
    member_of,
    orphans,
    register_member,
    unregister_member,
    with_descendants,
)
from rota.elastic.run_processes import kill_all as kill_processes
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rota.elastic.protocol import JobSpec, Member

TERM_S: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_FORK_SERVER: Final = "forkserver"


@dataclass
class _Running:
    pid: int
    watch: int
    """A file descriptor (pidfd) that becomes readable when the process ends."""
    popen: subprocess.Popen[bytes] | None
    """None if it was started by the fork server."""
    deadline_s: float = float("inf")
    """When it gets the next signal."""
    warned: bool = False
    """It has got SIGTERM; the next signal is SIGKILL."""

    def signal(self, number: int) -> None:
        """Signal its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self) -> int:
        """Reap it; the exit code, negative for a signal."""
        if self.popen is not None:
            return self.popen.wait()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Processes:
    """Every process that the agent has started and not yet seen end.

    `began` is called with the name and process id of a member that has started, `ended` with its
    name and the reason when it has ended; the reason is empty for exit code 0.
    """

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
        self._cwd, self.failures = folder / spec.cwd, Failures(folder, spec)
        self._running: dict[str, _Running] = {}
        self._expected: set[str] = set()  # asked of the fork server, and not yet forked
        self._gone: dict[str, int] = {}  # members that have ended, but not all they had started
        self._fork_server: subprocess.Popen[bytes] | ForkedServer | None = None
        for name in (LOGS, MEMBERS):
            (folder / name).mkdir(exist_ok=True)
        adopt_orphans()
        if spec.preload:
            self._open_fork_server()

    def start(self, member: Member) -> None:
        """Start a member; `began` or `ended` will be called."""
        env = {
            **self._job_env(),
            **member.env,
            **self._env,
            ENV_MEMBER: member.name,
            ENV_KIND: member.kind,
            ENV_RUN: str(self.folder.resolve()),
        }
        log = self.folder / LOGS / f"{member.name}.log"
        try:
            if self._fork_server is None:
                first = self._before_exec(member.name)
                popen = _spawn(self.spec.command, env, self._cwd, log, first)
                self._watch(member.name, popen.pid, popen)
                return
            request = {
                "name": member.name,
                "argv": self.spec.command[1:],
                "env": env,
                "cwd": str(self._cwd),
                "log": str(log),
                "folder": str(self.folder),
            }
            assert self._fork_server.stdin is not None
            self._fork_server.stdin.write(json.dumps(request).encode() + b"\n")
            self._expected.add(member.name)
        except OSError as error:
            self._ended(member.name, self.failures.of_start(error))

    def runs(self, name: str) -> bool:
        """Whether a member is a process of this host."""
        return name in self._running

    def pids(self) -> dict[str, int]:
        """Process ids by name; a member is listed until all that it has started has ended."""
        return self._gone | {name: process.pid for name, process in self._running.items()}

    def set_deadline(self, name: str, after_s: float) -> bool:
        """Kill a process: now if `after_s` is 0, else if it still runs then; False if unknown."""
        process = self._running.get(name)
        if process is None:
            return False
        if after_s <= 0:
            process.signal(signal.SIGKILL)
        else:
            process.deadline_s = min(process.deadline_s, monotonic() + after_s)
        return True

    def end(self, name: str, grace_s: float) -> None:
        """Send SIGTERM to a process, and kill it if it still runs after `grace_s`.

        SIGTERM goes to the process alone and not to its group: it should not lose its data
        loaders before it knows.
        """
        if process := self._running.get(name):
            os.kill(process.pid, signal.SIGTERM)
            process.deadline_s, process.warned = monotonic() + grace_s, True

    def signal_overdue(self) -> list[str]:
        """Signal processes past their deadline, SIGTERM first and SIGKILL later; their names."""
        now_s = monotonic()
        over = [name for name, process in self._running.items() if process.deadline_s <= now_s]
        for name in over:
            process = self._running[name]
            process.signal(signal.SIGKILL if process.warned else signal.SIGTERM)
            process.deadline_s, process.warned = now_s + TERM_S, True
        return over

    def kill_all(self) -> None:
        """Kill all members, the fork server and everything that they have started."""
        for process in self._running.values():
            process.signal(signal.SIGKILL)
            process.wait()
        names = [*self._running, *self._gone]
        self._running.clear()
        if self._fork_server is not None:
            self._fork_server.kill()
            self._fork_server.wait()
            self._fork_server = None
        until_s = monotonic() + END_S
        while (left := orphans(())) and monotonic() < until_s:
            kill_processes(with_descendants(left))
            self._expected.clear()
            self.reap()
        if not left:
            for name in names:
                unregister_member(self.folder, name)

    def reap(self) -> None:
        """Reap orphans that this process has adopted, and kill those of members that are gone."""
        if self._expected:
            return  # an orphan may be a member of which the fork server has not told yet
        self._reap_orphans()
        if self._gone:
            self._kill_orphans()

    def _reap_orphans(self) -> None:
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid in self._watched():
                    return  # its own watch will tell
                os.waitpid(found.si_pid, 0)

    def _watch(self, name: str, pid: int, popen: subprocess.Popen[bytes] | None) -> None:
        """Watch a process that has started."""
        try:
            watch = os.pidfd_open(pid)
        except ProcessLookupError:
            self._ended(name, "it ended at once")
            return
        self._running[name] = _Running(pid, watch, popen)
        self._selector.register(watch, selectors.EVENT_READ, lambda: self._note_end(name))
        self._began(name, pid)

    def _note_end(self, name: str) -> None:
        """Reap a member that has ended, end what it has started, and report the reason."""
        process = self._running.pop(name)
        self._selector.unregister(process.watch)
        os.close(process.watch)
        # What it started, such as a data loader, ends with it; before the wait, while the number
        # of its process group cannot have been reused.
        process.signal(signal.SIGKILL)
        why = self.failures.of_exit(process.wait(), name)
        self._gone[name] = process.pid
        self._kill_orphans()
        self._ended(name, why)

    def _kill_orphans(self) -> None:
        """Kill what members that are gone have started; this process is its parent by now."""
        left = orphans(self._watched())
        found = {pid: member_of(pid, self.folder) for pid in left if Process.of(pid)}
        kill_processes(with_descendants(pid for pid, name in found.items() if name in self._gone))
        for name, pid in list(self._gone.items()):
            if name not in found.values() and not _is_group(pid):
                del self._gone[name]
                unregister_member(self.folder, name)

    def _job_env(self) -> dict[str, str]:
        """The environment of all members; a number of threads that was asked for wins."""
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **self.spec.env}
        return env | ({"OMP_NUM_THREADS": str(self.spec.threads)} if self.spec.threads else {})

    def _watched(self) -> set[int]:
        """Processes whose end is reported by a watch of their own."""
        pids = {process.pid for process in self._running.values()}
        return pids if self._fork_server is None else {*pids, self._fork_server.pid}

    def _before_exec(self, name: str) -> Callable[[], None]:
        """What a new process does before it becomes the member's program."""

        def do() -> None:
            # The agent has one thread, so this is safe; no member outlives its agent.
            die_with_parent()
            register_member(self.folder, name)

        return do

    # The fork server.

    def _open_fork_server(self) -> None:
        try:
            self._fork_server = self._start_fork_server()
        except OSError as error:
            why = self.failures.of_start(error)
            why = f"the job's {why.removeprefix('its ')}" if why.startswith("its ") else why
            raise JobError(f"{why}.") from None
        assert self._fork_server.stdout is not None
        self._selector.register(self._fork_server.stdout, selectors.EVENT_READ, self._forked)

    def _start_fork_server(self) -> subprocess.Popen[bytes] | ForkedServer:
        env = {**self._job_env(), ENV_RUN: str(self.folder.resolve())}
        with (self.folder / LOGS / f"{_FORK_SERVER}.log").open("ab") as log:
            program = shutil.which(self.spec.command[0], path=env.get("PATH"))
            if program == sys.executable and sys.modules.keys() >= set(self.spec.preload):
                os.close(os.open(self._cwd, os.O_PATH | os.O_DIRECTORY))
                return ForkedServer(log.fileno(), env)
            module = "rota.elastic.member_forkserver"
            return subprocess.Popen(
                [self.spec.command[0], "-u", "-m", module, *self.spec.preload],
                cwd=self._cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
            )

    def _forked(self) -> None:
        """Read from the fork server: a member was forked, or the fork server has ended."""
        server = self._fork_server
        assert server is not None
        assert server.stdout is not None
        line = server.stdout.readline()
        if line:
            answer = json.loads(line)
            self._expected.discard(answer["name"])
            self._watch(answer["name"], answer["pid"], None)
            return
        self._selector.unregister(server.stdout)
        why = self.failures.of_exit(server.wait(), _FORK_SERVER) or "it ended"
        modules = ", ".join(self.spec.preload)
        why = why.replace("it ", f"the process that imports {modules} ", 1)
        self._fork_server = None
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
    """Whether a process is left in the process group that `pid` has led."""
    try:
        os.killpg(pid, 0)
    except OSError:
        return False
    return True
