"""Lowers our kernels to less LLVM code than Numba does, with the same meaning.

Numba writes for programs with debug information and reference counting, and leaves it to LLVM to
remove what these do not have: variables that are cleared before they are deleted, arrays that are
copied to the stack wherever they are indexed. Together with `jit_reference` this makes the code of
a replay a quarter as long to write and to read.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from numba.core import cgutils, ir, types
from numba.core.lowering import Lower
from numba.np import arrayobj

from rota.jit_reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ARRAY: Final = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")
_make_array: Final = arrayobj.make_array


class LeanLower(Lower):  # type: ignore[misc]
    """Lowering for functions without reference counting and debug information."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        references = {
            f"arg.{name}"
            for name, kind in zip(fndesc.args, fndesc.argtypes, strict=True)
            if isinstance(kind, Reference)
        }
        for argument in self.function.args:
            if argument.name in references:  # nothing is written where it points to
                for attribute in ("noalias", "captures(none)", "nonnull", "noundef"):
                    argument.add_attribute(attribute)

    @property
    def _lean(self) -> bool:
        return not (self.context.enable_nrt or self._disable_sroa_like_opt)

    def pre_lower(self) -> None:
        super().pre_lower()
        self._constants: dict[str, Any] = {}
        self._lasting: set[str] = set()
        if not self._lean:
            return
        assigned = Counter(
            inst.target.name
            for block in self.blocks.values()
            for inst in block.find_insts(ir.Assign)
        )
        first = self.blocks[self.firstblk]
        self._lasting = {
            inst.target.name
            for inst in first.find_insts(ir.Assign)
            if isinstance(inst.value, ir.Arg) and assigned[inst.target.name] == 1
        }

    def _alloca_var(self, name: str, fetype: Any) -> None:
        if name not in self._lasting:
            super()._alloca_var(name, fetype)

    def loadvar(self, name: str) -> Any:
        if name in self._constants:
            return self._constants[name]
        return super().loadvar(name)

    def storevar(self, value: Any, name: str, argidx: Any = None) -> None:
        if name in self._lasting:
            self._constants[name] = value
        elif not self._lean or name in self._singly_assigned_vars:
            super().storevar(value, name, argidx)
        else:
            self.builder.store(value, self.getvar(name))

    def delvar(self, name: str) -> None:
        if not self._lean:
            super().delvar(name)

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        if not self._lean:
            return super().alloca_lltype(name, lltype, datamodel)
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)


class _ReadArray:
    """An array's fields, read from its value; becomes Numba's own where one is written."""

    def __init__(self, make: Callable[[], Any], builder: Any, value: Any) -> None:
        vars(self).update(_make=make, _builder=builder, _value=value, _own=None)

    def __getattr__(self, name: str) -> Any:
        if self._own is None:
            if name in _ARRAY:
                return self._builder.extract_value(self._value, _ARRAY.index(name))
            if name == "_getvalue":
                return lambda: self._value
            vars(self)["_own"] = self._make()
        return getattr(self._own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._own is None:
            vars(self)["_own"] = self._make()
        setattr(self._own, name, value)


def _quick_array(array_type: Any) -> Callable[..., Any]:
    """Numba's `make_array`, which makes a class and copies the array to the stack at every use."""

    def make(context: Any, builder: Any, value: Any = None, ref: Any = None) -> Any:
        def own() -> Any:
            return _make_array(array_type)(context, builder, value=value, ref=ref)

        if value is None or ref is not None or type(array_type) is not types.Array:
            return own()
        return _ReadArray(own, builder, value)

    return make


@contextmanager
def lean_arrays() -> Iterator[None]:
    """Meanwhile arrays are indexed without copies; needs the lock of Numba's compiler."""
    before = arrayobj.make_array
    arrayobj.make_array = _quick_array
    try:
        yield
    finally:
        arrayobj.make_array = before
