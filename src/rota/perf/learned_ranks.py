"""Sensitivity and intensity of models that nobody has profiled, learned from jobs that run.

A model begins as the average job of a profile. While a job trains beside others, what it loses
against its own speed alone, at the same size, is sensitivity × the intensity of the others. So one
side follows from the other: least squares over all times seen, with the average job as prior.
Of several neighbours, what each one leaves multiplies.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rota.core.layout import RUNNING
from rota.perf.job_laws import JobRanks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rota.core.snapshot import Snapshot
    from rota.core.speed import Contention
    from rota.core.types import Records
    from rota.perf.job_laws import JobLaws

LEAST_S: Final = 1.0
"""Shorter times between two snapshots are not looked at: rounding would be taken for speed."""
ALONE_S: Final = 10.0
"""A job's speed alone is known after so many seconds."""
PRIOR_S: Final = 60.0
"""Seconds beside an average job that count as much as the prior."""
_SUMS: Final = 4

Share = tuple[tuple[int, int], ...]
"""Nodes, and workers there."""


class _Seen(NamedTuple):
    """A job at the last snapshot."""

    time_s: float
    progress_s: float
    share: Share
    beside: frozenset[tuple[int, Share]]
    """Jobs on its nodes, by number, and what they held."""
    whole: bool = False
    """Whether progress was made just before; if not, the next step may have begun long ago."""


