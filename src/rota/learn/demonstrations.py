"""Demonstrations: what a teacher did in states that a lens shows, for behaviour cloning.

A teacher that is a policy decides on snapshots of the batched environment, with the knowledge
that `rota simulate` would give it. The lens turns its decisions into actions, and the environment
carries them out. So the states are those that the teacher's own decisions lead to. A teacher may
also be a journal: then the rounds are those that were recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.decision import Decision
from rota.core.jobs import JobTable
from rota.envs import LensPolicy
from rota.envs.episode_policy import EpisodePolicies
from rota.envs.perfect_copy import failed
from rota.envs.wanted import Wanted, nothing
from rota.errors import ConfigError, InputError
from rota.learn.inference import infer
from rota.learn.lens_reader import LensReader
from rota.learn.states import Decisions, States
from rota.systems.agents import EDITOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.core.types import Ints
    from rota.envs.book import Book
    from rota.envs.lens import Lens
    from rota.envs.view import View
    from rota.learn.batch_rollout_env import BatchRolloutEnv
    from rota.learn.clone import CloneConfig
    from rota.learn.journal_replay import JournalReplay
    from rota.systems.agents import LearnedAgent


@dataclass(frozen=True)
class Demonstrations:
    """What a teacher did in some states; the action −1: nothing to learn here."""

    seen: States
    decisions: Decisions  # with the column "action"

    def __len__(self) -> int:
        return len(self.seen)

    @classmethod
    def joined(cls, parts: Sequence[Demonstrations]) -> Demonstrations:
        """Those of several origins, one after the other."""
        return cls(
            States.joined([part.seen for part in parts]),
            Decisions.joined([part.decisions for part in parts]),
        )

    def first(self, samples: int) -> Demonstrations:
        """The first states, without actions that are not allowed, which cannot be learned."""
        some = self.take(np.arange(min(samples, len(self))))
        action = some.decisions["action"]
        known = np.where(some.decisions.allowed.allows(action), action, -1)
        return replace(some, decisions=some.decisions.having(action=known))

    def taught(self) -> Demonstrations:
        """The states in which there is an action to learn."""
        known = self.decisions["action"] >= 0
        return self.take(np.unique(self.decisions.state[known]))

    def take(self, which: Ints) -> Demonstrations:
        """Some of the states, by number."""
        return Demonstrations(self.seen.take(which), self.decisions.take(which))


def watch_policy(
    envs: BatchRolloutEnv, make_teacher: Callable[[], Policy], config: CloneConfig,
    rng: np.random.Generator, student: nn.Module | None = None,
) -> Demonstrations:  # fmt: skip
    """What a policy does in `config.samples` states.

    With a `student`, the states are those that the student's choices lead to, and the actions
    what the teacher would do there. Every cluster has a separate teacher.
    """
    kept: list[Demonstrations] = []
    count, keep = 0, np.ones(envs.batch, np.bool_)
    teacher = _TeacherActions(envs, make_teacher)
    while count < config.samples:
        actions = teacher.next()
        right = teacher.right() if config.any_order else None
        seen = envs.observe()
        if config.every > 1:
            keep = rng.random(envs.batch) < 1 / config.every
        if right is not None:
            # The teacher has no order of edits, so states of all orders are needed.
            actions = _one_of(right, rng)
        shown = Demonstrations(seen, envs.decisions(actions, right))
        kept.append(shown.take(np.flatnonzero(keep)))
        if student is not None:
            actions = envs.choose(infer(student, seen), None).actions
        envs.step(actions)
        count += int(keep.sum())
    return Demonstrations.joined(kept).first(config.samples)


def _one_of(right: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
    """One of the flagged actions (B, A) of every cluster, each equally likely."""
    chosen: NDArray[np.int64] = np.where(right, rng.random(right.shape), -1.0).argmax(1)
    return chosen


def watch_journal(
    journal: JournalReplay, lens: Lens, samples: int, models: Sequence[str],
    agents: tuple[LearnedAgent, ...] = EDITOR,
) -> Demonstrations:  # fmt: skip
    """What the scheduler of a journal did; `models` are those that the lens distinguishes."""
    actor = _RecordedActor(LensReader(lens, agents))
    copy = LensPolicy(lens, actor, "journal")
    code = np.array([*model_codes(journal, lens, models), -1])
    for snapshot, decision in journal.rounds():
        jobs = snapshot.jobs.rows.copy()
        jobs["model"] = code[jobs["model"]]
        actor.read(snapshot, decision)
        copy.decide(replace(snapshot, jobs=JobTable(jobs)))
        if len(actor.kept) >= samples:
            break
    found = Demonstrations.joined(actor.kept).first(samples)
    if not found.decisions.allowed.free.any():
        raise InputError(
            f"{journal.path}: In none of the journal's {len(found):,} states does this lens have "
            "a choice: its jobs can get no more and no fewer workers than they ask for. Learn from "
            "a journal of jobs with min_workers below max_workers."
        )
    return found


def model_codes(journal: JournalReplay, lens: Lens, models: Sequence[str]) -> list[int]:
    """The numbers that the journal's models have in the world to learn for."""
    trace, types = journal.trace, getattr(lens, "types", len(models))
    used = {trace.models[code] for code in np.unique(trace.model).tolist() if code >= 0}
    unknown = sorted(used - set(models))
    if unknown:
        raise InputError(
            f"{journal.path}: The journal's jobs train {unknown[0]!r}, which the scenario to learn "
            f"for does not know ({', '.join(models) or 'no models'}); name another [world] "
            "scenario, or a journal of its jobs."
        )
    codes = [models.index(name) if name in models else -1 for name in trace.models]
    if max([models.index(name) for name in used], default=-1) >= types:
        raise ConfigError(
            f"{journal.path}: [lens] types = {types} is less than the number of models that the "
            f"journal's jobs train; set it to {len(models)}."
        )
    return codes


