"""The policies that know about speed, contention or price: one class each, named here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.policies.settings import Setting


@dataclass(frozen=True)
class Aware:
    """A policy with a class of its own.

    The class is made with `name`, `oracle` and the settings as keywords, and keeps the first two
    as attributes: an oracle is shown the truth where a scenario hides it.
    """

    summary: str
    source: str
    make: str
    """`module:Class`; imported when the policy is asked for."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """By the name of the keyword that it becomes."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Keywords that are always given."""


AWARE: Final[dict[str, Aware]] = {}
