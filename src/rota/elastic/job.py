"""The scheduler's side of a running job: launch, find, resize, observe, stop. Needs no torch."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from rota.elastic.handshake import open_connection
from rota.elastic.protocol import (
    AGENT_FILE,
    ENDED,
    JOB_FILE,
    LOCK_FILE,
    MOST_LINE,
    PROTOCOL,
    RESULT_FILE,
    Address,
    Member,
    Result,
    Status,
    decode_line,
    encode_line,
)
from rota.errors import ConfigError, DamagedError, JobError
from rota.files import decode_as, read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.elastic.agent_forkserver import AgentForkServer
    from rota.elastic.protocol import JobSpec

_ANSWER_S: Final = 10.0
LAUNCH_S: Final = 60.0
"""Seconds in which a new agent must answer."""
AGENT_KILLED: Final = "The job's agent was killed, or could not write its result."
_LOOK_S: Final = 0.02


@dataclass(frozen=True)
class ElasticJob:
    """A job with an agent; every call opens and closes its own connection."""

    folder: Path

    @classmethod
    def launch(
        cls, folder: Path | str, spec: JobSpec, fork_server: AgentForkServer | None = None
    ) -> ElasticJob:
        """Start an agent that outlives the caller, and return when it answers.

        If `fork_server` has the job's Python and modules, the agent is forked from it, which takes
        milliseconds.
        """
        folder = Path(folder).absolute()
        if (folder / JOB_FILE).exists():
            raise ConfigError(f"{folder} already holds a job; give every job its own folder.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / JOB_FILE, asdict(spec))
            if fork_server is not None and fork_server.fits(spec):
                error = fork_server.launch(folder)
            else:
                error = _spawn(folder)
        except OSError as problem:
            raise JobError(f"{folder}: the job cannot be launched: {problem.strerror}.") from None
        except subprocess.TimeoutExpired:
            raise JobError(f"{folder}: the agent did not start within {LAUNCH_S:g} s.") from None
        if error is not None:
            (folder / JOB_FILE).unlink(missing_ok=True)  # so that it can be tried again
            said = (error.strip().splitlines() or ["it printed nothing."])[-1]
            why = f"the agent ({sys.executable} -m rota.elastic.agent) did not start: {said}"
            if said.startswith("error: "):  # it has started, and found the reason itself
                why = f"the job cannot be launched: {said.removeprefix('error: ')}"
            raise JobError(f"{folder}: {why}")
        return cls(folder)

    @classmethod
    def find(cls, folder: Path | str) -> ElasticJob:
        """A job that was launched before, whether it is over or not."""
        folder = Path(folder).absolute()
        if not (folder / JOB_FILE).exists():
            raise ConfigError(f"{folder} holds no job: {JOB_FILE} is missing.")
        return cls(folder)

    @property
    def result(self) -> Result | None:
        """How the job ended; None while it runs."""
        try:
            if found := self._result():
                return found
            if _locked(self.folder / LOCK_FILE):
                return None
            # The agent may have written its result since the first look.
            return self._result() or Result(state="failed", step=0, samples=0, error=AGENT_KILLED)
        except DamagedError as error:
            if _locked(self.folder / LOCK_FILE):
                return None
            return Result(state="failed", step=0, samples=0, error=str(error))

    def _result(self) -> Result | None:
        path = self.folder / RESULT_FILE
        return None if (facts := read_file(path)) is None else decode_as(Result, facts, path)

    def observe(self) -> Status:
        """The present status of the job; after its end, how it ended."""
        result = self.result
        if result is None:
            try:
                return Status.decode(self._ask({"op": "observe"})["status"])
            except JobError:
                if (result := self.result) is None:
                    raise
        return Status(
            state=result.state, step=result.step, samples=result.samples, error=result.error
        )

    def resize(self, members: Iterable[Member | str]) -> int:
        """Ask for exactly these members; returns the number of the request at once."""
        wanted = [Member(item) if isinstance(item, str) else item for item in members]
        answer = self._ask({"op": "resize", "members": [asdict(member) for member in wanted]})
        return int(answer["target"])

    def join(self, member: Member) -> int:
        """Ask for one member more; returns the number of the request at once."""
        return int(self._ask({"op": "join", "member": asdict(member)})["target"])

    def leave(self, name: str) -> int:
        """Ask for all members but one; returns the number of the request at once."""
        return int(self._ask({"op": "leave", "name": name})["target"])

    def settle(self, timeout_s: float = 120.0) -> Status:
        """Wait until the last request is done; members that could not join are in `refused`."""
        until_s = monotonic() + timeout_s
        while True:
            status = self.observe()
            if status.reached == status.target or status.state in ENDED:
                return status
            if monotonic() > until_s:
                raise JobError(
                    f"{self.folder}: request {status.target} was not done within {timeout_s:g} s; "
                    f"active {', '.join(status.active)}, waiting {', '.join(status.waiting)}."
                )
            sleep(_LOOK_S)

    def stop(self, grace_s: float = 30.0) -> None:
        """End the job at a step; members that have not ended after `grace_s` are killed."""
        self._ask({"op": "stop", "grace_s": grace_s})

    def wait(self, timeout_s: float) -> Result:
        """Wait for the end of the job."""
        until_s = monotonic() + timeout_s
        while (result := self.result) is None:
            if monotonic() > until_s:
                raise JobError(f"{self.folder}: the job was not over after {timeout_s:g} s.")
            sleep(_LOOK_S)
        return result

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        path = self.folder / AGENT_FILE
        if (facts := read_file(path)) is None:
            raise JobError(f"{self.folder}: no agent listens here ({AGENT_FILE} is missing).")
        address = decode_as(Address, facts, path)
        hello = {"op": "hello", "protocol": PROTOCOL}
        try:
            with open_connection((address.host, address.port), address.token, _ANSWER_S) as link:
                link.settimeout(_ANSWER_S)
                link.sendall(encode_line(hello) + encode_line(request))
                with link.makefile("rb") as lines:
                    for _ in range(2):
                        line = lines.readline(MOST_LINE)
                        answer = decode_line(line) if line else {"error": "the agent hung up"}
                        if not answer.get("ok"):
                            break
        except OSError as error:
            why = f"the agent at {address.host}:{address.port} does not answer: {error}"
            if result := self.result:
                why = f"the job is over ({result.state})"
            raise JobError(f"{self.folder}: {why}.") from None
        if not answer.get("ok"):
            raise JobError(f"{self.folder}: {answer.get('error', 'the agent gave no reason')}")
        return answer


def _spawn(folder: Path) -> str | None:
    """Start an agent as a program of its own; its error, or None if it has started."""
    agent = subprocess.run(
        [sys.executable, "-m", "rota.elastic.agent", "--detach", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LAUNCH_S,
        check=False,
    )
    return agent.stderr if agent.returncode else None


def _locked(path: Path) -> bool:
    """Whether a running agent holds the lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
