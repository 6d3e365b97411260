"""The wheel holds all that the program reads; NOTICE names the sources of facts."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def files_below(folder: Path) -> list[Path]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in found if "__pycache__" not in path.parts]


def test_every_file_that_the_program_reads_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    package = ROOT / "src" / "rota"
    packed = {
        path for pattern in settings["package-data"]["rota"] for path in package.glob(pattern)
    }
    left = [p for p in files_below(package) if p.suffix != ".py" and p not in packed]
    assert left == []


def test_the_notice_names_every_file_of_facts() -> None:
    notice = (ROOT / "NOTICE").read_text()
    shipped, fixtures = ROOT / "src" / "rota", ROOT / "tests" / "fixtures"
    found = [path.relative_to(shipped) for path in files_below(shipped / "perf" / "data")]
    found += [path.relative_to(fixtures) for path in files_below(fixtures)]
    assert len(found) > 20
    assert [str(path) for path in found if str(path) not in notice] == []


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_nothing_is_looked_for_beside_the_repository(folder: str) -> None:
    # "share" + "d" lest this very line be found.
    beside = ("../share" + "d", '"share' + 'd" / "', "share" + "d/data")
    for path in files_below(ROOT / folder):
        if path.suffix in (".py", ".toml"):
            text = path.read_text()
            assert not [words for words in beside if words in text], path
