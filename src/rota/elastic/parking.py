"""The state of a training on disk, between a stop and the next start.

    FOLDER/whole.state    from the first worker: parameters, buffers, position, schedule, optimizer
    FOLDER/NAME.state     from each parameter server: what it keeps, with the optimizer's moments
    FOLDER/parked.json    written last: the step, and which files belong to it

The files have the form in which members hand the state to each other; nothing is pickled.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rota.elastic.job import read_file, replace_file
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.elastic.replica import Replica

ENV_PARK: Final = "ROTA_PARK"
"""Folder into which a training that is stopped puts its state."""
ENV_RESUME: Final = "ROTA_RESUME"
"""Folder with the state of a training that was stopped; the first members go on from there."""
MANIFEST: Final = "parked.json"
_WHOLE: Final = "whole"


def parked(folder: Path | str) -> bool:
    """Whether a folder holds the whole state of a training; needs no torch."""
    return bool(_files(Path(folder)))


def _files(place: Path) -> list[str]:
    """The parts of a parked state; none if it is not whole."""
    try:
        names: list[str] = (read_file(place / MANIFEST) or {"files": []})["files"]
        return names if all((place / f"{name}.state").exists() for name in names) else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def park(replica: Replica, folder: str, name: str, shards: Mapping[str, tuple[int, ...]]) -> None:
    """Write this member's part of the state; `name` is the server's, or empty for the first worker.

    `shards` says which parameters each server keeps; there are none without servers.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if name:
        _write(place / f"{name}.state", {"keys": list(shards[name]), **replica.part(shards[name])})
        return
    _write(place / f"{_WHOLE}.state", replica.part(None))
    replace_file(place / MANIFEST, {"step": replica.position.step, "files": [_WHOLE, *shards]})


def resume(replica: Replica, folder: str) -> None:
    """Go on from a parked state."""
    place = Path(folder)
    files = _files(place)
    if not files:
        raise JobError(f"{place} does not hold the whole state of a training.")
    try:
        replica.take(_read(place / f"{_WHOLE}.state", replica.places(None)), None, news=True)
        for name in files[1:]:
            shard = _read(place / f"{name}.state", ())
            # Servers know more than workers of the learning rate, too.
            replica.take(shard, shard["keys"], news=True)
    except (OSError, ValueError, KeyError) as error:
        raise JobError(f"{place} is not a state of this training: {error}.") from None


def _write(path: Path, tree: Any) -> None:
    from rota.elastic.state import parts_of

    part = path.with_suffix(".part")
    with part.open("wb") as file:
        for piece in parts_of(tree):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _read(path: Path, into: Any) -> Any:
    from rota.elastic.state import read

    with path.open("rb", buffering=0) as file:
        return read(file.readinto, into)
