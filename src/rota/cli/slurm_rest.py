"""The option `--slurmrestd`, and the token that comes with it."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rota.backends.slurm.rest import Slurmrestd

RestAddress = Annotated[
    str | None,
    typer.Option(
        "--slurmrestd",
        metavar="ADDRESS",
        help="Read Slurm through unix:/PATH or http://HOST:PORT (token: SLURM_JWT).",
    ),
]


def slurmrestd(address: str | None) -> Slurmrestd | None:
    """The slurmrestd at an address, if any was given."""
    from rota.backends.slurm.rest import Slurmrestd

    if address is None:
        return None
    if address.startswith("unix:"):
        return Slurmrestd(address)
    # Slurm's commands would take the token, too, and all fail together when it expires.
    token = os.environ.pop("SLURM_JWT", "").strip()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name; the token names one
        user = ""
    return Slurmrestd(address, token, user)
