"""A scenario: workload, cluster, speeds, contention, cadence and costs under one name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from rota.errors import ConfigError, InputError
from rota.perf.job_laws import read_laws
from rota.perf.physics import Billing, Drift, Physics
from rota.policies.classic.orderings import ORDERINGS
from rota.policies.classic.placing import PLACEMENTS
from rota.scenarios import reading
from rota.scenarios.speed_laws import contention_of, curves_of, learning_of
from rota.scenarios.tables import MEASURED, tables_folder
from rota.scenarios.workloads import draw_jobs
from rota.sim.setup import PLAIN, Conditions
from rota.traces.clusterfile import build_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rota.core.cluster import Cluster
    from rota.core.speed import Contention, Curves
    from rota.traces.trace import Trace

TEST: Final = range(2000, 3000)
"""Seeds that results of trained policies are measured on; nothing is learned from or chosen by
them."""
OUTSIDE: Final = 10_000
"""Seeds from here up are never used to fit, train or tune anything."""
_DIGITS: Final = 12


@dataclass(frozen=True)
class World:
    """All that a simulation needs beside a policy; what one seed makes of a scenario."""

    cluster: Cluster
    trace: Trace
    when: Conditions
    physics: Physics = PLAIN


@dataclass(frozen=True)
class Scenario:
    """A named, versioned bundle; make one with `load`."""

    name: str
    version: int
    about: str
    settings: Mapping[str, Mapping[str, Any]]
    """Every table with its defaults, as `rota scenarios show` prints it."""
    nodes: Sequence[Mapping[str, Any]] = ()
    """Kinds of nodes, if they differ."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Policies whose names mean something else here."""
    file: str = ""
    _laws: dict[tuple[Path | None, bytes], tuple[Curves | None, Contention | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def digest(self) -> str:
        """A fingerprint of everything that can change a result."""
        # What says nothing is left out: digests stay as they were before there was such a table.
        silent = {"policies": {}, "learning": {"curves": "none"}}
        settings = {name: keys for name, keys in self.settings.items() if keys != silent.get(name)}
        if "profile" in self.settings["speed"]:  # what it says counts, not where it is
            laws = asdict(read_laws(self.settings["speed"]["profile"]))
            settings["speed"] = {**self.settings["speed"], "profile": laws}
        facts = [self.version, settings, list(self.nodes), dict(self.aliases)]
        text = json.dumps(facts, sort_keys=True, default=dict)
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]

    @property
    def measured(self) -> bool:
        """Whether its speeds are a table of measurements, not fits."""
        return self.settings["speed"]["family"] in MEASURED

    @property
    def cluster(self) -> Cluster:
        """The machines."""
        if self.nodes:
            entries = [(f"[[node]] entry {k}", entry) for k, entry in enumerate(self.nodes, 1)]
        else:
            plain = dict(self.settings["cluster"])
            entries = [("[cluster]", {"count": plain.pop("nodes"), **plain})]
        return build_cluster(self.file, entries)

    @property
    def when(self) -> Conditions:
        """Cadence, costs and knowledge."""
        return Conditions(**self.settings["when"])

    def physics(self, data: Path | None = None, cluster: Cluster | None = None) -> Physics:
        """The laws of speed on `cluster`, by default the scenario's own."""
        curves, contention = self._laws_of(data, cluster or self.cluster)
        speed, drift = self.settings["speed"], self.settings["drift"]
        return Physics(
            curves=curves,
            sight=speed.get("sight", "true"),
            sight_error=speed.get("sight_error", 0.0),
            scaling=speed["scaling"],
            contention=contention,
            drift=Drift(**drift) if drift["sd"] > 0 else None,
            billing=Billing(**self.settings["billing"]),
            learning=learning_of(self.settings["learning"]),
        )

    def _laws_of(
        self, data: Path | None, cluster: Cluster
    ) -> tuple[Curves | None, Contention | None]:
        """Curves and contention; those of the last cluster are kept, as making them takes time."""
        folder = tables_folder(self.settings["speed"]["family"], data)
        key = folder, _fingerprint(cluster)
        if key not in self._laws:
            curves = curves_of(self.settings, cluster, folder)
            contention = contention_of(self.settings, cluster, curves, folder)
            self._laws.clear()
            self._laws[key] = curves, contention
        return self._laws[key]

    def draw(
        self,
        seed: int,
        data: Path | None = None,
        trace: Trace | None = None,
        *,
        cluster: Cluster | None = None,
        when: Mapping[str, Any] | None = None,
    ) -> World:
        """The world of a seed; a given `trace`, `cluster` or field of `when` replaces its own."""
        if seed < 0:
            raise InputError(f"seed={seed} must be 0 or more.")
        machines = cluster or self.cluster
        laws = self.physics(data, machines)
        if trace is None:
            try:
                trace = draw_jobs(
                    self.name, self.settings["workload"], seed, machines, laws.curves,
                    alike=self.settings["speed"]["family"] == "profile",
                )  # fmt: skip
            except ConfigError as error:
                raise ConfigError(f"{self.file}: {error}") from None
        return World(machines, trace, replace(self.when, **(when or {})), laws)

    def policy(self, name: str) -> str:
        """What a policy's name means here: aliases, and the scenario's placement if it has none."""
        return self._placed(self._named(name))

    def _named(self, name: str) -> str:
        for mark in ":+@":
            base, found, rest = name.partition(mark)
            if found and base in self.aliases:
                return f"{self.aliases[base]}{found}{rest}"
        return self.aliases.get(name, name)

    def _placed(self, name: str) -> str:
        place = self.settings["policies"].get("placement")
        plain, at, view = name.partition("@")
        head, *tail = plain.split("+")
        if place is None or head.partition(":")[0] not in ORDERINGS:
            return name
        if any(word in PLACEMENTS for word in tail):
            return name
        return "+".join([head, place, *tail]) + at + view


def _fingerprint(cluster: Cluster) -> bytes:
    """Tells clusters apart that differ in anything at all."""
    facts = [getattr(cluster, column.name) for column in fields(cluster)]
    found = hashlib.sha256()
    for fact in facts:
        found.update(repr(fact).encode() if isinstance(fact, tuple) else fact.tobytes())
    return found.digest()


def load(name: str | Path, changes: Sequence[str] = ()) -> Scenario:
    """The scenario called so, or a TOML file's, with changes such as "workload.jobs=20"."""
    path = reading.find(name)
    draft = reading.read(path)
    for text in changes:
        reading.change(draft, text)
    settings = reading.settled(draft)
    return Scenario(
        name=path.stem,
        version=draft.top["version"],
        about=draft.top["about"],
        settings=settings,
        nodes=draft.nodes,
        aliases=draft.aliases,
        file=str(path),
    )
