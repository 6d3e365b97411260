"""Trained policies by name or file, for every verb that takes policies."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.errors import InputError

if TYPE_CHECKING:
    from rota.core import Policy


def load_trained(name: str) -> Policy | None:
    """The policy of a checkpoint, `PATH.ckpt` or one that rota ships; None for other names."""
    path = Path(name) if name.endswith(".ckpt") else _shipped().get(name)
    if path is None:
        return None
    try:
        from rota.learn.deploy import load_policy
    except ModuleNotFoundError as error:
        raise InputError(
            f"Policy {name!r} is a trained network and needs {error.name}, which is not "
            "installed: pip install 'rota[train]'."
        ) from None
    return load_policy(path, name)


@cache
def _shipped() -> dict[str, Path]:
    from rota.systems.catalogue import trained

    return trained()


def entries_of_trained() -> list[dict[str, Any]]:
    """The trained policies that rota ships, as `rota policies` lists them."""
    from rota.systems.catalogue import about_preset

    return [{"kind": "trained", "name": name, "summary": about_preset(name)} for name in _shipped()]


def register() -> None:
    """Let `make_policy` know trained policies."""
    from rota.policies.catalogue import LOADERS

    if load_trained not in LOADERS:
        LOADERS.append(load_trained)
