"""Behaviour cloning: a network learns to choose what a teacher chose (cross-entropy).

The teacher is any policy. It decides on the snapshots of the batched environment, knowing what
`rota simulate` would tell it; the lens turns its decisions into actions, and the environment
carries them out: what is cloned are
states that the lens shows, in the rounds that the teacher's own decisions lead to. A journal
teaches too: there the rounds are those that were recorded.

A copy that errs comes into states that its teacher never does, and errs more. So it may be watched
at its own choices afterwards, with the teacher saying what it would do there (DAgger; Ross et al.,
2011).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from rota.core.decision import Decision
from rota.core.jobs import JobTable
from rota.envs import LensPolicy
from rota.envs.copied import counts_of, failed
from rota.envs.seats import Seats
from rota.errors import ConfigError, InputError, TrainingError
from rota.learn.descent import masked
from rota.learn.rollout import live_decisions, look

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.envs.book import Book
    from rota.envs.lens import Lens
    from rota.envs.view import View
    from rota.learn.playing import EnvGames
    from rota.learn.record import Record


JOURNAL: Final = "journal:"
"""How a teacher is named that is a journal."""


@dataclass(frozen=True, kw_only=True)
class CloneConfig:
    """Settings of the warm-up."""

    teacher: str = ""
    """Whose decisions are learned: a policy, as the scenario names it, or journal:PATH; empty:
    no warm-up."""
    samples: int = 60_000
    """States of the teacher's that are learned from."""
    every: int = 1
    """Of so many states one is kept, by chance: those of one round are much alike."""
    again: int = 0
    """How often it is then watched at its own choices and taught anew, by as many states of these
    and as many of all before."""
    any_order: bool = False
    """Every action that leads to the teacher's counts is right, whatever comes first; else only
    the first that the lens has for them. For systems that decide step by step."""
    clusters: int = 8
    """Clusters that it schedules at once."""
    epochs: int = 8
    """How often the network sees them."""
    batch: int = 256
    """States per gradient step."""
    learning_rate: float = 3e-3
    """Adam's step size; falls linearly to 0."""
    held_out: float = 0.1
    """Part of the states that only measures how well it copies."""
    smooth: float = 0.0
    """Part of the probability that goes to all allowed actions alike: what keeps a clone curious
    enough to be improved afterwards."""
    loss: str = "cross-entropy"
    """Or "square" or "absolute": the distance between probabilities, DL2's other two."""

    def __post_init__(self) -> None:
        if self.loss not in ("cross-entropy", "square", "absolute"):
            raise ConfigError(
                f"loss = {self.loss!r} must be 'cross-entropy', 'square' or 'absolute'."
            )
        if min(self.samples, self.clusters, self.epochs, self.batch, self.every) < 1:
            raise ConfigError("samples, clusters, epochs, batch and every must be 1 or more.")
        if self.again < 0:
            raise ConfigError(f"again = {self.again} must be 0 or more.")
        if self.any_order and self.loss != "cross-entropy":
            raise ConfigError(
                f"any_order = true goes with loss = 'cross-entropy', not {self.loss!r}."
            )
        if self.teacher.startswith(JOURNAL) and (self.again or self.any_order or self.every > 1):
            raise ConfigError(
                f"teacher = {self.teacher!r} cannot be asked: again, any_order and every are for "
                "teachers that are policies."
            )
        if not (0 < self.held_out < 1 and 0 <= self.smooth < 1):
            raise ConfigError(
                f"held_out = {self.held_out} and smooth = {self.smooth} must be between 0 and 1."
            )


@dataclass
class Lessons:
    """What a teacher did: observations, what was allowed, what was chosen; axis 0 is the state."""

    seen: dict[str, NDArray[Any]]
    mask: NDArray[Any]
    action: NDArray[Any]  # (M,) or (M, W), −1: nothing to learn here
    right: NDArray[Any] | None = None  # (M, A): all that would have been right, where known

    def __len__(self) -> int:
        return len(self.action)

    @classmethod
    def joined(cls, kept: Mapping[str, list[NDArray[Any]]], samples: int) -> Lessons:
        """The first states of what was kept, by name, piece after piece."""
        joined = {name: np.concatenate(parts)[:samples] for name, parts in kept.items()}
        mask, action = joined.pop(".mask"), joined.pop(".action")
        right = joined.pop(".right", None)
        # What a teacher did but the lens does not allow cannot be learned.
        allowed = np.take_along_axis(mask, np.maximum(action, 0)[..., None], -1)[..., 0]
        return cls(joined, mask, np.where(allowed, action, -1), right)

    def taught(self) -> Lessons:
        """Those states in which there is something to learn."""
        return self.take(np.any((self.action >= 0).reshape(len(self), -1), 1))

    def take(self, which: NDArray[Any]) -> Lessons:
        """Some of them, by flags or numbers."""
        seen = {name: array[which] for name, array in self.seen.items()}
        right = None if self.right is None else self.right[which]
        return Lessons(seen, self.mask[which], self.action[which], right)

    def beside(self, others: Lessons) -> Lessons:
        """These and others."""
        seen = {name: np.concatenate([own, others.seen[name]]) for name, own in self.seen.items()}
        mask = np.concatenate([self.mask, others.mask])
        action = np.concatenate([self.action, others.action])
        both = self.right is not None and others.right is not None
        right = np.concatenate([self.right, others.right]) if both else None
        return Lessons(seen, mask, action, right)


