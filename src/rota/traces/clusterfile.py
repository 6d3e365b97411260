"""Clusters from files: kinds of nodes in TOML, or a list of nodes in CSV; docs/commands.md."""

from __future__ import annotations

import csv
import io
import math
import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.cluster import MAX_GPUS_PER_NODE, Cluster
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PER_RACK: Final = 16
"""Nodes to a rack where the file says nothing, as in `Cluster.uniform`."""
MAX_NODES: Final = 1_000_000


@dataclass(frozen=True)
class _Key:
    """What may stand under a key: a text, a whole number or any number, within bounds."""

    kind: type[str] | type[int] | type[float]
    low: float = 0
    high: float = math.inf

    @property
    def wants(self) -> str:
        if self.kind is str:
            return "a text that is not empty"
        number = "a whole number" if self.kind is int else "a number"
        most = f" from {self.low:g} to {self.high:g}" if self.high < math.inf else ""
        return f"{number}{most}" if most else f"{number} of {self.low:g} or more"


_KEYS: Final = {
    "name": _Key(str),
    "count": _Key(int, 1, MAX_NODES),
    "gpus": _Key(int, 0, MAX_GPUS_PER_NODE),
    "gpu_type": _Key(str),
    "cpus": _Key(float),
    "memory_gb": _Key(float),
    "rack": _Key(int, 0, 2**31 - 1),
    "per_rack": _Key(int, 1, MAX_NODES),
    "link_gbps": _Key(float),
    "price_per_gpu_h": _Key(float),
}
_FLOATS: Final = {
    "cpus": math.inf, "memory_gb": math.inf, "link_gbps": 100.0, "price_per_gpu_h": 0.0,
}  # fmt: skip
"""Columns of numbers, and what a node has if the file does not say."""


def load_cluster(path: str | Path) -> Cluster:
    """The cluster that a file describes: CSV if its name ends in `.csv`, TOML otherwise."""
    path = Path(path)
    if path.suffix.lower() == ".csv":
        entries = _csv_entries(path)
    else:
        entries = _toml_entries(path)
    if not entries:
        raise ConfigError(f"{path}: A cluster needs at least one node; add a [[node]] entry.")
    for where, entry in entries:
        check_node(f"{path}: {where}", entry)
    return build_cluster(path, entries)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's content; errors name the file and, where known, the line."""
    return read_toml_text(path)[1]


def read_toml_text(path: Path) -> tuple[str, dict[str, Any]]:
    """A TOML file as text and as content."""
    text = read_config_text(path)
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: This is no valid TOML: {error}.") from None


def unknown_key(where: str, key: str, known: Iterable[str]) -> ConfigError:
    """The error for an unknown key."""
    names = sorted(known)
    close = get_close_matches(key, names, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(names)}."
    return ConfigError(f"{where}: There is no key {key!r}. {hint}")


