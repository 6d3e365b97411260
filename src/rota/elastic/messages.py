"""What members may send to their agent; every message is checked before it is used."""

from __future__ import annotations

from typing import Any, Final

from rota.elastic.growths import check_growth, check_growths
from rota.elastic.outline import Outline
from rota.errors import ConfigError

_MOST: Final = 1 << 62
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "number": (int,),
    "step": (int,),
    "epoch": (int,),
    "samples": (int,),
    "pause_s": (int, float),
    "ago_s": (int, float),
    "version": (int,),
    "phase": (str,),
    "error": (str, type(None)),
    "sum": (int, type(None)),
}
_PROGRESS: Final = ("step", "epoch", "samples")
_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "ready": (),
    "alive": _PROGRESS,
    "finished": _PROGRESS,
    "joined": ("number", *_PROGRESS, "pause_s"),
    "prepared": ("number",),
    "held": ("number", "step"),
    "broken": ("number", "step"),
    "trouble": ("number", "error"),
    "grow": ("number", "version"),
    "ungrown": ("number", "error"),
    "failed": ("error",),
}


def check_message(message: dict[str, Any]) -> None:
    """Refuse a message with unknown, missing or impossible values."""
    op = message.get("op")
    needed = _NEEDED.get(op) if isinstance(op, str) else None
    if needed is None:
        raise ConfigError(f"A member cannot send a message {op!r}.")
    for key in needed:
        if key not in message:
            raise ConfigError(f"The message {op} needs {key}.")
    for key, kinds in _KINDS.items():
        value = message.get(key)
        if key not in message or (key not in needed and value is None):
            continue
        sound = isinstance(value, kinds) and not isinstance(value, bool)
        if isinstance(value, int | float):
            sound = sound and -_MOST < value < _MOST * 4  # a checksum has 64 bits; no NaN, no inf
        if not sound:
            raise ConfigError(f"The message {op} cannot have {key}={value!r:.80}.")
    if message.get("growth") is not None:
        check_growth(message["growth"])


def read_hello(message: dict[str, Any]) -> tuple[str, dict[str, Any], Outline]:
    """Name, card (its address) and outline of a member that says hello."""
    name, card, facts = (message.get(key) for key in ("name", "card", "outline"))
    if not isinstance(name, str):
        raise ConfigError(f"A member cannot be called {name!r:.80}.")
    if not (
        isinstance(card, dict)
        and isinstance(card.get("host"), str)
        and _is_count(card.get("state_port"))
    ):
        raise ConfigError(f"The card of {name:.80} needs a host and a state_port.")
    try:
        outline = Outline.decode(facts or {})
        sound = all(map(_is_count, outline.sizes)) and isinstance(outline.form, str)
        sound = sound and all(_is_count(outline.plan[key]) for key in ("samples", "epochs"))
        check_growths(outline.growths)
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ConfigError(f"The outline of {name:.80} is not valid.")
    return name, card, outline


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST
