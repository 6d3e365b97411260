"""The file that `rota compare` reads; docs/compare.md shows one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import isfinite
from os.path import exists
from typing import TYPE_CHECKING, Any, Final

from rota.cli.logs import below_data
from rota.cli.toml_table import TomlTable
from rota.errors import ConfigError, InputError, UnknownNameError
from rota.sim import Conditions, Faults
from rota.traces import PRESETS
from rota.traces.clusterfile import load_cluster, read_toml, unknown_key
from rota.traces.formats import LOG_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rota.core import Cluster


@dataclass(frozen=True, kw_only=True)
class TraceSpec:
    """One entry of `traces` or of `scenarios`."""

    label: str
    """What tables call it."""
    source: str
    """A preset, or a path that holds from the working directory; a scenario's name or path."""
    seeds: tuple[int, ...]
    format: str | None = None
    head: int | None = None
    skip_bad: bool = False
    is_scenario: bool = False
    ignore_gpu_types: bool = False
    data: Path | None = None
    """Measured tables of a scenario, in place of those that ship."""

    @property
    def is_drawn(self) -> bool:
        """Whether a seed makes other jobs of it."""
        return self.is_scenario or self.source.partition(":")[0] in PRESETS


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """The table `cluster`, or one entry of `clusters`.

    Without file, nodes and gpus it means the cluster that a trace comes with, else 16 × 8.
    """

    name: str = ""
    """What tables call it; empty where there is only one."""
    described: Cluster | None = None
    """What its file describes."""
    nodes: int | None = None
    gpus: int | None = None
    add_nodes: int = 0
    """Nodes to add to that, like most that there are."""
    gpu_type: str | None = None
    """The GPU type of those; None: that of most nodes."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """What to run and what to compare it with."""

    name: str
    traces: tuple[TraceSpec, ...]
    """Scenarios among them."""
    seeds: tuple[int, ...] = (0,)
    """Of what has no seeds of its own."""
    policies: Mapping[str, str]
    """As the file calls them → as `make_policy` takes them."""
    baseline: str
    clusters: tuple[ClusterSpec, ...]
    when: Conditions
    """With the first of `restart_costs_s`."""
    restart_costs_s: tuple[float, ...]
    history: str | None = None
    drop_oversized: bool = False
    resamples: int = 10_000
    deadline_s: float = 60.0


_KEYS: Final = (
    "traces", "scenarios", "seeds", "policies", "baseline", "cluster", "clusters", "conditions",
    "history", "drop_oversized", "ignore_gpu_types", "resamples", "deadline_s",
)  # fmt: skip
_TRACE_KEYS: Final = ("source", "name", "format", "head", "skip_bad")
_SCENARIO_KEYS: Final = ("name", "label", "seeds", "data", "head")
_CLUSTER_KEYS: Final = ("nodes", "gpus", "file", "add_nodes", "gpu_type")


_KEY_OF: Final = {
    "--nodes, --gpus or --cluster": "nodes, gpus or file of [cluster]",
    "--cluster FILE": "[cluster] file",
    "--nodes": "[cluster] nodes",
    "--drop-oversized": "drop_oversized = true",
    "--ignore-gpu-types": "ignore_gpu_types = true",
    "--skip-bad": "skip_bad = true",
    "--data": "data =",
}
"""What the file has in place of options of other commands, which errors advise."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors about the input name the configuration, and its keys in place of options."""
    try:
        yield
    except InputError as error:
        said = str(error)
        for option, key in _KEY_OF.items():
            said = said.replace(option, key)
        raise InputError(said if str(path) in said else f"{path}: {said}") from error


def load_config(path: Path) -> CompareConfig:
    """Read and check a configuration; files in it are relative to its own place."""
    content, folder = read_toml(path), path.parent
    entry = TomlTable(str(path), content, _KEYS)
    policies = {name: _resolved_policy(name, folder) for name in entry.texts("policies")}
    baseline = entry.text("baseline", next(iter(policies)))
    if baseline not in policies:
        policies = {baseline: _resolved_policy(baseline, folder), **policies}
    history = entry.text("history", "")
    when, restart_costs_s = _conditions(entry)
    return CompareConfig(
        name=path.stem,
        traces=_what_to_run(entry, folder),
        seeds=_seeds(entry, (0,)),
        policies=policies,
        baseline=baseline,
        clusters=_clusters(entry, folder),
        when=when,
        restart_costs_s=restart_costs_s,
        history=_resolved(history, folder) if history else None,
        drop_oversized=entry.flag("drop_oversized"),
        resamples=entry.whole("resamples", 10_000, least=100),
        deadline_s=entry.number("deadline_s", 60.0),
    )


