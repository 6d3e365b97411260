"""How Numba and LLVM compile kernels and their parts here; `jit` says why.

A part becomes LLVM code that is linked into kernels; a kernel is optimised as a whole and becomes
machine code.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from llvmlite.binding import newpassmanagers
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

from rota.jit_lean import LeanLower, lean_arrays
from rota.jit_quick import KNOWN, quick_compiler

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    config.OPT, config.LOOP_VECTORIZE = min(before[0], type(before[0])(3 if wide else 2)), int(wide)
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


class KernelCompiler(CompilerBase):  # type: ignore[misc]
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


class WideCompiler(KernelCompiler):
    """The same for loops that do several numbers at a time."""

    wide = True


class PartCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's pipeline without machine code."""

    def define_pipelines(self) -> list[Any]:
        return [_with_lowering(self.state, _PartLowering)]
