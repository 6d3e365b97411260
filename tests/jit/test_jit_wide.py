"""Loops of arithmetic in wide kernels do several numbers at a time."""

from __future__ import annotations

import importlib.util
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numba.core import config

from rota.systems.dl2 import sparse_kernels

if TYPE_CHECKING:
    from pathlib import Path


def copied(folder: Path, wide: bool) -> Any:
    """The kernels of a layer, compiled here: code from the cache cannot be looked at."""
    text = inspect.getsource(sparse_kernels)
    path = folder / f"layers_{wide}.py"
    path.write_text(text if wide else text.replace("@wide_kernel", "@kernel"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize("wide", [True, False])
def test_only_wide_kernels_are_vectorised(tmp_path: Path, wide: bool) -> None:
    layers = copied(tmp_path, wide)
    begins, index, value = np.array([0, 1]), np.zeros(1, np.int32), np.full(1, 2, np.float32)
    grad, out = np.arange(16, dtype=np.float32)[None], np.zeros((1, 16), np.float32)
    layers.slope(begins, index, value, grad, out)
    np.testing.assert_array_equal(out, 2 * grad)
    (code,) = layers.slope.inspect_llvm().values()
    assert ("x float> " in code) == wide
