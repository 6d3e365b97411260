"""The last round of a live loop, in a file: what one needs to simulate on from there.

It is not part of the journal, which keeps what happened: this is overwritten again and again.
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.cluster import Cluster
from rota.core.decision import Decision
from rota.core.jobs import JobTable
from rota.core.layout import JOB, NODE, SHARE
from rota.core.snapshot import Snapshot
from rota.core.speed import Curves
from rota.errors import RotaError
from rota.files import BAD_ARRAYS, replace_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rota.core.plan import Plan
    from rota.core.types import Records
    from rota.run.loop import Round

LAST_ROUND: Final = "round.npz"
FORMAT: Final = 1
LEAST_PART: Final = 20.0
"""Times as long as a write has taken until the next one: writing takes 5 % of the time at most."""
MOST_CURVES: Final = 1 << 20
"""Numbers in a table of speeds that is kept; larger ones are left out."""
_COLUMNS: Final = ("gpus", "type", "rack", "cpus", "memory_gb", "link_gbps", "price_per_gpu_h")


@dataclass(frozen=True)
class Deciders:
    """Which policies decide in a live loop, by the names that make them again."""

    policy: str
    fallback: str = ""
    """"" if there is none."""
    history: str | None = None
    """Past jobs for policies that learn from them."""
    watches: bool = False
    """The backend does nothing: what they decide is only recorded."""


@dataclass(frozen=True)
class LastRound:
    """A round as it is kept."""

    number: int
    at: float
    """Unix time."""
    by: str
    """The policy that decided; "" if none did."""
    deciders: Deciders
    snapshot: Snapshot
    plan: Plan


class LastRoundFile:
    """Written after every round, unless that took too long the last time."""

    def __init__(self, root: Path, deciders: Deciders) -> None:
        self._path, self._deciders, self._due_s = root / LAST_ROUND, deciders, 0.0

    def write(self, turn: Round) -> None:
        """Replace what is kept by this round; OSError if that is not possible."""
        began_s = monotonic()
        if began_s < self._due_s:
            return
        facts = {
            "format": FORMAT, "number": turn.number, "at": time(), "by": turn.by,
            "deciders": asdict(self._deciders),
        }  # fmt: skip
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **_arrays(turn.snapshot, turn.plan.decision, facts))
        replace_bytes(self._path, [packed.getbuffer()])
        self._due_s = began_s + (1.0 + LEAST_PART) * (monotonic() - began_s)


def read_last_round(root: Path) -> LastRound | None:
    """The last round that was kept; None if there is none, or none that can be read."""
    try:
        with (
            (root / LAST_ROUND).open("rb") as file,
            np.load(file, allow_pickle=False) as kept,
        ):
            return _decoded({name: kept[name] for name in kept})
    except (*BAD_ARRAYS, RotaError):
        return None


def _arrays(snapshot: Snapshot, decision: Decision, facts: Mapping[str, Any]) -> dict[str, Records]:
    cluster, curves = snapshot.cluster, snapshot.curves
    told = {
        **facts, "time_s": snapshot.time_s, "names": cluster.names, "gpu_types": cluster.gpu_types,
        "wake_s": decision.wake_s if np.isfinite(decision.wake_s) else None,
        "reasons": {str(job): str(why) for job, why in decision.reasons.items()},
    }  # fmt: skip
    arrays = {f"cluster.{name}": getattr(cluster, name) for name in _COLUMNS}
    arrays |= {"jobs": snapshot.jobs.rows, "nodes": snapshot.nodes, "shares": snapshot.shares,
               "at": decision.at, "length": decision.length, "given": decision.shares}  # fmt: skip
    if curves is not None and curves.speed.size <= MOST_CURVES:
        told["curves"] = [curves.names, curves.gpu_types, curves.by_nodes]
        arrays |= {"speed": curves.speed, "measured": curves.measured}
    return {**arrays, "facts": np.frombuffer(json.dumps(told).encode(), np.uint8)}


def _decoded(kept: Mapping[str, Records]) -> LastRound:
    facts = json.loads(kept["facts"].tobytes())
    if facts["format"] != FORMAT:
        raise ValueError(f"format {facts['format']}")
    cluster = Cluster(
        names=tuple(facts["names"]), gpu_types=tuple(facts["gpu_types"]),
        **{name: kept[f"cluster.{name}"] for name in _COLUMNS},
    )  # fmt: skip
    curves = None
    if "curves" in facts:
        names, types, by_nodes = facts["curves"]
        curves = Curves(tuple(names), tuple(types), kept["speed"], by_nodes, kept["measured"])
    rows = kept["jobs"].astype(JOB, casting="equiv")
    snapshot = Snapshot(
        float(facts["time_s"]), cluster, JobTable(rows),
        kept["nodes"].astype(NODE, casting="equiv"), kept["shares"].astype(SHARE, casting="equiv"),
        curves,
    )  # fmt: skip
    decision = Decision(
        rows["uid"].astype(np.int64), kept["at"], kept["length"],
        kept["given"].astype(SHARE, casting="equiv"),
        reasons={int(job): why for job, why in facts["reasons"].items()},
        wake_s=np.inf if facts["wake_s"] is None else float(facts["wake_s"]),
    )  # fmt: skip
    decision.check(snapshot)
    return LastRound(
        int(facts["number"]), float(facts["at"]), str(facts["by"]), Deciders(**facts["deciders"]),
        snapshot, decision.diff(snapshot),
    )  # fmt: skip
