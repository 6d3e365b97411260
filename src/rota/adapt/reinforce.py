"""How our agent learns: REINFORCE in batches over all cases, each episode judged by its siblings.

An episode is rewarded with its gain over the same training without growth, and compared with other
episodes of the same case and replica (leave-one-out, Kool et al., 2019): what a case is worth by
itself, and the luck of a seed, drop out.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from rota import __version__, weights_file
from rota.adapt.features import numbers_of
from rota.adapt.growth_agent import (
    GrowthAgent,
    batch_of,
    check_facts,
    fill,
    weights_of,
)
from rota.adapt.growth_cases import check_cases, gain_of
from rota.adapt.training_state import adam_arrays, check_same, restore_adam
from rota.adapt.turns import Looked, Turns
from rota.errors import CheckpointError, ConfigError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from rota.adapt.features import Numbers
    from rota.adapt.growth_agent import (
        AgentSettings,
    )
    from rota.adapt.growth_cases import Cases
    from rota.adapt.moment import Moment

KIND: Final = "growth-training"
VERSION: Final = 1
_TINY: Final = 1e-8
_LEAST_RATE: Final = 0.02
"""Share of the learning rate that is left in the end."""


@dataclass(frozen=True, kw_only=True)
class ReinforceSettings:
    """How our agent is trained."""

    learning_rate: float = 3e-3
    """Adam step size at the beginning; it falls in a line, nearly to 0."""
    siblings: int = 4
    """Episodes of one case and replica in an update, which judge each other."""
    groups: int = 8
    """Cases in an update, in turn; each with a replica drawn afresh."""
    passes: int = 8
    """Gradient steps per update. After the first, a choice that has become much more or much less
    likely already is left alone (Schulman et al., 2017)."""
    entropy: float = 0.2
    """Worth of the entropy of a decision at the beginning, in deviations of the reward."""
    entropy_last: float = 0.01
    """The same at the end; it falls in a line."""
    unmeasured: float = 0.5
    """Share of groups that are not shown accuracy, slope and loss: not every job measures them, and
    an agent that does without them knows other networks better."""
    episodes: int = 8_000
    """Length of the training."""

    def __post_init__(self) -> None:
        for name, least in (("siblings", 2), ("groups", 1), ("passes", 1), ("episodes", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"reinforce.{name}={value!r} must be a whole number ≥ {least}.")
        for name in ("learning_rate", "entropy", "entropy_last"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0.0):
                raise ConfigError(f"reinforce.{name}={value!r} must be a number ≥ 0.")
        if not 0.0 <= self.unmeasured <= 1.0:
            raise ConfigError(f"reinforce.unmeasured={self.unmeasured!r} must be from 0 to 1.")


@dataclass(frozen=True)
class Episode:
    """One episode that was played while learning."""

    case: int
    replica: int
    taken: tuple[int, ...]
    gain: float


@dataclass(frozen=True)
class Update:
    """What a training says after each update."""

    updates: int
    episodes: int
    """Played so far."""
    gain: float
    """Mean over the episodes of this update."""
    entropy: float
    """Mean over its decisions, in nats."""


class Reinforce:
    """A training of our agent, which can be stopped after any update and resumed."""

    def __init__(
        self,
        cases: Cases,
        *,
        settings: ReinforceSettings | None = None,
        form: AgentSettings | None = None,
        seed: int = 0,
    ) -> None:
        check_cases(cases)
        self.cases = cases
        self.settings = settings or ReinforceSettings()
        self.seed = seed
        self._rng = np.random.default_rng(seed)
        self.agent = GrowthAgent.draw(self._rng, form)
        self._adam = torch.optim.Adam(
            self.agent.network.parameters(), lr=self.settings.learning_rate, fused=True
        )
        self._look = Looked(numbers_of), Looked(lambda moment: numbers_of(_unmeasured(moment)))
        self._turns = Turns(cases, self._rng)
        self._scale = 0.0
        self.updates = 0
        self.log: list[Episode] = []

    @property
    def episodes(self) -> int:
        """Episodes played so far."""
        return len(self.log)

    @property
    def chooser(self) -> GrowthAgent:
        """What has been learned so far."""
        return self.agent

    def advance(self) -> Update:
        """Play one batch of episodes and learn from it."""
        groups = [self._turns.next() for _ in range(self.settings.groups)]
        played = [pair for pair in groups for _ in range(self.settings.siblings)]
        shown, taken = self._play(played)
        episodes = [
            Episode(*pair, choices, gain_of(self.cases, *pair, choices))
            for pair, choices in zip(played, taken, strict=True)
        ]
        entropy = self._learn(shown, taken, self._advantages(episodes))
        self.log += episodes
        self.updates += 1
        gain = float(np.mean([episode.gain for episode in episodes]))
        return Update(self.updates, self.episodes, gain, entropy)

    def _play(
        self, pairs: Sequence[tuple[int, int]]
    ) -> tuple[list[list[Numbers]], list[tuple[int, ...]]]:
        """Play all episodes side by side: what each was shown, and what was taken."""
        # Siblings are judged against each other, so they are shown as much.
        hidden = self._rng.random(len(pairs) // self.settings.siblings) < self.settings.unmeasured
        shown: list[list[Numbers]] = [[] for _ in pairs]
        taken: list[tuple[int, ...]] = [() for _ in pairs]
        for _ in range(self.cases.decisions):
            for at, pair in enumerate(pairs):
                look = self._look[int(hidden[at // self.settings.siblings])]
                shown[at].append(look(self.cases.moment(*pair, taken[at])))
            with torch.inference_mode():
                logs = self.agent.network(batch_of([numbers[-1] for numbers in shown])).numpy()
            # The largest of noisy scores is a draw from the softmax (Gumbel-max).
            choices = (logs + self._rng.gumbel(size=logs.shape)).argmax(1)
            taken = [(*past, int(c)) for past, c in zip(taken, choices, strict=True)]
        return shown, taken

    def _advantages(self, episodes: Sequence[Episode]) -> NDArray[np.float32]:
        """How much better each was than its siblings, in deviations seen so far."""
        size = self.settings.siblings
        gains = np.array([episode.gain for episode in episodes]).reshape(-1, size)
        others = (gains.sum(1, keepdims=True) - gains) / (size - 1)
        better = gains - others
        spread = float(np.mean(better**2))
        # A mean over all updates, not of this one: when all agree, noise must not be blown up.
        self._scale += (spread - self._scale) / min(self.updates + 1, 50)
        return np.asarray(better / np.sqrt(self._scale + _TINY), np.float32).ravel()

    def _learn(
        self,
        shown: Sequence[Sequence[Numbers]],
        taken: Sequence[tuple[int, ...]],
        advantages: NDArray[np.float32],
    ) -> float:
        """Make what went better than expected more likely; gives the mean entropy."""
        batch = batch_of([one for episode in shown for one in episode])
        choices = torch.tensor(taken).reshape(-1, 1)
        weight = torch.from_numpy(advantages.repeat(self.cases.decisions))
        entropies, old = [], None
        for _ in range(self.settings.passes):
            logs: Tensor = self.agent.network(batch)
            # Choices that a moment does not have are at −∞: 0 · −∞ would be NaN.
            entropy = -(logs.exp() * logs.masked_fill(logs == -torch.inf, 0.0)).sum(1).mean()
            log = logs.gather(1, choices).squeeze(1)
            old = log.detach() if old is None else old
            gained = _clipped((log - old).exp(), weight).mean()
            self._step(-gained - self._worth_of_entropy() * entropy)
            entropies.append(float(entropy.detach()))
        return entropies[0]

    def _step(self, loss: Tensor) -> None:
        if not torch.isfinite(loss):
            raise TrainingError(
                f"The loss is {float(loss.detach())} after {self.updates} updates; take a lower "
                f"learning_rate than {self.settings.learning_rate:g}."
            )
        for group in self._adam.param_groups:
            group["lr"] = self.settings.learning_rate * max(_LEAST_RATE, 1.0 - self._done)
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.agent.network.parameters(), 1.0)
        self._adam.step()

    def _worth_of_entropy(self) -> float:
        done = self._done
        return (1.0 - done) * self.settings.entropy + done * self.settings.entropy_last

    @property
    def _done(self) -> float:
        """The share of the training that is over."""
        return min(self.episodes / self.settings.episodes, 1.0)

    def save(self, path: Path) -> None:
        """Write all that it takes to go on as if nothing had happened."""
        arrays = {f"weights.{n}": array for n, array in weights_of(self.agent.network).items()}
        arrays |= adam_arrays(self._adam, self.agent.network)
        arrays |= {
            "log.case": np.array([e.case for e in self.log], np.int64),
            "log.replica": np.array([e.replica for e in self.log], np.int64),
            "log.taken": np.array([e.taken for e in self.log], np.int64),
            "log.gain": np.array([e.gain for e in self.log], np.float64),
        }
        facts = {**self._about(), "updates": self.updates, "scale": self._scale}
        facts |= {"waiting": self._turns.waiting, "rng": self._rng.bit_generator.state}
        weights_file.write(path, facts, arrays)

    def _about(self) -> dict[str, Any]:
        """What a training must have in common with one that goes on with it."""
        return {
            "kind": KIND,
            "version": VERSION,
            "rota": __version__,
            "settings": asdict(self.settings),
            "form": asdict(self.agent.settings),
            "seed": self.seed,
            "cases": [*self.cases.names],
        }

    def restore(self, path: Path) -> None:
        """Go on from what `save` wrote; all that follows is the same to the last digit."""
        facts, arrays = weights_file.read(path)
        check_facts(path, facts, KIND, VERSION)
        same = ("settings", "form", "seed", "cases")
        check_same(path, facts, {what: self._about()[what] for what in same})
        try:
            self._take(path, facts, arrays)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise CheckpointError(
                f"{path}: The state of the training is damaged ({error!r}); begin it again."
            ) from None

    def _take(self, path: Path, facts: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        own = {n.removeprefix("weights."): x for n, x in arrays.items() if n.startswith("weights.")}
        fill(path, self.agent.network, own)
        if facts["updates"]:
            restore_adam(self._adam, self.agent.network, arrays)
        log = (arrays[f"log.{what}"].tolist() for what in ("case", "replica", "taken", "gain"))
        self.log = [Episode(c, r, tuple(t), g) for c, r, t, g in zip(*log, strict=True)]
        self._rng.bit_generator.state = facts["rng"]
        self._turns.waiting = [int(case) for case in facts["waiting"]]
        self._scale, self.updates = float(facts["scale"]), int(facts["updates"])


def _unmeasured(moment: Moment) -> Moment:
    """A moment of a job that does not measure how good it is."""
    return replace(moment, accuracy=math.nan, slope=math.nan, loss=math.nan)


def _clipped(ratio: Tensor, weight: Tensor) -> Tensor:
    """What a change of probabilities gains, with no reward for going further than a fifth."""
    return torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight)