def _resolved(source: str, folder: Path) -> str:
    if source.partition(":")[0] in PRESETS:
        return source
    beside = folder / source
    return str(beside if exists(beside) else below_data(source) or beside)


def _resolved_policy(name: str, folder: Path) -> str:
    where, mark, rest = name.partition(".py:")
    return f"{folder / where}{mark}{rest}" if mark else name


def _what_to_run(entry: TomlTable, folder: Path) -> tuple[TraceSpec, ...]:
    """Traces and scenarios, at least one of them, each under a label of its own."""
    specs: dict[str, TraceSpec] = {}
    given = [] if "traces" not in entry and "scenarios" in entry else _traces(entry, folder)
    for spec in (*given, *_scenarios(entry, folder)):
        if spec.label in specs:
            raise ConfigError(
                f"{entry.where}: Two traces are called {spec.label!r}; tell them apart with "
                "{ source = …, name = … }, or scenarios with label = …."
            )
        specs[spec.label] = spec
    return tuple(specs.values())


def _traces(entry: TomlTable, folder: Path) -> list[TraceSpec]:
    wants = "a list of files, presets or tables such as { source = 'jobs.csv', head = 1000 }"
    given = entry.raw("traces")
    if not isinstance(given, list) or not given:
        raise entry.refuse("traces", wants)
    specs, seeds, ignore = [], _seeds(entry, (0,)), entry.flag("ignore_gpu_types")
    for number, item in enumerate(given, 1):
        if not isinstance(item, str | dict):
            raise entry.refuse("traces", wants)
        content = {"source": item} if isinstance(item, str) else item
        where = f"{entry.where}: trace {number}"
        specs.append(_trace(TomlTable(where, content, _TRACE_KEYS), folder, seeds, ignore))
    return specs


def _scenarios(entry: TomlTable, folder: Path) -> list[TraceSpec]:
    usual = _seeds(entry, (0,))
    wants = "a list of tables, each written [[scenarios]] with a name"
    tables = entry.tables("scenarios", _SCENARIO_KEYS, "scenario", wants)
    return [_scenario(table, folder, usual) for table in tables]


def _scenario(entry: TomlTable, folder: Path, usual: tuple[int, ...]) -> TraceSpec:
    from rota.scenarios import load

    name = entry.text("name")
    source = str(folder / name) if name.endswith(".toml") else name
    try:
        scenario = load(source)
    except UnknownNameError as error:
        raise ConfigError(f"{entry.where}: {error}") from None
    data = entry.text("data", "")
    return TraceSpec(
        label=entry.text("label", scenario.name),
        source=source,
        seeds=_seeds(entry, usual),
        head=entry.whole("head", None, least=1),
        is_scenario=True,
        data=folder / data if data else None,
    )


def _trace(
    entry: TomlTable, folder: Path, seeds: tuple[int, ...], ignore_gpu_types: bool
) -> TraceSpec:
    source, head = entry.text("source"), entry.whole("head", None, least=1)
    format_name = entry.text("format", "") or None
    if format_name is not None and format_name not in LOG_FORMATS:
        raise unknown_key(f"{entry.where}: format", format_name, LOG_FORMATS.names())
    return TraceSpec(
        label=entry.text("name", source if head is None else f"{source} (first {head:,})"),
        source=_resolved(source, folder),
        seeds=seeds,
        format=format_name,
        head=head,
        skip_bad=entry.flag("skip_bad"),
        ignore_gpu_types=ignore_gpu_types,
    )


