"""What users tell rota of their jobs: `sbatch --comment=rota:model=resnet50,checkpointable=yes`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import TYPE_CHECKING, Final

from rota.backends.slurm.hook import USER_HELD, USER_RELEASED

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX: Final = "rota:"
LONGEST: Final = 1024
_WORD: Final = re.compile(r"[A-Za-z0-9_.+/-]{1,64}")
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?")
_UNITS: Final = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MOST_S: Final = 10 * 365 * 86400.0
MOST_GRACE_S: Final = 600.0
"""From notice to stop: for so long jobs that were given its nodes wait for them."""


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What a comment says; what it does not say is as without one."""

    model: str = ""
    min_nodes: int = 0
    """0: as it was submitted."""
    max_nodes: int = 0
    checkpointable: bool = False
    """On SIGTERM, or on `signal`, it saves its progress, and goes on there in its next run."""
    signal: str = ""
    """Sent to its steps as notice; then it has the grace to save its progress."""
    grace_s: float = 30.0
    estimate_s: float = nan
    restart_s: float = nan
    heartbeat: bool = False
    """It writes its progress to a file in its working directory."""
    elastic: bool = False
    """It runs under `rota elastic-run`, and gains and loses nodes while it runs."""
    satellite_of: int = 0
    """The number of the elastic job whose further node this is; 0: it is a job of its own."""


def read_hints(comment: str) -> tuple[Hints, list[str]]:
    """The hints in a job's comment, and what in it was ignored and why."""
    first, _, rest = comment.partition(" ")
    if first in (USER_HELD, USER_RELEASED):  # words that the hook writes
        comment = rest
    at = comment.find(PREFIX)
    if at < 0:
        return Hints(), []
    text = comment[at + len(PREFIX) :]
    if len(text) > LONGEST:
        return Hints(), [f"its comment is longer than {LONGEST} characters"]
    found: dict[str, object] = {}
    ignored = []
    for part in text.split(None, 1)[0].split(",") if text.strip() else []:
        key, _, value = part.partition("=")
        read = _READERS.get(key)
        if read is None:
            ignored.append(f"{_shown(key)} is no hint; known: {', '.join(_READERS)}")
            continue
        try:
            found[_FIELDS.get(key, key)] = read(value)
        except ValueError as error:
            ignored.append(f"{key}={_shown(value)} is ignored: {error}")
    hints = Hints(**found)  # type: ignore[arg-type]
    if hints.max_nodes and hints.min_nodes > hints.max_nodes:
        ignored.append(f"min_nodes={hints.min_nodes} is above max_nodes={hints.max_nodes}")
        found.pop("min_nodes"), found.pop("max_nodes")
        hints = Hints(**found)  # type: ignore[arg-type]
    if hints.grace_s > MOST_GRACE_S:
        ignored.append(f"its grace is cut to {MOST_GRACE_S:g} s: others wait for its nodes")
        hints = replace(hints, grace_s=MOST_GRACE_S)
    return hints, ignored


def _shown(text: str) -> str:
    """A text of a user's, without what could mislead a terminal."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise ValueError("up to 64 letters, digits and . _ + / - are allowed")
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= 65536 and len(text) < 9):
        raise ValueError("it must be a whole number from 1 to 65536")
    return int(text)


def _number_of_job(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 11 and int(text)):
        raise ValueError("it must be the number of a job")
    return int(text)


def _yes(text: str) -> bool:
    if text.lower() not in ("", "1", "yes", "true", "0", "no", "false"):
        raise ValueError("say yes or no")
    return text.lower() in ("", "1", "yes", "true")


def _span(text: str) -> float:
    match = _SPAN.fullmatch(text)
    value = float(match[1]) * _UNITS[match[2]] if match else nan
    if not (isfinite(value) and 0 <= value <= MOST_S):
        raise ValueError("it must be a time such as 90s, 20m, 2h or 1d")
    return value


def _signal(text: str) -> str:
    if text.upper().removeprefix("SIG") not in ("USR1", "USR2", "HUP", "INT"):
        raise ValueError("USR1, USR2, HUP and INT are possible")
    return text.upper().removeprefix("SIG")


_READERS: Final[dict[str, Callable[[str], object]]] = {
    "model": _word, "min_nodes": _count, "max_nodes": _count, "checkpointable": _yes,
    "signal": _signal, "grace": _span, "estimate": _span, "restart": _span, "heartbeat": _yes,
    "elastic": _yes, "satellite-of": _number_of_job,
}  # fmt: skip
_FIELDS: Final = {
    "grace": "grace_s",
    "estimate": "estimate_s",
    "restart": "restart_s",
    "satellite-of": "satellite_of",
}
