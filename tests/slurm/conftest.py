"""The private Slurm that these tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[Lab]:
    """Eight nodes with four GPUs each; it ends with the session, also if that fails."""
    with Lab() as lab:
        yield lab


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    """The same without any waiting or running job, and with a fresh heartbeat."""
    shared_lab.beat()
    yield shared_lab
    shared_lab.clear()
