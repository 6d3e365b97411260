"""Speed curves estimated from what is seen of running jobs: docs/estimation.md has the formulas.

Nothing but observed progress enters: no true curve, no remaining work.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.core.jobs import JobTable
from rota.core.layout import RUNNING
from rota.core.speed import Curves
from rota.errors import ConfigError
from rota.perf.curve_reach import reach
from rota.perf.shape_pools import LEAST, TERMS, ShapePools, learn, shape, terms, times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota.core.snapshot import Snapshot
    from rota.core.speed import Contention
    from rota.core.types import Bools, Floats, Ints, Records

SIGHT_S: Final = 60.0
"""Running time in one configuration that counts as one sighting; a shorter time does so, too."""
LEAST_S: Final = 1.0
"""Less running than this is not looked at yet: rounding would be mistaken for speed."""
MOST_SIGHTS: Final = 100.0
"""More sightings of one configuration add nothing: their errors are not independent."""
ANY_SCALE: Final = 1.0
"""How far a job's speed at the size it asks for may be from its reference."""

PART: Final = 64
"""Curves that are computed at a time."""

BOOK: Final = np.dtype(
    [
        ("uid", np.int64),
        ("pool", np.int64),  # of its model, see ShapePools
        ("seen_s", np.float64),  # last sight
        ("progress_s", np.float64),  # at last sight
        # The configuration it is in: servers or nodes, workers, running time, work done.
        ("a", np.int64),
        ("w", np.int64),
        ("run_s", np.float64),
        ("work_s", np.float64),
        ("fitted_s", np.float64),  # running time that the last fit knew
        # Sums over the other configurations it has been in.
        ("G", np.float64, (TERMS, TERMS)),
        ("h", np.float64, (TERMS,)),
        ("sights", np.float64),
        ("cells", np.int64),
        ("measured", np.int64, (2,)),  # largest a and w it has been in
        # What is believed.
        ("theta", np.float64, (TERMS,)),
        ("prior", np.float64, (TERMS,)),
        ("doubt", np.float64, (TERMS, TERMS)),  # covariance of the prior
        # What it has told about the shape θ of others: K·θ = r.
        ("K", np.float64, (TERMS, TERMS)),
        ("r", np.float64, (TERMS,)),
    ]
)
"""What is kept of one live job."""
CELL: Final = np.dtype(
    [
        ("uid", np.int64), ("a", np.int64), ("w", np.int64),
        ("run_s", np.float64), ("work_s", np.float64),
    ]
)  # fmt: skip
"""What is kept of one configuration that a job has been in."""


