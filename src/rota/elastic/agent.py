"""The agent of one job: a process that starts its members and answers them and the scheduler.

    python -m rota.elastic.agent FOLDER             stays in the foreground
    python -m rota.elastic.agent --detach FOLDER    returns when the agent listens

It imports no torch, so it is small and starts fast.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rota.elastic.agent_loop import Agent
from rota.elastic.handshake import BACKLOG, new_token
from rota.elastic.member_forkserver import close_others
from rota.elastic.protocol import (
    AGENT_FILE,
    AGENT_LOG,
    JOB_FILE,
    LOCK_FILE,
    RESULT_FILE,
    Address,
    JobSpec,
)
from rota.errors import ConfigError, JobError, RotaError
from rota.files import read_file, replace_file, reserve_file

if TYPE_CHECKING:
    from collections.abc import Callable


def serve(folder: Path, listens: Callable[[], None]) -> None:
    """Run the agent of the job in `folder`; `listens` is called once it listens."""
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(f"{folder}: the job has an agent already.") from None
        facts = read_file(folder / JOB_FILE)
        if facts is None:
            raise ConfigError(f"{folder} holds no job: {JOB_FILE} is missing.")
        spec, token = JobSpec.decode(facts), new_token()
        try:
            listener = socket.create_server((spec.bind, spec.port), backlog=BACKLOG)
        except OSError as error:
            raise JobError(
                f"The agent cannot listen at {spec.bind}:{spec.port}: {error.strerror}; choose "
                "another job.port, or 0 for any."
            ) from None
        agent = Agent(folder, spec, listener, token)
        try:
            reserve_file(folder / RESULT_FILE)
            host, port = listener.getsockname()[:2]
            replace_file(folder / AGENT_FILE, asdict(Address(host, port, token, os.getpid())))
            listens()
            agent.run()
        finally:
            agent.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rota.elastic.agent", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detach", action="store_true", help="return when the agent listens")
    options = parser.parse_args()
    if options.detach:
        sys.exit(detach(options.folder) or 0)
    _handle_signals()
    try:
        serve(options.folder, lambda: None)
    except RotaError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {options.folder}: {error.strerror or error}")


def _handle_signals() -> None:
    signal.signal(signal.SIGTERM, _exit_on_signal)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _exit_on_signal(*_: object) -> NoReturn:
    raise SystemExit(143)


def detach(folder: Path) -> str:
    """Serve in a process of its own; returns once it listens, with its error or an empty text."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with os.fdopen(reading) as answer:
            error = answer.read()
        if error:
            os.waitpid(child, 0)
        return error
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    close_others(writing)
    _handle_signals()
    code = 0
    try:
        serve(folder, lambda: _release_launcher(folder, writing))
    except RotaError as error:
        code = _report(writing, f"error: {error}")
    except OSError as error:
        code = _report(writing, f"error: {folder}: {error.strerror or error}")
    except Exception:
        # A defect of ours: the log should show it.
        code = _report(writing, traceback.format_exc())
    finally:
        os._exit(code)


def _release_launcher(folder: Path, writing: int) -> None:
    """Let the launcher return, and write to the log from now on."""
    log = os.open(folder / AGENT_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.close(writing)


def _report(writing: int, error: str) -> int:
    """Tell the launcher of an error; returns the exit code."""
    try:
        os.write(writing, error.encode())
    except OSError:  # the launcher is gone already
        print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
