"""Named tuples that compiled code hands on by reference.

Numba passes a named tuple to a function as all of its words. For a state of 27 arrays these are
two hundred arguments, declared, taken apart and put together again at every call, which made half
of the LLVM code of a replay. `by_reference` writes the tuple down once; functions are given the
address and read its fields from there.
"""

from __future__ import annotations

import hashlib
from itertools import accumulate
from typing import Any, TypeVar

from llvmlite.ir import ArrayType, IntType
from numba.core import cgutils, config, types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.types.containers import BaseTuple
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

T = TypeVar("T")


class Reference(types.Type):
    """The type of a named tuple that is handed on by reference."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.fields, self.types = whole.fields, whole.types
        self.words: list[int] = []
        # Numba's name has all fields of all records, and it is part of the name of every function.
        digest = hashlib.sha256(whole.name.encode()).hexdigest()[:16]
        super().__init__(name=f"Reference({whole.instance_class.__name__} {digest})")


@register_model(Reference)
class _ReferenceModel(PrimitiveModel):  # type: ignore[misc]
    """An address."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, IntType(64).as_pointer())


@infer_getattr
class _ReferenceFields(AttributeTemplate):  # type: ignore[misc]
    key = Reference

    def generic_resolve(self, reference: Any, name: str) -> Any:
        if name in reference.fields:
            return reference.types[reference.fields.index(name)]
        return None


def _words(context: Any, kind: Reference) -> list[int]:
    """The word at which each field begins, and their number."""
    if not kind.words:
        sizes = (context.get_abi_sizeof(context.get_value_type(each)) for each in kind.types)
        kind.words = [0, *accumulate(-(-size // 8) for size in sizes)]
    return kind.words


def _place(context: Any, builder: Any, kind: Any, address: Any, k: int) -> Any:
    """The address of the k-th field."""
    word = builder.gep(address, [IntType(64)(_words(context, kind)[k])], inbounds=True)
    return builder.bitcast(word, context.get_value_type(kind.types[k]).as_pointer())


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def _read_field(context: Any, builder: Any, kind: Any, address: Any, name: str) -> Any:
    k = kind.fields.index(name)
    value = builder.load(_place(context, builder, kind, address, k))
    return _uncounted(builder, kind.types[k], value) if context.enable_nrt else value


def _uncounted(builder: Any, kind: Any, value: Any) -> Any:
    """The same value, without counting references to its arrays: the kernel's caller has one."""
    if isinstance(kind, types.Array):
        nobody = value.type.elements[0](None)
        return builder.insert_value(value, nobody, 0)
    if isinstance(kind, BaseTuple):
        for k, inner in enumerate(kind.types):
            field = _uncounted(builder, inner, builder.extract_value(value, k))
            value = builder.insert_value(value, field, k)
    return value


@intrinsic  # type: ignore[untyped-decorator]
def _refer(_typing: Any, whole: Any) -> Any:
    kind = Reference(whole)

    def write_down(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        if context.enable_nrt:
            raise TypeError("Arrays that a part has made itself may be gone before the reference.")
        words = _words(context, kind)[-1]
        space = cgutils.alloca_once(builder, ArrayType(IntType(64), words))
        address = builder.bitcast(space, IntType(64).as_pointer())
        for k in range(len(kind.fields)):
            value = builder.extract_value(args[0], k)
            builder.store(value, _place(context, builder, kind, address, k))
        return address

    return kind(whole), write_down


def _as_it_is(whole: T) -> T:
    """In plain Python everything is handed on by reference."""
    return whole


by_reference: Any = _as_it_is if config.DISABLE_JIT else _refer
"""A named tuple, handed on by reference from here on.

A reference is valid until the function that makes it returns. An `allocating_part` may take
references and cannot make any.
"""
