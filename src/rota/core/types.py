"""Array types and the letters for their axes: J jobs, N nodes, S shares, B clusters."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Records: TypeAlias = NDArray[Any]
"""A structured array; its fields are listed in `rota.core.layout`."""
