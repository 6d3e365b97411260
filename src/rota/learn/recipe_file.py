"""Reads recipes of training from TOML files; every error names the file and line.

The `recipe.json` that a training leaves in its folder is a recipe, too.

A recipe may stand on another (`base = "dl2-onepass"`): it then sets only what differs, which is
how ablations are written.
"""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from rota.errors import ConfigError, UnknownNameError
from rota.learn.learners import LEARNING, settings_tables
from rota.learn.recipe import Recipe, RunConfig, tables_of
from rota.scenarios.reading import LONGEST_CHAIN, Lines, change_of
from rota.systems.registry import presets, system
from rota.traces.clusterfile import read_config_text, read_toml_text, unknown_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.learn.clone import CloneConfig
    from rota.learn.ppo import PPOConfig
    from rota.systems.registry import System


def load_recipe(source: str | Path, changes: Sequence[str] = ()) -> Recipe:
    """The preset of this name, or a file's recipe, with changes such as "ppo.clip=0.1"."""
    path = _find(source)
    content, where = _read_json(path) if path.suffix == ".json" else _read(path)
    name = str(content.pop("name")) if path.suffix == ".json" else path.stem
    for change in changes:
        _apply(content, where, change)
    return recipe_of(content, where, name)


class Where:
    """Says where a key was set: the file and line, or the option of the command."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: list[Lines] = []
        self.changed: dict[tuple[str, ...], str] = {}

    def __call__(self, *path: str) -> str:
        """`file:line`, of the recipe itself before its bases."""
        if path in self.changed:
            return self.changed[path]
        for lines in self.lines:
            if path in lines.at:
                return lines.where(*path)
        return self.lines[0].where(*path) if self.lines else self.file

    def of(self, *paths: tuple[str, ...]) -> str:
        """Where to look for what is wrong with these keys together: at a changed one, if any is."""
        return self(*next((path for path in paths if path in self.changed), paths[0]))


def recipe_of(content: Mapping[str, Any], where: Where, name: str) -> Recipe:
    """A checked recipe from the content of a file."""
    for key in ("system", "about"):
        if not isinstance(content.get(key), str):
            raise ConfigError(f'{where(key)}: {key} = "…" is missing; it must be a text.')
    try:
        kind = system(content["system"])
    except UnknownNameError as error:
        raise ConfigError(f"{where('system')}: {error}") from None
    learner = filled(RunConfig, content, where, "run").learner
    try:
        made_by = tables_of(kind, learner)
    except UnknownNameError as error:
        raise ConfigError(f"{where('run', 'learner')}: [run] learner: {error}") from None
    known = ["about", "system", *made_by]
    for key in content:
        if key not in known:
            raise unknown_key(where(key), key, known)
    tables = {table: filled(made, content, where, table) for table, made in made_by.items()}
    _check_exploration(kind, tables["explore"].kind, learner, where)
    if learner == "look-ahead" and kind.make_foresight is None:
        raise ConfigError(
            f"{where('run', 'learner')}: learner = 'look-ahead' is not possible with "
            f"{kind.name!r}, which cannot foresee what its actions lead to; say 'ppo'."
        )
    _check_shaping(kind, tables["ppo"], tables["world"].reward, where)
    _check_order(kind, tables["clone"], where)
    tables["learners"] = {table: tables.pop(table) for table in settings_tables(learner)}
    return Recipe(name=name, about=content["about"], system=content["system"], **tables)


def _check_exploration(kind: System, explore: str, learner: str, where: Where) -> None:
    if explore == "none":
        return
    if not LEARNING.get(learner).replaced:
        at = where.of(("explore", "kind"), ("run", "learner"))
        raise ConfigError(
            f"{at}: [explore] kind = {explore!r} does not go with learner = "
            f"{learner!r}, which needs the probability of each action, and that of a replaced one "
            "is not known; say run.learner = 'actor-critic', or kind = 'none'."
        )
    if kind.make_explorer is None:
        raise ConfigError(
            f"{where('explore', 'kind')}: [explore] kind = {explore!r} is not possible with "
            f"{kind.name!r}, which does not decide step by step; say 'none'."
        )


def _check_shaping(kind: System, ppo: PPOConfig, reward: str, where: Where) -> None:
    if ppo.horizon_s and kind.follows_jobs:
        raise ConfigError(
            f"{where('ppo', 'horizon_s')}: [ppo] horizon_s is not possible with {kind.name!r}, "
            "which does not decide step by step; say discount."
        )
    if not ppo.shaped:
        return
    if kind.follows_jobs:
        raise ConfigError(
            f"{where('ppo', 'shaped')}: [ppo] shaped = true is not possible with {kind.name!r}, "
            "which does not decide step by step; leave it out."
        )
    if ppo.credit == "own" and (ppo.discount > 0 or reward != "progress"):
        keys = ("ppo", "credit"), ("ppo", "shaped"), ("ppo", "discount"), ("world", "reward")
        raise ConfigError(
            f"{where.of(*keys)}: [ppo] credit = 'own' with shaped = true judges by the "
            f"progress of one round, so it needs reward = 'progress' and discount = 0, not "
            f"{reward!r} and {ppo.discount}; say credit = 'team'."
        )


def _check_order(kind: System, clone: CloneConfig, where: Where) -> None:
    if clone.any_order and kind.follows_jobs:
        raise ConfigError(
            f"{where('clone', 'any_order')}: [clone] any_order = true is not possible with "
            f"{kind.name!r}, which decides on all jobs at once; leave it out."
        )


def filled(kind: type[Any], content: Mapping[str, Any], where: Where, table: str) -> Any:
    """A dataclass from a table of the file: known keys only, each of its type."""
    given = content.get(table, {})
    if not isinstance(given, dict):
        raise ConfigError(f"{where(table)}: {table} must be a table, written [{table}].")
    hints, known = get_type_hints(kind), {f.name: f for f in fields(kind)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise unknown_key(f"{where(table, key)}: [{table}]", key, known)
        values[key] = _value(value, hints[key], f"{where(table, key)}: [{table}] {key}")
    for key, one in known.items():
        if key not in values and one.default is MISSING and one.default_factory is MISSING:
            raise ConfigError(f"{where(table)}: [{table}] {key} is missing.")
    try:
        return kind(**values)
    except ConfigError as error:
        named = [(table, word) for word in re.findall(r"\w+", str(error)) if word in values]
        raise ConfigError(f"{where.of(*named, (table,))}: [{table}] {error}") from None


_WANTS: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_LISTED: Final = {int: "whole numbers", str: "texts"}


def _value(value: Any, hint: Any, where: str) -> Any:
    if hint in _WANTS:
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, hint) and (hint is bool) == isinstance(value, bool):
            return value
        raise ConfigError(f"{where} = {value!r} must be {_WANTS[hint]}.")
    of = int if int in get_args(hint) else str
    if isinstance(value, list) and all(type(item) is of for item in value):
        return tuple(value)
    raise ConfigError(f"{where} = {value!r} must be a list of {_LISTED[of]}.")


def _find(source: str | Path, beside: Path | None = None) -> Path:
    path = Path(source)
    if isinstance(source, Path) or path.suffix in (".toml", ".json") or len(path.parts) > 1:
        return path if beside is None else beside / path
    shipped = presets()
    if str(source) not in shipped:
        raise UnknownNameError("recipe", str(source), shipped)
    return shipped[str(source)]


def _read_json(path: Path) -> tuple[dict[str, Any], Where]:
    """All settings of a training, from its folder."""
    try:
        content = json.loads(read_config_text(path))
    except ValueError as error:
        raise ConfigError(f"{path}: This is no valid JSON: {error}.") from None
    if not isinstance(content, dict) or "name" not in content:
        raise ConfigError(f"{path}: This is no recipe.json that `rota train` wrote.")
    return content, Where(str(path))


def _read(path: Path) -> tuple[dict[str, Any], Where]:
    """A file's content merged over that of its bases."""
    where, chain = Where(str(path)), [path]
    layers: list[dict[str, Any]] = []
    while True:
        text, content = read_toml_text(chain[-1])
        where.lines.append(Lines.of(str(chain[-1]), text))
        base = content.pop("base", None)
        layers.append(content)
        if base is None:
            break
        try:
            chain.append(_find(base, chain[-1].parent))
        except UnknownNameError as error:
            raise ConfigError(f"{where.lines[-1].where('base')}: {error}") from None
        if chain[-1] in chain[:-1] or len(chain) > LONGEST_CHAIN:
            raise ConfigError(
                f"{where.lines[-1].where('base')}: base = {base!r} leads back to itself, or "
                f"through more than {LONGEST_CHAIN} files; name another base."
            )
    merged: dict[str, Any] = {}
    for content in reversed(layers):
        for key, value in content.items():
            both = isinstance(value, dict) and isinstance(merged.get(key), dict)
            merged[key] = {**merged[key], **value} if both else value
    return merged, where


def _apply(content: dict[str, Any], where: Where, change: str) -> None:
    """Set `table.key=value` of the command line in the content."""
    try:
        path, value = change_of(change)
    except ConfigError as error:
        raise ConfigError(f"--set {error}") from None
    table, key = path
    if not isinstance(content.setdefault(table, {}), dict):
        raise ConfigError(f"--set {change}: There is no table [{table}].")
    content[table] = {**content[table], key: value}
    where.changed[path] = f"--set {change}"