class LearnedRanks:
    """Follows the jobs of one live cluster; show it every snapshot in turn."""

    def __init__(self, laws: JobLaws) -> None:
        self.laws = laws
        self._sums: dict[tuple[str, bool], list[float]] = {}
        # By model, and whether it is over several nodes: Σ t·h·lost, Σ t·h² of what it lost;
        # Σ t·s·lost, Σ t·s² of what others lost.
        self._last: dict[int, _Seen] = {}
        self._alone: dict[tuple[int, int, int], list[float]] = {}  # uid, nodes, workers: s, work

    def see(
        self, snapshot: Snapshot, names: Sequence[str], told: Collection[int] | None = None
    ) -> Contention:
        """The contention among models with these names, as far as it is known by now.

        It is learned from jobs (uid) in `told`, or from all; the others are neighbours only.
        """
        rows = snapshot.jobs.rows
        live = set(rows["uid"].tolist())
        self._last = {uid: seen for uid, seen in self._last.items() if uid in live}
        self._alone = {key: own for key, own in self._alone.items() if key[0] in live}
        shares = {
            j: tuple((node, workers) for node, workers, _ in snapshot.share(j))
            for j in np.flatnonzero(rows["status"] == RUNNING).tolist()
        }
        sends = {j: len(share) > 1 or self.laws.one_node for j, share in shares.items()}
        on_node: dict[int, list[int]] = {}
        for j, share in shares.items():
            for node, _ in share:
                on_node.setdefault(node, []).append(j)
        for j, share in shares.items():
            if told is not None and int(rows["uid"][j]) not in told:
                continue
            by_node = [[o for o in on_node[n] if o != j and sends[o]] for n, _ in share]
            self._look(snapshot, j, shares, by_node if sends[j] else [], names)
        more = {
            name: (self.ranks(name, 1), self.ranks(name, 2))
            for name in names
            if name not in self.laws.models
        }
        return self.laws.contention(names, more)

    def ranks(self, name: str, nodes: int) -> JobRanks:
        """Sensitivity and intensity of a model over so many nodes."""
        if law := self.laws.models.get(name):
            return law.ranks(nodes)
        average = self.laws.ranks(nodes)
        usual = average.sensitivity, average.intensity
        suffered, h2, caused, s2 = self._sums.get((name, nodes > 1), (0.0,) * _SUMS)
        weight_s, weight_h = PRIOR_S * usual[1] ** 2, PRIOR_S * usual[0] ** 2
        found = (
            (suffered + weight_s * usual[0]) / max(h2 + weight_s, 1e-12),
            (caused + weight_h * usual[1]) / max(s2 + weight_h, 1e-12),
        )
        s, h = (min(max(0.0, x), max(1.0, most)) for x, most in zip(found, usual, strict=True))
        return JobRanks(s, h)

    def pack(self) -> dict[str, Records]:
        """What was learned, as arrays by name."""
        sums = np.array(list(self._sums.values()), np.float64).reshape(-1, _SUMS)
        return {
            "names": np.array([name for name, _ in self._sums], np.str_),
            "across": np.array([across for _, across in self._sums], np.bool_),
            "sums": sums,
        }

    def unpack(self, kept: Mapping[str, Records]) -> None:
        """Go on from what another has packed; KeyError or ValueError if that is something else."""
        sums = kept["sums"].astype(np.float64, casting="equiv")
        across = kept["across"].astype(np.bool_, casting="equiv")
        if sums.shape != (len(across), _SUMS) or not np.isfinite(sums).all():
            raise ValueError("these are no sums of what jobs lost")
        if (sums[:, 1::2] < 0).any():  # of squares; a loss may be below 0
            raise ValueError("a sum of squares is below 0")
        keys = zip(kept["names"].tolist(), across.tolist(), strict=True)
        self._sums = dict(zip(keys, sums.tolist(), strict=True))

    def _look(
        self,
        snapshot: Snapshot,
        j: int,
        shares: Mapping[int, Share],
        by_node: Sequence[Sequence[int]],
        names: Sequence[str],
    ) -> None:
        """Note what job j has done since the last snapshot, if nothing changed meanwhile."""
        rows, now_s = snapshot.jobs.rows, snapshot.time_s
        others = {o for there in by_node for o in there}
        uid, progress_s = int(rows["uid"][j]), float(rows["progress_s"][j])
        beside = frozenset((int(rows["uid"][o]), shares[o]) for o in others)
        seen = _Seen(now_s, progress_s, shares[j], beside)
        before = self._last.setdefault(uid, seen)
        span_s, work = now_s - before.time_s, progress_s - before.progress_s
        steady = all(rows["resume_s"][k] <= before.time_s for k in (j, *others))
        if (before.share, before.beside) != (seen.share, seen.beside) or not steady:
            self._last[uid] = seen
            return
        if span_s < LEAST_S or work <= 0:
            return  # a step that lasts for several snapshots counts when it ends
        self._last[uid] = seen._replace(whole=True)
        if not before.whole:
            return
        workers = sum(count for _, count in shares[j])
        alone = self._alone.setdefault((uid, len(shares[j]), workers), [0.0, 0.0])
        if not others:
            alone[0] += span_s
            alone[1] += work
        elif alone[0] >= ALONE_S:
            # Not clipped: what a long step seems to lose in one interval, it gains in the next.
            lost = 1.0 - work / span_s * alone[0] / alone[1]
            self._learn(rows["model"], j, shares, by_node, lost, span_s, names)

    def _learn(
        self,
        model: Records,
        j: int,
        shares: Mapping[int, Share],
        by_node: Sequence[Sequence[int]],
        lost: float,
        span_s: float,
        names: Sequence[str],
    ) -> None:
        """Job j has lost part of its speed for a while beside others on its nodes."""

        def placed(k: int) -> tuple[str, int]:
            return names[model[k]] if 0 <= model[k] < len(names) else "", len(shares[k])

        s = self.ranks(*placed(j)).sensitivity
        h = max(
            _together(s, [self.ranks(*placed(o)).intensity for o in there]) for there in by_node
        )
        own = self._sums_of(*placed(j))
        own[0] += span_s * h * lost
        own[1] += span_s * h * h
        others = {o for there in by_node for o in there}
        if len(others) == 1:  # of several it is not known which one did it
            other = self._sums_of(*placed(others.pop()))
            other[2] += span_s * s * lost
            other[3] += span_s * s * s

    def _sums_of(self, name: str, nodes: int) -> list[float]:
        """The sums of a model; jobs without one, or with a profile, tell nothing of it."""
        if not name or name in self.laws.models:
            return [0.0] * _SUMS
        return self._sums.setdefault((name, nodes > 1), [0.0] * _SUMS)


def _together(s: float, intensities: Sequence[float]) -> float:
    """The intensity of one neighbour that costs a job of sensitivity s as much as all of these."""
    if s < 1e-6:
        return sum(intensities)
    left = math.prod(max(0.0, 1.0 - s * h) for h in intensities)
    return (1.0 - left) / s
