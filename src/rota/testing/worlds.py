"""A world as plain numbers: small enough to print, exact enough to replay anywhere.

`WorldSpec.build()` makes the objects that a simulation takes. Random ones come from
`rota.testing.drawing`; a failing one is cut down by `rota.testing.shrinking` and kept as JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.cluster import Cluster
from rota.core.speed import MACHINES, PAIRS, RANKS, Curves, no_contention
from rota.perf.physics import Billing, Drift, Physics
from rota.perf.sharing import link_contention
from rota.scenarios.scenario import World
from rota.sim.faults import Faults
from rota.sim.setup import Conditions
from rota.sim.state import FAULT
from rota.traces.trace import Trace

if TYPE_CHECKING:
    from rota.core.speed import Contention
    from rota.core.types import Floats, Records

MODELS: Final = ("wide", "deep", "odd")
TEXTS: Final = {"gpu_type": "", "user": "", "model": ""}
LAWS: Final = {"pairs": PAIRS, "ranks": RANKS, "machines": MACHINES}


@dataclass(frozen=True)
class WorldSpec:
    """Everything that a simulated world consists of, as JSON has it."""

    seed: int = 0
    """Of what the simulation itself draws: estimate errors, drift, faults."""
    cluster: dict[str, Any] = field(default_factory=dict)
    """Columns of `Cluster`; infinite ones are left out."""
    jobs: list[dict[str, Any]] = field(default_factory=list)
    """Columns of `Trace` per job; those left out have their defaults."""
    when: dict[str, Any] = field(default_factory=dict)
    """`Conditions` without faults."""
    faults: dict[str, Any] = field(default_factory=dict)
    """`Faults`, or `nodes` and `jobs` of `ScriptedFaults`."""
    physics: dict[str, Any] = field(default_factory=dict)
    """`curves`, `contention`, `drift`, `billing`: settings of the small laws below; more as is."""

    def to_json(self) -> str:
        """One line of text; floats keep every digit."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorldSpec:
        """The world that `to_json` wrote down."""
        return cls(**json.loads(text))

    def build(self) -> World:
        """The cluster, the jobs and their conditions."""
        cluster = make_cluster(self.cluster)
        return World(
            cluster, make_trace(self.jobs),
            Conditions(**self.when, faults=make_faults(self.faults, len(self.jobs))),
            make_physics(self.physics, cluster),
        )  # fmt: skip

    @property
    def span_s(self) -> float:
        """About how long it takes to do all jobs one after the other."""
        submit_s = [job["submit_s"] for job in self.jobs]
        total_s = sum(job["duration_s"] for job in self.jobs)
        return max(submit_s) - min(submit_s) + total_s if submit_s else 0.0


@dataclass(frozen=True, kw_only=True)
class ScriptedFaults(Faults):
    """Faults at given times."""

    nodes: tuple[tuple[float, int, bool], ...] = ()
    """(time, node, whether it comes back)"""
    jobs: tuple[tuple[float, ...], ...] = ()
    """Run time to each failure of each job: as many as there are retries, plus one."""

    @property
    def never(self) -> bool:
        """Whether nothing ever goes wrong."""
        return not self.nodes and not self.jobs

    def of_nodes(
        self, nodes: int, begin_s: float, horizon_s: float, rng: np.random.Generator
    ) -> Records:
        """The chosen failures and repairs, in order of time."""
        del begin_s, horizon_s, rng
        return np.array(sorted(fault for fault in self.nodes if fault[1] < nodes), FAULT)

    def of_jobs(self, jobs: int, rng: np.random.Generator) -> Floats:
        """The chosen run times to each failure (J, R)."""
        del rng
        return np.array(self.jobs[:jobs], np.float64) if self.jobs else np.zeros((jobs, 0))


def make_cluster(columns: dict[str, Any]) -> Cluster:
    """A cluster from lists."""
    given: dict[str, Any] = {
        name: np.array(column) for name, column in columns.items() if name != "gpu_types"
    }
    return Cluster(gpu_types=tuple(columns.get("gpu_types", ("gpu",))), **given)


