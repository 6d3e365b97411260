"""Scenario files: found, read, laid over their base and checked; every complaint has its line."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rota.errors import ConfigError, UnknownNameError
from rota.plugins import Registry
from rota.scenarios.keys import CHOOSER, PLUGGED, PS, TABLES, TOP, kind_of
from rota.traces.clusterfile import check_node, check_node_key, read_toml_text, unknown_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.plugins import Plugin
    from rota.scenarios.keys import Key

FOLDER: Final = Path(__file__).parent / "data"
LONGEST_CHAIN: Final = 8
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY: Final = re.compile(r"""\s*([A-Za-z0-9_."'-]+)\s*=""")


@dataclass(frozen=True)
class Lines:
    """Where in a file each key stands."""

    file: str
    at: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, file: str, text: str) -> Lines:
        """Scan a TOML text; a repeated `[[table]]` is numbered from 0."""
        at: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = _path(header[2])
                if header[1] == "[[":
                    count = sum(1 for path in at if path[:-1] == table and path[-1].isdecimal())
                    table = (*table, str(count))
                at.setdefault(table, number)
            elif key := _KEY.match(line):
                at.setdefault((*table, *_path(key[1])), number)
        return cls(file, at)

    def where(self, *path: str) -> str:
        """`file:line` of a key, or of the nearest table around it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.at:
                return f"{self.file}:{self.at[path[:end]]}"
        return self.file


def _path(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


@dataclass
class LayeredSettings:
    """Settings as they come together from a file and its bases."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)
    origin: dict[tuple[str, ...], str] = field(default_factory=dict)
    """`file:line` of every key."""
    file: str = ""

    def where(self, *path: str) -> str:
        """Where a key was set, or its table begun, or else the file."""
        return self.origin.get(path) or self.origin.get(path[:1]) or self.file


def _shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def _plugged(thing: Any, plugin: Plugin) -> Path:
    """The file of another package's scenario: NAME.toml, or a folder with that file in it."""
    path = Path(thing)
    path = path / f"{plugin.name}.toml" if path.is_dir() else path
    if path.name != f"{plugin.name}.toml" or not path.is_file():
        raise FileNotFoundError(f"there is no file {plugin.name}.toml at {path}")
    return path


SCENARIO_FILES: Final = Registry("rota.scenarios", "scenario", [_shipped], _plugged)
"""The files of ours and of those of plug-ins."""


def names() -> list[str]:
    """The scenarios that have a name: those that rota ships, then those of plug-ins."""
    return SCENARIO_FILES.names()


def find(name: str | Path, beside: Path | None = None) -> Path:
    """The file of a scenario: by name, or a path, from `beside` if given."""
    path = Path(name)
    is_path = isinstance(name, Path) or path.suffix == ".toml" or len(path.parts) > 1
    if not is_path:
        if str(name) not in SCENARIO_FILES:
            raise UnknownNameError("scenario (`rota scenarios` lists them)", str(name), names())
        return SCENARIO_FILES.get(str(name))
    return path if beside is None else beside / path


def read(path: Path) -> LayeredSettings:
    """A file's settings over those of its base, checked but without defaults."""
    chain: list[Path] = [path]
    loaded = [_loaded(path)]
    while (base := loaded[-1][0].get("base")) is not None:
        lines = loaded[-1][1]
        try:
            path = find(base, chain[-1].parent)
        except UnknownNameError as error:
            raise ConfigError(f"{lines.where('base')}: {error}") from None
        if path in chain or len(chain) == LONGEST_CHAIN:
            raise ConfigError(
                f"{lines.where('base')}: base = {base!r} leads in a circle, or over more than "
                f"{LONGEST_CHAIN} files."
            )
        chain.append(path)
        loaded.append(_loaded(path))
    draft = LayeredSettings()
    for content, lines in reversed(loaded):
        _lay_over(draft, content, lines)
    return draft


def change_of(text: str) -> tuple[tuple[str, str], Any]:
    """Table, key and value of a change such as "workload.jobs=20"; a text needs no quotes."""
    name, equals, value = (part.strip() for part in text.partition("="))
    table, dot, key = name.partition(".")
    if not (equals and dot and table and key) or "." in key:
        raise ConfigError(f"{text!r} must look like table.key=value, such as run.seed=1.")
    try:
        return (table, key), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return (table, key), value


