"""A fork server for members: a process that has imported what they need, so that they start fast.

The agent starts it if the job asks for it (`preload`) and writes one JSON line per member to its
standard input; the answer on standard output is the member's process id. A member is forked twice,
so that it becomes a child of the agent and not of the fork server.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import IO, TYPE_CHECKING, Any, Final, TextIO

from rota.elastic.run_processes import register_member

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PDEATHSIG: Final = 1
_SUBREAPER: Final = 36
_ADOPTION_S: Final = 5.0
"""For the kernel to make the agent the parent of a new member."""


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends (a subreaper)."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)


def close_others(*kept: int) -> None:
    """Close all files inherited by fork, except `kept` and the standard streams."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in kept:
            with suppress(OSError):
                os.close(number)


def preload(modules: Sequence[str]) -> None:
    """Import modules for the processes to be forked, as seen from the working directory."""
    sys.path[0] = os.getcwd()
    for module in modules:
        importlib.import_module(module)


def main() -> None:
    """Import, then fork members until standard input ends."""
    agent = os.getppid()
    die_with_parent()
    preload(sys.argv[1:])
    serve_forks(agent, sys.stdin, sys.stdout)


def serve_forks(agent: int, requests: TextIO, answers: TextIO) -> None:
    """Fork one member per request, as a child of the agent."""
    while line := requests.readline():
        request = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            member = os.fork()
            if member == 0:
                os.close(reading)
                os.close(writing)
                _run_member(request, agent)
                os._exit(1)
            os.write(writing, str(member).encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        # Only now is the member a child of the agent, which may wait for it or end it at once.
        answer = {"name": request["name"], "pid": int(os.read(reading, 32))}
        os.close(reading)
        print(json.dumps(answer), file=answers, flush=True)


class ForkedServer:
    """A fork server that is itself forked from an agent which has the modules; used like a Popen.

    It takes no time to start: `rota.elastic.agent_forkserver` made agents that have the modules.
    """

    def __init__(self, log: int, env: Mapping[str, str]) -> None:
        agent, (asks, answers) = os.getpid(), (os.pipe(), os.pipe())
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _detach_from_agent(asks[0], answers[1], log)
                os.environ.update(env)
                with open(0) as requests, open(1, "w") as replies:
                    serve_forks(agent, requests, replies)
            except BaseException:
                traceback.print_exc()
            finally:  # never return into the code of the agent
                os._exit(1)
        os.close(asks[0])
        os.close(answers[1])
        self.stdin: IO[bytes] | None = os.fdopen(asks[1], "wb", buffering=0)
        self.stdout: IO[bytes] | None = os.fdopen(answers[0], "rb", buffering=0)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """The exit code, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _detach_from_agent(asks: int, answers: int, log: int) -> None:
    """Keep none of the agent's open files and signal handlers."""
    os.setsid()
    for number, target in ((asks, 0), (answers, 1), (log, 2)):
        os.dup2(number, target)
    close_others()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # SIGPIPE stays ignored, as Python has it
    die_with_parent()


def _run_member(request: dict[str, Any], agent: int) -> None:
    """Become the member of a request; does not return if the agent is its parent."""
    os.setsid()
    waited_s = 0.0
    while os.getppid() != agent and waited_s < _ADOPTION_S:
        sleep(0.001)
        waited_s += 0.001
    die_with_parent()
    if os.getppid() != agent:
        return
    os.environ.clear()
    os.environ.update(request["env"])
    register_member(Path(request["folder"]), request["name"], forked=True)
    threads = request["env"]["OMP_NUM_THREADS"]
    if (torch := sys.modules.get("torch")) and threads.isdecimal():  # it has read another number
        torch.set_num_threads(int(threads))
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    os._exit(_run_script(sys.argv[0]))


def _run_script(script: str) -> int:
    """Run a script to its end, then do what Python does at exit, except to free all objects.

    That would touch every object that the fork server has made, and take seconds.
    """
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


if __name__ == "__main__":
    main()
