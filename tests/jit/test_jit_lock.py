"""Processes that need the same kernel at once: one compiles, the others wait for its result."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numba
from numba.core.targetconfig import TargetConfig
from numba.core.types.functions import BaseFunction

from rota.jit_lock import FILE, alone
from rota.jit_quick import quick_compiler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KERNEL = """
from rota.jit import kernel, part

@part
def hops(x):
    total = 0.0
{body}
    return total

@kernel
def f(x):
    return hops(x) + 1.0
"""
CALL = """
import sys
from slow_to_compile import f
print("ready", flush=True)
sys.stdin.readline()
f(1.0)
print(sum(f.stats.cache_hits.values()), sum(f.stats.cache_misses.values()))
"""
HOLD = """
import sys
from rota.jit_lock import alone
with alone(sys.argv[1], "a kernel") as held:
    print(held, flush=True)
    sys.stdin.readline()
"""


def started(code: str, *args: str, **environment: str) -> subprocess.Popen[str]:
    """A Python process that runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *args], env={**os.environ, **environment}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_two_processes_compile_a_kernel_once(tmp_path: Path) -> None:
    body = "\n".join(f"    for i in range({k}):\n        total += x * i" for k in range(2, 40))
    (tmp_path / "slow_to_compile.py").write_text(KERNEL.replace("{body}", body))
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    both = [
        started(CALL, NUMBA_CACHE_DIR=str(tmp_path / "kept"), PYTHONPATH=paths) for _ in range(2)
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:  # neither begins before both are there
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    counts = []
    for process in both:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        counts.append(tuple(map(int, out.split())))
    assert sorted(counts) == [(0, 1), (1, 0)]  # (from disk, compiled)


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    with started(HOLD, str(folder)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def test_a_lock_is_waited_for_no_longer_than_its_limit(tmp_path: Path) -> None:
    with holder(tmp_path), alone(str(tmp_path), "a kernel", longest_wait_s=0.0) as held:
        assert not held


def test_another_kernel_is_not_waited_for(tmp_path: Path) -> None:
    with holder(tmp_path), alone(str(tmp_path), "another", longest_wait_s=0.0) as held:
        assert held


def test_a_killed_process_holds_up_nobody(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        process.wait(600)
        with alone(str(tmp_path), "a kernel") as held:
            assert held


def test_where_no_lock_can_be_made_all_goes_on(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with alone(str(tmp_path), "a kernel") as held:
        assert not held
    with alone(str(tmp_path / "missing"), "a kernel") as held:
        assert not held


def test_numba_is_as_it_was_after_a_kernel_was_compiled() -> None:
    own = BaseFunction.get_call_type, TargetConfig.__hash__, TargetConfig.__eq__
    with suppress(KeyError), quick_compiler(), quick_compiler():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    assert own == (BaseFunction.get_call_type, TargetConfig.__hash__, TargetConfig.__eq__)
    assert numba.njit(lambda x: x + 1)(1) == 2


def test_flags_hash_and_compare_as_numba_s_own() -> None:
    from numba.core.compiler import Flags

    one, other = Flags(), Flags()
    other.nrt = True
    expected = hash(one), hash(other), one == other, one == Flags()
    with quick_compiler():
        assert (hash(one), hash(other), one == other, one == Flags()) == expected
