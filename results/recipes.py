"""Write the reference of recipes, docs/learning.md, from the settings themselves.

`python results/recipes.py`; a test fails where the page says something else.
"""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import MISSING, fields
from pathlib import Path
from textwrap import dedent
from typing import Any, get_type_hints

from rota.learn.recipe import tables_of
from rota.systems.registry import SYSTEMS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "learning.md"
BEGIN, END = "<!-- reference of recipes -->", "<!-- end of reference -->"
TYPES = {
    int: "whole number", float: "number", bool: "true or false", str: "text",
    tuple[int, ...]: "list of whole numbers", tuple[str, ...]: "list of texts",
}  # fmt: skip
OWN = ("lens", "network")
"""Tables that every system has its own settings for."""


def meanings(settings: type[Any]) -> dict[str, str]:
    """The text below each field of a dataclass."""
    (made,) = ast.parse(dedent(inspect.getsource(settings))).body
    assert isinstance(made, ast.ClassDef)
    found, last = {}, ""
    for line in made.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            last = line.target.id
        elif last and isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
            found[last] = " ".join(str(line.value.value).split())
            last = ""
    return found


def table(settings: type[Any]) -> str:
    """One row per key: its type, its default and its meaning."""
    hints, told = get_type_hints(settings), meanings(settings)
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for one in fields(settings):
        default = "required" if one.default is MISSING else f"`{_toml(one.default)}`"
        kind = TYPES[hints[one.name]]
        meaning = told[one.name].replace("|", "\\|")
        lines.append(f"| `{one.name}` | {kind} | {default} | {meaning} |")
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if value != int(value) else f"{value:.1f}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def reference() -> str:
    """All tables, those that systems share first come in the order of a recipe."""
    parts = []
    shared = tables_of(next(iter(SYSTEMS.values())))
    for name, settings in shared.items():
        if name not in OWN:
            parts.append(f"### `[{name}]`\n{_opening(settings)}\n\n{table(settings)}")
            continue
        for system in SYSTEMS.values():
            own = tables_of(system)[name]
            parts.append(f"### `[{name}]` of `{system.name}`\n{_opening(own)}\n\n{table(own)}")
    return "\n\n".join(parts)


def _opening(settings: type[Any]) -> str:
    return " ".join((settings.__doc__ or "").split())


def page(text: str) -> str:
    """The page with its reference written again."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{reference()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
