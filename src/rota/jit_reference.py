"""Named tuples that compiled code hands on by reference.

Numba passes a named tuple to a function as all of its words. For a state of 27 arrays these are
two hundred arguments, declared, taken apart and put together again at every call, which made half
of the LLVM code of a replay. `by_reference` writes the tuple down once; functions are given the
address and read its fields from there. A tuple inside a tuple is read as a reference to that part.
`entry_of` writes down one entry of a batch, and `refer` lets Python call a kernel with a reference,
so that not every kernel contains code that takes the same tuple of Python objects apart.
"""

from __future__ import annotations

import hashlib
from itertools import accumulate
from typing import Any, Final, TypeVar

import numpy as np
from llvmlite.ir import ArrayType, IntType
from numba.core import cgutils, config, types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.pythonapi import NativeValue, unbox
from numba.core.types.containers import BaseNamedTuple, BaseTuple
from numba.core.typing.templates import AttributeTemplate
from numba.core.typing.typeof import typeof_impl
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

T = TypeVar("T")
_WORD: Final = IntType(64)
_NITEMS, _ITEMSIZE, _DATA, _SHAPE = 2, 3, 4, 5  # words of an array, after two that count references


class Reference(types.Type):
    """The type of a named tuple that is handed on by reference."""

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.fields = whole.fields
        self.types = tuple(Reference(each) if _is_tuple(each) else each for each in whole.types)
        self.words: list[int] = []
        # Numba's name has all fields of all records, and it is part of the name of every function.
        digest = hashlib.sha256(whole.name.encode()).hexdigest()[:16]
        super().__init__(name=f"Reference({whole.instance_class.__name__} {digest})")


def _is_tuple(kind: Any) -> bool:
    return isinstance(kind, BaseNamedTuple)