def watch(
    games: EnvGames, make_teacher: Callable[[], Policy], config: CloneConfig,
    rng: np.random.Generator, pupil: torch.nn.Module | None = None,
) -> Lessons:  # fmt: skip
    """What a teacher does until so many states are kept; or would do where a pupil plays.

    Every cluster has a teacher of its own.
    """
    kept: dict[str, list[NDArray[Any]]] = {}
    count, keep = 0, np.ones(games.batch, np.bool_)
    wanted = _Wanted(games, make_teacher)
    while count < config.samples:
        action, mask = wanted.next()
        right = wanted.right() if config.any_order else None
        seen = games.observe()
        if config.every > 1:
            keep = rng.random(games.batch) < 1 / config.every
        if right is not None:
            # The teacher has no order of its own, so its pupil shall know the states of all.
            action = _one_of(right, rng)
        for name, array in {**seen, ".mask": mask, ".action": action, ".right": right}.items():
            if array is not None:
                kept.setdefault(name, []).append(array[keep])
        if pupil is not None:
            action = games.choose(look(pupil, seen, games.batch)[0], None).action
        games.step(action)
        count += int(keep.sum())
    return Lessons.joined(kept, config.samples)


def _one_of(right: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
    """One of the flagged actions (B, A) of every cluster, all alike."""
    chosen: NDArray[np.int64] = np.where(right, rng.random(right.shape), -1.0).argmax(1)
    return chosen


def recall(
    record: Record, lens: Lens, samples: int, models: Sequence[str], *, per_job: bool
) -> Lessons:
    """What the scheduler of a journal did; `models` are those that the lens tells apart."""
    scribe = _Scribe(lens, per_job)
    pupil = LensPolicy(lens, scribe, "journal")
    code = np.array([*_codes(record, lens, models), -1])
    for snapshot, decision in record.rounds():
        rows = snapshot.jobs.rows.copy()
        rows["model"] = code[rows["model"]]
        scribe.read(snapshot, decision)
        pupil.decide(replace(snapshot, jobs=JobTable(rows)))
        if len(scribe) >= samples:
            break
    lessons = scribe.lessons(samples)
    if not (lessons.mask.sum(-1) > 1).any():
        raise InputError(
            f"{record.path}: In none of the journal's {len(lessons):,} states is there anything "
            "to choose for this lens: its jobs can get no more and no fewer workers than they ask "
            "for. Learn from a journal of jobs with min_workers below max_workers."
        )
    return lessons


def _codes(record: Record, lens: Lens, models: Sequence[str]) -> list[int]:
    """The numbers, in the world to learn for, of the journal's models."""
    trace, types = record.trace, getattr(lens, "types", len(models))
    used = {trace.models[code] for code in np.unique(trace.model).tolist() if code >= 0}
    unknown = sorted(used - set(models))
    if unknown:
        raise InputError(
            f"{record.path}: The journal's jobs train {unknown[0]!r}, which the scenario to learn "
            f"for does not know ({', '.join(models) or 'no models'}); name another [world] "
            "scenario, or a journal of its jobs."
        )
    codes = [models.index(name) if name in models else -1 for name in trace.models]
    if max([models.index(name) for name in used], default=-1) >= types:
        raise ConfigError(
            f"{record.path}: [lens] types = {types} tells fewer models apart than the journal's "
            f"jobs train; set it to {len(models)}."
        )
    return codes


class _Scribe:
    """Acts as a recorded decision says, and writes down what it sees on the way."""

    def __init__(self, lens: Lens, per_job: bool) -> None:
        self._lens, self._per_job = lens, per_job
        self._kept: dict[str, list[NDArray[Any]]] = {}

    def __len__(self) -> int:
        return len(self._kept.get(".action", ()))

    def read(self, snapshot: Snapshot, decision: Decision) -> None:
        """The round that is to be acted out next."""
        self._uid = np.append(snapshot.jobs.uid, -1)  # of row −1: nobody
        self._workers, self._servers = counts_of(decision)[:, None]

    def __call__(self, obs: Any, mask: Any, view: View, book: Book) -> NDArray[Any]:
        """The next action; see `rota.envs.deploy.Actor`."""
        script = np.zeros((1, *(self._lens.action_space.shape or ())), np.int64)
        self._lens.script(view, book, self._workers, self._servers, script)
        seen = {**obs, ".mask": mask, ".action": script}
        if self._per_job:
            seen["who"] = self._uid[book.rows]
        for name, array in seen.items():
            self._kept.setdefault(name, []).append(np.array(array))
        return script

    def lessons(self, samples: int) -> Lessons:
        """All of it."""
        return Lessons.joined(self._kept, samples)


class _Wanted:
    """Asks the teacher once per round and cluster, and the lens for one action after the other."""

    def __init__(self, games: EnvGames, make_teacher: Callable[[], Policy]) -> None:
        self._games, self._seats = games, Seats(games.env, make_teacher)
        shape = games.env.book.workers.shape
        self._workers, self._servers = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self._begins = np.ones(games.batch, np.bool_)

    def next(self) -> tuple[NDArray[Any], NDArray[Any]]:
        games = self._games
        if "closed" in games.info:
            self._begins |= games.info["closed"]
        for b in np.flatnonzero(self._begins):
            self._ask(int(b))
        self._begins[:] = False
        return games.follow(self._workers, self._servers)

    def right(self) -> NDArray[np.bool_]:
        """All actions (B, A) that lead to what the teacher wants."""
        return self._games.towards(self._workers, self._servers)

    def _ask(self, b: int) -> None:
        """What the teacher would give every job of cluster b."""
        seat, view = self._seats.at(b), self._games.env.view
        try:
            snapshot, decision = self._seats.decide(b)
            if not isinstance(decision, Decision):
                raise TypeError(f"decide() returned {type(decision).__name__}, not a Decision")
            decision.check(snapshot)
        except Exception as error:
            raise failed(seat.policy, view.now_s[b], int(view.live[b]), error) from error
        self._workers[b], self._servers[b] = 0, 0
        index = {int(uid): j for j, uid in enumerate(self._games.env.view.jobs[b]["uid"])}
        rows = [index[int(uid)] for uid in decision.uid]
        self._workers[b, rows], self._servers[b, rows] = counts_of(decision)


def clone(
    network: torch.nn.Module, lessons: Lessons, config: CloneConfig, generator: torch.Generator
) -> Iterator[dict[str, float]]:
    """Teach the network; after every epoch, what it makes of the states held out."""
    lessons = lessons.taught()
    data = {name: torch.from_numpy(array) for name, array in lessons.seen.items()}
    mask, action = torch.from_numpy(lessons.mask), torch.from_numpy(lessons.action)
    right = None if lessons.right is None else torch.from_numpy(lessons.right)
    order = torch.randperm(len(lessons), generator=generator)
    held = max(1, int(len(order) * config.held_out))
    test, rest = order[:held], order[held:]
    if not len(rest):
        raise TrainingError(
            f"{len(lessons)} states of a teacher in which the lens can do as it did are too few to "
            "learn from; take a longer journal, more samples, or another teacher."
        )
    optimizer = torch.optim.Adam(network.parameters(), config.learning_rate)
    steps = config.epochs * -(-len(rest) // config.batch)
    step = 0
    for _ in range(config.epochs):
        shuffled = rest[torch.randperm(len(rest), generator=generator)]
        total = 0.0
        for rows in torch.split(shuffled, config.batch):
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * (1 - step / steps)
            loss, _ = _loss(network, data, mask, action, right, rows, config)
            if not torch.isfinite(loss):
                raise TrainingError("Cloning led to a loss that is not finite; lower its rate.")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(rows)
            step += 1
        with torch.inference_mode():
            test_loss, agrees = _loss(network, data, mask, action, right, test, config)
        yield {
            "loss": total / len(rest), "test_loss": float(test_loss), "agreement": float(agrees)
        }  # fmt: skip


def _loss(
    network: torch.nn.Module, data: dict[str, torch.Tensor], mask: torch.Tensor,
    action: torch.Tensor, right: torch.Tensor | None, rows: torch.Tensor, config: CloneConfig,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The loss, and how often the likeliest action is right."""
    seen = {name: array[rows] for name, array in data.items()}
    live = torch.from_numpy(
        live_decisions({name: array.numpy() for name, array in seen.items()}, len(rows))
    )
    logits, _ = network(seen)
    wanted = action[rows][live]
    taught = wanted >= 0
    allowed, wanted = mask[rows][live][taught], wanted[taught]
    log_probs = masked(logits[taught], allowed)
    agrees = (log_probs.argmax(-1) == wanted).float().mean()
    if config.loss == "cross-entropy":
        alike = -(log_probs * allowed).sum(-1) / allowed.sum(-1)
        loss = torch.nn.functional.nll_loss(log_probs, wanted)
        if right is not None:
            good = right[rows][live][taught]
            loss = -log_probs.masked_fill(~good, -torch.inf).logsumexp(-1).mean()
            agrees = good.gather(1, log_probs.argmax(-1, keepdim=True)).float().mean()
        return (1 - config.smooth) * loss + config.smooth * alike.mean(), agrees
    gap = log_probs.exp() - torch.nn.functional.one_hot(wanted, log_probs.shape[-1])
    return (gap.square() if config.loss == "square" else gap.abs()).sum(-1).mean(), agrees
