"""What functions of tensors were told about axes: by position or by name, as PyTorch takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rota.adapt.layers import function_name

if TYPE_CHECKING:
    from torch import fx

TURNS: Final = frozenset({"permute", "transpose", "swapaxes", "swapdims", "t"})
"""Functions that give axes another order."""
TURNED: Final = frozenset({"T", "mT"})
"""Attributes of tensors that do."""
_FACTS: Final = frozenset({"size", "dim", "numel", "ndimension", "nelement"})
_NAMES: Final = {"dim": ("dim", "axis"), "keepdim": ("keepdim", "keepdims")}


def option(node: fx.Node, name: str, position: int, default: Any = None) -> Any:
    """What a function was given in a place, or by name."""
    for other in _NAMES.get(name, (name,)):
        if other in node.kwargs:
            return node.kwargs[other]
    return node.args[position] if len(node.args) > position else default


def asks(node: fx.Node) -> bool:
    """Whether a node asks for the shape, type or place of a tensor, not for its numbers."""
    name = function_name(node)
    return name in _FACTS or (name == "getattr" and node.args[1] not in {*TURNED, "data"})


def turns(node: fx.Node) -> bool:
    """Whether a node gives the axes of a tensor another order."""
    name = function_name(node)
    return name in TURNS or (name == "getattr" and node.args[1] in TURNED)


def axes_of(node: fx.Node, dims: int) -> set[int] | None:
    """The axes over which a function runs, empty: it was told none; None: they are computed."""
    given: Any = option(node, "dim", 1)
    axes = list(given) if isinstance(given, (tuple, list)) else [] if given is None else [given]
    return {x % dims for x in axes} if _whole(axes) else None


def order_of(node: fx.Node, dims: int) -> list[int] | None:
    """The old axis of each new one; None: it is computed."""
    name = function_name(node)
    if name == "permute":
        given = option(node, "dims", 1)
        order = list(given if isinstance(given, (tuple, list)) else node.args[1:])
        return [x % dims for x in order] if _whole(order) else None
    pair = [option(node, x, k) for k, x in ((1, "dim0"), (2, "dim1"))]
    if name in ("swapaxes", "swapdims"):
        pair = [option(node, f"axis{k}", k + 1, pair[k]) for k in (0, 1)]
    elif name == "t" or node.args[1:] == ("T",):
        pair = [0, dims - 1] if dims <= 2 else [None, None]
    elif node.args[1:] == ("mT",):
        pair = [-2, -1]
    if not _whole(pair):
        return None
    order = list(range(dims))
    a, b = (x % dims for x in pair)
    order[a], order[b] = order[b], order[a]
    return order


def _whole(numbers: list[Any]) -> bool:
    return all(isinstance(x, int) for x in numbers)
