"""One thing that a check of a cluster has found; `rota doctor` prints these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "bad"]
"""`warn`: rota works, but worse or with a risk; `bad`: it does not, or jobs may suffer."""


@dataclass(frozen=True)
class CheckResult:
    """What was found, and what to do about it."""

    level: Level
    check: str
    """What was looked at, in a word or two."""
    found: str
    fix: str = ""
    """What to do; "" if all is well."""
