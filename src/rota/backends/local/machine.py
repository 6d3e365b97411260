"""What this machine has: GPUs, or CPU slots that stand in for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rota.core.cluster import Cluster
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.backends.local.seating import Seat
    from rota.core.types import Ints


def machine(nodes: int = 1, gpus: int = 0) -> tuple[Cluster, bool]:
    """This machine as `nodes` virtual nodes with `gpus` each, and whether these are real GPUs.

    `gpus` 0 shares out what there is. Without GPUs a slot is what one worker may keep busy, one
    per CPU unless told otherwise; nothing but the scheduler then holds a worker to its slot.
    """
    real = count_gpus()
    if nodes < 1 or gpus < 0:
        raise ConfigError(f"nodes={nodes} and gpus={gpus}: give at least one node, 0 or more GPUs.")
    here = real or len(os.sched_getaffinity(0))
    each = gpus or here // nodes
    if each < 1:
        raise ConfigError(f"{here} GPUs or CPUs are too few for {nodes} nodes; say --gpus.")
    if real and nodes * each > real:
        raise ConfigError(
            f"{nodes} nodes with {each} GPUs each are more than the {real} GPUs of this machine."
        )
    return Cluster.uniform(nodes, each, gpu_type="gpu" if real else "cpu"), bool(real)


def count_gpus() -> int:
    """NVIDIA GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([word for word in visible.split(",") if word.strip() not in ("", "-1")])
    return sum(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*"))


def device_names(cluster: Cluster, real: bool) -> list[list[str]]:
    """What CUDA_VISIBLE_DEVICES calls each GPU of each node; nothing where there are none."""
    if not real:
        return [[] for _ in range(len(cluster))]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(k) for k in range(cluster.total_gpus)]
    ends: Ints = np.cumsum(cluster.gpus)
    return [
        names[end - own : end]
        for end, own in zip(ends.tolist(), cluster.gpus.tolist(), strict=True)
    ]


def seat_env(cluster: Cluster, devices: list[list[str]], seat: Seat) -> dict[str, str]:
    """Environment variables that tell a worker which GPUs are its own."""
    names = devices[seat.node]
    return {
        "ROTA_NODE": cluster.names[seat.node],
        "ROTA_GPUS": ",".join(map(str, seat.gpus)),
        "CUDA_VISIBLE_DEVICES": ",".join(names[gpu] for gpu in seat.gpus) if names else "",
    }
