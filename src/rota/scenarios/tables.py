"""Which measured tables a `-published` scenario reads: those that ship, unless others are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rota.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

MEASURED: Final = ("dl2-measured", "dl2-clean", "deepshare-measured")
"""Families of speeds that are measurements, not fits."""


def tables_folder(family: str, given: Path | None) -> Path | None:
    """The folder whose `profiles/` replaces the shipped tables; None: they are not replaced."""
    if given is None or family not in MEASURED:
        return None
    if not given.is_dir():
        raise InputError(f"--data {given}: there is no such folder; the measured tables ship.")
    return given if (given / "profiles").is_dir() else None
