"""Parts that are compiled only where the types of their arguments call for them."""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from numba.core import config, types
from numba.extending import overload

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def only_with(field: str, otherwise: Any = None) -> Callable[[F], F]:
    """Let a part of a state, and of a job perhaps, be `otherwise` where the state's field is None.

    So a simulation without some feature neither runs nor compiles what the feature needs.
    """

    def wrap_plain(function: F) -> F:
        @wraps(function)
        def run(s: Any, *more: Any) -> Any:
            return otherwise if getattr(s, field) is None else function(s, *more)

        return run  # type: ignore[return-value]

    def wrap(function: F) -> F:
        compiler = vars(function)["_compiler"]
        constant = {1: lambda _: otherwise, 2: lambda _, __: otherwise}
        count = len(signature(compiler.py_func).parameters)

        def choose(args: Any, _kws: Any) -> Any:
            return compiler.py_func if has_field(args[0], field) else constant[count]

        compiler._get_implementation = choose
        return function

    return wrap_plain if config.DISABLE_JIT else wrap


def has_field(state: Any, field: str) -> bool:
    """Whether a state of this type has something there."""
    return state.types[state.fields.index(field)] != types.none  # type: ignore[no-any-return]


def unless_none(pick: F) -> F:
    """Let a function of a batch and a number return None where the batch is None.

    It is pasted into kernels, which is quicker than handing all of a batch on.
    """

    @wraps(pick)
    def given(batch: Any, b: int) -> Any:
        return None if batch is None else pick(batch, b)

    @overload(given, inline="always", strict=False)  # type: ignore[untyped-decorator]
    def _(batch: Any, b: int) -> Any:  # noqa: ARG001
        return (lambda batch, b: None) if batch == types.none else pick  # noqa: ARG005

    return given  # type: ignore[return-value]
