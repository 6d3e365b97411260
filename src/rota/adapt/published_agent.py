"""The published agent: a recurrent network reads the layers, a small one decides.

After C. Lamelas, "Applying Reinforcement Learning to Neural Network Adaptation in the Context of
DNN Cluster Scheduling", 2023, and its code. What was found wrong with it is mended, unless
`Defects` says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import nn

from rota import __version__, weights_file
from rota.adapt.growth_agent import check_facts, fill, weights_of
from rota.adapt.layer_tokens import Vocabulary
from rota.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.random import Generator
    from numpy.typing import NDArray
    from torch import Tensor

    from rota.adapt.moment import Moment

KIND: Final = "published-growth-agent"
VERSION: Final = 1
CHOICES: Final = 4
"""To deepen one of three blocks, or to do nothing."""
EMBEDDED: Final = 16
ENCODED: Final = 50
NETWORK_CODE: Final = 16
HARMONICS: Final = 8
_HIDDEN: Final = 128
_AMPLITUDE: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Defects:
    """What is wrong with the published code and can be switched on; the default is mended."""

    shared_ids: bool = False
    """B7: layers of later networks are counted from the length of their own list, not from the
    length of the vocabulary, so that different layers share an id."""
    printed_tokens: bool = False
    """B8: layers are known by how torch prints them, to the last letter, and one that is not in
    the vocabulary is an error; mended: by their kind and numbers, and there is an unknown one."""
    sine_only: bool = False
    """B9: the time is shown by sines alone, which are all zero at the beginning, at half time and
    at the deadline; mended: cosines and the share of time that is left are shown as well."""
    soft_softmax: bool = False
    """B10: a temperature above 1 is applied to probabilities as if they were scores, and falls
    after every episode; mended: to the scores, and it falls every 500 episodes."""


MENDED: Final = Defects()
PUBLISHED: Final = Defects(shared_ids=True, printed_tokens=True, sine_only=True, soft_softmax=True)


def time_code(left_s: float, total_s: float, defects: Defects = MENDED) -> NDArray[np.float32]:
    """The time that is left, as the published agent reads it."""
    share = left_s / total_s if total_s > 0.0 else 0.0
    if not math.isfinite(share):
        raise ConfigError(f"{left_s:g} of {total_s:g} seconds left is no time to decide by.")
    angles = 2.0 * np.pi * np.arange(1, HARMONICS + 1) * share
    sines = _AMPLITUDE * np.sin(angles)
    if defects.sine_only:
        return np.array(sines, np.float32)
    return np.array([*sines, *(_AMPLITUDE * np.cos(angles)), share], np.float32)


class PublishedNetwork(nn.Module):
    """A bidirectional and a plain LSTM over the layers, and a small network that decides."""

    def __init__(self, words: int, defects: Defects, rng: Generator) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, EMBEDDED)
        self.layers = nn.LSTM(EMBEDDED, ENCODED, bidirectional=True)
        self.network = nn.LSTM(2 * ENCODED, NETWORK_CODE)
        shown = NETWORK_CODE + len(time_code(0.0, 1.0, defects))
        self.decide = nn.Sequential(
            nn.Linear(shown, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, CHOICES),
        )
        self._draw(rng)
        # Vectors of words are drawn once and never learned.
        self.embedding.weight.requires_grad_(False)

    def forward(self, words: Tensor, time: Tensor) -> Tensor:
        """Scores (4,) for the ids (L,) of the layers and the code of the time."""
        layers, _ = self.layers(self.embedding(words))
        network, _ = self.network(layers)
        scores: Tensor = self.decide(torch.cat([time, network[-1]]))
        return scores

    def _draw(self, rng: Generator) -> None:
        """As torch draws such layers, from our generator: uniform within 1/√(units read)."""
        with torch.no_grad():
            self.embedding.weight.copy_(
                torch.from_numpy(rng.normal(0.0, 1.0, self.embedding.weight.shape))
            )
            for part in self.modules():
                if isinstance(part, nn.LSTM):
                    limit = part.hidden_size**-0.5
                elif isinstance(part, nn.Linear):
                    limit = part.in_features**-0.5
                else:
                    continue
                for weight in part.parameters():
                    weight.copy_(torch.from_numpy(rng.uniform(-limit, limit, weight.shape)))


class PublishedAgent:
    """Chooses one of three blocks to deepen, or nothing, as the published agent does."""

    def __init__(self, vocabulary: Vocabulary, network: PublishedNetwork, defects: Defects) -> None:
        self.vocabulary, self.network, self.defects = vocabulary, network, defects

    @classmethod
    def draw(
        cls, networks: Sequence[Sequence[str]], rng: Generator, defects: Defects = MENDED
    ) -> PublishedAgent:
        """An agent that knows the layers of some networks, given as they print themselves."""
        vocabulary = Vocabulary.of(
            networks, printed=defects.printed_tokens, shared=defects.shared_ids
        )
        network = PublishedNetwork(vocabulary.size, defects, rng)
        return cls(vocabulary, network, defects)

    def choose(self, moment: Moment) -> int:
        """The likeliest choice; the first of equals."""
        with torch.inference_mode():
            return int(self.scores(*self.read(moment)).argmax())

    def read(self, moment: Moment) -> tuple[Tensor, Tensor]:
        """What the network is shown: the ids of the layers, and the time."""
        if len(moment.choices) != CHOICES:
            raise ConfigError(
                f"The published agent knows {CHOICES} choices, to deepen one of three blocks or "
                f"to do nothing; it was given {len(moment.choices)}."
            )
        words = torch.tensor(self.vocabulary.ids(moment.tokens))
        return words, torch.from_numpy(time_code(moment.left_s, moment.total_s, self.defects))

    def scores(self, words: Tensor, time: Tensor) -> Tensor:
        """Scores (4,) of the choices; their softmax is how often each is taken in training."""
        found: Tensor = self.network(words, time)
        return found

    def save(self, path: Path, about: Mapping[str, Any] | None = None) -> None:
        """Write weights, vocabulary and defects into one file."""
        facts = {
            "kind": KIND,
            "version": VERSION,
            "rota": __version__,
            "defects": asdict(self.defects),
            "words": dict(self.vocabulary.words),
            "about": dict(about or {}),
        }
        weights_file.write(path, facts, weights_of(self.network))

    @classmethod
    def load(cls, path: Path) -> PublishedAgent:
        """Read what `save` wrote, or say what is wrong with the file."""
        facts, weights = weights_file.read(path)
        check_facts(path, facts, KIND, VERSION)
        try:
            defects = Defects(**facts["defects"])
            words = {str(word): int(number) for word, number in facts["words"].items()}
            vocabulary = Vocabulary(words, printed=defects.printed_tokens)
            if vocabulary.size != len(weights["embedding.weight"]):
                raise ConfigError(f"{vocabulary.size} words, but another number of vectors")
        except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
            raise CheckpointError(f"{path}: The agent's facts are wrong: {error!r}.") from None
        network = PublishedNetwork(vocabulary.size, defects, np.random.default_rng(0))
        fill(path, network, weights)
        return cls(vocabulary, network, defects)
