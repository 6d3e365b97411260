"""The fitted coefficients that come with rota; `make fit` writes them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rota.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@cache
def shipped(name: str) -> dict[str, Any]:
    """The coefficients in `data/NAME.json`; read-only by agreement."""
    text = (files("rota.perf") / "data" / f"{name}.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def chosen(kind: str, wanted: Sequence[str] | None, known: Iterable[str]) -> tuple[str, ...]:
    """The names asked for, or all; an unknown one is refused."""
    names = tuple(known)
    if wanted is None:
        return names
    for name in wanted:
        if name not in names:
            raise UnknownNameError(kind, name, names)
    return tuple(wanted)
