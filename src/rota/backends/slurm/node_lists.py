"""Lists of nodes as Slurm writes them, and as users do."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

MOST_NODES: Final = 1 << 20
"""Names that one list of nodes may stand for."""
_NODES: Final = re.compile(r"(?:[^\[\],]|\[[0-9]+(?:-[0-9]*)?(?:,[0-9]+(?:-[0-9]*)?)*\])*")


def named(text: str) -> tuple[str, ...]:
    """The nodes that a job's user names; what cannot be read is a node that is not there.

    Users' words must not make the answer about all jobs unreadable.
    """
    try:
        return expanded(text)
    except ValueError:
        return (text,)


@lru_cache(maxsize=65536)
def expanded(text: str) -> tuple[str, ...]:
    """The nodes that a list such as `n[1-3,07],r[1-2]m[1-4]` names.

    Slurm also takes blanks for commas, and `n[1-]` for `n1`; what a user changes stays written so.
    """
    found: list[str] = []
    for part in filter(None, re.split(r"[,\s](?![^\[]*\])", text)):
        if not _NODES.fullmatch(part):
            raise ValueError(f"no list of nodes: {text!r}")
        names = [""]
        for before, ranges in re.findall(r"([^\[]*)(?:\[([^\]]*)\])?", part):
            most = (MOST_NODES - len(found)) // max(1, len(names))
            if (ends := _counted(ranges, most) if ranges else [""]) is None:
                raise ValueError(f"too many nodes in {text!r}")
            names = [f"{name}{before}{end}" for name in names for end in ends]
        found += names
    return tuple(found)


def _counted(ranges: str, most: int) -> list[str] | None:
    """The numbers that ranges such as `08-11,20` stand for; None if they are more than `most`."""
    found: list[str] = []
    for one in ranges.split(","):
        low, _, high = one.partition("-")
        last = int(high or low)
        if last - int(low) + len(found) > most:
            return None
        found += [f"{k:0{len(low)}d}" for k in range(int(low), last + 1)]
    return found


def natural(name: str) -> tuple[Any, ...]:
    """A key by which n2 comes before n10."""
    parts = re.split(r"(\d+)", name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