def change(draft: LayeredSettings, text: str) -> None:
    """Lay a single setting over those of the files."""
    (table, key), value = change_of(text)
    file, about = draft.file, f"{draft.file} with {text!r}"
    if table not in TABLES:
        raise unknown_key(about, table, TABLES)
    if key not in TABLES[table]:
        raise unknown_key(f"{about}: [{table}]", key, TABLES[table])
    lines = Lines(about, {})
    _check(lines, (table, key), TABLES[table][key], value)
    top = draft.top
    _lay_over(draft, {table: {key: value}}, lines)
    draft.file, draft.top = file, top


def _loaded(path: Path) -> tuple[dict[str, Any], Lines]:
    """A file's own content, every key and value checked by itself."""
    text, content = read_toml_text(path)
    lines = Lines.of(str(path), text)
    known = [*TOP, *TABLES, "node", "aliases"]
    for name, value in content.items():
        if name not in known:
            raise unknown_key(lines.where(name), name, known)
        if name in TOP:
            _check(lines, (name,), TOP[name], value)
        elif name == "node":
            _check_nodes(lines, value)
        elif not isinstance(value, dict):
            raise ConfigError(f"{lines.where(name)}: {name} must be a table, written [{name}].")
        elif name == "aliases":
            for key, target in value.items():
                _check(lines, (name, key), _ALIAS, target)
        else:
            for key, given in value.items():
                if key not in TABLES[name]:
                    raise unknown_key(f"{lines.where(name, key)}: [{name}]", key, TABLES[name])
                _check(lines, (name, key), TABLES[name][key], given)
    if profile := content.get("speed", {}).get("profile"):
        content["speed"]["profile"] = str(path.parent / profile)  # as `base` is
    return content, lines


_ALIAS: Final = TOP["about"]


def _check(lines: Lines, path: tuple[str, ...], key: Key, value: Any) -> None:
    if not key.accepts(value):
        inside = f"[{path[0]}] " if len(path) > 1 else ""
        raise ConfigError(
            f"{lines.where(*path)}: {inside}{path[-1]} = {value!r} must be {key.wants}."
        )


