"""The format in which the state of a training is sent from one member to another.

A message is the length of a JSON text, the text, and the bytes of all tensors in order. The text
is a tree of dicts, lists, tuples and plain values with references to tensors. Nothing is pickled.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

import torch

from rota.errors import ConfigError, JobError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    Source = Callable[[memoryview], int | None]

_LENGTH: Final = struct.Struct("!Q")
_MOST_TEXT: Final = 1 << 28
_MOST_PARTS: Final = 512
"""Buffers handed to the kernel in one call; it takes 1024."""
_PLAIN: Final = (str, int, float, bool, type(None))


def send(link: socket.socket, tree: Any) -> int:
    """Send a tree; returns the number of bytes sent."""
    return send_parts(link, parts_of(tree))


def receive(link: socket.socket, into: Sequence[torch.Tensor] = ()) -> Any:
    """Receive a tree; its first tensors go into those of `into`, if shape and type agree."""
    return read(link.recv_into, into)


def parts_of(tree: Any) -> list[memoryview]:
    """A tree as the pieces of a message, none of them empty."""
    tensors: list[torch.Tensor] = []
    text = json.dumps(_encode(tree, tensors, "state")).encode()
    parts = [memoryview(_LENGTH.pack(len(text))), memoryview(text)]
    parts += [bytes_of(tensor) for tensor in tensors]
    return [part for part in parts if part.nbytes]


def read(source: Source, into: Sequence[torch.Tensor] = ()) -> Any:
    """The tree of a message that comes from `source`, as for `receive`."""
    (length,) = _LENGTH.unpack(_read_bytes(source, _LENGTH.size))
    if length > _MOST_TEXT:
        raise JobError(f"A state whose text has {length:,} bytes is damaged, or not a state.")
    shapes: list[tuple[list[int], torch.dtype]] = []
    text = json.loads(_read_bytes(source, length))
    _forms(text, shapes)
    tensors = []
    for k, (shape, kind) in enumerate(shapes):
        ready = k < len(into) and _fits(into[k], shape, kind)
        tensor = into[k].detach() if ready else torch.empty(shape, dtype=kind)
        _fill(source, bytes_of(tensor))
        tensors.append(tensor)
    return _decode(text, tensors)


def _encode(value: Any, tensors: list[torch.Tensor], where: str) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        kind = str(value.dtype).removeprefix("torch.")
        return {"t": len(tensors) - 1, "shape": list(value.shape), "dtype": kind}
    if isinstance(value, dict):
        pairs = [
            [_encode(key, tensors, where), _encode(item, tensors, f"{where}.{key}")]
            for key, item in value.items()
        ]
        return {"d": pairs}
    if isinstance(value, tuple):
        return {"u": [_encode(item, tensors, where) for item in value]}
    if isinstance(value, list):
        return [_encode(item, tensors, where) for item in value]
    if isinstance(value, _PLAIN):
        return value
    raise ConfigError(
        f"{where} is a {type(value).__name__}, which cannot be handed to another worker; a state "
        "may hold tensors, numbers, text, lists, tuples and dicts."
    )


def _forms(text: Any, shapes: list[tuple[list[int], torch.dtype]]) -> None:
    if isinstance(text, list):
        for item in text:
            _forms(item, shapes)
    elif isinstance(text, dict):
        if "t" in text:
            shapes.append((text["shape"], getattr(torch, text["dtype"])))
        for item in text.get("d") or text.get("u") or ():
            _forms(item, shapes)


def _decode(text: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(text, list):
        return [_decode(item, tensors) for item in text]
    if not isinstance(text, dict):
        return text
    if "t" in text:
        return tensors[text["t"]]
    if "u" in text:
        return tuple(_decode(item, tensors) for item in text["u"])
    return {_decode(key, tensors): _decode(item, tensors) for key, item in text["d"]}


def _fits(tensor: torch.Tensor, shape: list[int], kind: torch.dtype) -> bool:
    same = list(tensor.shape) == shape and tensor.dtype == kind
    return same and tensor.device.type == "cpu" and tensor.is_contiguous()


def receive_tensor(link: socket.socket, tensor: torch.Tensor) -> None:
    """Receive into a tensor on any device."""
    direct = tensor.device.type == "cpu" and tensor.is_contiguous()
    place = tensor.detach() if direct else torch.empty(tensor.shape, dtype=tensor.dtype)
    receive_into(link, bytes_of(place))
    if not direct:
        with torch.no_grad():
            tensor.copy_(place)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a tensor; a copy if it is on another device or not contiguous."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    view: memoryview = memoryview(flat.numpy())  # type: ignore[arg-type]
    return view


def send_parts(link: socket.socket, parts: list[memoryview]) -> int:
    """Send buffers in order, many per system call; returns the number of bytes."""
    total, first = 0, 0
    while first < len(parts):
        sent = link.sendmsg(parts[first : first + _MOST_PARTS])
        total += sent
        while first < len(parts) and sent >= parts[first].nbytes:
            sent -= parts[first].nbytes
            first += 1
        if sent:
            parts[first] = parts[first][sent:]
    return total


def receive_into(link: socket.socket, part: memoryview) -> None:
    """Fill a buffer from a connection, or raise OSError."""
    _fill(link.recv_into, part)


def _read_bytes(source: Source, length: int) -> bytes:
    data = bytearray(length)
    _fill(source, memoryview(data))
    return bytes(data)


def _fill(source: Source, part: memoryview) -> None:
    while part.nbytes:
        got = source(part)
        if not got:
            raise OSError("the other side closed the connection")
        part = part[got:]