def make_trace(jobs: list[dict[str, Any]]) -> Trace:
    """A trace from one mapping per job; what a job leaves out has the trace's default."""
    names = {name: None for job in jobs for name in job}
    columns: dict[str, Any] = {}
    for name in names:
        columns[name] = [job.get(name, _default(name, job)) for job in jobs]
    for name in ("submit_s", "duration_s", "num_gpus"):
        columns.setdefault(name, [])
    return Trace.build("random", **columns)


def _default(name: str, job: dict[str, Any]) -> Any:
    if name in TEXTS:
        return TEXTS[name]
    if name in ("min_workers", "max_workers"):
        return job["num_gpus"] // max(1, job.get("gpus_per_worker", 1))
    if name in ("min_servers", "max_servers"):
        return job.get("num_servers", 0)
    if name == "gpus_per_worker":
        return 1
    return {"deadline_s": np.inf, "restart_s": np.nan, "checkpoint_s": np.nan,
            "estimate_s": np.nan, "samples": np.nan}.get(name, 0)  # fmt: skip


def make_faults(given: dict[str, Any], jobs: int) -> Faults:
    """Faults by rates, or by a script."""
    if "nodes" not in given and "jobs" not in given:
        return Faults(**given)
    nodes = tuple((float(t), int(n), bool(up)) for t, n, up in given.get("nodes", ()))
    each = tuple(tuple(map(float, row)) for row in given.get("jobs", ()))[:jobs]
    retries = max(0, len(each[0]) - 1) if each else 0
    return ScriptedFaults(nodes=nodes, jobs=each, retries=retries)


def make_physics(given: dict[str, Any], cluster: Cluster) -> Physics:
    """The laws of a world from a few numbers each."""
    rest = {k: v for k, v in given.items() if k in ("sight", "sight_error", "scaling")}
    curves = make_curves(cluster=cluster, **given["curves"]) if "curves" in given else None
    laws = make_laws(curves, cluster, **given["contention"]) if "contention" in given else None
    drift = Drift(**given["drift"]) if "drift" in given else None
    billing = Billing(**given.get("billing", {}))
    return Physics(curves, contention=laws, drift=drift, billing=billing, **rest)


def make_curves(
    *, cluster: Cluster, by_nodes: bool, bend: list[float], loss: float, most: int = 8
) -> Curves:
    """Speeds that rise with workers^bend and fall by `loss` per node, or with too few servers."""
    w, a = np.arange(most + 1.0)[None, :], np.arange(most + 1.0)[:, None]
    rest = (1.0 - loss) ** (a - 1) if by_nodes else (a + 0.5) / (a + 0.5 + loss * w)
    power = np.array(bend)[:, None, None]
    speed = 100.0 * np.where(w > 0, w, 0.0) ** power * rest  # (C, A, W)
    if by_nodes:
        speed *= a > 0
    kinds = 1.0 + 0.5 * np.arange(len(cluster.gpu_types))  # later types are faster
    table = speed[:, None] * kinds[None, :, None, None]
    names = MODELS[: len(bend)]
    return Curves(names, cluster.gpu_types, table, by_nodes, np.full((len(bend), 2), most))


def make_laws(
    curves: Curves | None, cluster: Cluster, *, law: str, weight: list[float], gbps: float = 20.0
) -> Contention:
    """Jobs over several nodes disturb each other, the more the larger their model's `weight`."""
    if law == "links":
        talk = None
        if curves is not None:
            C, _, A, W = curves.speed.shape
            talk = np.broadcast_to(np.array(weight)[:C, None, None] * 0.9, (C, A, W)).copy()
        return link_contention(curves, cluster, gbps, 2 * gbps, talk=talk)
    names = 0 if curves is None else len(curves.names)
    nodes = 3 if curves is None else curves.speed.shape[2]
    kind = np.full((names + 1, nodes, 9), -1, np.int64)
    from_nodes = 1 if law == "machines" else 2
    kind[:names, from_nodes:] = np.arange(names)[:, None, None]
    kind[names, from_nodes:] = names
    one = np.array([*weight[:names], 0.3])
    ratio = 1.0 - 0.9 * np.outer(one, one) if law == "pairs" else np.zeros((0, 0))
    return no_contention(curves)._replace(
        mode=LAWS[law], kind=kind, ratio=ratio, hurt=one, harm=one, floor=0.1
    )