class _RecordedActor:
    """Chooses the actions that express a recorded decision, and keeps the states on the way."""

    def __init__(self, reader: LensReader) -> None:
        self._reader = reader
        self.kept: list[Demonstrations] = []

    def read(self, snapshot: Snapshot, decision: Decision) -> None:
        """Take the round to carry out next."""
        self._uid = np.append(snapshot.jobs.uid, -1)  # the last is for row −1: no job
        self._wanted = Wanted.of(decision)

    def __call__(self, obs: Any, mask: Any, view: View, book: Book) -> NDArray[Any]:
        """The next action; see `rota.envs.lens_policy.Actor`."""
        lens, rows = self._reader.lens, self._uid[book.rows]
        script = np.zeros((1, *(lens.action_space.shape or ())), np.int64)
        lens.script(view, book, self._wanted, script)
        own = {name: np.array(array) for name, array in obs.items()}
        decisions = self._reader.decisions(script, np.array(mask), own, rows)
        self.kept.append(Demonstrations(self._reader.states(own, rows), decisions))
        return script


class _TeacherActions:
    """Asks the teacher once per round and cluster, and the lens for one action after the other."""

    def __init__(self, envs: BatchRolloutEnv, make_teacher: Callable[[], Policy]) -> None:
        self._envs, self._policies = envs, EpisodePolicies(envs.batch_env, make_teacher)
        self._wanted = nothing(*envs.batch_env.book.workers.shape)
        self._begins = np.ones(envs.batch, np.bool_)

    def next(self) -> NDArray[Any]:
        """The next actions."""
        envs = self._envs
        if "closed" in envs.info:
            self._begins |= envs.info["closed"]
        for b in np.flatnonzero(self._begins):
            self._ask(int(b))
        self._begins[:] = False
        return envs.follow(self._wanted)

    def right(self) -> NDArray[np.bool_]:
        """All actions (B, A) that lead to what the teacher wants."""
        return self._envs.towards(self._wanted)

    def _ask(self, b: int) -> None:
        """What the teacher would give every job of cluster b."""
        own, view = self._policies.at(b), self._envs.batch_env.view
        try:
            snapshot, decision = self._policies.decide(b)
            if not isinstance(decision, Decision):
                raise TypeError(f"decide() returned {type(decision).__name__}, not a Decision")
            decision.check(snapshot)
        except Exception as error:
            raise failed(own.policy, view.now_s[b], int(view.live[b]), error) from error
        index = {int(uid): j for j, uid in enumerate(self._envs.batch_env.view.jobs[b]["uid"])}
        rows = np.array([index[int(uid)] for uid in decision.uid], np.int64)
        self._wanted = self._wanted.with_round(b, rows, decision)
