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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.envs.book import Book
    from rota.envs.lens import Lens
    from rota.envs.view import View
    from rota.learn.batch_rollout_env import BatchRolloutEnv
    from rota.learn.clone import CloneConfig
    from rota.learn.journal_replay import JournalReplay


@dataclass
class Demonstrations:
    """What a teacher did in M states: observations, masks and actions."""

    seen: dict[str, NDArray[Any]]  # (M, …) by name
    mask: NDArray[Any]  # (M, A) or (M, W, A)
    action: NDArray[Any]  # (M,) or (M, W), −1: nothing to learn here
    right: NDArray[Any] | None = None  # (M, A): all actions that would have been right, if known

    def __len__(self) -> int:
        return len(self.action)

    @classmethod
    def joined(cls, kept: Mapping[str, list[NDArray[Any]]], samples: int) -> Demonstrations:
        """The first `samples` states of lists of arrays by name."""
        joined = {name: np.concatenate(parts)[:samples] for name, parts in kept.items()}
        mask, action = joined.pop(".mask"), joined.pop(".action")
        right = joined.pop(".right", None)
        # An action of the teacher that the lens does not allow cannot be learned.
        allowed = np.take_along_axis(mask, np.maximum(action, 0)[..., None], -1)[..., 0]
        return cls(joined, mask, np.where(allowed, action, -1), right)

    def taught(self) -> Demonstrations:
        """The states in which there is an action to learn."""
        return self.take(np.any((self.action >= 0).reshape(len(self), -1), 1))

    def take(self, which: NDArray[Any]) -> Demonstrations:
        """Some of the states, by flags or by numbers."""
        seen = {name: array[which] for name, array in self.seen.items()}
        right = None if self.right is None else self.right[which]
        return Demonstrations(seen, self.mask[which], self.action[which], right)

    def beside(self, others: Demonstrations) -> Demonstrations:
        """These states and others, joined."""
        seen = {name: np.concatenate([own, others.seen[name]]) for name, own in self.seen.items()}
        mask = np.concatenate([self.mask, others.mask])
        action = np.concatenate([self.action, others.action])
        both = self.right is not None and others.right is not None
        right = np.concatenate([self.right, others.right]) if both else None
        return Demonstrations(seen, mask, action, right)


def watch_policy(
    envs: BatchRolloutEnv, make_teacher: Callable[[], Policy], config: CloneConfig,
    rng: np.random.Generator, student: nn.Module | None = None,
) -> Demonstrations:  # fmt: skip
    """What a policy does in `config.samples` states.

    With a `student`, the states are those that the student's choices lead to, and the actions
    what the teacher would do there. Every cluster has a separate teacher.
    """
    kept: dict[str, list[NDArray[Any]]] = {}
    count, keep = 0, np.ones(envs.batch, np.bool_)
    teacher = _TeacherActions(envs, make_teacher)
    while count < config.samples:
        action, mask = teacher.next()
        right = teacher.right() if config.any_order else None
        seen = envs.observe()
        if config.every > 1:
            keep = rng.random(envs.batch) < 1 / config.every
        if right is not None:
            # The teacher has no order of edits, so states of all orders are needed.
            action = _one_of(right, rng)
        for name, array in {**seen, ".mask": mask, ".action": action, ".right": right}.items():
            if array is not None:
                kept.setdefault(name, []).append(array[keep])
        if student is not None:
            action = envs.choose(infer(student, seen, envs.batch)[0], None).action
        envs.step(action)
        count += int(keep.sum())
    return Demonstrations.joined(kept, config.samples)


def _one_of(right: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
    """One of the flagged actions (B, A) of every cluster, each equally likely."""
    chosen: NDArray[np.int64] = np.where(right, rng.random(right.shape), -1.0).argmax(1)
    return chosen


def watch_journal(
    journal: JournalReplay, lens: Lens, samples: int, models: Sequence[str], *, per_job: bool
) -> Demonstrations:
    """What the scheduler of a journal did; `models` are those that the lens distinguishes."""
    actor = _RecordedActor(lens, per_job)
    copy = LensPolicy(lens, actor, "journal")
    code = np.array([*model_codes(journal, lens, models), -1])
    for snapshot, decision in journal.rounds():
        jobs = snapshot.jobs.rows.copy()
        jobs["model"] = code[jobs["model"]]
        actor.read(snapshot, decision)
        copy.decide(replace(snapshot, jobs=JobTable(jobs)))
        if len(actor) >= samples:
            break
    found = actor.demonstrations(samples)
    if not (found.mask.sum(-1) > 1).any():
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

    def __init__(self, lens: Lens, per_job: bool) -> None:
        self._lens, self._per_job = lens, per_job
        self._kept: dict[str, list[NDArray[Any]]] = {}

    def __len__(self) -> int:
        return len(self._kept.get(".action", ()))

    def read(self, snapshot: Snapshot, decision: Decision) -> None:
        """Take the round to carry out next."""
        self._uid = np.append(snapshot.jobs.uid, -1)  # the last is for row −1: no job
        self._wanted = Wanted.of(decision)

    def __call__(self, obs: Any, mask: Any, view: View, book: Book) -> NDArray[Any]:
        """The next action; see `rota.envs.lens_policy.Actor`."""
        script = np.zeros((1, *(self._lens.action_space.shape or ())), np.int64)
        self._lens.script(view, book, self._wanted, script)
        seen = {**obs, ".mask": mask, ".action": script}
        if self._per_job:
            seen["rows"] = self._uid[book.rows]
        for name, array in seen.items():
            self._kept.setdefault(name, []).append(np.array(array))
        return script

    def demonstrations(self, samples: int) -> Demonstrations:
        """The states and actions so far, at most `samples`."""
        return Demonstrations.joined(self._kept, samples)


class _TeacherActions:
    """Asks the teacher once per round and cluster, and the lens for one action after the other."""

    def __init__(self, envs: BatchRolloutEnv, make_teacher: Callable[[], Policy]) -> None:
        self._envs, self._policies = envs, EpisodePolicies(envs.batch_env, make_teacher)
        self._wanted = nothing(*envs.batch_env.book.workers.shape)
        self._begins = np.ones(envs.batch, np.bool_)

    def next(self) -> tuple[NDArray[Any], NDArray[Any]]:
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
