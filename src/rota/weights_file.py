"""Arrays and a JSON text in one file: what trained weights are kept in.

It is a safetensors file, so nothing in it could be executed. A checksum of the text and the arrays
is in it, too, so that weights which were damaged since decide nothing.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as _decode
from safetensors.numpy import save as _encode

from rota import __version__
from rota.errors import CheckpointError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT: Final = 2
"""Number of the layout of the JSON text; raised when old readers would misread new files."""
_READ: Final = (1, 2)
"""Formats that are read. In format 1, the critic's weights are not told from the network's."""
CRITIC: Final = "critic."
"""How the names of a critic's weights begin."""
_WERE_CRITIC: Final = ("value.", "straight.")
"""How they begin in format 1."""
_KEY: Final = "rota"
"""Of the JSON text in the header; the checksum follows on a line of its own, but in old files."""
_MOST_HEADER: Final = 10_000_000
_PICKLES: Final = (b"\x80", b"PK\x03\x04")
"""How pickles begin, bare or in the zip archive that torch.save writes."""
_HINT: Final = "rota reads checkpoints that `rota train` wrote, NAME.ckpt."


def write(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays and a JSON text into one file, all at once."""
    text = json.dumps({"format": FORMAT, **facts}, allow_nan=False)
    plain = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    content = _encode(plain, {_KEY: f"{text}\n{_checksum(text, plain)}"})
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
    text, checksum = _text(path, content)
    facts, number = _facts(path, text)
    try:
        arrays = _decode(content)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: The checkpoint is truncated or damaged, or its numbers are of a type that is "
            f"not read ({error}); copy or train it again."
        ) from None
    if checksum not in ("", _checksum(text, arrays)):
        raise CheckpointError(
            f"{path}: The checkpoint is damaged: its content is not what was written (the SHA-256 "
            "of its weights is another); copy or train it again."
        )
    return facts, {_renamed(n): x for n, x in arrays.items()} if number == 1 else arrays


def _checksum(text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Of all that a file holds, whatever the order of its arrays."""
    found = sha256(text.encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _renamed(name: str) -> str:
    """The name of an array of format 1, in a checkpoint or a state to resume from."""
    own = name.removeprefix("weights.")
    return f"{name[: len(name) - len(own)]}{CRITIC * own.startswith(_WERE_CRITIC)}{own}"


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


def _text(path: Path, content: bytes) -> tuple[str, str]:
    """The JSON text and the checksum, if any, looked at before anything else is decoded."""
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
        text, _, checksum = json.loads(content[8 : 8 + length])["__metadata__"][_KEY].partition(
            "\n"
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _unnamed(path) from None
    return text, checksum


def _unnamed(path: Path) -> CheckpointError:
    return CheckpointError(f"{path}: The file holds weights, but not what they are for. {_HINT}")


def _facts(path: Path, text: str) -> tuple[dict[str, Any], int]:
    """What the JSON text says, and its format."""
    try:
        facts = json.loads(text)
        number = facts.pop("format")
        if isinstance(number, bool):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _unnamed(path) from None
    if number not in _READ:
        raise CheckpointError(
            f"{path}: The checkpoint has format {number!r} (rota {facts.get('rota', 'unknown')}); "
            f"this rota {__version__} reads format {FORMAT}. Use the version that wrote it, or "
            "train again."
        )
    return dict(facts), int(number)
