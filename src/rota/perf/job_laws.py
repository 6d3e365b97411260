"""Laws of speed and contention fitted to what was measured of a user's own jobs.

Speed alone is one · workers^a · nodes^b, and as measured where it was measured. Beside another job,
a job loses sensitivity × the other's intensity of its speed (`rota.perf.sharing`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
class JobLaw:
    """What is believed of one model."""

    one: float
    """Samples per second of one worker."""
    by_workers: float
    by_nodes: float
    sensitivity: float
    intensity: float
    placements: tuple[tuple[int, int, float], ...]
    """Workers, nodes and samples per second, as measured."""
    paired: bool
    """Whether it was measured beside others; if not, it is taken to be like the average job."""
    gpus_per_worker: int = 1

    def speed(self, nodes: Floats, workers: Floats) -> Floats:
        """Samples per second over so many nodes; 0 where a node would have no worker."""
        law = self.one * np.maximum(workers, 1.0) ** self.by_workers
        law = law * np.maximum(nodes, 1.0) ** self.by_nodes
        return np.asarray(np.where((workers >= nodes) & (nodes >= 1), law, 0.0))


@dataclass(frozen=True)
class JobLaws:
    """Laws of all models of a profile."""

    models: dict[str, JobLaw]
    sensitivity: float
    """Of a job that was not measured."""
    intensity: float
    one_node: bool
    """Whether jobs on one node were measured beside each other; if not, they do not count."""
    r2: float | None
    """Part of the variance of all measured ratios that the fit explains; None: they are alike."""

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
        self, names: Iterable[str], more: Mapping[str, tuple[float, float]] | None = None
    ) -> Contention:
        """Sensitivity × intensity of models with these names.

        `more` says (sensitivity, intensity) of models without a profile; all others are average.
        """
        ranks = {name: (law.sensitivity, law.intensity) for name, law in self.models.items()}
        ranks |= more or {}
        known, average = list(ranks), len(ranks)
        rows = [known.index(name) if name in ranks else average for name in names]
        kind = np.empty((len(rows) + 1, 3, 2), np.int64)
        kind[:] = np.array([*rows, average])[:, None, None]
        kind[:, : 1 if self.one_node else 2] = -1
        hurt, harm = np.array([*ranks.values(), (self.sensitivity, self.intensity)]).T.copy()
        none = np.zeros(len(hurt))
        return Contention(
            RANKS, kind, np.zeros((0, 0)), hurt, harm, RANK_FLOOR, none, none, np.zeros(0),
            np.zeros(0), np.inf,
        )  # fmt: skip

    @property
    def digest(self) -> str:
        """The same for laws that say the same of contention."""
        ranks = {name: (law.sensitivity, law.intensity) for name, law in self.models.items()}
        said = [ranks, self.sensitivity, self.intensity, self.one_node]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def write(self, folder: Path) -> Path:
        """Keep them in a folder; returns the file."""
        replace_file(folder / LAWS, {"format": FORMAT, **asdict(self)})
        return folder / LAWS


def fit_laws(tables: JobTables) -> JobLaws:
    """The laws that suit the tables best."""
    names = tables.models
    sensitivity, intensity, paired, r2 = _ranks(tables, names)
    usual = _shipped_ranks()
    average = [
        float(np.mean(side[paired])) if paired.any() else other
        for side, other in zip((sensitivity, intensity), usual, strict=True)
    ]
    models = {}
    for k, name in enumerate(names):
        own = [(p.workers, p.nodes, t.value) for p, t in tables.alone.items() if p.model == name]
        hurt, harm = (sensitivity[k], intensity[k]) if paired[k] else average
        one, by_workers, by_nodes = _power_law(own)
        models[name] = JobLaw(
            one, by_workers, by_nodes, float(hurt), float(harm), tuple(own), bool(paired[k]),
            tables.gpus_per_worker(name),
        )  # fmt: skip
    one_node = any(victim.nodes == 1 for victim, _ in tables.ratios)
    return JobLaws(models, average[0], average[1], one_node, r2)


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


def _ranks(tables: JobTables, names: list[str]) -> tuple[Floats, Floats, Bools, float | None]:
    """Sensitivity, intensity and whether it is known, (K,) each; R² over all measured ratios."""
    K = len(names)
    total, count = np.zeros((K, K)), np.zeros((K, K))
    rows: list[tuple[int, int, float]] = []
    for (victim, other), found in tables.ratios.items():
        if victim.model not in names or other.model not in names:
            continue  # its rows alone were taken out by hand
        a, b = names.index(victim.model), names.index(other.model)
        # A gain beside another job is noise: no job makes others faster.
        rows.append((a, b, max(0.0, 1.0 - found.value)))
        total[a, b] += rows[-1][2]
        count[a, b] += 1
    known = count > 0
    hurt, harm = fit_ranks(np.divide(total, count, out=np.zeros((K, K)), where=known), known)
    paired: Bools = np.asarray(known.any(axis=1) & known.any(axis=0))
    return hurt, harm, paired, _r2(rows, hurt, harm)


def _r2(rows: list[tuple[int, int, float]], hurt: Floats, harm: Floats) -> float | None:
    if not rows:
        return None
    lost = np.array([row[2] for row in rows])
    told = np.array([hurt[a] * harm[b] for a, b, _ in rows])
    around = float(np.square(lost - lost.mean()).sum())
    return 1.0 - float(np.square(lost - told).sum()) / around if around > 1e-12 else None


def _shipped_ranks() -> tuple[float, float]:
    """Mean sensitivity and intensity of DeepShare's jobs."""
    kinds = [kind for job in shipped("deepshare").values() for kind in job["kinds"]]
    return float(np.mean([kind[2] for kind in kinds])), float(np.mean([kind[3] for kind in kinds]))


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
        average = _amount("average", facts, "sensitivity"), _amount("average", facts, "intensity")
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
        one, float(exponents[0]), float(exponents[1]), _amount(name, own, "sensitivity"),
        _amount(name, own, "intensity"), placements, bool(own["paired"]),
        own["gpus_per_worker"],
    )  # fmt: skip


def _amount(name: str, own: dict[str, Any], key: str) -> float:
    if not (is_number(own[key]) and own[key] >= 0):
        raise ValueError(f"{key} of {name!r} is {own[key]!r}")
    return float(own[key])
