"""Lets Numba compile our kernels in under three quarters of the time, with the same machine code.

Measured on the replays: a quarter of the time went into finding out, thousands of times, what
`int + int` or an index into an array means, a tenth into comparing compiler flags, and as much into
looking for garbage among objects that all stay; and some hundredths each into telling after every
step which variables are alive where, into timers that nobody reads and into reading a function anew
wherever it is pasted. These are switched for the time of one compilation only, so that other code
that Numba compiles in this process is treated as ever.
"""

from __future__ import annotations

import gc
import operator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numba
from numba.core import event, ir, types
from numba.core.inline_closurecall import InlineWorker
from numba.core.ir_utils import build_definitions
from numba.core.postproc import PostProcessor, VariableLifetime
from numba.core.targetconfig import ConfigStack, TargetConfig
from numba.core.transforms import canonicalize_cfg
from numba.core.types.functions import BaseFunction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KNOWN = numba.__version__.startswith("0.68.")
"""Whether this is a release of Numba whose inner workings are as the shortcuts expect."""
_OPERATORS: Final = {id(value) for value in vars(operator).values() if callable(value)}
_NUMBERS: Final = (types.Number, types.Boolean, types.Literal)
_find_signature: Final = BaseFunction.get_call_type
_own_hash: Final = TargetConfig.__hash__
_own_eq: Final = TargetConfig.__eq__
_list_variables: Final = ir.Inst._rec_list_vars
_process: Final = PostProcessor.run
_read_code: Final = InlineWorker.run_untyped_passes
_untyped: Final[dict[Any, Any]] = {}


def _remembered(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """The signature of an operator, or of anything on numbers; found once: it cannot change."""
    plain = id(self.typing_key) in _OPERATORS or all(isinstance(arg, _NUMBERS) for arg in args)
    if kws or not plain:
        return _find_signature(self, context, args, kws)
    known = vars(self).setdefault("_rota_known", {})
    if args not in known:
        known[args] = _find_signature(self, context, args, kws)
    return known[args]


@cache
def _hash_of(kind: Any) -> int:
    """What Numba's own hash of any flags of this class is: it looks at their names only."""
    return int(_own_hash(kind()))


def _quick_hash(self: Any) -> int:
    kind: Any = type(self)
    return _hash_of(kind)


def _quick_eq(self: Any, other: Any) -> Any:
    if type(self) is type(other) and self._values == other._values:
        return True
    return _own_eq(self, other)


def _quick_list(self: Any, value: Any) -> list[Any]:
    """The variables in a part of an instruction; told by types that have no others first."""
    kind = type(value)
    if kind is ir.Var:
        return [value]
    if kind in _WITHOUT_VARIABLES:
        return []
    if kind is dict:
        found = []
        for each in value.values():
            inner = type(each)
            if inner is ir.Var:
                found.append(each)
            elif inner not in _WITHOUT_VARIABLES:
                found += self._rec_list_vars(each)
        return found
    return _list_variables(self, value)  # type: ignore[no-any-return]


_WITHOUT_VARIABLES: Final = frozenset(
    (ir.Loc, ir.Const, ir.Global, ir.FreeVar, ir.Arg, str, int, float, bool, type(None))
)


def _quick_process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """What Numba does after every step; which variables live where is worked out when asked for.

    Only where references are counted must it be said where variables end.
    """
    function = self.func_ir
    if function.is_generator or (emit_dels and ConfigStack().top().nrt):
        _process(self, emit_dels, extend_lifetimes)
        return
    function.blocks = canonicalize_cfg(function.blocks)
    function.variable_lifetime = VariableLifetime(function.blocks)
    function.generator_info = None


def _quick_untyped(self: Any, func: Any, enable_ssa: bool = False) -> Any:
    """A function's code before it has types, to be pasted; made once, since pasting copies it."""
    if enable_ssa:
        return _read_code(self, func, enable_ssa)
    self.flags.enable_ssa = False
    if func not in _untyped:
        _untyped[func] = _read_code(self, func)
    code = _untyped[func].copy()
    code._definitions = build_definitions(code.blocks)
    return code


def _same_place(self: Any, _memo: Any) -> Any:
    """A line of source is the same line in a copy of the code."""
    return self


def _no_timer(_kind: str, _callback: Any) -> Any:
    return nullcontext()


_SHORTCUTS: Final = (
    (BaseFunction, "get_call_type", _remembered),
    (TargetConfig, "__hash__", _quick_hash),
    (TargetConfig, "__eq__", _quick_eq),
    (ir.Inst, "_rec_list_vars", _quick_list),
    (PostProcessor, "run", _quick_process),
    (InlineWorker, "run_untyped_passes", _quick_untyped),
    (ir.Loc, "__deepcopy__", _same_place),
    (event, "install_timer", _no_timer),
)


@contextmanager
def quick_compiler() -> Iterator[None]:
    """Compile with these shortcuts; needs the lock of Numba's compiler."""
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in _SHORTCUTS]
    collecting = gc.isenabled()
    gc.disable()
    _install(_SHORTCUTS)
    try:
        yield
    finally:
        _install(before)
        _untyped.clear()
        if collecting:
            if gc.get_freeze_count() == 0:  # all that is left counts as old: no need to look now
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _install(shortcuts: Iterable[tuple[Any, str, Any]]) -> None:
    for owner, name, value in shortcuts:
        if value is None:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
