"""A training that takes seconds: ten elastic jobs on six machines, by a recipe of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

WORLD = {
    "scenario": "dl2-testbed", "train": "3000:3016", "validate": "1000:1004", "against": [],
    "clusters": 16, "pool": 16,
}  # fmt: skip
RUN = {"updates": 12, "validate_every": 6, "threads": 1}


def small_recipe(folder: Path, *, system: str = "dl2-onepass", **tables: Mapping[str, Any]) -> Path:
    """The file of a recipe; `tables` such as run={"updates": 2} add to it and replace in it."""
    usual: dict[str, Mapping[str, Any]] = {"world": WORLD, "run": RUN}
    lines = ['about = "a few minutes of a small cluster"', f'system = "{system}"']
    for name in {**usual, **tables}:
        lines.append(f"[{name}]")
        keys = {**usual.get(name, {}), **tables.get(name, {})}
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]  # is TOML, too
    path = folder / "tiny.toml"
    path.write_text("\n".join([*lines, ""]))
    return path


def small_trainer(
    folder: Path, *changes: str, system: str = "dl2-onepass",
    tables: Mapping[str, Mapping[str, Any]] | None = None, out: str = "out", **options: Any,
) -> Trainer:  # fmt: skip
    """A trainer of it, in the folder `out` below; `options` are the trainer's own."""
    recipe = load_recipe(small_recipe(folder, system=system, **(tables or {})), changes)
    return Trainer(recipe, folder / out, **options)
