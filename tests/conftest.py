"""What all tests share: hypothesis settings, and where golden files, profiles and logs are."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

FIXTURES = Path(__file__).with_name("fixtures")
"""Public traces and measurements; NOTICE says where they come from."""

# The first call of a kernel compiles, so no deadline. The default profile tries the same
# examples every time; `pytest --hypothesis-profile=explore` looks for new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("explore", max_examples=2000, print_blob=True, **_COMMON)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def indexed_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let even small traces be replayed by the kernels that large ones are."""
    monkeypatch.setattr(import_module("rota.sim.replay_choice"), "MANY_JOBS", 0)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of golden traces."""
    return FIXTURES / "golden"


@pytest.fixture(scope="session")
def data() -> Path:
    """A data folder: the profiles that tests need and rota does not ship."""
    return FIXTURES


@pytest.fixture(scope="session")
def logs() -> Path:
    """The folder of large public logs, for tests that are marked so."""
    folder = os.environ.get("ROTA_DATA")
    assert folder, "tests of large logs need ROTA_DATA=DIR with `traces/` and `profiles/` below it"
    return Path(folder)
