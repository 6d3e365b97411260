"""Behaviour cloning: a network learns to choose what a teacher chose (cross-entropy).

The teacher is any policy. It decides on the snapshots of the batched environment, knowing what
`rota simulate` would tell it; the lens turns its decisions into actions, and the environment
carries them out: what is cloned are
states that the lens shows, in the rounds that the teacher's own decisions lead to. A journal
teaches too: there the rounds are those that were recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rota.core.decision import Decision
from rota.core.jobs import JobTable
from rota.envs import LensPolicy
from rota.envs.seats import Seats
from rota.errors import ConfigError, InputError, PolicyError, TrainingError
from rota.learn.descent import masked
from rota.learn.rollout import live_decisions

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


@dataclass(frozen=True, kw_only=True)
class CloneConfig:
    """Settings of the warm-up."""

    teacher: str = ""
    """Whose decisions are learned: a policy, as the scenario names it, or journal:PATH; empty:
    no warm-up."""
    samples: int = 60_000
    """States that the teacher is watched in."""
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
        if min(self.samples, self.clusters, self.epochs, self.batch) < 1:
            raise ConfigError("samples, clusters, epochs and batch must be 1 or more.")
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

    def __len__(self) -> int:
        return len(self.action)

    @classmethod
    def joined(cls, kept: Mapping[str, list[NDArray[Any]]], samples: int) -> Lessons:
        """The first states of what was kept, by name, piece after piece."""
        joined = {name: np.concatenate(parts)[:samples] for name, parts in kept.items()}
        mask, action = joined.pop(".mask"), joined.pop(".action")
        # What a teacher did but the lens does not allow cannot be learned.
        allowed = np.take_along_axis(mask, np.maximum(action, 0)[..., None], -1)[..., 0]
        return cls(mask=mask, action=np.where(allowed, action, -1), seen=joined)

    def taught(self) -> Lessons:
        """Those states in which there is something to learn."""
        keep = (self.action >= 0).reshape(len(self), -1).any(1)
        seen = {name: array[keep] for name, array in self.seen.items()}
        return Lessons(seen, self.mask[keep], self.action[keep])


def watch(games: EnvGames, make_teacher: Callable[[], Policy], samples: int) -> Lessons:
    """Let a teacher schedule until so many states were seen; every cluster has one of its own."""
    kept: dict[str, list[NDArray[Any]]] = {}
    count = 0
    wanted = _Wanted(games, make_teacher)
    while count < samples:
        action, mask = wanted.next()
        seen = games.observe()
        for name, array in {**seen, ".mask": mask, ".action": action}.items():
            kept.setdefault(name, []).append(np.array(array))
        games.step(action)
        count += games.batch
    return Lessons.joined(kept, samples)


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
        self._workers, self._servers = _counts(decision)[:, None]

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

    def _ask(self, b: int) -> None:
        """What the teacher would give every job of cluster b."""
        seat, view = self._seats.at(b), self._games.env.view
        try:
            snapshot, decision = self._seats.decide(b)
            if not isinstance(decision, Decision):
                raise TypeError(f"decide() returned {type(decision).__name__}, not a Decision")
            decision.check(snapshot)
        except Exception as error:
            name = getattr(seat.policy, "name", type(seat.policy).__name__)
            raise PolicyError(
                f"The teacher {name!r} failed at {view.now_s[b]:.0f} s with {view.live[b]} jobs: "
                f"{type(error).__name__}: {str(error).rstrip('.')}."
            ) from error
        self._workers[b], self._servers[b] = 0, 0
        index = {int(uid): j for j, uid in enumerate(self._games.env.view.jobs[b]["uid"])}
        rows = [index[int(uid)] for uid in decision.uid]
        self._workers[b, rows], self._servers[b, rows] = _counts(decision)


def _counts(decision: Decision) -> NDArray[np.int64]:
    """Workers and servers (2, J) that a decision gives every job."""
    shares = map(decision.share, range(len(decision.uid)))
    each = [(sum(w for _, w, _ in share), sum(s for _, _, s in share)) for share in shares]
    return np.ascontiguousarray(np.array(each, np.int64).reshape(-1, 2).T)


def clone(
    network: torch.nn.Module, lessons: Lessons, config: CloneConfig, generator: torch.Generator
) -> Iterator[dict[str, float]]:
    """Teach the network; after every epoch, what it makes of the states held out."""
    lessons = lessons.taught()
    data = {name: torch.from_numpy(array) for name, array in lessons.seen.items()}
    mask, action = torch.from_numpy(lessons.mask), torch.from_numpy(lessons.action)
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
            loss, _ = _loss(network, data, mask, action, rows, config)
            if not torch.isfinite(loss):
                raise TrainingError("Cloning led to a loss that is not finite; lower its rate.")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(rows)
            step += 1
        with torch.inference_mode():
            test_loss, agrees = _loss(network, data, mask, action, test, config)
        yield {
            "loss": total / len(rest), "test_loss": float(test_loss), "agreement": float(agrees)
        }  # fmt: skip


def _loss(
    network: torch.nn.Module, data: dict[str, torch.Tensor], mask: torch.Tensor,
    action: torch.Tensor, rows: torch.Tensor, config: CloneConfig,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The loss, and how often the likeliest action is the teacher's."""
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
        return (1 - config.smooth) * loss + config.smooth * alike.mean(), agrees
    gap = log_probs.exp() - torch.nn.functional.one_hot(wanted, log_probs.shape[-1])
    return (gap.square() if config.loss == "square" else gap.abs()).sum(-1).mean(), agrees
