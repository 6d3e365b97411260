"""RIFLING, a baseline of DAS: Q-learning of where jobs run well, while it is used.

After Chen, "RIFLING: a reinforcement learning-based GPU scheduler for deep learning research and
development platforms" (Software: Practice and Experience, 2022): jobs are served in order of
arrival, groups of jobs share a row of a Q-table, the reward is the pace at which jobs are seen to
run, and placements are chosen epsilon-greedily. Its program is not public: groups, classes of nodes
and all numbers here are ours. The action of leaving a job waiting is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from rota.core.draft import Draft
from rota.policies.classic.placing import Placer, start_if_idle
from rota.policies.published.key_decoding_kernels import place_one
from rota.policies.published.key_search import (
    SEED,
    WINDOW,
    generator,
    keyed_queue,
    room_to_decode,
    share_of_one,
    write_places,
)
from rota.policies.published.known_pace import kept_at_worst
from rota.policies.settings import PolicyEntry, Setting

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
    from rota.core.types import Bools, Floats, Ints
    from rota.policies.published.key_decoding_kernels import Decoded, KeyedQueue

SIZES: Final = (1, 2, 5)
"""Groups of jobs by GPUs: fewer than 1, than 2, than 5, and the others."""
KEPT: Final = (1 / 3, 2 / 3)
"""Groups of jobs by the part of their speed that is left in their worst place."""
LOADS: Final = (0.01, 0.51)
"""Classes of nodes by the part of their GPUs that is held: none, up to half, and more."""
GROUPS: Final = (len(SIZES) + 1) * (len(KEPT) + 1)
LEVELS: Final = len(LOADS) + 1


@dataclass
class Rifling:
    """Give each job the class of nodes on which jobs of its group were seen to run best.

    A class is a GPU type and how full nodes of it are. It learns while it is used, and forgets
    everything when time goes back, as another run has begun. No job is stopped or moved.
    """

    compiles: ClassVar[bool] = True

    name: str = "rifling"
    oracle: bool = False
    epsilon: float = 0.05
    """How often a job is given a class at random."""
    rate: float = 0.1
    """The part of the difference to what is seen that is learned at once."""
    discount: float = 0.5
    """What the pace at the next look counts for beside that at this one."""
    window: int = 64
    """Waiting jobs that are looked at; the others take what is left."""
    seed: int = 0
    _value: Floats = field(
        default_factory=lambda: np.zeros((0, 0)), init=False, repr=False, compare=False
    )  # (GROUPS, classes) the Q-table
    _seen: dict[int, tuple[int, int, float]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # by uid: group, class and pace of the jobs that ran at the last look
    _time_s: float = field(default=np.inf, init=False, repr=False, compare=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Learn from what has happened since the last time; then one round."""
        self._look(snapshot)
        draft, waiting = Draft(snapshot), np.flatnonzero(snapshot.jobs.waiting)
        jobs, others = waiting[: self.window], waiting[self.window :]
        if len(jobs) and snapshot.nodes["up"].any():
            self._start(snapshot, draft, jobs)
        if len(others):
            Placer("worst-fit").fill(draft, others)
        start_if_idle(draft)
        return draft.commit()

    @property
    def values(self) -> Floats:
        """What it has learned so far (GROUPS, classes), as a copy."""
        return self._value.copy()

    def _look(self, snapshot: Snapshot) -> None:
        """Learn from the jobs that run now, once per moment: asked again, nothing is new."""
        columns = len(snapshot.cluster.gpu_types) * LEVELS
        if snapshot.time_s < self._time_s or self._value.shape[1] != columns:
            # Hopeful at first, so every class is tried.
            self._value = np.full((GROUPS, columns), 1.0 / (1.0 - self.discount))
            self._seen, self._time_s = {}, -np.inf
        if snapshot.time_s > self._time_s:
            now = observed(snapshot)
            for uid, (row, place, pace) in self._seen.items():
                # Of a job that is done, the last pace stands for what would have followed.
                after = self._value[now[uid][:2]] if uid in now else pace / (1.0 - self.discount)
                target = pace + self.discount * after
                self._value[row, place] += self.rate * (target - self._value[row, place])
            self._seen, self._time_s = now, snapshot.time_s

    def _start(self, snapshot: Snapshot, draft: Draft, jobs: Ints) -> None:
        """Give jobs, in order of arrival, the best class that has room for them."""
        queue = keyed_queue(snapshot, jobs)
        decoded, rng, used = room_to_decode(queue), generator(self.seed, snapshot), 0
        free, everywhere = queue.free, np.arange(len(queue.free))
        for j, row in enumerate(groups(snapshot, jobs).tolist()):
            draws = rng.random(1 + self._value.shape[1])
            if queue.workers[j] * queue.gpus[j] > free.sum():
                continue
            rank = np.argsort(-self._value[row], kind="stable")
            if draws[0] < self.epsilon:
                rank = np.argsort(draws[1:])
            kind = classes(snapshot, everywhere, snapshot.nodes["gpus"] - free)
            span = _place(queue, decoded, j, used, [*(kind == one for one in rank), kind >= 0])
            if span:
                used, free = used + span, decoded.free.copy()
        write_places(draft, jobs, decoded)


