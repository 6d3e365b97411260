"""Nodes of Slurm, as rota sees them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rota.backends.driver import NodeSight

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from rota.backends.slurm.replies import SlurmNode

_USABLE: Final = ("idle", "mixed", "allocated", "completing")
_SHUT: Final = re.compile(
    "drain|fail|maint|reserved|not_responding|power|down|invalid|reboot|unknown|planned|future"
)


def node_sights(
    nodes: Iterable[SlurmNode], racks: Mapping[str, int], shut: Collection[str]
) -> list[NodeSight]:
    """These nodes; those that are `shut` are given no jobs."""
    return [_node(node, racks, node.name in shut) for node in nodes]


def _node(node: SlurmNode, racks: Mapping[str, int], is_shut: bool) -> NodeSight:
    closed = is_shut or any(_SHUT.search(flag) for flag in node.flags)
    return NodeSight(
        name=node.name, gpus=max(0, node.gpus - node.gpus_astray), gpu_type=node.gpu_type,
        cpus=float(node.cpus), memory_gb=node.memory_mb / 1024, rack=racks.get(node.name, 0),
        up=node.state in _USABLE and not closed,
    )  # fmt: skip
