"""Laws of speed and contention fitted to what was measured of a user's own jobs.

Speed alone is one · workers^a · nodes^b, and as measured where it was measured. Beside another job,
a job loses sensitivity × the other's intensity of its speed (`rota.perf.sharing`). On one node jobs
share other things than over several, so both are fitted by themselves where both were measured.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rota.core.speed import RANKS, Contention, Curves
from rota.errors import InputError
from rota.files import is_count, is_number, replace_file
from rota.perf.sharing import RANK_FLOOR, fit_ranks
from rota.perf.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.core.types import Bools, Floats
    from rota.perf.job_tables import JobTables

LAWS: Final = "profile.json"
FORMAT: Final = 2
_FREE: Final = (100.0, 0.15, 0.25)
"""How far the logarithm of `one`, and both exponents, may be from those of other jobs where
measurements leave it open: the exponents by as much as those of DeepShare's six models differ."""


@dataclass(frozen=True)
class JobRanks:
    """How much a job suffers from others, and others from it."""

    sensitivity: float
    intensity: float
    paired: bool = False
    """Whether it was measured beside others; if not, it is taken to be like the average job."""


@dataclass(frozen=True)
class JobLaw:
    """What is believed of one model."""

    one: float
    """Samples per second of one worker."""
    by_workers: float
    by_nodes: float
    on_one: JobRanks
    """On one node."""
    across: JobRanks
    """Over several nodes."""
    placements: tuple[tuple[int, int, float], ...]
    """Workers, nodes and samples per second, as measured."""
    gpus_per_worker: int = 1

    def ranks(self, nodes: int) -> JobRanks:
        """Over so many nodes."""
        return self.on_one if nodes == 1 else self.across

    def speed(self, nodes: Floats, workers: Floats) -> Floats:
        """Samples per second over so many nodes; 0 where a node would have no worker."""
        law = self.one * np.maximum(workers, 1.0) ** self.by_workers
        law = law * np.maximum(nodes, 1.0) ** self.by_nodes
        return np.asarray(np.where((workers >= nodes) & (nodes >= 1), law, 0.0))


