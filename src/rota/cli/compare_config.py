"""The file that `rota compare` reads; docs/compare.md shows one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from os.path import exists
from typing import TYPE_CHECKING, Any, Final

from rota.cli.loading import cluster_of
from rota.cli.logs import below_data
from rota.core import Cluster
from rota.errors import ConfigError, UnknownNameError
from rota.sim import Conditions, Faults
from rota.traces import PRESETS
from rota.traces.clusterfile import load_cluster, read_toml, unknown_key
from rota.traces.formats import LOG_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


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
    data: Path | None = None
    """Measured tables of a scenario, in place of those that ship."""
    cluster: Cluster | None = field(default=None, compare=False)
    """What a journal ran on, if the file names no cluster; None: what all traces run on."""

    @property
    def is_drawn(self) -> bool:
        """Whether a seed makes other jobs of it."""
        return self.is_scenario or self.source.partition(":")[0] in PRESETS


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
    cluster: Cluster
    when: Conditions
    history: str | None = None
    drop_oversized: bool = False
    resamples: int = 10_000
    deadline_s: float = 60.0


_KEYS: Final = (
    "traces", "scenarios", "seeds", "policies", "baseline", "cluster", "conditions", "history",
    "drop_oversized", "resamples", "deadline_s",
)  # fmt: skip
_TRACE_KEYS: Final = ("source", "name", "format", "head", "skip_bad")
_SCENARIO_KEYS: Final = ("name", "label", "seeds", "data", "head")
_CLUSTER_KEYS: Final = ("nodes", "gpus", "file")


def load_config(path: Path) -> CompareConfig:
    """Read and check a configuration; files in it are relative to its own place."""
    content, folder = read_toml(path), path.parent
    entry = _Entry(str(path), content, _KEYS)
    policies = {name: _resolved_policy(name, folder) for name in entry.texts("policies")}
    baseline = entry.text("baseline", next(iter(policies)))
    if baseline not in policies:
        policies = {baseline: _resolved_policy(baseline, folder), **policies}
    history = entry.text("history", "")
    return CompareConfig(
        name=path.stem,
        traces=_what_to_run(entry, folder),
        seeds=_seeds(entry, (0,)),
        policies=policies,
        baseline=baseline,
        cluster=_cluster(entry, folder),
        when=_conditions(entry),
        history=_resolved(history, folder) if history else None,
        drop_oversized=entry.flag("drop_oversized"),
        resamples=entry.whole("resamples", 10_000, least=100),
        deadline_s=entry.number("deadline_s", 60.0),
    )


class _Entry:
    """A table of the file; every complaint names the file, the table and the key."""

    def __init__(self, where: str, content: Mapping[str, Any], known: Iterable[str]) -> None:
        self.where, self._content = where, content
        for key in content:
            if key not in known:
                raise unknown_key(where, key, known)

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def refuse(self, key: str, wants: str) -> ConfigError:
        """The error for a value that will not do."""
        if key not in self._content:
            return ConfigError(f"{self.where}: {key!r} is missing; it must be {wants}.")
        return ConfigError(f"{self.where}: {key} = {self._content[key]!r} must be {wants}.")

    def raw(self, key: str) -> Any:
        """The value as it stands in the file, None if it does not."""
        return self._content.get(key)

    def table(self, key: str, known: Iterable[str]) -> _Entry:
        """A table below this one; empty if it is not there."""
        value = self._content.get(key, {})
        if not isinstance(value, dict):
            raise self.refuse(key, f"a table, written [{key}]")
        return _Entry(f"{self.where}: [{key}]", value, known)

    def text(self, key: str, usual: str | None = None) -> str:
        """A text that is not empty."""
        value = self._content.get(key, usual)
        if not isinstance(value, str) or (key in self._content and not value.strip()):
            raise self.refuse(key, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of at least one text, each once."""
        value = self._content.get(key)
        if not isinstance(value, list) or not value:
            raise self.refuse(key, "a list of texts")
        if not all(isinstance(item, str) and item.strip() for item in value):
            raise self.refuse(key, "a list of texts")
        return list(dict.fromkeys(value))

    def whole(self, key: str, usual: int | None, least: int) -> Any:
        """A whole number."""
        value = self._content.get(key, usual)
        fine = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if key in self._content and not fine:
            raise self.refuse(key, f"a whole number of {least} or more")
        return value

    def number(self, key: str, usual: float) -> float:
        """A number above 0."""
        value = self._content.get(key, usual)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.refuse(key, "a number above 0")
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; false if it is not there."""
        value = self._content.get(key, False)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value


def _resolved(source: str, folder: Path) -> str:
    if source.partition(":")[0] in PRESETS:
        return source
    beside = folder / source
    return str(beside if exists(beside) else below_data(source) or beside)


def _resolved_policy(name: str, folder: Path) -> str:
    where, mark, rest = name.partition(".py:")
    return f"{folder / where}{mark}{rest}" if mark else name


def _what_to_run(entry: _Entry, folder: Path) -> tuple[TraceSpec, ...]:
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


def _traces(entry: _Entry, folder: Path) -> list[TraceSpec]:
    wants = "a list of files, presets or tables such as { source = 'jobs.csv', head = 1000 }"
    given = entry.raw("traces")
    if not isinstance(given, list) or not given:
        raise entry.refuse("traces", wants)
    specs, seeds = [], _seeds(entry, (0,))
    for number, item in enumerate(given, 1):
        if not isinstance(item, str | dict):
            raise entry.refuse("traces", wants)
        content = {"source": item} if isinstance(item, str) else item
        where = f"{entry.where}: trace {number}"
        specs.append(
            _trace(_Entry(where, content, _TRACE_KEYS), folder, seeds, bool(entry.raw("cluster")))
        )
    return specs


def _scenarios(entry: _Entry, folder: Path) -> list[TraceSpec]:
    wants = "a list of tables, each written [[scenarios]] with a name"
    given = entry.raw("scenarios")
    if "scenarios" not in entry:
        return []
    if not isinstance(given, list) or not given or not all(isinstance(e, dict) for e in given):
        raise entry.refuse("scenarios", wants)
    usual = _seeds(entry, (0,))
    return [
        _scenario(_Entry(f"{entry.where}: scenario {number}", item, _SCENARIO_KEYS), folder, usual)
        for number, item in enumerate(given, 1)
    ]


def _scenario(entry: _Entry, folder: Path, usual: tuple[int, ...]) -> TraceSpec:
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


def _trace(entry: _Entry, folder: Path, seeds: tuple[int, ...], named: bool) -> TraceSpec:
    """A trace; `named`: whether the file says which cluster it runs on."""
    source, head = entry.text("source"), entry.whole("head", None, least=1)
    format_name = entry.text("format", "") or None
    if format_name is not None and format_name not in LOG_FORMATS:
        raise unknown_key(f"{entry.where}: format", format_name, LOG_FORMATS.names())
    where = _resolved(source, folder)
    return TraceSpec(
        label=entry.text("name", source if head is None else f"{source} (first {head:,})"),
        source=where,
        seeds=seeds,
        cluster=None if named or format_name is not None else cluster_of(where),
        format=format_name,
        head=head,
        skip_bad=entry.flag("skip_bad"),
    )


def _seeds(entry: _Entry, usual: tuple[int, ...]) -> tuple[int, ...]:
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


def _cluster(entry: _Entry, folder: Path) -> Cluster:
    table = entry.table("cluster", _CLUSTER_KEYS)
    if "file" not in table:
        return Cluster.uniform(table.whole("nodes", 16, least=1), table.whole("gpus", 8, least=1))
    if "nodes" in table or "gpus" in table:
        raise ConfigError(f"{table.where}: Give a file, or nodes and gpus, not both.")
    return load_cluster(folder / table.text("file"))


def _conditions(entry: _Entry) -> Conditions:
    """The fields of Conditions and Faults, in one table."""
    own = [field.name for field in fields(Conditions) if field.name != "faults"]
    of_faults = [field.name for field in fields(Faults)]
    table = entry.table("conditions", [*own, *of_faults])
    try:
        faults = Faults(**{key: _setting(table, key) for key in of_faults if key in table})
        return Conditions(
            **{key: _setting(table, key) for key in own if key in table}, faults=faults
        )
    except ConfigError as error:
        if str(error).startswith(table.where):
            raise
        raise ConfigError(f"{table.where}: {error}") from None


def _setting(table: _Entry, key: str) -> Any:
    if key in ("trust_trace", "hide_durations", "whole_slots"):
        return table.flag(key)
    if key == "retries":
        return table.whole(key, None, least=0)
    value = table.raw(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise table.refuse(key, "a number")
    return float(value)
