"""What a live cluster has learned of its jobs' speeds, on disk: daemons come and go."""

from __future__ import annotations

import io
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.jobs import JobTable
from rota.files import BAD_ARRAYS, replace_bytes
from rota.perf.estimate import Estimator
from rota.perf.learned_ranks import LearnedRanks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from rota.core.snapshot import Snapshot
    from rota.core.types import Records
    from rota.perf.job_laws import JobLaws

KEEP_S: Final = 5.0
"""Between two times that it is written down; so much is lost with a killed daemon."""


class Speeds:
    """An estimator for jobs with servers and one for those without, in one file.

    With the laws of a profile, it also knows how jobs slow each other down, and learns that of
    models without one. What was learned holds for these laws only; without any, it is kept.
    """

    def __init__(
        self,
        path: Path,
        say: Callable[[str], None] = lambda _text: None,
        laws: JobLaws | None = None,
    ) -> None:
        self.path, self._say = path, say
        self._ranks = None if laws is None else LearnedRanks(laws)
        self._untouched: dict[str, Records] = {}  # of ranks, for a daemon that has a profile again
        self.models: dict[str, int] = {}
        """Models by name, with the numbers that snapshots call them by."""
        self._by: dict[bool, Estimator] = {}
        self._due_s, self._failed = monotonic() + KEEP_S, False
        try:
            self._read()
        except FileNotFoundError:
            pass
        except BAD_ARRAYS as error:
            self.models, self._by, self._untouched = {}, {}, {}
            self._ranks = None if laws is None else LearnedRanks(laws)
            why = error.strerror if isinstance(error, OSError) else None
            wrong = (
                f"cannot be read ({why})" if why else "is damaged, or of another version of rota"
            )
            say(f"{path} {wrong}: speeds are learned anew, and written over it")

    def number(self, model: str) -> int:
        """The number of a model; −1 if it has no name."""
        return self.models.setdefault(model, len(self.models)) if model else -1

    def see(
        self, snapshot: Snapshot, *, by_nodes: bool, told: Collection[int] | None = None
    ) -> Snapshot:
        """The same snapshot with the curves that can be known by now.

        `told` are the jobs (uid) whose progress was measured; None: all. The progress of others is
        the time they ran, and says nothing of what their neighbours cost them.
        """
        if by_nodes not in self._by:
            self._by[by_nodes] = Estimator(by_nodes=by_nodes)
        if self._ranks is not None:
            contention = self._ranks.see(snapshot, list(self.models), told)
            rows = snapshot.jobs.rows.copy()
            rows["curve"] = rows["model"]  # by which the estimator finds what it knows of a job
            snapshot = replace(snapshot, jobs=JobTable(rows), contention=contention)
        seen = self._by[by_nodes].see(snapshot)
        if monotonic() >= self._due_s:
            self.keep()
        return seen

    def keep(self) -> None:
        """Write it down; without room on the disk it is tried again, nobody waits for it."""
        self._due_s = monotonic() + KEEP_S
        arrays: dict[str, Records] = {"models": np.array(list(self.models), np.str_)}
        for by_nodes, estimator in self._by.items():
            arrays |= {f"{int(by_nodes)}.{name}": a for name, a in estimator.pack().items()}
        ranks = self._untouched
        if self._ranks is not None:
            ranks = {**self._ranks.pack(), "laws": np.array(self._ranks.laws.digest)}
        arrays |= {f"r.{name}": a for name, a in ranks.items()}
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **arrays)
        try:
            replace_bytes(self.path, [packed.getbuffer()])
            self._failed = False
        except OSError as error:
            if not self._failed:
                self._say(f"{self.path} cannot be written: {error.strerror}; tried again")
            self._failed = True

    def _read(self) -> None:
        with self.path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            self.models = {name: at for at, name in enumerate(kept["models"].tolist())}
            for by_nodes in (False, True):
                lead = f"{int(by_nodes)}."
                own = {name[2:]: kept[name] for name in kept if name.startswith(lead)}
                if own:
                    estimator = Estimator(by_nodes=by_nodes)
                    estimator.unpack(own)
                    self._by[by_nodes] = estimator
            ranks = {name[2:]: kept[name] for name in kept if name.startswith("r.")}
        if self._ranks is None:
            self._untouched = ranks
        elif ranks and str(ranks.get("laws")) == self._ranks.laws.digest:
            self._ranks.unpack(ranks)
        elif ranks:
            self._say(
                f"{self.path}: how models without a profile slow each other down was learned with "
                "another --profile; it is learned anew"
            )
