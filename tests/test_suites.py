"""Slow suites are left out only where they have passed with exactly the same code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
ALL = ["logs", "bounds", "fuzz", "slow", "wheel", "slurm"]
USUAL = [name for name in ALL if name != "slow"]  # which is run by hand


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(("git", *names, *words), cwd=folder, check=True, capture_output=True)


def write(folder: Path, **files: str) -> None:
    """Commit these files; `__` stands for a slash."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., list[str]]:
    """`suites.py` in a small repository of its own."""
    git(tmp_path, "init", "-q")
    write(
        tmp_path, src__rota__sim__a="1", src__rota__dash__a="1", src__rota__backends__a="1",
        tests__sim__a="1", tests__a="pytest.mark.logs", other="1",
    )  # fmt: skip
    (tmp_path / ".ci").mkdir()

    def ask(*words: str) -> list[str]:
        command = [sys.executable, str(ROOT / "scripts" / "suites.py"), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    return ask


@pytest.fixture
def passed(asked: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The same, where all suites have passed."""
    assert asked("due") == USUAL
    for name in ALL:
        asked("passed", name)
    assert asked("due") == []
    return asked


def test_a_suite_runs_again_when_what_it_covers_changes(
    passed: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, other="2")
    assert passed("due") == []
    write(tmp_path, src__rota__dash__a="2")  # the simulator does not use it
    assert passed("due") == ["logs", "wheel"]
    write(tmp_path, src__rota__dash__a="1")
    assert passed("due") == []
    write(tmp_path, src__rota__backends__a="2")
    assert passed("due") == ["wheel", "slurm"]
    write(tmp_path, src__rota__backends__a="1")
    write(tmp_path, tests__a="pytest.mark.logs  # and more")
    assert passed("due") == ["logs"]
    write(tmp_path, tests__sim__a="2", src__rota__run__a="1")
    assert passed("due") == USUAL


def test_where_nothing_is_known_everything_runs(
    passed: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert passed("due", "--all") == ALL
    for damage in ("", "[]", '{"bounds": 3}', "{"):
        (tmp_path / ".ci" / "passed.json").write_text(damage)
        assert passed("due") == USUAL


def test_what_is_not_committed_is_not_taken_for_passed(
    passed: Callable[..., list[str]], tmp_path: Path
) -> None:
    write(tmp_path, src__rota__run__a="1")
    for name in ALL:
        passed("passed", name)
    (tmp_path / "src" / "rota" / "run" / "a.py").write_text("3")
    passed("passed", "fuzz")  # `.ci/run` runs what is committed
    assert passed("due") == []
    git(tmp_path, "commit", "-qam", "x")
    assert passed("due") == USUAL


def test_every_suite_has_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in ALL:
        assert f"\n{'fuzz' if name == 'fuzz' else f'test-{name}'}: " in makefile