def read_config_text(path: Path) -> str:
    """The text of a file of settings."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: There is no such file.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: Byte {error.start} is not UTF-8 text.") from None
    except OSError as error:
        raise ConfigError(f"{path}: The file cannot be read: {error.strerror}.") from None


def _toml_entries(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    content = read_toml(path)
    for key in content:
        if key != "node":
            raise unknown_key(str(path), key, ["node"])
    nodes = content.get("node", [])
    if not isinstance(nodes, list) or not all(isinstance(entry, dict) for entry in nodes):
        raise ConfigError(f"{path}: Nodes are listed under [[node]], in double brackets.")
    return [(f"node entry {number}", entry) for number, entry in enumerate(nodes, 1)]


def _csv_entries(path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    reader = csv.reader(io.StringIO(read_config_text(path)), skipinitialspace=True)
    header: list[str] = []
    entries: list[tuple[str, Mapping[str, Any]]] = []
    for row in reader:
        where = f"line {reader.line_num}"
        if not any(cell.strip() for cell in row):
            continue
        if not header:
            header = [cell.strip() for cell in row]
            continue
        if len(row) != len(header):
            raise ConfigError(
                f"{path}: {where}: {len(row)} fields, but the header names {len(header)}."
            )
        cells = zip(header, (cell.strip() for cell in row), strict=True)
        entries.append((where, {key: _number(key, cell) for key, cell in cells if cell}))
    if "gpus" not in header:
        raise ConfigError(f"{path}: The first line must name the columns, 'gpus' among them.")
    return entries


def _number(key: str, cell: str) -> Any:
    """A CSV cell as the number it is meant to be; left as it is if that fails."""
    if key not in _KEYS or _KEYS[key].kind is str:
        return cell
    try:
        return float(cell) if _KEYS[key].kind is float else int(cell)
    except ValueError:
        return cell


def check_node(where: str, entry: Mapping[str, Any]) -> None:
    """Refuse a node entry with an unknown key, a value out of range, or too little said."""
    for key, value in entry.items():
        check_node_key(where, key, value)
    if "gpus" not in entry:
        raise ConfigError(f"{where}: The number of GPUs is missing; add gpus = 8, say.")
    if "rack" in entry and "per_rack" in entry:
        raise ConfigError(f"{where}: Give rack or per_rack, not both.")


def check_node_key(where: str, key: str, value: Any) -> None:
    """Refuse one key of a node entry."""
    if key not in _KEYS:
        raise unknown_key(where, key, _KEYS)
    rule = _KEYS[key]
    if rule.kind is str:
        fine = isinstance(value, str) and bool(value.strip())
    else:
        kinds = (int,) if rule.kind is int else (int, float)
        fine = isinstance(value, kinds) and not isinstance(value, bool)
        fine = fine and rule.low <= value <= rule.high and math.isfinite(value)
    if not fine:
        raise ConfigError(f"{where}: {key} = {value!r} must be {rule.wants}.")


def build_cluster(path: str | Path, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> Cluster:
    """The cluster of checked entries, each with where it stands."""
    count = np.array([entry.get("count", 1) for _, entry in entries])
    if count.sum() > MAX_NODES:
        raise ConfigError(f"{path}: {count.sum():,} nodes are more than {MAX_NODES:,}.")
    types = tuple(dict.fromkeys(entry.get("gpu_type", "gpu") for _, entry in entries))
    code = [types.index(entry.get("gpu_type", "gpu")) for _, entry in entries]
    return Cluster(
        gpus=np.repeat([entry["gpus"] for _, entry in entries], count),
        names=_names(path, entries),
        gpu_types=types,
        type=np.repeat(code, count),
        rack=_racks([entry for _, entry in entries]),
        **{
            key: np.repeat([float(entry.get(key, usual)) for _, entry in entries], count)
            for key, usual in _FLOATS.items()
        },
    )


def with_more_nodes(cluster: Cluster, count: int, gpu_type: str | None = None) -> Cluster:
    """The cluster and `count` nodes more, like most of it, or like most with that GPU type."""
    rows = np.arange(len(cluster))
    if gpu_type is not None:
        rows = np.flatnonzero(cluster.type == cluster.type_code(gpu_type))
        if not len(rows):
            raise ConfigError(
                f"There is no node with GPU type {gpu_type!r} to add more of; the types are "
                f"{', '.join(map(repr, cluster.gpu_types))}."
            )
    kinds = np.stack([cluster.type[rows], cluster.gpus[rows]])
    _, first, sizes = np.unique(kinds, axis=1, return_index=True, return_counts=True)
    like, fresh = int(rows[first[sizes.argmax()]]), int(cluster.rack.max()) + 1
    taken = set(cluster.names)
    names = (name for k in range(count + len(taken)) if (name := f"added-{k}") not in taken)
    columns: dict[str, Any] = {
        key: np.append(getattr(cluster, key), np.repeat(getattr(cluster, key)[like], count))
        for key in ("gpus", "type", *_FLOATS)
    }
    rack = np.append(cluster.rack, fresh + np.arange(count) // PER_RACK)
    return replace(cluster, names=(*cluster.names, *islice(names, count)), rack=rack, **columns)


def _names(path: str | Path, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """`name` for a single node, `name-0`, `name-1`, … for several, `node-…` for nameless ones."""
    taken: dict[str, str] = {}
    for where, entry in entries:
        count, name = entry.get("count", 1), entry.get("name")
        if name is None:
            made = [f"node-{len(taken) + k}" for k in range(count)]
        else:
            made = [name] if count == 1 else [f"{name}-{k}" for k in range(count)]
        for node in made:
            if node in taken:
                raise ConfigError(
                    f"{path}: {where}: A node {node!r} is there already ({taken[node]}); "
                    "names must differ."
                )
            taken[node] = where
    return tuple(taken)


def _racks(entries: Sequence[Mapping[str, Any]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Racks as given; nodes with `per_rack` fill racks of their own, the others common ones."""
    fresh = 1 + max((entry["rack"] for entry in entries if "rack" in entry), default=-1)
    racks: list[int] = []
    common, room = -1, 0
    for entry in entries:
        count = entry.get("count", 1)
        if "rack" in entry:
            racks += [entry["rack"]] * count
        elif "per_rack" in entry:
            racks += [fresh + k // entry["per_rack"] for k in range(count)]
            fresh = racks[-1] + 1
        else:
            for _ in range(count):
                if room == 0:
                    common, fresh, room = fresh, fresh + 1, PER_RACK
                racks.append(common)
                room -= 1
    return np.array(racks, np.int64)
