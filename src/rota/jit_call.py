"""Calls kernels again and again on the same arrays, without looking their types up each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core import config

from rota.jit import direct, kernel, type_of
from rota.jit_reference import Reference, Referred, spill, word_count

if TYPE_CHECKING:
    from collections.abc import Callable


@kernel
def write_words(whole: Any, words: Any) -> None:
    """Write down a named tuple, to be handed on by reference."""
    spill(whole, words)


class Caller:
    """Calls kernels on whole batches; the machine code of each is looked up once.

    Named tuples are handed over by reference, so what takes them apart is compiled once, not with
    every kernel. It checks nothing: code that accepts arrays from outside must check them.
    """

    def __init__(self) -> None:
        self._code: dict[str, Callable[..., Any]] = {}
        self._packing: dict[type, tuple[Any, int, Callable[..., Any]]] = {}
        self._last: dict[type, Referred] = {}

    def __call__(self, kernel: Callable[..., Any], *args: Any) -> Any:
        """Run `kernel`, always on arguments of the same types."""
        if config.DISABLE_JIT:
            return kernel(*args)
        given = [self._refer(arg) if hasattr(arg, "_fields") else arg for arg in args]
        name = kernel.__name__
        if name not in self._code:
            self._code[name] = direct(kernel, *given)
        return self._code[name](*given)

    def _refer(self, whole: Any) -> Referred:
        """A reference to a tuple; the last one of its class is kept."""
        made_of = type(whole)
        last = self._last.get(made_of)
        if last is not None and last.whole is whole:
            return last
        if made_of not in self._packing:
            count = word_count(whole)
            pack = direct(write_words, whole, np.zeros(count, np.int64))
            self._packing[made_of] = Reference(type_of(whole)), count, pack
        kind, count, pack = self._packing[made_of]
        words = np.zeros(count, np.int64)
        pack(whole, words)
        self._last[made_of] = Referred(whole, kind, words)
        return self._last[made_of]
