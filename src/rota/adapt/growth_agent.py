"""Our agent: it scores whatever a network could become, and takes the best.

It knows layers and choices by their numbers (`features`), so it can be asked about networks that it
has never seen, with any number of layers and choices.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import nn
from torch.nn.functional import relu

from rota import __version__, weights_file
from rota.adapt.features import CHOICE_WIDTH, CONTEXT_WIDTH, LAYER_WIDTH, numbers_of
from rota.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.random import Generator
    from numpy.typing import NDArray
    from torch import Tensor

    from rota.adapt.features import Numbers
    from rota.adapt.moment import Moment

KIND: Final = "growth-agent"
VERSION: Final = 1
"""Raised when the numbers that the agent is shown, or its form, change."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """The form of the agent's network."""

    width: int = 24
    """Units of every hidden layer."""

    def __post_init__(self) -> None:
        whole = isinstance(self.width, int) and not isinstance(self.width, bool)
        if not (whole and 1 <= self.width <= 4096):
            raise ConfigError(f"agent.width={self.width!r} must be a whole number, 1 to 4096.")


@dataclass(frozen=True, eq=False)
class MomentBatch:
    """B moments as flat lists: all their layers in a row, all their choices in a row."""

    layers: Tensor
    """(ΣL, LAYER_WIDTH)"""
    before: Tensor
    """(ΣL,) row of the layer before; of itself, if it is the first of its network"""
    behind: Tensor
    layer_of: Tensor
    """(ΣL,) which moment a layer belongs to"""
    choices: Tensor
    """(ΣC, CHOICE_WIDTH)"""
    grows: Tensor
    """(ΣC,) row of the layer that grows; ΣL: none"""
    choice_of: Tensor
    """(ΣC,) which moment a choice belongs to"""
    slot: Tensor
    """(ΣC,) where a choice stands among its moment's"""
    context: Tensor
    """(B, CONTEXT_WIDTH)"""


def batch_of(moments: Sequence[Numbers]) -> MomentBatch:
    """Put moments into one batch; they may differ in size."""
    depths = np.array([len(each.layers) for each in moments])
    counts = np.array([len(each.choices) for each in moments])
    first = np.repeat(np.cumsum(depths) - depths, depths)
    last = np.repeat(np.cumsum(depths) - 1, depths)
    rows = np.arange(depths.sum())
    start = np.repeat(np.cumsum(depths) - depths, counts)
    grows = np.concatenate([each.grows for each in moments])
    arrays: dict[str, NDArray[Any]] = {
        "layers": np.concatenate([each.layers for each in moments]),
        "before": np.maximum(rows - 1, first),
        "behind": np.minimum(rows + 1, last),
        "layer_of": np.repeat(np.arange(len(depths)), depths),
        "choices": np.concatenate([each.choices for each in moments]),
        "grows": np.where(grows < 0, depths.sum(), grows + start),
        "choice_of": np.repeat(np.arange(len(counts)), counts),
        "slot": np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts),
        "context": np.stack([each.context for each in moments]),
    }
    return MomentBatch(**{name: torch.from_numpy(array) for name, array in arrays.items()})


class GrowthScorer(nn.Module):
    """The agent's network: one score for every choice of every moment."""

    def __init__(self, settings: AgentSettings, rng: Generator) -> None:
        super().__init__()
        width = settings.width
        self.look = nn.Linear(LAYER_WIDTH, width)
        self.relate = nn.Linear(4 * width, width)
        self.overview = nn.Linear(CONTEXT_WIDTH + width, width)
        self.weigh = nn.Linear(2 * width + CHOICE_WIDTH, width)
        self.score = nn.Linear(width, 1)
        self.stay = nn.Parameter(torch.empty(1, width))
        """What stands in for a layer where nothing grows."""
        draw_linear(self, rng)
        with torch.no_grad():
            self.stay.copy_(torch.from_numpy(rng.normal(0.0, 0.1, (1, width))))
            self.score.weight.mul_(0.1)  # an untrained agent takes all choices about equally often

    def forward(self, batch: MomentBatch) -> Tensor:
        """Log-probabilities (B, most choices); −inf where a moment has no such choice."""
        # Layers see their neighbours and the mean of the network. Matrix products alone are many
        # times as fast as a recurrent network on such short sequences, and decide as well.
        each = relu(self.look(batch.layers))
        size = len(batch.context)
        total = each.new_zeros(size, each.shape[1]).index_add(0, batch.layer_of, each)
        depth = torch.bincount(batch.layer_of, minlength=size).clamp(min=1).unsqueeze(1)
        mean = total / depth
        around = (each, each[batch.before], each[batch.behind], mean[batch.layer_of])
        related = torch.cat([relu(self.relate(torch.cat(around, 1))), self.stay])
        overview = relu(self.overview(torch.cat([batch.context, mean], 1)))
        shown = (related[batch.grows], overview[batch.choice_of], batch.choices)
        scores = self.score(relu(self.weigh(torch.cat(shown, 1)))).squeeze(1)
        most = int(batch.slot.max()) + 1
        table = scores.new_full((size, most), -torch.inf)
        logs: Tensor = table.index_put((batch.choice_of, batch.slot), scores).log_softmax(1)
        return logs