@dataclass(frozen=True)
class JobLaws:
    """Laws of all models of a profile."""

    models: dict[str, JobLaw]
    on_one: JobRanks
    """Of a job that was not measured."""
    across: JobRanks
    one_node: bool
    """Whether jobs on one node were measured beside each other; if not, they do not count."""
    r2: float | None
    """Part of the variance of all measured ratios that the fit explains; None: they are alike."""

    @property
    def apart(self) -> bool:
        """Whether jobs on one node differ from those over several."""
        laws: list[JobLaw | JobLaws] = [*self.models.values(), self]
        return self.one_node and any(law.on_one != law.across for law in laws)

    def ranks(self, nodes: int) -> JobRanks:
        """Of a job that was not measured, over so many nodes."""
        return self.on_one if nodes == 1 else self.across

    def curves(self, max_nodes: int, max_workers: int) -> Curves:
        """Speeds by nodes and workers."""
        n, w = np.indices((max_nodes + 1, max_workers + 1), np.float64)
        speed = np.stack([law.speed(n, w) for law in self.models.values()])
        measured = np.ones((len(self.models), 2), np.int64)
        for c, law in enumerate(self.models.values()):
            for workers, nodes, found in law.placements:
                measured[c] = np.maximum(measured[c], (nodes, workers))
                if nodes <= max_nodes and workers <= max_workers:
                    speed[c, nodes, workers] = found
        return Curves(
            tuple(self.models), ("gpu",), speed[:, None], by_nodes=True, measured=measured
        )

    def contention(
        self, names: Iterable[str], more: Mapping[str, tuple[JobRanks, JobRanks]] | None = None
    ) -> Contention:
        """Sensitivity × intensity of models with these names.

        `more` says those on one node, and over several, of models without a profile; all others
        are average.
        """
        ranks = {name: (law.on_one, law.across) for name, law in self.models.items()}
        ranks |= more or {}
        known, average = list(ranks), len(ranks)
        rows = [known.index(name) if name in ranks else average for name in names]
        kind = np.full((len(rows) + 1, 3, 2), -1, np.int64)
        kind[:, 2] = np.array([*rows, average])[:, None]
        if self.one_node:
            kind[:, 1] = kind[:, 2] + average + 1
        both = [*ranks.values(), (self.on_one, self.across)]
        each = [across for _, across in both] + [on_one for on_one, _ in both]
        hurt = np.array([one.sensitivity for one in each])
        harm = np.array([one.intensity for one in each])
        none = np.zeros(len(hurt))
        return Contention(
            RANKS, kind, np.zeros((0, 0)), hurt, harm, RANK_FLOOR, none, none, np.zeros(0),
            np.zeros(0), np.inf,
        )  # fmt: skip

    @property
    def digest(self) -> str:
        """The same for laws that say the same of contention."""
        laws: dict[str, JobLaw | JobLaws] = {**self.models, "": self}
        said = {name: (asdict(law.on_one), asdict(law.across)) for name, law in laws.items()}
        text = json.dumps([said, self.one_node], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def write(self, folder: Path) -> Path:
        """Keep them in a folder; returns the file."""
        replace_file(folder / LAWS, {"format": FORMAT, **asdict(self)})
        return folder / LAWS


def fit_laws(tables: JobTables) -> JobLaws:
    """The laws that suit the tables best."""
    names = tables.models
    lost: dict[bool, list[tuple[int, int, float]]] = {True: [], False: []}
    for (victim, other), found in tables.ratios.items():
        if other.model in names:  # or its rows alone were taken out by hand
            # A gain beside another job is noise: no job makes others faster.
            row = names.index(victim.model), names.index(other.model), max(0.0, 1.0 - found.value)
            lost[victim.nodes == 1].append(row)
    one_node = bool(lost[True])
    # What was not measured at all is taken to be as where it was.
    fits = [_ranks(lost[kind] or lost[not kind], names) for kind in (True, False)]
    models = {}
    for k, name in enumerate(names):
        own = [(p.workers, p.nodes, t.value) for p, t in tables.alone.items() if p.model == name]
        models[name] = JobLaw(
            *_power_law(own), fits[0].of(k), fits[1].of(k), tuple(own), tables.gpus_per_worker(name)
        )
    r2 = _r2([(fits[0], row) for row in lost[True]] + [(fits[1], row) for row in lost[False]])
    return JobLaws(models, fits[0].average, fits[1].average, one_node, r2)


class _RankFit(NamedTuple):
    """Ranks of all models, (K,) each."""

    hurt: Floats
    harm: Floats
    paired: Bools
    """Whether they are known."""

    @property
    def average(self) -> JobRanks:
        """Of those that are known; else, of DeepShare's jobs."""
        if not self.paired.any():
            return _shipped_ranks()
        hurt, harm = self.hurt[self.paired], self.harm[self.paired]
        return JobRanks(float(np.mean(hurt)), float(np.mean(harm)))

    def of(self, k: int) -> JobRanks:
        """Of one model; average if that is not known."""
        if not self.paired[k]:
            return self.average
        return JobRanks(float(self.hurt[k]), float(self.harm[k]), paired=True)


def _power_law(own: list[tuple[int, int, float]]) -> tuple[float, float, float]:
    """(one, by workers, by nodes) through these points; what they leave open is as elsewhere."""
    known = shipped("deepshare").values()
    usual = np.array([0.0, *(np.mean([job[key] for job in known]) for key in _EXPONENTS)])
    workers, nodes, speed = np.array(own, np.float64).T
    A = np.stack([np.ones(len(own)), np.log(workers), np.log(nodes)], axis=1)
    free = np.array(_FREE)
    # The least change that fits best: without a second size, only `one` moves.
    change = np.linalg.lstsq(A * free, np.log(speed) - A @ usual, rcond=1e-6)[0]
    one, by_workers, by_nodes = usual + free * change
    return float(np.exp(one)), float(by_workers), float(by_nodes)


_EXPONENTS: Final = ("by_gpus", "by_nodes")


def _ranks(rows: list[tuple[int, int, float]], names: list[str]) -> _RankFit:
    """The ranks that suit what one model (its number) lost beside another one best."""
    K = len(names)
    total, count = np.zeros((K, K)), np.zeros((K, K))
    for a, b, lost in rows:
        total[a, b] += lost
        count[a, b] += 1
    known = count > 0
    hurt, harm = fit_ranks(np.divide(total, count, out=np.zeros((K, K)), where=known), known)
    return _RankFit(hurt, harm, np.asarray(known.any(axis=1) & known.any(axis=0)))


def _r2(rows: list[tuple[_RankFit, tuple[int, int, float]]]) -> float | None:
    if not rows:
        return None
    lost = np.array([row[2] for _, row in rows])
    told = np.array([fit.hurt[a] * fit.harm[b] for fit, (a, b, _) in rows])
    around = float(np.square(lost - lost.mean()).sum())
    return 1.0 - float(np.square(lost - told).sum()) / around if around > 1e-12 else None


def _shipped_ranks() -> JobRanks:
    """Mean sensitivity and intensity of DeepShare's jobs."""
    kinds = [kind for job in shipped("deepshare").values() for kind in job["kinds"]]
    hurt, harm = (float(np.mean([kind[at] for kind in kinds])) for at in (2, 3))
    return JobRanks(hurt, harm)


def read_laws(path: Path | str) -> JobLaws:
    """The laws in a file that `rota profile` wrote, or in its folder; InputError if there are none.

    Whatever the file says is checked: kernels do not look again.
    """
    path = Path(path)
    path = path / LAWS if path.is_dir() else path
    try:
        facts = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); make it with `rota profile`."
        ) from None
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise InputError(
            f"{path}: it is no profile, or of another version of rota; make it with `rota profile`."
        )
    try:
        models = {name: _law(name, own) for name, own in facts["models"].items()}
        average = _both_ranks("average", facts)
        one_node, r2 = facts["one_node"], facts["r2"]
        if not models or not isinstance(one_node, bool) or not (r2 is None or is_number(r2)):
            raise ValueError("models, one_node or r2 is not what it must be")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise InputError(
            f"{path}: it is damaged: {why}; make it again with `rota profile`."
        ) from None
    return JobLaws(models, *average, one_node, r2)


