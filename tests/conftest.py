"""What all tests share: hypothesis settings, and where the golden files are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pathlib import Path

# The first call of a kernel compiles, so no deadline. The default profile tries the same
# examples every time; `pytest --hypothesis-profile=explore` looks for new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("explore", max_examples=2000, print_blob=True, **_COMMON)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def indexed_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let even small traces be replayed by the kernels that large ones are."""
    monkeypatch.setattr(import_module("rota.sim.simulate"), "MANY_JOBS", 0)


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Path:
    """The folder of golden traces, beside the repository."""
    folder = pytestconfig.rootpath.parent / "shared" / "golden"
    if not folder.is_dir():
        pytest.skip("needs the golden traces in ../shared/golden beside the repository")
    return folder