def draw_linear(network: nn.Module, rng: Generator) -> None:
    """Draw the weights of all linear layers afresh (He et al., 2015), with biases of zero."""
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, nn.Linear):
                scale = (2.0 / part.in_features) ** 0.5
                part.weight.copy_(torch.from_numpy(rng.normal(0.0, scale, part.weight.shape)))
                part.bias.zero_()


class GrowthAgent:
    """Decides how networks grow; asked again and again, it answers alike."""

    def __init__(self, settings: AgentSettings, network: GrowthScorer) -> None:
        self.settings, self.network = settings, network

    @classmethod
    def draw(cls, rng: Generator, settings: AgentSettings | None = None) -> GrowthAgent:
        """An agent that has learned nothing yet."""
        settings = settings or AgentSettings()
        return cls(settings, GrowthScorer(settings, rng))

    def choose(self, moment: Moment) -> int:
        """The best choice; the first of equals."""
        return int(self.probabilities(moment).argmax())

    def probabilities(self, moment: Moment) -> NDArray[np.float32]:
        """How often each choice would be taken while learning."""
        with torch.inference_mode():
            found: Tensor = self.network(batch_of([numbers_of(moment)]))[0].exp()
            return found.numpy()

    def save(self, path: Path, about: Mapping[str, Any] | None = None) -> None:
        """Write weights and settings into one file, with what is worth saying about them."""
        facts = {
            "kind": KIND,
            "version": VERSION,
            "rota": __version__,
            "settings": asdict(self.settings),
            "about": dict(about or {}),
        }
        weights_file.write(path, facts, weights_of(self.network))

    @classmethod
    def load(cls, path: Path) -> GrowthAgent:
        """Read what `save` wrote, or say what is wrong with the file."""
        facts, weights = weights_file.read(path)
        check_facts(path, facts, KIND, VERSION)
        try:
            settings = AgentSettings(**facts["settings"])
        except (KeyError, TypeError, ConfigError) as error:
            raise CheckpointError(f"{path}: The agent's settings are wrong: {error}.") from None
        agent = cls.draw(np.random.default_rng(0), settings)
        fill(path, agent.network, weights)
        return agent


def weights_of(network: nn.Module) -> dict[str, NDArray[Any]]:
    """A copy of a network's weights."""
    return {name: tensor.numpy(force=True).copy() for name, tensor in network.state_dict().items()}


def check_facts(path: Path, facts: Mapping[str, Any], kind: str, version: int) -> None:
    """Refuse a file that holds something else, or another version of it."""
    if facts.get("kind") != kind:
        what = facts.get("kind", facts.get("system", "something else"))
        raise CheckpointError(f"{path}: The file holds {what!r}, not {kind!r}.")
    if facts.get("version") != version:
        raise CheckpointError(
            f"{path}: The file has version {facts.get('version')!r} of {kind!r} (rota "
            f"{facts.get('rota', 'unknown')}); this rota {__version__} reads version {version}. "
            "Use the version that wrote it, or train again."
        )


def fill(path: Path, network: nn.Module, weights: Mapping[str, NDArray[Any]]) -> None:
    """Put weights into a network of the form they were trained in."""
    wanted = network.state_dict()
    if wanted.keys() != weights.keys():
        other = sorted(wanted.keys() ^ weights.keys())
        raise CheckpointError(f"{path}: {other[0]!r} is missing, or does not belong there.")
    for name, tensor in wanted.items():
        found = weights[name]
        if tuple(tensor.shape) != found.shape:
            raise CheckpointError(
                f"{path}: {name!r} has the shape {found.shape}, the agent wants "
                f"{tuple(tensor.shape)}; it was trained with other settings."
            )
        if found.dtype.kind != "f" or not np.isfinite(found).all():
            raise CheckpointError(
                f"{path}: {name!r} holds values that are no finite numbers; train it again."
            )
    network.load_state_dict({n: torch.from_numpy(np.array(weights[n])) for n in wanted})
