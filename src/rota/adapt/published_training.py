"""How the published agent learns: REINFORCE, one episode per update, without a baseline."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from rota import __version__, weights_file
from rota.adapt.growth_agent import check_facts, fill, weights_of
from rota.adapt.growth_cases import accuracy_of, check_cases
from rota.adapt.published_agent import MENDED, PublishedAgent
from rota.adapt.training_state import adam_arrays, check_same, restore_adam
from rota.adapt.turns import Looked, Turns
from rota.errors import CheckpointError, ConfigError, TrainingError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from rota.adapt.growth_cases import Cases
    from rota.adapt.published_agent import Defects

KIND: Final = "published-growth-training"
VERSION: Final = 1
LEARNING_RATE: Final = 1e-4
_RATE_FALLS: Final = 0.99
_LEAST_RATE: Final = 1e-9
_EVERY: Final = 500
"""Episodes after which the learning rate, and the mended temperature, fall."""
_COOLS: Final = 0.9
_MOST_ACCURACY: Final = 0.9999
"""The tangent has no end at an accuracy of 1."""


def tan_reward(accuracy: float) -> float:
    """Worth of an accuracy: the better it is already, the more the next point counts."""
    return 100.0 * math.tan(min(max(accuracy, 0.0), _MOST_ACCURACY) * math.pi / 2.0)


def probabilities(scores: Tensor, temperature: float, defects: Defects) -> Tensor:
    """How often choices are taken; a temperature above 1 makes them more alike."""
    if temperature <= 1.0:
        return scores.softmax(-1)
    if defects.soft_softmax:
        return (scores.softmax(-1) / temperature).softmax(-1)
    return (scores / temperature).softmax(-1)


class PublishedTraining:
    """A training of the published agent, from scratch or from one that has learned elsewhere."""

    def __init__(
        self,
        cases: Cases,
        *,
        defects: Defects = MENDED,
        seed: int = 0,
        agent: PublishedAgent | None = None,
        temperature: float = 1.0,
    ) -> None:
        check_cases(cases)
        if not (math.isfinite(temperature) and temperature >= 1.0):
            raise ConfigError(f"temperature={temperature!r} must be a number ≥ 1.")
        self.cases, self._seed = cases, seed
        self._rng = np.random.default_rng(seed)
        self.agent = agent or PublishedAgent.draw(networks_of(cases), self._rng, defects)
        self.temperature = temperature
        learned = [x for x in self.agent.network.parameters() if x.requires_grad]
        self._adam = torch.optim.Adam(learned, lr=LEARNING_RATE, fused=True)
        self._look = Looked(self.agent.read)
        self._turns = Turns(cases, self._rng)
        self.episodes = 0

    @property
    def chooser(self) -> PublishedAgent:
        """What has been learned so far."""
        return self.agent

    def advance(self) -> float:
        """Play one episode and learn from it; gives its accuracy."""
        case, replica = self._turns.next()
        taken: tuple[int, ...] = ()
        logs = []
        for _ in range(self.cases.decisions):
            shown = self._look(self.cases.moment(case, replica, taken))
            scores = self.agent.scores(*shown)
            odds = probabilities(scores, self.temperature, self.agent.defects)
            # The first choice whose cumulative probability is above a uniform draw.
            heap = odds.detach().cumsum(0).numpy()
            choice = int(np.searchsorted(heap, self._rng.random() * heap[-1], side="right"))
            logs.append(odds[choice].log())
            taken = (*taken, choice)
        accuracy = accuracy_of(self.cases, case, replica, taken)
        self._learn(torch.stack(logs), tan_reward(accuracy))
        return accuracy

    def _learn(self, logs: Tensor, reward: float) -> None:
        loss = -(logs * reward).mean()
        if not torch.isfinite(loss):
            raise TrainingError(f"The loss is {loss.item()} after {self.episodes} episodes.")
        self._adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        self.episodes += 1
        falls = self.episodes % _EVERY == 0
        if falls:
            for group in self._adam.param_groups:
                group["lr"] = max(group["lr"] * _RATE_FALLS, _LEAST_RATE)
        if falls or self.agent.defects.soft_softmax:
            self.temperature = max(_COOLS * self.temperature, 1.0)

    def save(self, path: Path) -> None:
        """Write all that it takes to go on as if nothing had happened."""
        network = self.agent.network
        arrays = {f"weights.{name}": array for name, array in weights_of(network).items()}
        facts = {
            **self._about(),
            "episodes": self.episodes,
            "temperature": self.temperature,
            "rate": self._adam.param_groups[0]["lr"],
            "waiting": self._turns.waiting,
            "rng": self._rng.bit_generator.state,
        }
        weights_file.write(path, facts, arrays | adam_arrays(self._adam, network))

    def _about(self) -> dict[str, Any]:
        """What a training must have in common with one that goes on with it."""
        return {
            "kind": KIND,
            "version": VERSION,
            "rota": __version__,
            "seed": self._seed,
            "defects": asdict(self.agent.defects),
            "cases": [*self.cases.names],
        }

    def restore(self, path: Path) -> None:
        """Go on from what `save` wrote; all that follows is the same to the last digit."""
        facts, arrays = weights_file.read(path)
        check_facts(path, facts, KIND, VERSION)
        check_same(path, facts, {w: self._about()[w] for w in ("seed", "defects", "cases")})
        own = {n.removeprefix("weights."): x for n, x in arrays.items() if n.startswith("weights.")}
        try:
            fill(path, self.agent.network, own)
            if facts["episodes"]:
                restore_adam(self._adam, self.agent.network, arrays)
            self._adam.param_groups[0]["lr"] = float(facts["rate"])
            self._rng.bit_generator.state = facts["rng"]
            self._turns.waiting = [int(case) for case in facts["waiting"]]
            self.episodes, self.temperature = int(facts["episodes"]), float(facts["temperature"])
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{path}: The state of the training is damaged ({error!r}); begin it again."
            ) from None


def networks_of(cases: Cases) -> list[list[str]]:
    """The layers of all networks that cases show, grown or not, as they print themselves."""
    networks = []
    for case in range(len(cases.names)):
        tokens: list[str] = []
        waiting: list[tuple[int, ...]] = [()]
        while waiting:
            taken = waiting.pop(0)
            moment = cases.moment(case, 0, taken)
            tokens += moment.tokens
            if len(taken) + 1 < cases.decisions:
                waiting += [(*taken, choice) for choice in range(len(moment.choices))]
        networks.append(list(dict.fromkeys(tokens)))
    return networks
