"""Which nodes share a switch, as `scontrol show topology` says it."""

from __future__ import annotations

import re
from typing import Final

from rota.backends.slurm.node_lists import expanded

_LEAF: Final = re.compile(r"^(?:SwitchName=\S+ Level=0|BlockName=\S+) .*?Nodes=(\S+)")


def racks(said: str) -> dict[str, int]:
    """The rack of every node that is below a lowest switch, or in a block; none if none is told.

    Nodes that no switch names are in rack 0; switches are numbered from 1, in the order told.
    """
    found: dict[str, int] = {}
    for line in said.splitlines():
        if (leaf := _LEAF.match(line.strip())) is None or leaf[1] == "(null)":
            continue
        try:
            names = expanded(leaf[1])
        except ValueError:
            continue  # a rack that cannot be read is no reason not to schedule
        rack = max(found.values(), default=0) + 1
        found |= {name: rack for name in names if name not in found}
    return found
