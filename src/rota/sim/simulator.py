"""The simulator as a backend: observe, apply, wait; and whole replays of compiled policies."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rota.core.jobs import JobTable
from rota.core.layout import JOB, RUNNING, SHARE, WAITING
from rota.core.learning import GROW
from rota.core.snapshot import Snapshot
from rota.errors import PolicyError
from rota.jit import direct, kernel
from rota.jit_reference import by_reference
from rota.ledger.draft_kernels import DraftArrays
from rota.ledger.node_kernels import new_index
from rota.perf.estimate import Estimator
from rota.policies.classic.claim_kernels import locate
from rota.policies.classic.place_kernels import FIRST_FIT
from rota.sim.event_kernels import advance_once
from rota.sim.learning_jobs import learning_of
from rota.sim.replay_kernels import carry_out, is_log_full, observe
from rota.sim.setup import PLAIN, Conditions, build_state, check_fits
from rota.sim.state import one_of_batch
from rota.sim.tune_kernels import lengthen
from rota.sim.world import seen_contention, seen_curves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.core.cluster import Cluster
    from rota.core.plan import Plan
    from rota.core.types import Bools, Floats, Ints, Records
    from rota.perf.physics import Physics
    from rota.traces.trace import Trace


@kernel
def fits_empty(d: DraftArrays, jobs: Records, typical: Floats, fits: Ints) -> None:
    """Mark in `fits` (J,) which jobs an empty cluster can hold."""
    empty = by_reference(d)
    for j in range(jobs.size):
        fits[j] = locate(empty, FIRST_FIT, typical, jobs[j])


def fitting(cluster: Cluster, jobs: Records) -> Bools:
    """Which of these jobs (J,) the cluster can hold when it is empty."""
    demands = ("cpus_per_worker", "memory_gb_per_worker", "cpus_per_server", "memory_gb_per_server")
    plain = (jobs["gpu_type"] == -1).all() and (jobs["gpus_per_worker"] == 1).all()
    even = (cluster.gpus == cluster.gpus[0]).all()
    if plain and even and not any(jobs[name].any() for name in demands):
        fits_all: Bools = np.less_equal(jobs["gpus"], cluster.total_gpus)
        return fits_all  # without compiling anything
    nodes, none = cluster.empty(), np.zeros(0, np.int64)
    node, part = np.zeros((2, len(cluster)), np.int64)
    fits = np.zeros(len(jobs), np.int64)
    arrays = DraftArrays(nodes, new_index(nodes), none, none, np.zeros(0, SHARE), node, part)
    fits_empty(arrays, jobs, np.zeros(1), fits)
    return fits > 0


def estimator_of(physics: Physics) -> Estimator | None:
    """A new estimator for a run whose policies must observe speeds; None for other runs."""
    if physics.sight == "observed" and physics.curves is not None:
        return Estimator(by_nodes=physics.curves.by_nodes)
    return None


class Simulator:
    """One simulated cluster that replays a trace; a Backend."""

    def __init__(
        self,
        cluster: Cluster,
        trace: Trace,
        when: Conditions | None = None,
        *,
        seed: int = 0,
        log: int = 0,
        physics: Physics = PLAIN,
    ) -> None:
        self.cluster, self.trace, self.when = cluster, trace, when or Conditions()
        self.physics = physics
        self.batch = build_state(cluster, [trace], self.when, [seed], log, physics)
        self.state = one_of_batch(self.batch, 0)
        self.learning = learning_of(physics, trace, self.when)
        self._curves = seen_curves(physics, cluster, seed)
        self._estimator = estimator_of(physics)
        self.clock = self.state.clock[0]
        jobs = self.state.jobs[: len(trace)]
        check_fits(cluster, trace, jobs, fitting(cluster, jobs))

    # Whole replays need none of these, so they are loaded (or compiled) when first used.

    @cached_property
    def _advance(self) -> Callable[..., bool]:
        return direct(advance_once, self.state)

    @cached_property
    def _observe(self) -> Callable[..., int]:
        return direct(observe, self.state, np.empty(0, JOB), np.empty(0, SHARE))

    @cached_property
    def _carry_out(self) -> Callable[..., bool]:
        ints = np.empty(0, np.int64)
        return direct(carry_out, self.state, ints, ints, ints, np.empty(0, SHARE), 0)

    @cached_property
    def _lengthen(self) -> Callable[..., None]:
        return direct(lengthen, self.state, 0, 1.0, 0.0)

    @cached_property
    def _log_is_full(self) -> Callable[..., bool]:
        return direct(is_log_full, self.state)

    def observe(self) -> Snapshot:
        """Everything a policy may know now."""
        s, live = self.state, int(self.clock["live"])
        rows = np.empty(live, JOB)
        shares = np.empty(int(self.clock["used"]), SHARE)  # servers may be where no GPU is held
        used = self._observe(s, rows, shares)
        snapshot = Snapshot(
            float(self.clock["now_s"]), self.cluster, JobTable(rows), s.nodes.copy(), shares[:used],
            self._curves, seen_contention(self.physics),
            None if self.learning is None
            else self.learning.learning(rows["uid"], rows["progress_s"]),
        )  # fmt: skip
        return snapshot if self._estimator is None else self._estimator.see(snapshot)

    def apply(self, plan: Plan) -> None:
        """Start, resize, move, stop and tune what the plan says, at no time passed."""
        if plan.decision.tunes and self.learning is None:
            raise PolicyError(
                "The policy tunes jobs, but nothing of a job can be tuned in this world, which has "
                "no learning curves ([learning] of a scenario); tune only where Snapshot.learning "
                "is there."
            )
        decision, job = plan.decision, plan.job
        uid, first, length = (
            np.ascontiguousarray(column[job], np.int64)
            for column in (decision.uid, decision.at, decision.length)
        )
        shares = np.ascontiguousarray(decision.shares, SHARE)
        room = int(length.sum())
        if self.state.events.size:
            self._see_to_log(len(uid), room)
        while not self._carry_out(self.state, uid, first, first + length, shares, room):
            self._grow("shares", room)
            self._grow("spare", room)
        for index, settings in decision.tunes.items():
            self._tune(int(decision.uid[index]), settings)

    def _tune(self, uid: int, settings: Mapping[str, float]) -> None:
        """Let the network of a running job grow; what is left of its work gets longer."""
        if GROW not in settings or self.learning is None:
            return
        by = int(settings[GROW])
        ratio, pause_s = self.learning.cost_ratio(uid, by), self.learning.curves.pause_s
        self._lengthen(self.state, uid, ratio, pause_s)
        self.learning.grow(uid, by, float(self.state.jobs["progress_s"][uid]))

    def _see_to_log(self, events: int, entries: int) -> None:
        """Make room in the log for these numbers of events and of shares, and a round."""
        for name, count, more in (
            ("events", "events", events), ("entries", "entries", entries), ("rounds", "logged", 1)
        ):  # fmt: skip
            if int(self.clock[count]) + more > getattr(self.state, name).size:
                self._grow(name, more)

    def _grow(self, name: str, room: int) -> None:
        """Give one of the state's arrays twice its length, and twice `room` on top."""
        old = getattr(self.batch, name)
        new = np.zeros((1, 2 * (old.shape[1] + room)), old.dtype)
        new[:, : old.shape[1]] = old
        self.batch = self.batch._replace(**{name: new})
        self.state = one_of_batch(self.batch, 0)

    def wait(self, wake_s: float = np.inf) -> bool:
        """Let time pass to the next event, slot or `wake_s`; False when all jobs have ended."""
        self.clock["wake_s"] = wake_s
        if self.learning is not None:
            self.learning.look(self.state.jobs[: len(self.trace)])
        goes_on = self._advance(self.state)
        if self.learning is not None:
            self.learning.meet(self.state.jobs[: len(self.trace)], float(self.clock["now_s"]))
        if goes_on:
            return True
        self.check_over()
        return False

    def check_books(self) -> None:
        """Raise if compiled code has ever given a node's room twice, which is a defect of rota."""
        if self.clock["overfull"]:
            raise PolicyError(
                f"By {self.clock['now_s']:g} s {self.clock['overfull']} shares had been given on "
                "nodes that had not enough left. The results are void; please report this, with "
                "the trace, the cluster and the policy."
            )

    def check_over(self) -> None:
        """Raise unless every job has ended, now that nothing more will happen by itself."""
        self.check_books()
        left = int(self.clock["jobs"] - self.clock["ended"])
        if left:
            jobs = self.state.jobs[: len(self.trace)]
            stuck = (jobs["status"] == RUNNING) & (jobs["pace"] == 0)
            why = "nothing runs and nothing is to come"
            if stuck.any():
                job = int(stuck.argmax())
                why = (
                    f"job {str(self.trace.job_id[job])!r} sits on {jobs['share_len'][job]} nodes "
                    f"with {jobs['held_workers'][job]} workers and {jobs['held_servers'][job]} "
                    "servers, where its speed is 0 (+spread or a policy that knows, such as "
                    "contention-greedy, may do), "
                    "and nothing is to come"
                )
            first = int((jobs["status"] == WAITING).argmax())
            raise PolicyError(
                f"At {self.clock['now_s']:g} s {why}, but {left} of {self.clock['jobs']} jobs have "
                f"not ended: the policy starves them. The first that waits is job "
                f"{str(self.trace.job_id[first])!r} with {self.trace.num_gpus[first]} GPUs."
            )

    @property
    def log_is_full(self) -> bool:
        """Whether the log must be emptied before the next round."""
        return bool(self.state.events.size and self._log_is_full(self.state))

    @property
    def finished(self) -> int:
        """The number of jobs that have ended."""
        return int(self.clock["ended"])
