"""Settings that a name may carry, as in `srsf:b=0.5`, and the entry that lists a policy."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.core.seams import Policy

GIVEN: Final = ("name", "oracle")
"""Keywords that follow from the whole name of a policy; they are no settings."""


def number(text: str, least: float) -> float:
    """A finite number of at least so much."""
    value = float(text)
    if not (least <= value < np.inf):
        raise ValueError
    return value


def limits(text: str) -> np.ndarray[Any, Any]:
    """Rising numbers joined by /."""
    values = np.array([number(part, 0.0) for part in text.split("/")])
    if not (np.diff(values) > 0).all():
        raise ValueError
    return values


def one_of(*words: str) -> Callable[[str], str]:
    """Reads one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return read


def flag(text: str) -> bool:
    """0 or 1."""
    return bool(("0", "1").index(text))


@dataclass(frozen=True)
class Setting:
    """A value that a name may carry."""

    help: str
    read: Callable[[str], Any]
    """Raises ValueError where the text will not do."""
    needs: str
    rule: str = ""
    """The field of Rule it sets; of the policy itself if empty."""


@dataclass(frozen=True)
class PolicyEntry:
    """A policy with a class of its own, as the catalogue lists it.

    The class is made with the settings as keywords; and with `name` and `oracle`, if it takes
    them: an oracle is shown the truth where a scenario hides it.
    """

    summary: str
    source: str
    make: Callable[..., Policy]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """By the name of the keyword that it becomes."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Keywords that are always given."""
    kind: str = "speed-aware"
    """The table of `rota policies` that it is in."""


def read_settings(
    base: str, wanted: str, takes: Mapping[str, Setting], kind: str = "Policy"
) -> dict[str, Any]:
    """The values in `key=value,key=value`, each checked."""
    found: dict[str, Any] = {}
    for pair in filter(None, wanted.split(",")):
        key, _, text = pair.partition("=")
        if key not in takes:
            known = ", ".join(takes) or "none"
            raise ConfigError(f"{kind} {base!r} has no setting {key!r}; it takes: {known}.")
        if key in found:
            raise ConfigError(
                f"{kind} {base!r} is given {key!r} twice in {wanted!r}; give it once."
            )
        try:
            found[key] = takes[key].read(text)
        except ValueError:
            raise ConfigError(
                f"{kind} setting {key}={text!r} of {base!r} must be {takes[key].needs}: "
                f"{takes[key].help}."
            ) from None
    return found


def parameters(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """What a class or a function takes by keyword."""
    try:
        found = inspect.signature(make).parameters
    except (TypeError, ValueError):  # written in C, or no function at all
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {key: one for key, one in found.items() if one.kind in named}


def settings_of(make: Callable[..., Any]) -> dict[str, Setting]:
    """What can be set of a class or a function: the parameters whose annotation can be read.

    These are int, float, bool, str, a Literal, and any of them or None. A parameter without an
    annotation is read as its default is.
    """
    found: dict[str, Setting] = {}
    for key, parameter in parameters(make).items():
        usual = parameter.default
        known = _reader(_hint(make, key, parameter))
        if key not in GIVEN and known is not None:
            help_ = "it must be given" if usual is parameter.empty else f"default {usual}"
            found[key] = Setting(help_, *known)
    return found


def _hint(make: Callable[..., Any], key: str, parameter: inspect.Parameter) -> Any:
    """The type that an annotation stands for, also where it is kept as a text."""
    if parameter.annotation is parameter.empty:
        return type(parameter.default)
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    line = inspect.getmro(make) if inspect.isclass(make) else ()
    owners: list[Any] = [one for one in line if key in vars(one).get("__annotations__", {})]
    owners += [vars(one)["__init__"] for one in line if "__init__" in vars(one)]
    home = owners[0] if owners else make
    space = vars(sys.modules.get(getattr(home, "__module__", None) or "", sys))
    alone = type("alone", (), {"__annotations__": {key: parameter.annotation}})
    try:  # one by one: others may name what is imported for the type checker only
        return get_type_hints(alone, space)[key]
    except Exception:
        return type(parameter.default)


_SIMPLE: Final[Mapping[type, tuple[Callable[[str], Any], str]]] = {
    bool: (flag, "0 or 1"), int: (int, "a whole number"), str: (str, "a text"),
    float: (lambda text: number(text, -np.inf), "a number"),
}  # fmt: skip


def _reader(hint: Any) -> tuple[Callable[[str], Any], str] | None:
    """How a text becomes a value of this type, and what it must be, in words."""
    if isinstance(hint, type) and hint in _SIMPLE:
        return _SIMPLE[hint]
    kinds = get_args(hint)
    if get_origin(hint) is Literal:
        by_text = {str(value): value for value in kinds}
        return lambda text: _looked_up(by_text, text), " or ".join(by_text)
    if get_origin(hint) in (Union, UnionType) and NoneType in kinds and len(kinds) == 2:
        inner = _reader(next(kind for kind in kinds if kind is not NoneType))
        if inner is not None:
            read, needs = inner
            return lambda text: None if text == "none" else read(text), f"{needs}, or none"
    return None


def _looked_up(values: Mapping[str, Any], text: str) -> Any:
    if text not in values:
        raise ValueError
    return values[text]