@register_model(Reference)
class _ReferenceModel(PrimitiveModel):  # type: ignore[misc]
    """An address."""

    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, _WORD.as_pointer())


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
        sizes = [
            _words(context, inner)[-1]
            if _is_tuple(whole)
            else -(-context.get_abi_sizeof(context.get_value_type(whole)) // 8)
            for whole, inner in zip(kind.whole.types, kind.types, strict=True)
        ]
        kind.words = [0, *accumulate(sizes)]
    return kind.words


def _word(builder: Any, address: Any, number: int) -> Any:
    """The address of a word."""
    return builder.gep(address, [_WORD(number)], inbounds=True)


def _place(context: Any, builder: Any, kind: Any, address: Any, k: int) -> Any:
    """The address of the k-th field."""
    word = _word(builder, address, _words(context, kind)[k])
    return builder.bitcast(word, context.get_value_type(kind.types[k]).as_pointer())


@lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def _read_field(context: Any, builder: Any, kind: Any, address: Any, name: str) -> Any:
    k = kind.fields.index(name)
    if _is_tuple(kind.whole.types[k]):  # it lies in here
        return _word(builder, address, _words(context, kind)[k])
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


def _write(context: Any, builder: Any, kind: Any, value: Any, address: Any) -> None:
    """Write a tuple down."""
    for k, whole in enumerate(kind.whole.types):
        field = builder.extract_value(value, k)
        if _is_tuple(whole):
            inner = _word(builder, address, _words(context, kind)[k])
            _write(context, builder, kind.types[k], field, inner)
        else:
            builder.store(field, _place(context, builder, kind, address, k))


def _space(context: Any, builder: Any, kind: Any) -> Any:
    """Space for a tuple, in the function that is being compiled."""
    if context.enable_nrt:
        raise TypeError("Arrays that a part has made itself may be gone before the reference.")
    space = cgutils.alloca_once(builder, ArrayType(_WORD, _words(context, kind)[-1]))
    return builder.bitcast(space, _WORD.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def _refer(_typing: Any, whole: Any) -> Any:
    if isinstance(whole, Reference):  # it is one already
        return whole(whole), lambda _context, _builder, _signature, args: args[0]
    kind = Reference(whole)

    def write_down(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        address = _space(context, builder, kind)
        _write(context, builder, kind, args[0], address)
        return address

    return kind(whole), write_down


def _entry_kind(whole: Any) -> Any:
    """The type of one entry of a batch of this type."""
    if _is_tuple(whole):
        return BaseTuple.from_types(
            [_entry_kind(each) for each in whole.types], whole.instance_class
        )
    if whole == types.none:
        return whole
    if isinstance(whole, types.Array) and whole.ndim > 1:
        return whole.copy(ndim=whole.ndim - 1, layout="C" if whole.layout == "C" else "A")
    raise TypeError(f"An entry of a batch needs arrays of two axes or more, not {whole}.")


def _write_entry(context: Any, builder: Any, batch: Any, one: Any, pair: Any, number: Any) -> None:
    """Copy arrays from one address to another without their first axis."""
    source, target = pair
    for k, whole in enumerate(batch.whole.types):
        here, there = _words(context, batch)[k], _words(context, one)[k]
        if _is_tuple(whole):
            inner = _word(builder, source, here), _word(builder, target, there)
            _write_entry(context, builder, batch.types[k], one.types[k], inner, number)
        elif whole != types.none:
            words = [
                builder.load(_word(builder, source, here + at))
                for at in range(_SHAPE + 2 * whole.ndim)
            ]
            shape, strides = words[_SHAPE : _SHAPE + whole.ndim], words[_SHAPE + whole.ndim :]
            size = shape[1]
            for length in shape[2:]:
                size = builder.mul(size, length)
            data = builder.add(words[_DATA], builder.mul(number, strides[0]))
            nobody = _WORD(0)
            written = nobody, nobody, size, words[_ITEMSIZE], data, *shape[1:], *strides[1:]
            for at, word in enumerate(written):
                builder.store(word, _word(builder, target, there + at))


@intrinsic  # type: ignore[untyped-decorator]
def _enter(_typing: Any, batch: Any, number: Any) -> Any:
    if not isinstance(batch, Reference):
        raise TypeError("An entry is taken of a batch that is handed on by reference.")
    one = Reference(_entry_kind(batch.whole))

    def write_down(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _space(context, builder, one)
        b = context.cast(builder, args[1], signature.args[1], types.int64)
        _write_entry(context, builder, batch, one, (args[0], address), b)
        return address

    return one(batch, number), write_down


@intrinsic  # type: ignore[untyped-decorator]
def _spill(_typing: Any, whole: Any, words: Any) -> Any:
    """Write a tuple into an array of words."""
    kind = Reference(whole)

    def write_down(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        data = builder.extract_value(args[1], _DATA)
        _write(context, builder, kind, args[0], data)
        return context.get_dummy_value()

    return types.none(whole, words), write_down


class Referred:
    """A named tuple that Python hands to kernels by reference; see `refer`."""

    __slots__ = ("address", "kind", "whole", "words")

    def __init__(self, whole: Any, kind: Any, words: Any) -> None:
        self.whole, self.kind, self.words = whole, kind, words
        """The tuple and its arrays live as long as this does."""
        self.address = int(words.ctypes.data)


@typeof_impl.register(Referred)  # type: ignore[untyped-decorator]
def _type_of_referred(value: Referred, _context: Any) -> Any:
    return value.kind


@unbox(Reference)  # type: ignore[untyped-decorator]
def _unbox_reference(_kind: Any, obj: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(obj, "address")
    address = c.pyapi.long_as_ulonglong(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.inttoptr(address, _WORD.as_pointer()))


def word_count(whole: Any) -> int:
    """The number of words that a tuple of arrays and numbers takes, written down."""
    if isinstance(whole, tuple):
        return sum(map(word_count, whole))
    return _SHAPE + 2 * whole.ndim if isinstance(whole, np.ndarray) else 1


def _as_it_is(whole: T) -> T:
    """In plain Python everything is handed on by reference."""
    return whole


def _entry_in_python(batch: Any, number: int) -> Any:
    if batch is None:
        return None
    if isinstance(batch, tuple):
        return type(batch)._make(_entry_in_python(part, number) for part in batch)  # type: ignore[attr-defined]
    return batch[number]


spill: Any = _spill
by_reference: Any = _as_it_is if config.DISABLE_JIT else _refer
"""A named tuple, handed on by reference from here on.

A reference is valid until the function that makes it returns. An `allocating_part` may take
references and cannot make any.
"""
entry_of: Any = _entry_in_python if config.DISABLE_JIT else _enter
"""entry_of(batch, b): a reference to the b-th entry of all arrays (B, …, …) of a named tuple.

It is written down where it is taken, so at most one entry per place in the code is valid.
"""
