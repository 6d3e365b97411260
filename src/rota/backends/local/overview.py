"""What the queue says of jobs that have never run, in one file: it need not open thousands.

Nothing depends on it: what is missing, damaged or outdated is read from the jobs themselves.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from rota.backends.local.state_dir import REQUEST
from rota.errors import DamagedError, RotaError
from rota.files import read_file, replace_file

if TYPE_CHECKING:
    from rota.backends.local.request import Request
    from rota.backends.local.state_dir import StateDir

OVERVIEW: Final = "overview.json"
_KEYS: Final = ("name", "user", "kind", "submitted_at", "min_workers", "max_workers")
MANY: Final = 100
"""Jobs that had to be read from which on the file is written, to spare the next reader that."""


class Overview:
    """Facts of jobs by number, each as of one version of its request."""

    def __init__(self, store: StateDir) -> None:
        self._store, self._path, self._jobs = store, store.root / OVERVIEW, str(store.jobs)
        self._facts: dict[str, Any] = {}
        with suppress(DamagedError, OSError):
            self._facts = read_file(self._path) or {}
        self._new = 0

    def fresh(self, uid: int) -> dict[str, Any] | None:
        """What was asked for, if the job has never run, was not cancelled, and can be read."""
        folder = f"{self._jobs}/{uid}"
        try:
            if os.listdir(folder) != [REQUEST]:
                return None
            about = os.lstat(f"{folder}/{REQUEST}")
        except OSError:
            return None
        key = [about.st_mtime_ns, about.st_size, about.st_ino, about.st_mode, about.st_uid]
        known = self._facts.get(str(uid))
        if isinstance(known, list) and len(known) == 2 and known[0] == key and _sound(known[1]):
            return dict(zip(_KEYS, known[1], strict=True))
        facts = _told(self._store.request(uid))
        self._facts[str(uid)] = [key, [facts[name] for name in _KEYS]]
        self._new += 1
        return facts

    def note(self, uids: list[int]) -> None:
        """List jobs that are new here."""
        for uid in uids:
            if str(uid) not in self._facts:
                with suppress(RotaError, OSError):
                    self.fresh(uid)
        self.keep(uids)

    def keep(self, uids: list[int]) -> None:
        """Write it down for the next reader, if that is worth it."""
        if self._new >= MANY:
            there = set(map(str, uids))
            facts = {uid: told for uid, told in self._facts.items() if uid in there}
            with suppress(OSError):
                replace_file(self._path, facts)
            self._new = 0


def _told(request: Request) -> dict[str, Any]:
    return {name: getattr(request, "title" if name == "name" else name) for name in _KEYS}


def _sound(told: object) -> bool:
    if not isinstance(told, list) or len(told) != len(_KEYS):
        return False
    kinds = (str, str, str, float, int, int)
    return all(type(value) is kind for value, kind in zip(told, kinds, strict=True))
