"""Pages that must not go stale: what is generated is up to date, what is listed is complete."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rota.core import Cluster, Draft, Job, Snapshot
from rota.core.layout import JOB, NODE
from rota.core.speed import Contention, Curves

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import generate_docs  # noqa: E402

PAGE = (ROOT / "docs" / "policy-reference.md").read_text()


def section(name: str) -> str:
    """The part of the reference below a heading."""
    return re.split(r"^## ", PAGE.split(f"\n## {name}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def public(thing: Any) -> set[str]:
    """The names of an object that are meant for others."""
    fields = set(getattr(type(thing), "__dataclass_fields__", ())) | set(
        getattr(thing, "_fields", ())
    )
    inherited = set(dir(tuple)) if isinstance(thing, tuple) else set()
    names = {*dir(thing), *fields} - inherited
    return {name for name in names if not name.startswith("_")}


SNAPSHOT = Snapshot.of(Cluster.uniform(1), [Job(workers=1)])
CURVES = Curves(("a",), ("gpu",), np.ones((1, 1, 1, 1)), False, np.zeros((1, 2), np.int64))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Snapshot", public(SNAPSHOT)),
        ("JobTable", public(SNAPSHOT.jobs) | set(JOB.names or ())),
        ("Nodes", set(NODE.names or ())),
        ("Cluster", public(SNAPSHOT.cluster)),
        ("Draft", public(Draft(SNAPSHOT))),
        ("Decision", public(Draft(SNAPSHOT).commit())),
        ("Curves", public(CURVES)),
        ("Contention", set(Contention._fields)),
    ],
)
def test_the_reference_names_everything_that_a_policy_can_use(name: str, known: set[str]) -> None:
    told = {
        word
        for span in re.findall(r"`([^`]+)`", section(name))
        for word in re.findall(r"\w+", span)
    }
    assert known - told == set()


@pytest.mark.parametrize(
    ("name", "known"),
    [("JobTable", public(SNAPSHOT.jobs) | set(JOB.names or ())), ("Nodes", set(NODE.names or ()))],
)
def test_the_reference_names_no_column_that_does_not_exist(name: str, known: set[str]) -> None:
    rows = re.findall(r"^\| (`.*?`) \|", section(name), flags=re.MULTILINE)
    told = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert len(told) > 8
    assert told - known == set()


def test_what_is_generated_is_up_to_date() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "<!-- generated" in page.read_text()]
    assert len(pages) >= 2
    for page in pages:
        text = page.read_text()
        assert text.count("<!-- generated: ") == text.count("<!-- end -->")
        assert generate_docs.renewed(text) == text, f"{page.name}: run `make docs`"


def test_every_command_and_option_is_in_the_page() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    import typer

    from rota.cli.app import app

    root = typer.main.get_command(app)
    seen = 0
    for words, command in generate_docs.commands(root, ("rota",)):
        assert f"### `{' '.join(words)}" in page
        for param in command.params:
            for option in param.opts if hasattr(param, "is_flag") else ():
                assert f"`{option}" in page, (words, option)
                seen += 1
    assert seen > 60
