"""Whether a law of contention is about these models and this cluster: kernels do not look again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.speed import LINKS, MACHINES, PAIRS, RANKS
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.core.cluster import Cluster
    from rota.core.speed import Contention

_READ: Final = {
    PAIRS: ("ratio",),
    RANKS: ("hurt", "harm"),
    LINKS: ("traffic_gbps", "talk"),
    MACHINES: ("hurt", "harm"),
}
"""By mode, the tables that are read by kind of traffic."""


def check_laws(laws: Contention, models: int, cluster: Cluster) -> None:
    """Refuse laws that were made for other models, or for a cluster of other nodes or racks."""
    check_models(laws, models)
    if laws.mode == LINKS:
        _check_links(laws, cluster)


def check_models(laws: Contention, models: int) -> None:
    """Refuse laws about another number of models, or without numbers for some kind of traffic."""
    if laws.mode not in _READ:
        raise ConfigError(f"Contention of mode {laws.mode} is unknown; see rota.core.speed.")
    if laws.kind.ndim != 3 or 0 in laws.kind.shape:
        raise ConfigError(
            f"Contention.kind has shape {laws.kind.shape}; it must be (models + 1, nodes, workers)."
        )
    if laws.kind.shape[0] != models + 1:
        raise ConfigError(
            f"The contention is about {laws.kind.shape[0] - 1} models, the speeds about {models}; "
            "make it for the same curves."
        )
    _check_kinds(laws)
    if not 0 <= laws.floor <= 1:
        raise ConfigError(f"Contention.floor={laws.floor} must lie in 0 … 1.")


def _check_kinds(laws: Contention) -> None:
    """Every kind of traffic that a job may be of has its numbers."""
    kinds = int(laws.kind.max()) + 1
    for name in _READ[laws.mode]:
        table = np.asarray(getattr(laws, name))
        wanted = (kinds,) * (2 if name == "ratio" else 1)
        if table.ndim != len(wanted) or any(
            has < need for has, need in zip(table.shape, wanted, strict=True)
        ):
            raise ConfigError(
                f"Contention.kind names {kinds} kinds of traffic, but Contention.{name} has shape "
                f"{table.shape}."
            )
        if not (table >= 0).all():
            raise ConfigError(f"Contention.{name} holds {table.min()}; it must be 0 or more.")


def _check_links(laws: Contention, cluster: Cluster) -> None:
    """Every node has a NIC and every rack an uplink."""
    racks = int(cluster.rack.max()) + 1
    for name, what, has, needed in (
        ("link_gbps", "nodes", laws.link_gbps.size, len(cluster)),
        ("uplink_gbps", "racks", laws.uplink_gbps.size, racks),
    ):
        if has != needed:
            raise ConfigError(
                f"The contention was made for a cluster of {has} {what} (Contention.{name}), but "
                f"this one ({cluster.describe()}) has {needed}; make it anew with link_contention."
            )
        if not (getattr(laws, name) >= 0).all():
            raise ConfigError(f"Contention.{name} must be 0 or more everywhere.")
    if not laws.spine_gbps >= 0:
        raise ConfigError(f"Contention.spine_gbps={laws.spine_gbps} must be 0 or more.")
