"""What a network's forward writes on its modules as it runs, which torch.fx does not see."""

from __future__ import annotations

import re
from collections import deque
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import fx

if TYPE_CHECKING:
    from torch import Tensor, nn

_CONSTANT: Final = re.compile(r"_tensor_constant\d+")
"""Names that torch.fx gives to constants which it keeps on the network."""
_PLAIN: Final = (bool, int, float, str)


class Written:
    """The attributes and buffers of a network at one time."""

    def __init__(self, model: nn.Module) -> None:
        self._parts: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
        for name, part in model.named_modules():
            held = {f"{key}.": vars(x) for key, x in vars(part).items() if _is_plain(x)}
            for prefix, now in {"": vars(part), **held}.items():
                before = {key: _copied(value) for key, value in now.items()}
                self._parts.append((name, prefix, now, before))
        self._buffers = [(b, _version(b), b.detach().clone()) for b in model.buffers()]

    def find(self) -> tuple[str, str] | None:
        """A module and an attribute of it that were written since; None: there is none."""
        written = {id(b) for b, version, _ in self._buffers if _version(b) != version}
        for name, prefix, now, before in self._parts:
            for key, value in now.items():
                if key in ("training", "_buffers") or (not name and _CONSTANT.fullmatch(key)):
                    continue
                if key not in before or not _same(value, before[key]) or _is_proxy(value):
                    return name, prefix + key
            for key, value in now.get("_buffers", {}).items():
                if id(value) in written or value is not before["_buffers"].get(key):
                    return name, key
        return None

    def restore(self) -> None:
        """Undo what was written since."""
        for _, _, now, before in self._parts:
            for key in now.keys() - before.keys():
                del now[key]
            for key, value in before.items():
                if _same(now.get(key), value):
                    continue
                if isinstance(value, np.ndarray) and value.shape == now[key].shape:
                    now[key][...] = value
                elif isinstance(value, (list, deque)):
                    now[key].clear()
                    now[key].extend(value)
                elif isinstance(value, (dict, set)):
                    now[key].clear()
                    now[key].update(value)
                else:
                    now[key] = value
        with torch.no_grad():
            for buffer, version, value in self._buffers:
                if _version(buffer) != version:
                    buffer.copy_(value)


def _is_plain(value: Any) -> bool:
    """Whether a module holds an object on which its forward may write, such as a meter."""
    known = isinstance(value, (torch.nn.Module, torch.Tensor, ModuleType))
    return hasattr(value, "__dict__") and not known and not callable(value)


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if not isinstance(value, (list, dict, set, deque)):
        return value
    result: Any = value.copy()
    if not isinstance(value, set):  # what a container holds may be another one that is written
        for key in value if isinstance(value, dict) else range(len(value)):
            result[key] = _copied(value[key])
    return result


def _same(value: Any, before: Any) -> bool:
    if type(value) is not type(before):
        return False
    if isinstance(value, (list, tuple, deque)):
        return len(value) == len(before) and all(map(_same, value, before))
    if isinstance(value, dict):
        return value.keys() == before.keys() and all(_same(value[k], before[k]) for k in value)
    if isinstance(value, np.ndarray):
        return bool(value.shape == before.shape and value.tobytes() == before.tobytes())
    if isinstance(value, _PLAIN):
        return value is before or bool(value == before)
    return bool(value == before) if isinstance(value, set) else value is before


def _is_proxy(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_proxy, value))
    return isinstance(value, fx.Proxy)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)
