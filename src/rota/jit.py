"""The decorators for compiled code: `kernel`, and the parts that kernels are made of.

Six things here differ from a plain `numba.njit`, each because it was measured to matter:

- Numba keeps compiled code on disk and compiles anew when a function's own file changes, but
  not when something does that it takes from another file. Here it does: see `jit_stamp`.
- No reference counting: it would touch every array of the state at every call, which is six
  times slower than the simulation itself. Hence kernels make no arrays; a part that must is
  an `allocating_part`.
- Parts are neither optimised nor turned into machine code on their own: they only ever run
  inside a kernel, which is optimised as a whole. That halves the time of the first run.
- LLVM works at level 2, once, and does not vectorise: but for the layers of networks
  (`wide_kernel`) nothing here gains from more (measured), and the first run waits a fifth less.
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

from contextlib import contextmanager
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np
from llvmlite.binding import newpassmanagers
from numba.core import config, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering
from numba.np.numpy_support import from_dtype, map_layout

from rota.jit_cache import KernelCache
from rota.jit_lean import LeanLower, lean_arrays
from rota.jit_only import has_field
from rota.jit_quick import KNOWN, quick_compiler
from rota.jit_reference import Referred

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

F = TypeVar("F", bound="Callable[..., Any]")


class _WithoutEnvironment:
    """A code generator for functions that have no machine code of their own to attach to."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, env: Any) -> None:
        """Nothing to set: the part exists only inside its kernels."""


def _in_short() -> bool:
    """Whether LLVM takes a short way: after it no loop would be vectorised."""
    return KNOWN and not config.LOOP_VECTORIZE


def _shorten(codegen: Any, module: Any) -> None:
    """Do what makes LLVM code much shorter; the rest is done when a kernel is whole."""
    module.data_layout = codegen._data_layout
    passes = newpassmanagers.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_refprune_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, codegen._pass_builder())


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """LLVM code that is only linked into others."""

    @property
    def codegen(self) -> Any:
        return _WithoutEnvironment(self._codegen)

    def _optimize_functions(self, ll_module: Any) -> None:
        if _in_short():
            _shorten(self._codegen, ll_module)
        else:
            super()._optimize_functions(ll_module)

    def _optimize_final_module(self) -> None:
        """Left to the kernel."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """LLVM code of a kernel, which shares none of its parts with anybody.

    They get names of their own, or other code of this process that calls such a part would be
    linked to this one, which expects other arguments.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage.name == "linkonce_odr" and not function.is_declaration:
                function.linkage, function.name = "internal", f"{function.name}.own"
        if _in_short():
            passes, settings = self._codegen._module_pass_manager()
            passes.run(self._final_module, settings)
        else:
            super()._optimize_final_module()

    def _optimize_functions(self, ll_module: Any) -> None:
        if _in_short():
            _shorten(self._codegen, ll_module)
        else:
            super()._optimize_functions(ll_module)


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(NativeLowering):  # type: ignore[misc]
    """Lowering into such a library."""

    _name = "rota_kernel_lowering"

    @property
    def lowering_class(self) -> Any:
        return LeanLower if KNOWN else super().lowering_class

    def run_pass(self, state: Any) -> bool:
        codegen = state.targetctx.codegen()
        state.library = _KernelLibrary(codegen, state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)  # type: ignore[no-any-return]


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):  # type: ignore[misc]
    """Lowering into a library that never becomes machine code."""

    _name = "rota_part_lowering"

    @property
    def lowering_class(self) -> Any:
        return LeanLower if KNOWN else super().lowering_class

    def run_pass(self, state: Any) -> bool:
        codegen = state.targetctx.codegen()
        state.library = _PartLibrary(codegen, state.func_id.func_qualname)
        return super().run_pass(state)  # type: ignore[no-any-return]


@contextmanager
def _little_effort(wide: bool) -> Iterator[None]:
    """Let LLVM do what pays here; set for our code only, not for others in the process."""
    before = config.OPT, config.LOOP_VECTORIZE
    config.OPT, config.LOOP_VECTORIZE = min(before[0], type(before[0])(2)), int(wide)
    try:
        yield
    finally:
        config.OPT, config.LOOP_VECTORIZE = before


def _with_lowering(state: Any, lowering: type) -> Any:
    """Numba's pipeline with another last step."""
    passes = DefaultPassBuilder.define_nopython_pipeline(state)
    passes.passes = [
        (lowering if step is NativeLowering else step, why) for step, why in passes.passes
    ]
    passes.finalize()
    return passes


class _KernelCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's pipeline with less optimisation, for a function with parts of its own."""

    wide = False

    def define_pipelines(self) -> list[Any]:
        return [_with_lowering(self.state, _KernelLowering)]

    def compile_extra(self, function: Any) -> Any:
        with _little_effort(self.wide):
            if not KNOWN:
                return super().compile_extra(function)
            with quick_compiler(), lean_arrays():
                return super().compile_extra(function)


class _WideCompiler(_KernelCompiler):
    """The same for loops that do several numbers at a time."""

    wide = True


class _PartCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's pipeline without machine code."""

    def define_pipelines(self) -> list[Any]:
        return [_with_lowering(self.state, _PartLowering)]


def kernel(function: F) -> F:
    """Compile `function` on first use and keep the result on disk; it runs without the GIL."""
    return _kernel(function, _KernelCompiler)


def wide_kernel(function: F) -> F:
    """Like `kernel`, for long loops of arithmetic, which are vectorised."""
    return _kernel(function, _WideCompiler)


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
        pipeline_class=_PartCompiler, **options,
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
