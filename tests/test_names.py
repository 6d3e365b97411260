"""One name, one meaning: no two rooms have a class or a module of the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "rota"
MODULES = sorted(PACKAGE.rglob("*.py"))


def twice(found: list[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that stand at several places, and where."""
    places = defaultdict(list)
    for name, path in found:
        places[name].append(path.relative_to(PACKAGE).as_posix())
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_no_two_modules_have_the_same_name() -> None:
    assert twice([(path.name, path) for path in MODULES if path.name != "__init__.py"]) == {}


def test_no_two_classes_have_the_same_name() -> None:
    found = [
        (node.name, path)
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    assert len(found) > 100
    assert twice(found) == {}


def test_modules_are_short_enough_to_be_read() -> None:
    lengths = {
        path.relative_to(PACKAGE).as_posix(): path.read_text().count("\n") for path in MODULES
    }
    assert {name: lines for name, lines in lengths.items() if lines > 350} == {}