class Estimator:
    """Follows the live jobs of one cluster and replaces what snapshots say of speed.

    Show it every snapshot of a run in turn, before the decision about it: a job is taken to have
    held since the snapshot before what it holds now. All GPU types count as equally fast.
    """

    def __init__(self, *, by_nodes: bool, noise: float = 0.05) -> None:
        """`noise` is the relative standard deviation of one sighting from the curve."""
        if not 0 < noise < np.inf:
            raise ConfigError(f"noise={noise} must be above 0: nothing is seen without error.")
        self.by_nodes, self.noise = by_nodes, noise
        self.pools = ShapePools(by_nodes=by_nodes, noise=noise)
        self.book: Records = np.zeros(0, BOOK)
        # uid → (a, w) → running time and work done there.
        self.cells: dict[int, dict[tuple[int, int], tuple[float, float]]] = {}
        self.grid = np.zeros((1, 1, TERMS))  # (A, W, TERMS)
        self.curves: Curves | None = None

    def see(self, snapshot: Snapshot) -> Snapshot:
        """The same snapshot, with what can be known of speed by now; JOB.curve is the job's row."""
        rows = snapshot.jobs.rows
        stretched = self._stretch(snapshot)
        same_jobs = self._line_up(rows)
        able = (rows["max_servers"] > 0) | self.by_nodes
        able &= np.maximum(rows["workers"], rows["held_workers"]) < self.grid.shape[1]
        due = self._watch(rows, able, snapshot.time_s)
        if due.size or stretched or not same_jobs or self.curves is None:
            reference = self._reference(snapshot)
            if due.size:
                self._fit(due, reference[due])
            self._expect(reference)
            self.curves = self._curves(snapshot, able)
        new = rows.copy()
        new["curve"] = np.where(able, np.arange(len(rows)), -1)
        contention = _contention_of(snapshot.contention, rows["curve"])
        return replace(snapshot, jobs=JobTable(new), curves=self.curves, contention=contention)

    def pack(self) -> dict[str, Records]:
        """All that it has learned, as arrays by name."""
        cells = [
            (uid, *size, *seen) for uid, own in self.cells.items() for size, seen in own.items()
        ]
        return {"book": self.book, "cells": np.array(cells, CELL), **self.pools.pack()}

    def unpack(self, kept: Mapping[str, Records]) -> None:
        """Go on from what another has packed; meanwhile its jobs may have done anything.

        Raises KeyError, TypeError or ValueError where that is not what `pack` gives.
        """
        self.book = kept["book"].astype(BOOK, casting="equiv")
        self.book["seen_s"] = np.inf  # progress since then is not counted
        self.cells = {}
        for uid, a, w, run_s, work_s in kept["cells"].astype(CELL, casting="equiv").tolist():
            self.cells.setdefault(uid, {})[a, w] = run_s, work_s
        self.pools.unpack(kept)
        self.curves = None

    def spread(self) -> Floats:
        """Relative standard deviation of each point of the curves seen last, in their shape.

        It depends on what a job has held and for how long, and on what was known before; not on
        how fast it turned out to be. So seeing more of a job never makes it larger.
        """
        if self.curves is None:
            raise ValueError("There are no curves yet: Estimator.see() comes first.")
        precision = np.linalg.inv(self.book["doubt"])
        for j, job in enumerate(self.book):
            for (a, w), (run_s, _) in self._cells_of(job).items():
                x = terms(self.by_nodes, a, w)
                x /= x @ job["prior"]
                precision[j] += _sights(run_s) / self.noise**2 * np.outer(x, x)
        step_s = self.book["prior"] @ self.grid[1:, 1:].reshape(-1, TERMS).T
        x = self.grid[1:, 1:].reshape(1, -1, TERMS) / step_s[:, :, None]  # (J, points, TERMS)
        variance = np.einsum("jik,jkl,jil->ji", x, np.linalg.inv(precision), x)
        A, W = self.grid.shape[:2]
        spread = np.zeros_like(self.curves.speed)
        spread[:, :, 1:, 1:] = np.sqrt(variance).reshape(-1, 1, A - 1, W - 1)
        return spread

    # Observing.

    def _line_up(self, rows: Records) -> bool:
        """Give the book one row for each of these jobs; True if they are the same as before."""
        old = self.book
        if np.array_equal(old["uid"], rows["uid"]):
            return True
        place = {uid: at for at, uid in enumerate(old["uid"].tolist())}
        at = np.array([place.pop(uid, -1) for uid in rows["uid"].tolist()], np.int64)
        book = np.zeros(len(rows), BOOK)
        book[at >= 0] = old[at[at >= 0]]
        for j in np.flatnonzero(at < 0):
            book[j]["uid"], book[j]["pool"] = rows[j]["uid"], self.pools.of(int(rows[j]["model"]))
            book[j]["seen_s"] = np.inf  # progress before its first sight is not counted
        for uid in place:  # those that have ended
            self.cells.pop(uid, None)
        self.book = book
        return False

    def _watch(self, rows: Records, able: Bools, now_s: float) -> Ints:
        """Note the progress since the last sight; which jobs it tells something new about."""
        book = self.book
        a = rows["share_len"] if self.by_nodes else rows["held_servers"]
        w = rows["held_workers"]
        span_s = now_s - np.maximum(book["seen_s"], rows["resume_s"])
        work_s = rows["progress_s"] - book["progress_s"]
        seen = able & (rows["status"] == RUNNING) & (a > 0) & (w > 0) & (span_s > 0) & (work_s > 0)
        for j in np.flatnonzero(seen & ((a != book["a"]) | (w != book["w"]))).tolist():
            self._switch(j, int(a[j]), int(w[j]))
        book["run_s"][seen] += span_s[seen]
        book["work_s"][seen] += work_s[seen]
        book["seen_s"], book["progress_s"] = now_s, rows["progress_s"]
        # Fitted at first sight, and then whenever as much again has been seen: fits are few.
        first = (book["fitted_s"] == 0) & (book["run_s"] >= LEAST_S)
        more = (book["fitted_s"] > 0) & (_sights(book["run_s"]) >= 2 * _sights(book["fitted_s"]))
        return np.flatnonzero(seen & (first | more))

    def _switch(self, j: int, a: int, w: int) -> None:
        """Job j is in another configuration now: store the old one, load the new one."""
        job = self.book[j]
        cells = self.cells.setdefault(int(job["uid"]), {})
        if job["run_s"] >= LEAST_S:
            cells[int(job["a"]), int(job["w"])] = float(job["run_s"]), float(job["work_s"])
            self._add(job, 1)
        job["a"], job["w"] = a, w
        job["run_s"], job["work_s"] = cells.get((a, w), (0.0, 0.0))
        job["fitted_s"] = job["run_s"]
        job["measured"] = np.maximum(job["measured"], (a, w))
        if job["run_s"]:
            self._add(job, -1)

    def _add(self, job: Records, sign: int) -> None:
        """Add the configuration that `job` is in to its sums, or take it out."""
        n = sign * _sights(job["run_s"])
        x = terms(self.by_nodes, job["a"], job["w"]) * (job["work_s"] / job["run_s"])
        job["G"] += n * np.outer(x, x)
        job["h"] += n * x
        job["sights"] += n
        job["cells"] += sign

    def _cells_of(self, job: Records) -> dict[tuple[int, int], tuple[float, float]]:
        """Running time and work of each configuration that `job` has been in."""
        found = dict(self.cells.get(int(job["uid"]), {}))
        if job["run_s"] >= LEAST_S:
            found[int(job["a"]), int(job["w"])] = float(job["run_s"]), float(job["work_s"])
        return found

    # Fitting.

    def _fit(self, due: Ints, reference: Floats) -> None:
        """Fit the curves of these jobs (D,) anew, and let others know."""
        job = self.book[due]
        n = _sights(job["run_s"])
        x = terms(self.by_nodes, job["a"], job["w"]) * (job["work_s"] / job["run_s"])[:, None]
        G = job["G"] + n[:, None, None] * x[:, :, None] * x[:, None, :]
        h = job["h"] + n[:, None] * x
        job["prior"], job["doubt"] = self._from_others(job["pool"], job["K"], job["r"])
        scale = self._scale(job["prior"], G, h, reference)
        job["theta"], _ = learn(
            scale[:, None] * job["prior"],
            scale[:, None, None] ** 2 * job["doubt"],
            G / self.noise**2,
            h / self.noise**2,
            LEAST * scale * self.pools.start[0],
        )
        job["fitted_s"] = job["run_s"]
        K, r = shape(self.pools.normal(job["theta"]), G, h)
        # Every configuration counts the same: jobs differ by more than a sighting errs.
        each = (job["sights"] + n) / (job["cells"] + 1)
        K, r = K / each[:, None, None], r / each[:, None]
        self.pools.tell(job["pool"], K - job["K"], r - job["r"])
        job["K"], job["r"] = K, r
        self.book[due] = job

    def _expect(self, reference: Floats) -> None:
        """Give jobs that have not been seen running what is known from others."""
        new = (self.book["fitted_s"] == 0) & (self.book["cells"] == 0)
        pools, which = np.unique(self.book["pool"][new], return_inverse=True)
        none = np.zeros((len(pools), TERMS))
        prior, doubt = self._from_others(pools, none[:, :, None] * none[:, None, :], none)
        self.book["prior"][new], self.book["doubt"][new] = prior[which], doubt[which]
        at_reference = (reference[new] * prior[which]).sum(axis=1)
        self.book["theta"][new] = prior[which] / at_reference[:, None]

    def _from_others(self, pool: Ints, K: Floats, r: Floats) -> tuple[Floats, Floats]:
        """Shape (D, k) and doubt about jobs of these pools that have told K and r themselves."""
        theta, doubt = self.pools.others(pool, K, r)
        return theta, doubt + ANY_SCALE**2 * theta[:, :, None] * theta[:, None, :]

    def _scale(self, theta: Floats, G: Floats, h: Floats, reference: Floats) -> Floats:
        """What a shape (D, k) must be multiplied by to suit what was seen of each job."""
        at = (reference * theta).sum(axis=1)
        over = (theta * h).sum(axis=1) / self.noise**2 + at / ANY_SCALE**2
        under = (theta * times(G, theta)).sum(axis=1) / self.noise**2 + at**2 / ANY_SCALE**2
        scale: Floats = over / under
        return scale

    def _reference(self, snapshot: Snapshot) -> Floats:
        """The terms (J, k) of each job at the size it asks for, where its pace should be near 1."""
        rows, most = snapshot.jobs.rows, max(int(snapshot.cluster.gpus.max()), 1)
        a = -(-rows["gpus"] // most) if self.by_nodes else rows["servers"]
        a = np.clip(a, 1, len(self.grid) - 1)
        return terms(self.by_nodes, a, np.maximum(rows["workers"], 1))

    def _stretch(self, snapshot: Snapshot) -> bool:
        """Have the terms of every size that curves reach to; True if these are others than before.

        That is every size that the jobs can have, unless it makes too many points.
        """
        A, W = reach(snapshot, self.grid.shape[:2], by_nodes=self.by_nodes)
        if self.grid.shape[:2] == (A, W):
            return False
        self.grid = np.zeros((A, W, TERMS))
        a, w = np.arange(1, A)[:, None], np.arange(1, W)[None, :]
        self.grid[1:, 1:] = terms(self.by_nodes, a, w)
        return True

    def _curves(self, snapshot: Snapshot, able: Bools) -> Curves:
        rows, types = snapshot.jobs.rows, snapshot.cluster.gpu_types
        A, W = self.grid.shape[:2]
        speed = np.zeros((len(rows), len(types), A, W))
        x = self.grid[1:, 1:].reshape(-1, TERMS).T
        for first in range(0, len(rows), PART):
            part = slice(first, first + PART)
            step_s = self.book["theta"][part] @ x
            speed[part, :, 1:, 1:] = (able[part, None] / step_s).reshape(-1, 1, A - 1, W - 1)
        names = tuple(map(str, rows["uid"].tolist()))
        return Curves(names, types, speed, self.by_nodes, self.book["measured"].copy())


def _sights(run_s: Floats | float) -> Floats:
    """The number of sightings that this running time counts as."""
    return np.clip(np.asarray(run_s) / SIGHT_S, 1.0, MOST_SIGHTS)


def _contention_of(contention: Contention | None, curve: Ints) -> Contention | None:
    """Contention by the new curves: each job keeps the kind of traffic that its own curve had."""
    if contention is None or len(contention.kind) == 1:
        return contention
    return contention._replace(kind=contention.kind[np.append(curve, -1)])