def _law(name: str, own: dict[str, Any]) -> JobLaw:
    one = _amount(name, own, "one")
    placements = tuple(tuple(place) for place in own["placements"])
    good = one > 0 and all(
        is_count(w) and is_count(n) and w >= n >= 1 and is_number(v) and v > 0
        for w, n, v in placements
    )
    exponents = own["by_workers"], own["by_nodes"]
    if not (good and all(is_number(x) and abs(x) < 20 for x in exponents)):
        raise ValueError(f"the speed of {name!r} is not what it must be")
    if not is_count(own["gpus_per_worker"]):
        raise ValueError(f"gpus_per_worker of {name!r} is {own['gpus_per_worker']!r}")
    return JobLaw(
        one, float(exponents[0]), float(exponents[1]), *_both_ranks(name, own), placements,
        own["gpus_per_worker"],
    )  # fmt: skip


def _both_ranks(name: str, own: dict[str, Any]) -> tuple[JobRanks, JobRanks]:
    """On one node, and over several."""
    on_one, across = (
        JobRanks(
            _amount(name, own[key], "sensitivity"), _amount(name, own[key], "intensity"),
            bool(own[key]["paired"]),
        )
        for key in ("on_one", "across")
    )  # fmt: skip
    return on_one, across


def _amount(name: str, own: dict[str, Any], key: str) -> float:
    if not (is_number(own[key]) and own[key] >= 0):
        raise ValueError(f"{key} of {name!r} is {own[key]!r}")
    return float(own[key])
