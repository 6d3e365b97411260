"""A process that has imported what members need, and forks them: they start in no time.

The agent starts it where the job asks for it (`preload`) and writes one JSON line per member to
its standard input; the answer on standard output is the member's process id. A member is not a
child of this process but, being orphaned at birth, of the agent.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import signal
import sys
from time import sleep
from typing import Any, Final

_PDEATHSIG: Final = 1
_SUBREAPER: Final = 36
_ADOPTION_S: Final = 5.0


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)


def main() -> None:
    """Import, then fork members until standard input ends."""
    agent = os.getppid()
    die_with_parent()
    sys.path[0] = os.getcwd()
    for module in sys.argv[1:]:
        importlib.import_module(module)
    while line := sys.stdin.readline():
        wish = json.loads(line)
        child = os.fork()
        if child == 0:
            member = os.fork()
            if member == 0:
                _live(wish, agent)
                return
            print(json.dumps({"name": wish["name"], "pid": member}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


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
    log = os.open(wish["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(wish["cwd"])
    sys.argv = wish["argv"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
