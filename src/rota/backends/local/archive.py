"""Jobs that are over leave their folders: a row each in the history, and what they have printed."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, replace
from time import time
from typing import TYPE_CHECKING, Any, Final

from rota.backends.local.state_dir import ENDED
from rota.elastic.protocol import LOGS
from rota.errors import DamagedError, RotaError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rota.backends.local.request import Request
    from rota.backends.local.state_dir import StateDir

STALE_S: Final = 86400.0
"""Seconds after which a half-written job is removed: its submitter must have been killed."""


def put_away(store: StateDir, uids: Iterable[int]) -> None:
    """Put jobs away that are over: a row for each in the history, and what they printed.

    The row comes first: whatever is cut off is done again, and no job is lost or there twice.
    """
    uids = list(uids)
    there = [uid for uid in uids if store.history.has(uid)]
    known = [uid for uid in there if _is_sound(store, uid)]
    rows = [row for uid in uids if uid not in known if (row := _past(store, uid))]
    if damaged := {row[0] for row in rows}.intersection(there):
        store.history.drop(damaged)  # the folders know better
    store.history.add(rows)
    for uid in (*known, *(row[0] for row in rows)):
        folder = store.folder(uid)
        for path in folder.iterdir():
            if path.name.startswith("run-") and path.is_dir() and not path.is_symlink():
                _keep_logs(path)
            elif path.name != ENDED:
                _remove(path)
        away = store.over / str(uid)
        silent = not any(folder.glob("run-*"))
        _remove(away)
        folder.rename(away)  # at once: a job without its end is never seen
        _remove(away if silent else away / ENDED)


def _is_sound(store: StateDir, uid: int) -> bool:
    """Whether the row of a job can be read."""
    try:
        return store.past_ended(uid, store.history.get(uid) or {}) is not None
    except DamagedError:
        return False


def _past(store: StateDir, uid: int) -> tuple[int, float, dict[str, Any]] | None:
    try:
        ended = store.ended(uid)
    except DamagedError:  # since it ended: the daemon will see to it
        ended = None
    if ended is None:
        return None
    facts: dict[str, Any] = {"ended": asdict(ended), "request": None, "held": None}
    with suppress(RotaError):
        facts["request"] = _without_defaults(replace(store.request(uid), env={}))
    with suppress(RotaError):
        facts["held"] = asdict(store.held(uid))
    return uid, ended.time_s, facts


def forget(store: StateDir, before_s: float, most: int) -> int:
    """Forget jobs that ended before a time, or are not among the last `most`; how many."""
    outdated = store.history.outdated(before_s, most)
    for uid in outdated:  # first, so that no folder is left without a row
        _remove(store.over / str(uid))
    if outdated:
        store.history.drop(outdated)
    for path in store.jobs.glob(".new-*"):  # of submitters that were killed
        with suppress(OSError):
            if path.stat().st_mtime < time() - STALE_S:
                _remove(path)
    return len(outdated)


def _without_defaults(request: Request) -> dict[str, Any]:
    facts = request.encode()
    return {
        item.name: facts[item.name]
        for item in fields(request)
        if item.name != "env" and (item.default is MISSING or facts[item.name] != item.default)
    }


def _keep_logs(run: Path) -> None:
    """Of a run, keep what was printed: the rest holds the environment of its user."""
    for path in run.iterdir():
        if path.name != LOGS:
            _remove(path)
    if not any(run.glob(f"{LOGS}/*")):
        _remove(run)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):  # another process was faster
        try:
            path.unlink()
        except IsADirectoryError:
            shutil.rmtree(path)
