"""The state of a training on disk ("parked"): at a stop, and regularly while it trains.

    FOLDER/whole-RUN-STEP.state   from the first worker: parameters, buffers, optimizer, …
    FOLDER/NAME-RUN-STEP.state    from each parameter server: what it keeps, with its moments
    FOLDER/parked.json            written last: the step, which files belong to it, and the growths
                                  of the network since the script built it

The files have the format in which members send the state to each other; nothing is pickled. Each
appears whole or not at all, and those of the former step are removed when all of the next are
there. So after the first save a process that is killed at any moment leaves a whole state behind.
"""

from __future__ import annotations

import threading
from hashlib import sha256
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from rota.elastic.growths import check_growths
from rota.errors import ConfigError, GrowthError, JobError, RotaError
from rota.files import read_file, replace_bytes, replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.elastic.replica import Replica

ENV_PARK: Final = "ROTA_PARK"
"""Folder to which a training writes its state."""
ENV_RESUME: Final = "ROTA_RESUME"
"""Folder with the state of a stopped training, from which the first members continue."""
MANIFEST: Final = "parked.json"
_WHOLE: Final = "whole"
_SHARDS_S: Final = 60.0
"""Seconds for the servers to write their parts; after that the former state stays."""
_WRITING: Final = threading.Lock()
_LEAST_RATIO: Final = 20.0
"""Least time from one copy of the state to the next, as a multiple of the time a copy takes."""


def parked(folder: Path | str) -> bool:
    """Whether a folder holds the whole state of a training; needs no torch."""
    return bool(_files(Path(folder)))


def _files(place: Path) -> list[str]:
    """Names of the files of a parked state; none if it is not whole."""
    try:
        names: list[str] = (read_file(place / MANIFEST) or {"files": []})["files"]
        return names if all((place / f"{name}.state").exists() for name in names) else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


class Parking:
    """Saves the state of a training: copied between two steps, written by a thread."""

    def __init__(self, folder: str, token: str, every_s: float) -> None:
        self._place, self._every_s = Path(folder), every_s
        # So that files of another run are never taken for a part of this run's state.
        self._run = sha256(token.encode()).hexdigest()[:8]
        self._due_s = monotonic() + every_s
        self._writer: threading.Thread | None = None

    def park(self, replica: Replica, name: str, shards: Mapping[str, tuple[int, ...]]) -> None:
        """Write this member's part of the state; `name` is the server's, or empty for a worker.

        `shards` gives the parameters that each server keeps; it is empty without servers.
        """
        self.finish(_SHARDS_S)
        end = f"{self._run}-{replica.position.step}"
        _store(_part(replica, name, shards), self._place, name, end, shards, replica.growths)

    def due(self) -> bool:
        """Whether it is time to save the state again, and the last one is on disk."""
        return monotonic() >= self._due_s and self._every_s > 0 and not self._writes()

    def keep(self, replica: Replica, name: str, shards: Mapping[str, tuple[int, ...]]) -> None:
        """Copy this member's part of the state, and write it in a thread."""
        if self._writes():
            return  # still busy: this save stays incomplete, and the former one is kept
        began_s = monotonic()
        tree = _copied(_part(replica, name, shards))
        took_s = monotonic() - began_s
        self._due_s = monotonic() + max(self._every_s, _LEAST_RATIO * took_s)
        end = f"{self._run}-{replica.position.step}"
        facts = (tree, self._place, name, end, dict(shards), replica.growths)
        self._writer = threading.Thread(target=_try_to_store, args=facts, daemon=True)
        self._writer.start()

    def finish(self, limit_s: float) -> None:
        """Wait for what is being written."""
        if self._writer is not None:
            self._writer.join(limit_s)

    def _writes(self) -> bool:
        return self._writer is not None and self._writer.is_alive()


def _part(replica: Replica, name: str, shards: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    if name:
        return {"keys": list(shards[name]), **replica.extract(shards[name])}
    return replica.extract(None)


def _copied(tree: Any) -> Any:
    """A copy of a tree, which training does not change."""
    if hasattr(tree, "detach"):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        copied = [_copied(value) for value in tree]
        return copied if isinstance(tree, list) else tuple(copied)
    return tree


def _try_to_store(*facts: Any) -> None:
    try:
        _store(*facts)
    except (OSError, RotaError) as error:
        # The former state is still there.
        print(f"The state of the training cannot be saved: {error}", flush=True)


def _store(
    tree: Any,
    place: Path,
    name: str,
    end: str,
    shards: Mapping[str, tuple[int, ...]],
    growths: Sequence[Mapping[str, Any]],
) -> None:
    """Write one part; the worker's part waits for all others and completes the state."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    if name:
        _write(place / f"{name}-{end}.state", tree)
        return
    files = [f"{part}-{end}" for part in (_WHOLE, *shards)]
    _write(place / f"{files[0]}.state", tree)
    until_s = monotonic() + _SHARDS_S
    while not all((place / f"{part}.state").exists() for part in files):
        if monotonic() > until_s:
            raise JobError(f"not all servers have written their part within {_SHARDS_S:g} s.")
        sleep(0.01)
    run, step = end.split("-")
    with _WRITING:
        facts = {"step": int(step), "files": files, "growths": list(growths)}
        replace_file(place / MANIFEST, facts)
    for old in place.iterdir():
        # Files that servers of this run have already written for a later step stay.
        head, _, when = old.stem.rpartition("-")
        later = head.endswith(f"-{run}") and when.isdecimal() and int(when) > int(step)
        if old.suffix in (".state", ".part") and old.stem not in files and not later:
            old.unlink(missing_ok=True)


def resume(replica: Replica, folder: str) -> None:
    """Load a parked state, to continue its training."""
    place = Path(folder)
    files = _files(place)
    if not files:
        raise JobError(f"{place} does not hold the whole state of a training.")
    try:
        growths = check_growths((read_file(place / MANIFEST) or {}).get("growths", ()))
        replica.grow_to(growths, structure_only=True)
        whole = _read(place / f"{files[0]}.state", replica.targets(None))
        replica.load(whole, None, with_position=True)
        for name in files[1:]:
            shard = _read(place / f"{name}.state", ())
            # The servers' learning rate counts, not the worker's.
            replica.load(shard, shard["keys"], with_position=True)
    except GrowthError as error:
        raise JobError(f"{place} cannot be resumed: {error}") from None
    except (OSError, ValueError, KeyError, ConfigError) as error:
        raise JobError(f"{place} is not a state of this training: {error}.") from None


def _write(path: Path, tree: Any) -> None:
    from rota.elastic.state_codec import parts_of

    with _WRITING:
        replace_bytes(path, parts_of(tree))


def _read(path: Path, into: Any) -> Any:
    from rota.elastic.state_codec import read

    with path.open("rb", buffering=0) as file:
        return read(file.readinto, into)
