"""Backends by name: `local`, which `rota run` makes itself, and those of other packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rota.errors import InputError, RotaError, UnknownNameError
from rota.plugins import Registry, resolve
from rota.policies.settings import read_settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core.seams import Backend
    from rota.plugins import Plugin

SLURM: Final = "slurm"
"""Made by `rota run` alone, which has a loop of its own for it."""
LOCAL: Final = "rota.backends.local.local_backend:LocalBackend"
SEAM: Final = ("observe", "apply", "wait")


def _plugged(make: Any, _plugin: Plugin) -> Callable[..., Backend]:
    if not callable(make):
        raise TypeError(f"{make!r} is no class or function that makes a backend")
    found: Callable[..., Backend] = make
    return found


BACKENDS: Final[Registry[Callable[..., Backend]]] = Registry(
    "rota.backends",
    "backend",
    [lambda: {"local": resolve(LOCAL)}],
    _plugged,
)


def make_backend(text: str) -> Backend:
    """The backend that `NAME[:setting=value,…]` names, made with these settings."""
    name, _, wanted = text.partition(":")
    if name not in BACKENDS:
        raise UnknownNameError("backend", name, {*BACKENDS.names(), SLURM})
    make = BACKENDS.get(name)
    settings = read_settings(name, wanted, settings_of(make), kind="Backend")
    who = f"The backend {name!r} of package {BACKENDS.package(name)!r}"
    try:
        made = make(**settings)
    except RotaError:
        raise
    except Exception as error:
        raise InputError(f"{who} could not be made: {type(error).__name__}: {error}.") from error
    missing = [method for method in SEAM if not callable(getattr(made, method, None))]
    if missing:
        raise InputError(f"{who} has no method {missing[0]}(); see rota.core.Backend.")
    return made
