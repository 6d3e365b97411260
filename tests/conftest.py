"""What all tests share: hypothesis settings, and where golden files, profiles and logs are."""

from __future__ import annotations

import gc
import os
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from numba.core import config
from numba.core.event import Listener, register

from rota.jit_cache import KernelCache

FIXTURES = Path(__file__).with_name("fixtures")
"""Public traces and measurements; NOTICE says where they come from."""

# The first call of a kernel compiles, so no deadline. The default profile tries the same
# examples every time; `pytest --hypothesis-profile=explore` looks for new ones.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("explore", max_examples=2000, print_blob=True, **_COMMON)
settings.load_profile("steady")


WAITING = ("tests/elastic/", "tests/backends/", "tests/testing/test_fuzz.py")
"""Where most of the time is spent waiting for processes and time limits."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with tests that wait: one worker gets them, and the others use the cores meanwhile.

    In the end they would be waited for.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(WAITING))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what stays: all tests, torch, Numba."""
    gc.collect()
    gc.freeze()


# -- how many kernels were compiled, over all workers of a run -----------------------------------


class Compilations(Listener):
    """Notes every kernel of rota that this process compiles."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, event: Any) -> None:
        kernel = event.data["dispatcher"]
        name = f"{kernel.py_func.__module__}.{kernel.py_func.__name__}"
        if isinstance(kernel._cache, KernelCache) and name.startswith("rota."):
            types = f"{event.data['args']} {config.BOUNDSCHECK} {config.CACHE_DIR}"
            self.names.append(f"{name} {crc32(types.encode()):08x}")

    def on_end(self, event: Any) -> None:
        """Nothing more to note."""


COMPILED = Compilations()


def pytest_configure() -> None:
    register("numba:compile", COMPILED)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["compiled"] = COMPILED.names


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    COMPILED.names += getattr(node, "workeroutput", {}).get("compiled", [])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts = Counter(COMPILED.names)
    twice = sorted(name.split()[0] for name, count in counts.items() if count > 1)
    more = f"; more than once: {', '.join(twice)}" if twice else ""
    terminalreporter.write_line(f"kernels compiled: {len(counts)}{more}")


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
