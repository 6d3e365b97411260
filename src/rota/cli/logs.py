"""Where a log is looked for: as it is named, then below the data folder."""

from __future__ import annotations

import os
from os.path import exists, isfile
from pathlib import Path
from typing import Final

from rota.errors import InputError

VARIABLE: Final = "ROTA_DATA"
"""Names a folder of logs; it changes no measured table, so it cannot change a scenario."""


def located(source: str | Path, data: Path | None = None) -> str | Path:
    """The file with this name or, if there is none, the one below the data folder.

    A preset, or a name that is found nowhere, is returned as it is: the reader complains about it.
    """
    if data is not None and not data.is_dir():
        raise InputError(f"--data {data}: there is no such folder.")
    return source if exists(source) else below_data(source, data) or source


def below_data(source: str | Path, data: Path | None = None) -> Path | None:
    """A log below `data`, or below what ROTA_DATA names, or below `traces/` of either."""
    named = os.environ.get(VARIABLE)
    for folder in (data, Path(named) if named else None):
        if folder is not None:
            for place in (folder / source, folder / "traces" / source):
                if isfile(place):
                    return place
    return None
