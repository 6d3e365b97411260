"""A process that has imported what members need, and forks them: they start in no time.

The agent starts it where the job asks for it (`preload`) and writes one JSON line per member to
its standard input; the answer on standard output is the member's process id. A member is not a
child of this process but, being orphaned at birth, of the agent.
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

from rota.elastic.remains import enlist

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PDEATHSIG: Final = 1
_SUBREAPER: Final = 36
_ADOPTION_S: Final = 5.0


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)


def close_others(*kept: int) -> None:
    """Close all files of whoever forked this process, but these, standard output and error."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in kept:
            with suppress(OSError):
                os.close(number)


def preload(modules: Sequence[str]) -> None:
    """Import what forked processes shall have, seen from the working directory."""
    sys.path[0] = os.getcwd()
    for module in modules:
        importlib.import_module(module)


def main() -> None:
    """Import, then fork members until standard input ends."""
    agent = os.getppid()
    die_with_parent()
    preload(sys.argv[1:])
    bear(agent, sys.stdin, sys.stdout)


def bear(agent: int, wishes: TextIO, births: TextIO) -> None:
    """Fork the members that are wished for, as children of the agent."""
    while line := wishes.readline():
        wish = json.loads(line)
        heard, said = os.pipe()
        child = os.fork()
        if child == 0:
            member = os.fork()
            if member == 0:
                os.close(heard)
                os.close(said)
                _live(wish, agent)
                os._exit(1)
            os.write(said, str(member).encode())
            os._exit(0)
        os.close(said)
        os.waitpid(child, 0)
        # Only now is the member the agent's, which may end it, and wait for it, at once.
        birth = {"name": wish["name"], "pid": int(os.read(heard, 32))}
        os.close(heard)
        print(json.dumps(birth), file=births, flush=True)


class Forked:
    """A nursery that is forked from an agent which has the modules already; used like a Popen."""

    def __init__(self, log: int, env: Mapping[str, str]) -> None:
        agent, (asks, answers) = os.getpid(), (os.pipe(), os.pipe())
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _part_with_agent(asks[0], answers[1], log)
                os.environ.update(env)
                with open(0) as wishes, open(1, "w") as births:
                    bear(agent, wishes, births)
            except BaseException:
                traceback.print_exc()
            finally:  # never go on as what it was forked from
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


def _part_with_agent(asks: int, answers: int, log: int) -> None:
    """Keep nothing that the agent has open, nor how it takes signals."""
    os.setsid()
    for number, target in ((asks, 0), (answers, 1), (log, 2)):
        os.dup2(number, target)
    close_others()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # SIGPIPE stays ignored, as Python has it
    die_with_parent()


def _live(wish: dict[str, Any], agent: int) -> None:
    """Be a member, from here on."""
    os.setsid()
    waited_s = 0.0
    while os.getppid() != agent and waited_s < _ADOPTION_S:
        sleep(0.001)
        waited_s += 0.001
    die_with_parent()
    if os.getppid() != agent:
        return
    os.environ.clear()
    os.environ.update(wish["env"])
    enlist(Path(wish["folder"]), wish["name"], forked=True)
    if torch := sys.modules.get("torch"):  # it has read OMP_NUM_THREADS when it was imported
        torch.set_num_threads(int(wish["env"]["OMP_NUM_THREADS"]))
    log = os.open(wish["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(wish["cwd"])
    sys.argv = wish["argv"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    os._exit(_run(sys.argv[0]))


def _run(script: str) -> int:
    """Run a script to its end, with all that Python does then but taking itself apart.

    That would touch every object which the nursery has made, and take seconds.
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
