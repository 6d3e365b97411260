"""The decorators for compiled code: `kernel`, and the parts that kernels are made of.

Six things here differ from a plain `numba.njit`, each because it was measured to matter:

- Numba keeps compiled code on disk and compiles anew when a function's own file changes, but
  not when something does that it takes from another file. Here it does: see `jit_stamp`.
- No reference counting: it would touch every array of the state at every call, which is six
  times slower than the simulation itself. Hence kernels make no arrays; a part that must is
  an `allocating_part`.
- Parts are neither optimised nor turned into machine code on their own: they only ever run
  inside a kernel, which is optimised as a whole. That halves the time of the first run.
- LLVM works at level 2, once, and does not vectorise: the first run waits a fifth less, and only
  the layers of networks gain from more (measured). They are `wide_kernel`s: level 3, all passes.
- A kernel's parts belong to it alone, so that LLVM may drop what a part does not use of its
  arguments. A state is hundreds of words; kernels hand it on by reference (`jit_reference`).
- Processes that need the same kernel at once do not all compile it (`jit_lock`), Numba does not
  look the same things up again and again (`jit_quick`) and writes less for LLVM (`jit_lean`), and
  parts that a simulation has no use for are left out (`jit_only`). With a release of Numba that
  this was not tested with, none of these shortcuts is taken: compiling takes twice as long.

With NUMBA_DISABLE_JIT=1 in the environment nothing is compiled and all of this is plain Python,
thousands of times slower, with the same results: for stepping through kernels in a debugger.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np
from numba.core import config, types
from numba.core.compiler_lock import global_compiler_lock
from numba.np.numpy_support import from_dtype, map_layout

from rota.jit_cache import KernelCache
from rota.jit_compiler import KernelCompiler, PartCompiler, WideCompiler
from rota.jit_only import has_field
from rota.jit_reference import Referred

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def kernel(function: F) -> F:
    """Compile `function` on first use and keep the result on disk; it runs without the GIL."""
    return _kernel(function, KernelCompiler)


def wide_kernel(function: F) -> F:
    """Like `kernel`, for long loops of arithmetic, which are vectorised."""
    return _kernel(function, WideCompiler)


def _kernel(function: F, compiler: type) -> F:
    if config.DISABLE_JIT:
        return _stepped(function)
    compiled: Any = numba.njit(
        nogil=True, error_model="numpy", _nrt=False, no_cfunc_wrapper=True,
        pipeline_class=compiler,
    )(function)  # fmt: skip
    compiled._cache = KernelCache(function)
    compiled.compile = _compiled_once(compiled)
    return compiled  # type: ignore[no-any-return]


def _compiled_once(dispatcher: Any) -> Callable[[Any], Any]:
    """The dispatcher's `compile`, for one process at a time: the next finds the result on disk."""
    compile_now = dispatcher.compile

    def compile_once(sig: Any) -> Any:
        # The compiler's lock first: so this process waits for one kernel of others at a time.
        with global_compiler_lock:
            if dispatcher.overloads.get(tuple(sig)) is not None:
                return compile_now(sig)
            with dispatcher._cache.alone(sig, dispatcher.targetctx):
                return compile_now(sig)

    return compile_once


def _stepped(function: F) -> F:
    """A kernel in plain Python; numbers overflow and divide by zero silently, as if compiled."""

    @wraps(function)
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return run  # type: ignore[return-value]


def is_ready(compiled: Callable[..., Any], **has: bool) -> bool:
    """Whether a kernel has been compiled before, in this process or another.

    `has` says which fields of its state are not None, as with another type it is another kernel.
    """
    if config.DISABLE_JIT:
        return True
    dispatcher: Any = compiled
    kept = [*dispatcher.overloads, *dispatcher._cache.known(dispatcher.targetctx)]
    if not has:
        return bool(kept)
    states = [kind for kinds in kept for kind in kinds if {*has} <= {*getattr(kind, "fields", ())}]
    return any(all(has_field(state, name) == has[name] for name in has) for state in states)


def direct(compiled: Callable[..., Any], *example: Any) -> Callable[..., Any]:
    """A kernel's machine code for arguments of exactly the types of `example`.

    Numba's own call looks the types of all arguments up first, which for a state of many record
    arrays takes ten times as long as the call. Here nothing is looked up and nothing checked:
    the caller must always pass the same types.
    """
    if config.DISABLE_JIT:
        return compiled
    dispatcher: Any = compiled
    machine_code: Callable[..., Any] = dispatcher.compile(tuple(map(type_of, example)))
    return machine_code


def type_of(value: Any) -> Any:
    """`numba.typeof(value)`, which takes milliseconds for a state of many record arrays."""
    if isinstance(value, Referred):
        return value.kind
    if isinstance(value, np.ndarray):
        readonly = not value.flags.writeable
        return types.Array(_entry_type(value.dtype), value.ndim, map_layout(value), readonly)
    if isinstance(value, tuple):
        return _tuple_type.from_types([type_of(entry) for entry in value], type(value))
    return numba.typeof(value)


@cache
def _entry_type(dtype: Any) -> Any:
    return from_dtype(dtype)


def part(function: F) -> F:
    """Compile a function that only kernels call; it lives in their cached code."""
    return _part(function, counted=False)


def pasted_part(function: F) -> F:
    """Like `part`, for one that LLVM shall paste into all of its callers: a hot, short one."""
    return _part(function, counted=False, forceinline=True)


def allocating_part(function: F) -> F:
    """Like `part`, for a function that makes arrays of its own."""
    return _part(function, counted=True)


_unliteral: Any = vars(types)["unliteral"]  # these two its stubs do not know
_tuple_type: Any = vars(types)["BaseTuple"]


def _part(function: F, *, counted: bool, **options: bool) -> F:
    if config.DISABLE_JIT:
        return function
    made: Any = numba.njit(
        error_model="numpy", _nrt=counted, no_cpython_wrapper=True, no_cfunc_wrapper=True,
        pipeline_class=PartCompiler, **options,
    )(function)  # fmt: skip
    by_types = made.get_call_template
    known: dict[Any, Any] = {}

    def by_plain_types(args: Any, kws: Any) -> Any:
        """Numba would compile a part anew for every constant it is called with."""
        plain = {name: _unliteral(kind) for name, kind in kws.items()}
        types_ = tuple(_unliteral(kind) for kind in args)
        if plain:
            return by_types(types_, plain)
        if types_ not in known:
            known[types_] = by_types(types_, plain)
        return known[types_]

    made.get_call_template = by_plain_types
    return made  # type: ignore[no-any-return]


def inline(function: F) -> F:
    """Paste a small function into its callers before they are compiled."""
    return numba.njit(inline="always", error_model="numpy")(function)  # type: ignore[no-any-return]