def _check_nodes(lines: Lines, value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigError(
            f"{lines.where('node')}: Nodes are listed under [[node]], in double brackets."
        )
    for number, entry in enumerate(value):
        for key, given in entry.items():
            check_node_key(f"{lines.where('node', str(number), key)}: [[node]]", key, given)
        check_node(f"{lines.where('node', str(number))}: [[node]]", entry)


def _lay_over(draft: LayeredSettings, content: Mapping[str, Any], lines: Lines) -> None:
    """Add a file's settings to those of its base."""
    draft.file = lines.file
    draft.top = {key: value for key, value in content.items() if key in TOP}
    for name in TABLES:
        given = content.get(name, {})
        kept = draft.tables.setdefault(name, {})
        chooser = CHOOSER.get(name)
        if chooser and given.get(chooser, kept.get(chooser)) != kept.get(chooser):
            kept.clear()  # another kind: what the base said means nothing to it
        if name == "cluster" and "nodes" in given:
            draft.nodes = []
        kept.update(given)
        for key in given:
            draft.origin[name, key] = lines.where(name, key)
        if given:
            draft.origin[name,] = lines.where(name)
    if "node" in content:
        draft.nodes = content["node"]
        draft.tables["cluster"].clear()
        draft.tables["cluster"].update(content.get("cluster", {}))
    draft.aliases |= content.get("aliases", {})


def settled(draft: LayeredSettings) -> dict[str, dict[str, Any]]:
    """All tables with their defaults; refuses keys that mean nothing to the chosen kind."""
    for key, rule in TOP.items():
        if rule.required and key not in draft.top:
            raise ConfigError(f"{draft.file}: {key!r} is missing; it must be {rule.wants}.")
    full: dict[str, dict[str, Any]] = {}
    for name, known in TABLES.items():
        given, chooser = draft.tables.get(name, {}), CHOOSER.get(name)
        for key, rule in known.items():
            if rule.required and key not in given:
                raise ConfigError(
                    f"{draft.where(name)}: [{name}] {key} is missing; it must be {rule.wants}."
                )
        chosen = given.get(chooser, known[chooser].default) if chooser else ""
        kind = kind_of(name, chosen)
        for key in given:
            if known[key].of and kind not in known[key].of:
                raise ConfigError(
                    f"{draft.where(name, key)}: [{name}] {key} means nothing where "
                    f"{chooser} = {chosen!r}; it goes with {' or '.join(known[key].of)}."
                )
        full[name] = {
            key: float(value) if rule.kind is float and value is not None else value
            for key, rule in known.items()
            for value in [given.get(key, rule.default)]
            if value is not None and (not rule.of or kind in rule.of)
        }
    _check_between(draft, full)
    return full


def _check_between(draft: LayeredSettings, full: Mapping[str, Mapping[str, Any]]) -> None:
    """What one key means for another."""
    cluster, workload = full["cluster"], full["workload"]
    if draft.nodes:
        if cluster:
            key = next(iter(cluster))
            raise ConfigError(
                f"{draft.where('cluster', key)}: [cluster] {key} does not go with [[node]] "
                "entries; give it in each of them."
            )
    elif not {"nodes", "gpus"} <= cluster.keys():
        raise ConfigError(
            f"{draft.where('cluster')}: The cluster is missing: give [cluster] nodes and gpus, "
            "or [[node]] entries."
        )
    allowed = {"dl2": ("ali", "normal"), "busy": ("ali", "lognormal", "one")}
    lengths = allowed.get(workload["kind"], ())
    if lengths and workload["lengths"] not in lengths:
        raise ConfigError(
            f"{draft.where('workload', 'lengths')}: [workload] lengths = {workload['lengths']!r} "
            f"must be one of {', '.join(map(repr, lengths))} where kind = {workload['kind']!r}."
        )
    if workload["kind"] == "preset" and "preset" not in workload:
        raise ConfigError(
            f"{draft.where('workload', 'kind')}: [workload] preset is missing; it must be "
            f"{TABLES['workload']['preset'].wants}."
        )
    family, kind = full["speed"]["family"], workload["kind"]
    plugged = kind_of("speed", family) == PLUGGED
    fits = {"dl2": PS, "busy": PS, "deepshare": ("deepshare", "deepshare-measured")}
    if kind in fits and family not in fits[kind] and not (plugged and fits[kind] is PS):
        raise ConfigError(
            f"{draft.where('speed', 'family')}: [speed] family = {family!r} knows nothing of the "
            f"jobs of [workload] kind = {kind!r}; give {' or '.join(map(repr, fits[kind]))}."
        )
    by_nodes = ("trace", "all-reduce")
    if kind == "daily" and family not in by_nodes and not plugged:
        raise ConfigError(
            f"{draft.where('speed', 'family')}: [speed] family = {family!r} knows nothing of the "
            f"jobs of [workload] kind = 'daily'; give {' or '.join(map(repr, by_nodes))}."
        )
    if full["learning"]["curves"] != "none" and kind != "daily":
        raise ConfigError(
            f"{draft.where('learning', 'curves')}: [learning] curves = 'shipped' are of the models "
            f"that [workload] kind = 'daily' draws, not of those of kind = {kind!r}."
        )
    if full["learning"]["curves"] != "none" and full["drift"]["sd"] > 0:
        raise ConfigError(
            f"{draft.where('drift', 'sd')}: [drift] does not go with [learning]: accuracy at a "
            "deadline would depend on speeds in between; leave one of them out."
        )
    if family == "profile" and "profile" not in full["speed"]:
        raise ConfigError(
            f"{draft.where('speed', 'family')}: [speed] profile is missing; it must be a file or "
            "folder that `rota profile` wrote."
        )
    if full["contention"]["model"] == "pairs" and (plugged or not family.startswith("deepshare")):
        raise ConfigError(
            f"{draft.where('contention', 'model')}: [contention] model = 'pairs' needs the ratios "
            "that come with [speed] family = 'deepshare' or 'deepshare-measured'."
        )
    by_servers = family in PS or (plugged and kind in fits)
    if full["contention"]["model"] == "ranks" and (family == "trace" or by_servers):
        raise ConfigError(
            f"{draft.where('contention', 'model')}: [contention] model = 'ranks' needs speeds by "
            "nodes: [speed] family = 'deepshare', 'all-reduce', 'gavel' or 'profile'."
        )
    if full["contention"]["model"] == "links" and by_servers:
        raise ConfigError(
            f"{draft.where('contention', 'model')}: [contention] model = 'links' needs speeds by "
            f"nodes, which family = {family!r} does not have."
        )
