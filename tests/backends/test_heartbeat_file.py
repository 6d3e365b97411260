"""The sign of life of a scheduler, and that there is only one who gives it."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

import pytest

from rota.backends.heartbeat_file import HeartbeatFile, claimed
from rota.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_it_holds_the_time_and_anybody_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    HeartbeatFile(path).beat()
    assert abs(int(path.read_text()) - time()) < 60
    assert path.stat().st_mode & 0o777 == 0o644


def test_of_two_schedulers_one_is_refused_until_the_other_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    with claimed(path):
        with pytest.raises(ConfigError, match=r"Another rota gives signs of life at .*heartbeat"):
            claimed(path).__enter__()
        with claimed(tmp_path / "other"):
            pass
    (tmp_path / ".heartbeat.lock").chmod(0o444)  # as that of another account
    with claimed(path):
        pass


def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / ".heartbeat.lock").symlink_to(tmp_path / "nowhere" / "lock")
    with pytest.raises(ConfigError, match=r"\.heartbeat\.lock cannot be opened"):
        claimed(tmp_path / "heartbeat").__enter__()