def _place(queue: KeyedQueue, decoded: Decoded, j: int, used: int, choice: list[Bools]) -> int:
    """Start job j within the first set of nodes with room, from the emptiest on; 0: in none."""
    free = decoded.free if used else queue.free
    for nodes in choice:
        inside = nodes & queue.up
        if inside.any():
            first = int(np.where(inside, free, -1).argmax())
            span: int = place_one(queue._replace(up=inside), decoded, j, first, used)
            if span:
                return span
    return 0


def groups(snapshot: Snapshot, jobs: Ints) -> Ints:
    """The row of the table for each of these jobs: its size, and what it loses in bad places."""
    size = np.digitize(snapshot.jobs.gpus[jobs], SIZES)
    rows: Ints = size * (len(KEPT) + 1) + np.digitize(kept_at_worst(snapshot, jobs), KEPT)
    return rows


def classes(snapshot: Snapshot, node: Ints, held: Ints) -> Ints:
    """The column of the table for each of these nodes if so many of its GPUs are held.

    Empty nodes come first, so that of classes of equal value the emptiest is taken.
    """
    level = np.digitize(held / np.maximum(1, snapshot.nodes["gpus"][node]), LOADS)
    column: Ints = level * len(snapshot.cluster.gpu_types) + snapshot.nodes["type"][node]
    return column


def observed(snapshot: Snapshot) -> dict[int, tuple[int, int, float]]:
    """Group, class and reward of each job that runs, by uid; of a gang, where most of it is.

    The reward is the mean pace of all that runs on that node, by GPUs: a job answers for its
    neighbours too. How full the node is counts without the job, as when it was placed.
    """
    jobs, nodes = snapshot.jobs, snapshot.nodes
    running = np.flatnonzero(jobs.running & np.isfinite(jobs.pace) & (jobs.share_len > 0))
    most = [max(snapshot.share(job), key=lambda entry: entry[1]) for job in running.tolist()]
    node = np.array([entry[0] for entry in most], np.int64)
    own = np.array([entry[1] for entry in most], np.int64) * jobs.gpus_per_worker[running]
    column = classes(snapshot, node, (nodes["gpus"] - nodes["free"])[node] - own)
    # A worker without a GPU counts, too, else it had no pace.
    weight = np.maximum(own, 1)
    pace = np.clip(jobs.pace[running], 0.0, 1.0)
    total = np.bincount(node, weight * pace, len(nodes)) / np.maximum(
        1, np.bincount(node, weight, len(nodes))
    )
    found = zip(
        groups(snapshot, running).tolist(), column.tolist(), total[node].tolist(), strict=True
    )
    return dict(zip(jobs.uid[running].tolist(), found, strict=True))


def below_one(text: str) -> float:
    """A number from 0 up to but not 1."""
    value = share_of_one(text)
    if value == 1.0:
        raise ValueError
    return value


POLICIES: Final = {
    "rifling": PolicyEntry(
        "First come, first served, on the kind of node where such jobs were seen to run best.",
        "RIFLING: Q-learning while it is used, after DAS, KDD 2023", Rifling,
        {"epsilon": Setting("how often a job is given a class of nodes at random", share_of_one,
                            "a number from 0 to 1"),
         "rate": Setting("part of what is seen that is learned at once", share_of_one,
                         "a number from 0 to 1"),
         "discount": Setting("what the pace at the next look counts for", below_one,
                             "a number, 0 or more, below 1"),
         "window": WINDOW, "seed": SEED}),
}  # fmt: skip
