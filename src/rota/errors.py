"""Every error that rota raises on purpose.

RotaError
├── InputError            what the user gave us is wrong (exit code 2)
│   ├── TraceError        a job log: names file, line and field
│   ├── ConfigError       a setting or a configuration file
│   ├── CheckpointError   a file of trained weights that will not do
│   ├── GrowthError       a network that cannot grow as it is asked to
│   └── UnknownNameError  a name that no registry holds: did you mean …?
├── DecisionError         a decision that the cluster cannot carry out
│   └── OverfillError     more asked of a node than it has
├── PolicyError           a policy raised, looped or starved the cluster
├── TrainingError         training cannot go on
├── BackendError          a cluster cannot be asked, or answers nonsense
├── JobError              a running job cannot be reached, or has failed
│   └── DamagedError      a file that a job's keeper wrote is not what it wrote
└── JournalError          the journal cannot be written or read
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class RotaError(Exception):
    """Base of all errors that say what was wrong, which value it was and what to do next."""

    exit_code = 1


class InputError(RotaError):
    """What the user gave us is wrong."""

    exit_code = 2


class TraceError(InputError):
    """A job log cannot be read.

    The message begins with as much of `file:line: field` as is known.
    """

    def __init__(
        self, message: str, *, file: str = "", line: int | None = None, field: str = ""
    ) -> None:
        where = file if line is None else f"{file}:{line}"
        parts = [part for part in (where, f"field {field!r}" if field else "") if part]
        super().__init__(": ".join([*parts, message]))
        self.file, self.line, self.field = file, line, field


class ConfigError(InputError):
    """A setting is unknown, missing or out of range."""


class CheckpointError(InputError):
    """A file of trained weights is broken, of another kind, or not to be trusted."""


class GrowthError(InputError):
    """A network cannot grow so; the message names the layer and says why."""


class UnknownNameError(InputError):
    """A registry was asked for a name it does not hold."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = get_close_matches(name, names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."
        super().__init__(f"No {kind} is called {name!r}. {hint}")


class DecisionError(RotaError):
    """A decision asks for something that the cluster cannot do."""


class OverfillError(DecisionError):
    """A decision uses more of a node than the node has."""


class PolicyError(RotaError):
    """A policy raised, did not return, or starves the cluster."""


class TrainingError(RotaError):
    """Training cannot go on, and going on regardless would give a wrong result."""


class BackendError(RotaError):
    """A cluster cannot be asked how it is, or what it answers makes no sense."""


class JobError(RotaError):
    """A running job cannot be launched, reached or changed, or has failed."""


class DamagedError(JobError, ValueError):
    """A file that rota wrote is empty, cut off, or something else altogether."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}; restore or remove it.")


class JournalError(RotaError):
    """The journal cannot be written or read."""
