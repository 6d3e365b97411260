"""The text of the hold hook, as far as it can be judged without Slurm; more in tests/slurm."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from rota.backends.slurm import hook
from rota.backends.slurm.hook import render_hook
from rota.errors import ConfigError

HEARTBEAT = PurePosixPath("/var/lib/rota/heartbeat")


def test_constants_are_filled_in_and_nothing_else_changes() -> None:
    shipped = Path(hook.__file__).with_name("job_submit.lua").read_text()
    assert render_hook(["rota"], HEARTBEAT, 300) == shipped
    text = render_hook(["gpu", "a-b"], PurePosixPath("/run/beat"), 60, [990])
    changed = set(text.splitlines()) - set(shipped.splitlines())
    assert changed == {
        'local MANAGED = { "gpu", "a-b" }',
        'local HEARTBEAT = "/run/beat"',
        "local TIMEOUT_S = 60",
        "local OPERATORS = { 0, 990 }",
    }


def test_quotes_and_backslashes_stay_within_their_string() -> None:
    text = render_hook(['a"..os.exit()--\\'], HEARTBEAT, 300)
    assert r'local MANAGED = { "a\"..os.exit()--\\" }' in text


def test_marks_are_the_same_in_python_and_in_the_scripts() -> None:
    folder = Path(hook.__file__).parent
    lua = (folder / "job_submit.lua").read_text()
    shell = (folder / "failopen.sh").read_text()
    assert f'HELD = "{hook.HELD}"' in lua
    assert f'USER_HELD = "{hook.USER_HELD}"' in lua
    assert f'RELEASED = "{hook.USER_RELEASED}"' in lua
    assert f'$5 != "{hook.HELD}"' in shell
    assert f'$2 == "{hook.USER_HELD}"' in shell
    assert f"AdminComment={hook.LET_GO}\n" in shell


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a\n", "a\x00", "a\x1b[1m"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        render_hook(["rota", name], HEARTBEAT, 300)


@pytest.mark.parametrize("path", ["heartbeat", "/var/lib/x\nos.exit()", "/a\x00"])
def test_paths_that_would_not_be_found_are_refused(path: str) -> None:
    with pytest.raises(ConfigError):
        render_hook(["rota"], PurePosixPath(path), 300)


def test_no_partition_and_no_time_are_refused() -> None:
    with pytest.raises(ConfigError):
        render_hook([], HEARTBEAT, 300)
    with pytest.raises(ConfigError):
        render_hook(["rota"], HEARTBEAT, 0)
