"""Trained weights in one file, with all it takes to use them and to know where they came from.

A checkpoint `NAME.ckpt` is a safetensors file: named arrays and a JSON text, nothing that could
be executed. What only a resumed training needs lies beside it in `NAME.resume`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from rota import __version__
from rota.errors import CheckpointError
from rota.plugins import OURS
from rota.weights_file import CRITIC, FORMAT, read, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class About:
    """What a checkpoint says of itself."""

    system: str
    """Which learned system can use it, such as "dl2-onepass"."""
    lens: Mapping[str, Any]
    """What it sees and does: the lens's name and its settings."""
    network: Mapping[str, Any]
    """The form of the network."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration it was trained with."""
    step: int = 0
    """Updates so far."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Its validation, for people."""
    verdict: Mapping[str, Any] = field(default_factory=dict)
    """How it compared with the weights that it was learned from; {} if it was trained afresh."""
    package: str = OURS
    """The package that the system comes from."""
    version: int = 1
    """The version of the system."""
    rota: str = __version__
    format: int = FORMAT


@dataclass(frozen=True)
class Checkpoint:
    """Weights by name, and what they are."""

    about: About
    weights: Mapping[str, NDArray[Any]]
    file: str = "checkpoint"

    @cached_property
    def digest(self) -> str:
        """A hash (SHA-256) of all by which it decides: its system, settings and weights."""
        about = self.about
        form = [about.system, about.version, about.lens, about.network]
        found = sha256(json.dumps(form, sort_keys=True).encode())
        for name, array in sorted(self.player().weights.items()):
            found.update(f"{name} {array.dtype.str} {array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    def fill(self, network: nn.Module) -> None:
        """Put the weights into a network of the form they were trained in."""
        import torch

        wanted = network.state_dict()
        missing = sorted(wanted.keys() - self.weights.keys())
        foreign = sorted(self.weights.keys() - wanted.keys())
        if missing or foreign:
            what = f"lacks {_some(missing)}" if missing else f"also holds {_some(foreign)}"
            raise CheckpointError(
                f"{self.file}: The checkpoint {what}; it does not belong to this network "
                f"({self.about.network})."
            )
        for name, tensor in wanted.items():
            if tuple(tensor.shape) != self.weights[name].shape:
                raise CheckpointError(
                    f"{self.file}: {name!r} has the shape {self.weights[name].shape}, the network "
                    f"wants {tuple(tensor.shape)}. It was trained by rota {self.about.rota}, which "
                    f"showed {self.about.system} something else; train it again."
                )
        network.load_state_dict(
            {name: torch.from_numpy(np.array(value)) for name, value in self.weights.items()}
        )

    def player(self) -> Checkpoint:
        """The weights of the network alone, which are all that a policy needs."""
        mine = {n: array for n, array in self.weights.items() if not n.startswith(CRITIC)}
        return replace(self, weights=mine)

    def critic(self) -> Checkpoint:
        """The weights of the critic alone."""
        mine = {
            name.removeprefix(CRITIC): array
            for name, array in self.weights.items()
            if name.startswith(CRITIC)
        }
        return replace(self, weights=mine)

    def expect_version(self, version: int) -> None:
        """Refuse weights of another version of their system."""
        if self.about.version != version:
            raise CheckpointError(
                f"{self.file}: The checkpoint was trained for version {self.about.version!r} of "
                f"{self.about.system!r} (rota {self.about.rota}); this rota has version {version}, "
                "which sees or does something else. Train it again."
            )

    def expect(self, *, lens: str | None = None, system: str | None = None) -> None:
        """Refuse weights that were trained to see, or to do, something else."""
        own = self.about.lens.get("name")
        if lens is not None and own != lens:
            raise CheckpointError(
                f"{self.file}: The checkpoint was trained through the lens {own!r}, not {lens!r}; "
                "its actions would mean something else here."
            )
        if system is not None and self.about.system != system:
            raise CheckpointError(
                f"{self.file}: The checkpoint belongs to {self.about.system!r}, not {system!r}."
            )


def best_of(paths: Sequence[Path]) -> Path:
    """The checkpoint with the lowest validation, the first of equals.

    It is the rule by which weights are chosen to ship, so nothing else is looked at.
    """
    scores = [load(path).about.scores.get("validation_jct") for path in paths]
    for path, score in zip(paths, scores, strict=True):
        if score is None:
            raise CheckpointError(f"{path}: The checkpoint does not say how it was validated.")
    return paths[int(np.argmin(np.array(scores, np.float64)))]


def weights_of(network: nn.Module, critic: nn.Module | None = None) -> dict[str, NDArray[Any]]:
    """A copy of a network's weights, and its critic's."""
    own = {name: tensor.numpy(force=True).copy() for name, tensor in network.state_dict().items()}
    judge = {} if critic is None else weights_of(critic)
    return own | {f"{CRITIC}{name}": array for name, array in judge.items()}


def save(path: Path, about: About, weights: Mapping[str, NDArray[Any]]) -> None:
    """Write a checkpoint; a reader finds the old file or the new one, never half of one."""
    write(path, asdict(about), weights)


def load(path: Path, *, lens: str | None = None, system: str | None = None) -> Checkpoint:
    """Read a checkpoint, or say what is wrong with the file."""
    facts, weights = read(path)
    try:
        about = About(**facts)
    except TypeError as error:
        raise CheckpointError(
            f"{path}: What the checkpoint says of itself is wrong: {error}."
        ) from None
    for name, value in weights.items():
        if not np.isfinite(value).all():
            raise CheckpointError(
                f"{path}: {name!r} holds values that are not finite; the training went wrong."
            )
    found = Checkpoint(about, weights, str(path))
    found.expect(lens=lens, system=system)
    return found


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more