def _seeds(entry: TomlTable, usual: tuple[int, ...]) -> tuple[int, ...]:
    wants = "a list of whole numbers, or a range such as '0:5' for 0, 1, 2, 3, 4"
    given = list(usual) if "seeds" not in entry else entry.raw("seeds")
    if isinstance(given, str):
        first, _, end = given.partition(":")
        if not (first.strip().isdecimal() and end.strip().isdecimal()):
            raise entry.refuse("seeds", wants)
        given = list(range(int(first), int(end)))
    if not isinstance(given, list) or not given:
        raise entry.refuse("seeds", wants)
    if not all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in given):
        raise entry.refuse("seeds", wants)
    return tuple(dict.fromkeys(given))


def _clusters(entry: TomlTable, folder: Path) -> tuple[ClusterSpec, ...]:
    """The entries of [[clusters]], or the one of [cluster]."""
    if "clusters" not in entry:
        return (_cluster(entry.table("cluster", _CLUSTER_KEYS), folder),)
    if "cluster" in entry:
        raise ConfigError(f"{entry.where}: Give [cluster] or [[clusters]], not both.")
    wants = "a list of tables, each written [[clusters]]"
    tables = entry.tables("clusters", ("name", *_CLUSTER_KEYS), "cluster", wants)
    specs: dict[str, ClusterSpec] = {}
    for table in tables:
        spec = _cluster(table, folder)
        if spec.name in specs:
            raise ConfigError(
                f"{entry.where}: Two clusters are called {spec.name!r}; tell them apart with "
                "name = …."
            )
        specs[spec.name] = spec
    return tuple(specs.values())


def _cluster(table: TomlTable, folder: Path) -> ClusterSpec:
    nodes, gpus = table.whole("nodes", None, least=1), table.whole("gpus", None, least=1)
    file, more = table.text("file", ""), table.whole("add_nodes", 0, least=0)
    if file and (nodes is not None or gpus is not None):
        raise ConfigError(f"{table.where}: Give a file, or nodes and gpus, not both.")
    if "gpu_type" in table and not more:
        raise ConfigError(f"{table.where}: gpu_type says what add_nodes adds; give add_nodes, too.")
    size = " × ".join([f"{nodes or 'own'} nodes", *([f"{gpus} GPUs"] if gpus else [])])
    base = file or (size if nodes or gpus else "own cluster")
    return ClusterSpec(
        name=table.text("name", f"{base} + {more} nodes" if more else base),
        described=load_cluster(folder / file) if file else None,
        nodes=nodes,
        gpus=gpus,
        add_nodes=more,
        gpu_type=table.text("gpu_type") if "gpu_type" in table else None,
    )


def _conditions(entry: TomlTable) -> tuple[Conditions, tuple[float, ...]]:
    """The fields of Conditions and Faults, in one table, and the restart costs to compare."""
    own = [field.name for field in fields(Conditions) if field.name != "faults"]
    of_faults = [field.name for field in fields(Faults)]
    table = entry.table("conditions", [*own, *of_faults])
    costs_s = _restart_costs(table)
    try:
        faults = Faults(**{key: _setting(table, key) for key in of_faults if key in table})
        others = {key: _setting(table, key) for key in own if key in table and key != "restart_s"}
        return Conditions(restart_s=costs_s[0], **others, faults=faults), costs_s
    except ConfigError as error:
        if str(error).startswith(table.where):
            raise
        raise ConfigError(f"{table.where}: {error}") from None


def _restart_costs(table: TomlTable) -> tuple[float, ...]:
    """The number, or the numbers, of `restart_s`; 0 if it is not there."""
    given = table.raw("restart_s")
    if not isinstance(given, list):
        return (_setting(table, "restart_s") if "restart_s" in table else 0.0,)
    fine = [isinstance(cost, int | float) and not isinstance(cost, bool) for cost in given]
    if not given or not all(fine) or not all(isfinite(cost) and cost >= 0 for cost in given):
        raise table.refuse("restart_s", "a number of seconds, 0 or more, or a list of such numbers")
    return tuple(dict.fromkeys(map(float, given)))


def _setting(table: TomlTable, key: str) -> Any:
    if key in ("trust_trace", "hide_durations", "whole_slots"):
        return table.flag(key)
    if key == "retries":
        return table.whole(key, None, least=0)
    value = table.raw(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise table.refuse(key, "a number")
    return float(value)
