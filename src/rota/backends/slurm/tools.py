"""Slurm's own commands, run without a shell and never for longer than they may take."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rota.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATIENCE_S: Final = 30.0
"""Seconds for one command; Slurm's own limit, MessageTimeout, is 10 by default."""
MOST_SAID: Final = 300
_CALL: Final = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")
_UNANSWERED: Final = re.compile(
    "unable to contact|timed out|zero bytes|(receive|send|connection|shutdown) failure|standby",
    re.IGNORECASE,
)
"""What commands say when the controller went away before, while or after it did what was asked."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:=+/\[\] -]*")


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int | None
    """None: it did not come to an end in time, so that nobody knows what it did."""
    out: str
    err: str

    @property
    def unanswered(self) -> bool:
        """Whether nobody knows what it did."""
        return self.code is None or (self.code != 0 and bool(_UNANSWERED.search(self.err)))

    @property
    def line(self) -> str:
        """What went wrong, in one line."""
        text = " ".join((self.err or self.out).split())
        return text if len(text) <= MOST_SAID else f"{text[:MOST_SAID]}…"


class SlurmTools:
    """Runs squeue, sinfo, scontrol and scancel."""

    def __init__(
        self, env: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        """`env` is added to the environment, SLURM_CONF for example."""
        self._env = {**os.environ, **(env or {}), "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
        self._patience_s = patience_s

    def run(self, *words: str) -> Said:
        """Run one command; nothing in `words` is ever seen by a shell."""
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self._env, start_new_session=True, text=True, errors="replace",
            )  # fmt: skip
        except FileNotFoundError:
            raise BackendError(
                f"There is no command {words[0]!r} here; install Slurm's client commands, or run "
                "rota on a host that has them."
            ) from None
        except OSError as error:
            raise BackendError(f"{words[0]} cannot be started: {error.strerror}.") from error
        with process:
            try:
                out, err = process.communicate(timeout=self._patience_s)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    return Said(None, "", f"{words[0]} did not answer in {self._patience_s:g} s")
                raise
        return Said(process.returncode, out, err)

    def ask(self, *words: str) -> str:
        """What a command prints, or BackendError."""
        said = self.run(*words)
        if said.code != 0:
            raise BackendError(f"{' '.join(words[:2])}: {said.line or f'exit code {said.code}'}")
        return said.out

    def update(self, call: str, fields: Mapping[str, str]) -> Said:
        """Change a job."""
        words = [f"{key}={_plain(key, value)}" for key, value in fields.items()]
        return self.run("scontrol", "update", f"jobid={_call(call)}", *words)

    def control(self, verb: Sequence[str], call: str) -> Said:
        """`scontrol VERB… JOB`."""
        return self.run("scontrol", *verb, _call(call))

    def cancel(self, call: str, *options: str) -> Said:
        """`scancel OPTIONS… JOB`."""
        return self.run("scancel", *options, _call(call))


def _call(call: str) -> str:
    if not _CALL.fullmatch(call):
        raise BackendError(f"{call!r} is no number of a job.")
    return call


def _plain(key: str, value: str) -> str:
    """What rota writes into jobs has no character that could mean anything else anywhere."""
    if not _PLAIN.fullmatch(value):
        raise BackendError(f"{key}={value!r} cannot be handed to scontrol.")
    return value
