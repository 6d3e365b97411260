"""Numbers that a policy's name may carry, as in `srsf:b=0.5`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def number(text: str, least: float) -> float:
    value = float(text)
    if not (least <= value < np.inf):
        raise ValueError
    return value


def limits(text: str) -> np.ndarray[Any, Any]:
    values = np.array([number(part, 0.0) for part in text.split("/")])
    if not (np.diff(values) > 0).all():
        raise ValueError
    return values


@dataclass(frozen=True)
class Setting:
    """A number that a name may carry."""

    help: str
    read: Callable[[str], Any]
    needs: str
    rule: str = ""
    """The field of Rule it sets; of the policy itself if empty."""


def read_settings(base: str, wanted: str, takes: Mapping[str, Setting]) -> dict[str, Any]:
    """The values in `key=value,key=value`, each checked."""
    found: dict[str, Any] = {}
    for pair in filter(None, wanted.split(",")):
        key, _, text = pair.partition("=")
        if key not in takes:
            known = ", ".join(takes) or "none"
            raise ConfigError(f"Policy {base!r} has no setting {key!r}; it takes: {known}.")
        try:
            found[key] = takes[key].read(text)
        except ValueError:
            raise ConfigError(
                f"Policy setting {key}={text!r} of {base!r} must be {takes[key].needs}: "
                f"{takes[key].help}."
            ) from None
    return found
