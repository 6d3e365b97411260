"""A learned system: DL2's one-pass lens and network under a name and with settings of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rota.systems.dl2.dl2_settings import OnePassNetworkConfig
from rota.systems.registry import SYSTEMS


@dataclass(frozen=True, kw_only=True)
class SmallNetworkConfig(OnePassNetworkConfig):
    """A network a quarter as wide."""

    width: int = 16


SYSTEM = replace(
    SYSTEMS["dl2-onepass"],
    name="example-onepass",
    summary="DL2's one-pass system with a small network.",
    network_settings=SmallNetworkConfig,
)
