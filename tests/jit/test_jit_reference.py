"""Named tuples handed on by reference, and parts that only some types have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core.errors import LoweringError, TypingError

from rota.jit import allocating_part, kernel, part
from rota.jit_call import Caller
from rota.jit_only import only_with
from rota.jit_reference import by_reference, entry_of, word_count

PAIR = np.dtype([("a", np.int32), ("b", np.float64)], align=True)


class Inner(NamedTuple):
    """A tuple within a tuple."""

    numbers: Any
    flag: bool


class Outer(NamedTuple):
    """Fields of many sizes, so that each must be found at its place."""

    flag: bool
    count: int
    rows: Any
    grid: Any
    half: float
    extra: Any
    inner: Inner


@only_with("extra", otherwise=-1.0)
@part
def first_extra(o: Outer) -> float:
    return float(o.extra[0])


@part
def total(o: Outer) -> float:
    found = o.half + o.count + first_extra(o) + o.inner.numbers[1]
    for k in range(o.rows.size):
        found += o.rows[k]["a"] * o.rows[k]["b"] + o.grid[1, k]
    return found if o.flag and not o.inner.flag else -found


@allocating_part
def sum_of_copy(o: Outer) -> float:
    kept, grid = np.zeros(o.grid.shape[1]), o.grid
    for k in range(kept.size):
        kept[k] = grid[1, k]
    return float(kept.sum())


@part
def fill(o: Outer) -> None:
    for k in range(o.grid.shape[1]):
        o.grid[0, k] = sum_of_copy(o)


@kernel
def total_of(o: Outer) -> float:
    outer = by_reference(o)
    fill(outer)
    return total(outer)


@allocating_part
def refers_to_its_own(n: int) -> float:
    return float(by_reference(Inner(np.ones(n), True)).numbers[0])


@kernel
def refers_wrongly(n: int) -> float:
    return refers_to_its_own(n)


def outer(extra: Any) -> Outer:
    rows = np.array([(2, 0.5), (3, 1.5), (-1, 4.0)], PAIR)
    grid = np.array([[0.0, 0.0, 0.0], [1.0, 10.0, 100.0]])
    return Outer(True, 7, rows, grid, 0.25, extra, Inner(np.array([5.0, 6.0]), False))


@pytest.mark.parametrize(("extra", "first"), [(None, -1.0), (np.array([40.0, 1.0]), 40.0)])
def test_all_fields_are_read_and_written_at_their_place(extra: Any, first: float) -> None:
    whole = outer(extra)

    # 0.25 + 7 + first + 6, then 2 · 0.5 + 3 · 1.5 − 4, then 111
    assert total_of(whole) == 0.25 + 7 + first + 6 + 1.5 + 111
    np.testing.assert_array_equal(whole.grid[0], [111.0, 111.0, 111.0])
    assert total_of(whole._replace(flag=False)) == -(0.25 + 7 + first + 6 + 1.5 + 111)


def test_arrays_that_a_reference_names_are_freed_with_their_owner() -> None:
    whole = outer(None)
    before = total_of(whole)
    grid = whole.grid
    for _ in range(100):
        assert total_of(whole) == before
    del whole
    # the name in this function, and getrefcount's argument
    assert sys.getrefcount(grid) == 2


def test_a_part_that_makes_arrays_cannot_make_references_to_them() -> None:
    with pytest.raises((LoweringError, TypeError), match="may be gone before the reference"):
        refers_wrongly(3)


class Cells(NamedTuple):
    """Arrays of a batch."""

    line: Any  # (B, K)
    cube: Any  # (B, K, L)
    rows: Any  # (B, K) PAIR
    nothing: None


class Batch(NamedTuple):
    """A tuple of arrays that has another one in it."""

    cells: Cells
    one: Any  # (B, 1)


@part
def double(cells: Cells) -> None:
    for k in range(cells.line.size):
        cells.line[k] *= 2.0
        cells.cube[k, cells.cube.shape[1] - 1] += 1.0
        cells.rows[k]["b"] = cells.rows[k]["a"]


@kernel
def double_some(batch: Batch, which: Any) -> float:
    total, whole = 0.0, by_reference(batch)
    for b in range(which.size):
        one = entry_of(whole, which[b])
        double(one.cells)
        total += one.one[0] + one.cells.cube.size + entry_of(whole.cells, which[b]).line[0]
    return total


def batch(strided: bool = False) -> Batch:
    cube = np.arange(24.0).reshape(3, 2, 4)
    cube = np.ascontiguousarray(cube.transpose(2, 1, 0)).transpose(2, 1, 0) if strided else cube
    line = np.arange(6.0).reshape(3, 2)
    rows = np.array([[(b, 0.0), (-b, 0.0)] for b in range(3)], PAIR)
    return Batch(Cells(line, cube, rows, None), np.array([[10.0], [20.0], [30.0]]))


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("call", [lambda f, *args: f(*args), Caller()], ids=["called", "referred"])
def test_one_entry_of_a_batch_is_read_and_written_at_its_place(call: Any, strided: bool) -> None:
    given, call = batch(strided), type(call)() if isinstance(call, Caller) else call
    # Entries 2 and 0: 30 + 8 + 2 · 4, and 10 + 8 + 2 · 0.
    assert call(double_some, given, np.array([2, 0])) == 46.0 + 18.0
    np.testing.assert_array_equal(given.cells.line, [[0.0, 2.0], [2.0, 3.0], [8.0, 10.0]])
    last = np.arange(24.0).reshape(3, 2, 4)[:, :, -1] + [[1.0], [0.0], [1.0]]
    np.testing.assert_array_equal(given.cells.cube[:, :, -1], last)
    assert given.cells.rows["b"].tolist() == [[0.0, 0.0], [0.0, 0.0], [2.0, -2.0]]


def test_python_hands_tuples_over_by_reference_and_keeps_them_alive() -> None:
    call = Caller()
    for extra in (np.array([40.0, 1.0]), np.array([2.0])):  # of one type, one after the other
        for _ in range(3):
            whole = outer(extra)  # the arrays of the one before may be gone by now
            assert call(total_of, whole) == total_of(outer(extra))
            np.testing.assert_array_equal(whole.grid[0], [111.0, 111.0, 111.0])
    grid = whole.grid
    del whole
    assert sys.getrefcount(grid) == 3  # here, in the tuple that the last call was given, and this
    del call
    assert sys.getrefcount(grid) == 2


def test_what_is_given_by_reference_is_what_the_compiler_reads() -> None:
    # 2 and 5 words per array, and a shape and a stride per axis; 1 per number, and for None.
    assert word_count(outer(None)) == 1 + 1 + 7 + 9 + 1 + 1 + (7 + 1)


class Flat(NamedTuple):
    """Has an array whose entries are no arrays."""

    numbers: Any  # (B,)


@kernel
def first_number(flat: Flat) -> float:
    return entry_of(by_reference(flat), 0).numbers[0]


def test_entries_that_are_no_arrays_are_refused() -> None:
    with pytest.raises((TypingError, TypeError), match="two axes or more"):
        first_number(Flat(np.zeros(3)))


UNKNOWN = """
import rota.jit_quick
rota.jit_quick.KNOWN = False  # before rota.jit reads it
import test_jit_reference as known
print(known.total_of(known.outer(None)))
"""


def test_with_another_release_of_numba_kernels_are_compiled_without_shortcuts() -> None:
    here = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    environment = {**os.environ, "PYTHONPATH": here}
    done = subprocess.run([sys.executable, "-c", UNKNOWN], env=environment, capture_output=True,
                          text=True, check=False, timeout=600)  # fmt: skip
    assert (done.stderr, float(done.stdout)) == ("", total_of(outer(None)))
