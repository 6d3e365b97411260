"""The small languages inside Slurm's cells: resources, spans of time and timestamps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import inf
from typing import Final

from rota.traces.columns import LARGEST_COUNT

_SIZE_GB: Final = {"K": 1 / 2**20, "M": 1 / 2**10, "G": 1.0, "T": 2.0**10, "P": 2.0**20}
# gpu, gpu:2, gpu:a100:2, gres:gpu:2, gres/gpu:a100, each perhaps with a socket note like (S:0-1)
_OLD_GRES: Final = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>[^:=()]*[^-:=()\d][^:=()]*))?(?::(?P<n>-?\d+))?(?:\(.*)?"
)
NOTHING: Final = frozenset(
    {"", "Unknown", "None", "N/A", "INVALID", "NOT_SET", "UNLIMITED", "Partition_Limit"}
)
"""What Slurm writes where it has no time to tell."""
_SPAN: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")


@dataclass(frozen=True)
class Resources:
    """What one line of a Slurm log holds: the totals of the job."""

    gpus: int = 0
    gpu_type: str = ""
    """The one type named, or "" when none or several are."""
    cpus: float = 0.0
    memory_gb: float = 0.0
    nodes: int = 0
    """0: not given."""


_CPU_ID, _MEMORY_ID, _NODE_ID = 1, 2, 4
_FIRST_GRES_ID: Final = 1001
"""Slurm's database numbers resources; those that a site adds, GPUs first, begin here."""


@lru_cache(maxsize=65536)  # few distinct texts, and parsing them is the larger cost
def parse_tres(text: str) -> Resources:
    """Read AllocTRES, ReqTRES, AllocGRES or ReqGRES, or `1=4,2=16000,4=1,1001=2` of the database.

    `gres/gpu=4,gres/gpu:a100=4` are four GPUs, not eight: the typed entry repeats the plain one,
    and so does `1002=4` beside `1001=4`. Old spellings without a count, such as `gpu:a100`, mean
    one GPU. Raises ValueError when an amount is not a number or negative.
    """
    plain, typed, cpus, memory_gb, nodes = 0, dict[str, int](), 0.0, 0.0, 0
    for item in text.split(","):
        key, equals, value = item.strip().partition("=")
        if not equals:
            if old := _OLD_GRES.fullmatch(key):
                kind, count = old["type"], parse_count(old["n"] or "1")
                if kind:
                    typed[kind] = typed.get(kind, 0) + count
                else:
                    plain += count
        elif key == "gres/gpu":
            plain = parse_count(value)
        elif key.startswith("gres/gpu:"):
            typed[key.removeprefix("gres/gpu:")] = parse_count(value)
        elif key in ("cpu", f"{_CPU_ID}"):
            cpus = parse_amount(value)
        elif key in ("mem", f"{_MEMORY_ID}"):
            memory_gb = parse_memory_gb(value)
        elif key in ("node", f"{_NODE_ID}"):
            nodes = parse_count(value)
        elif key.isdecimal() and int(key) >= _FIRST_GRES_ID:
            plain = max(plain, parse_count(value))
    gpus = max(plain, sum(typed.values()))
    kind = next(iter(typed)) if len(typed) == 1 else ""
    return Resources(gpus, kind, cpus, memory_gb, nodes)


def parse_count(text: str) -> int:
    """Read a whole number, 0 or more. Raises ValueError."""
    if not 0 <= (count := int(text)) <= LARGEST_COUNT:
        raise ValueError(text)
    return count


def parse_amount(text: str) -> float:
    """Read a finite number, 0 or more. Raises ValueError."""
    if not 0 <= (amount := float(text)) < inf:
        raise ValueError(text)
    return amount


def parse_memory_gb(text: str) -> float:
    """Read `64G`, `512000M` or `0`; a bare number is in megabytes. Raises ValueError."""
    unit = text[-1:].upper()
    if unit in _SIZE_GB:
        return parse_amount(text[:-1]) * _SIZE_GB[unit]
    return parse_amount(text) * _SIZE_GB["M"]


def parse_span_s(text: str) -> float:
    """Read `[days-][hours:]minutes:seconds` or `days-hours`; NaN for UNLIMITED and the like.

    Raises ValueError for other words.
    """
    if text in NOTHING:
        return float("nan")
    if match := _SPAN.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds
    if match := re.fullmatch(r"(\d+)-(\d+)", text):
        return (int(match[1]) * 24 + int(match[2])) * 3600.0
    raise ValueError(text)


def parse_instant_s(text: str) -> float:
    """Read an ISO timestamp or epoch seconds; NaN for `Unknown` and `None`. Raises ValueError.

    A timestamp without a zone counts as UTC: differences then never depend on where the
    importer runs. Export with TZ=UTC, or an hour is lost or doubled when clocks change.
    """
    if text in NOTHING:
        return float("nan")
    if text.isdecimal():
        return float(text)
    instant = datetime.fromisoformat(text)
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
