"""The page on learning: its reference of recipes says what the settings say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from rota.learn.recipe import tables_of
from rota.systems.registry import SYSTEMS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def writer() -> Any:
    spec = importlib.util.spec_from_file_location("recipes", ROOT / "results" / "recipes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_that_of_the_settings(writer: Any) -> None:
    text = writer.PAGE.read_text()
    assert writer.page(text) == text, "run `python results/recipes.py`"
    for system in SYSTEMS.values():
        for name, settings in tables_of(system).items():
            assert f"### `[{name}]`" in text
            for key in settings.__dataclass_fields__:
                assert f"| `{key}` |" in text


def test_a_stale_page_is_noticed(writer: Any) -> None:
    text = writer.PAGE.read_text()
    assert "60000" in text
    assert writer.page(text.replace("60000", "60001")) == text
