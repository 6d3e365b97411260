"""Trained weights in one file, with all it takes to use them and to know where they came from.

A checkpoint `NAME.ckpt` is a safetensors file: named arrays and a JSON text, nothing that could
be executed. What only a resumed training needs lies beside it in `NAME.resume`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as _decode
from safetensors.numpy import save as _encode

from rota import __version__
from rota.errors import CheckpointError, TrainingError
from rota.plugins import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

FORMAT: Final = 2
"""Number of the layout of the JSON text; raised when old readers would misread new files."""
_READ: Final = (1, 2)
"""Formats that are read. In format 1, the critic's weights are not told from the network's."""
_CRITIC: Final = "critic."
"""How the names of a critic's weights begin."""
_WERE_CRITIC: Final = ("value.", "straight.")
"""How they begin in format 1."""
_KEY: Final = "rota"
_MOST_HEADER: Final = 10_000_000
_PICKLES: Final = (b"\x80", b"PK\x03\x04")
"""How pickles begin, bare or in the zip archive that torch.save writes."""
_HINT: Final = "rota reads checkpoints that `rota train` wrote, NAME.ckpt."


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
        mine = {n: array for n, array in self.weights.items() if not n.startswith(_CRITIC)}
        return replace(self, weights=mine)

    def critic(self) -> Checkpoint:
        """The weights of the critic alone."""
        mine = {
            name.removeprefix(_CRITIC): array
            for name, array in self.weights.items()
            if name.startswith(_CRITIC)
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
    return own | {f"{_CRITIC}{name}": array for name, array in judge.items()}


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


def write(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and a JSON text into one file, all at once."""
    text = json.dumps({"format": FORMAT, **facts}, allow_nan=False)
    content = _encode(
        {name: np.require(array, requirements="C") for name, array in arrays.items()}, {_KEY: text}
    )
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise TrainingError(
            f"Cannot write {path}: {error.strerror or error}. {len(content):,} bytes are needed; "
            "whatever was there before is untouched. Make room, then go on with --resume."
        ) from None


def read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The JSON text and the arrays of a file written by `write`."""
    content = _content(path)
    facts, number = _facts(path, content)
    try:
        arrays = _decode(content)
        return facts, {_renamed(n): x for n, x in arrays.items()} if number == 1 else arrays
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: The checkpoint is truncated or damaged, or its numbers are of a type that is "
            f"not read ({error}); copy or train it again."
        ) from None


def _renamed(name: str) -> str:
    """The name of an array of format 1, in a checkpoint or a state to resume from."""
    own = name.removeprefix("weights.")
    return f"{name[: len(name) - len(own)]}{_CRITIC * own.startswith(_WERE_CRITIC)}{own}"


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path}: There is no such checkpoint.") from None
    except OSError as error:
        raise CheckpointError(f"{path}: The file cannot be read: {error.strerror}.") from None
    # A safetensors file begins with the length of its header, 8 bytes, and then "{".
    if content[8:9] != b"{" and content.startswith(_PICKLES):
        raise CheckpointError(
            f"{path}: This is a pickle (torch.save writes such files), which could run any "
            f"program when opened; rota does not. {_HINT}"
        )
    return content


def _facts(path: Path, content: bytes) -> tuple[dict[str, Any], int]:
    """The JSON text and its format, looked at before anything else is decoded."""
    length = int.from_bytes(content[:8], "little") if len(content) >= 8 else 0
    if not content:
        raise CheckpointError(f"{path}: The file is empty. {_HINT}")
    if content[8:9] != b"{" or length > _MOST_HEADER:
        raise CheckpointError(f"{path}: This is no checkpoint. {_HINT}")
    if len(content) < 8 + length:
        raise CheckpointError(
            f"{path}: The checkpoint is truncated: it has {len(content):,} bytes, and its header "
            f"alone should have {length:,}; copy or train it again."
        )
    try:
        facts = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][_KEY])
        number = facts.pop("format")
        if isinstance(number, bool):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(
            f"{path}: The file holds weights, but not what they are for. {_HINT}"
        ) from None
    if number not in _READ:
        raise CheckpointError(
            f"{path}: The checkpoint has format {number!r} (rota {facts.get('rota', 'unknown')}); "
            f"this rota {__version__} reads format {FORMAT}. Use the version that wrote it, or "
            "train again."
        )
    return dict(facts), int(number)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more
