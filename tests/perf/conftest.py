"""Where the public profiles are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def data(pytestconfig: pytest.Config) -> Path:
    """The folder that holds `profiles/`, beside the repository."""
    folder = pytestconfig.rootpath.parent / "shared" / "data"
    if not (folder / "profiles").is_dir():
        pytest.skip("needs the public profiles in ../shared/data beside the repository")
    return folder
