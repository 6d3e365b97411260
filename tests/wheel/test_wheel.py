"""What pip installs, elsewhere: it holds every file, and does what README and the start pages say.

Dependencies come from the environment that runs the tests; rota itself from the wheel.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from doc_blocks import OTHERS, ROOT, SACCT, STARTS, blocks, command_lines, smaller

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.wheel
LIMIT_S = 1200
"""For one command; only a hang reaches it."""
TRAIN = next(b for b in blocks("python", pages=STARTS) if b.saved_as == "train.py").text
ENDLESS = TRAIN.replace("epochs=2", "epochs=10**9")


def package_files() -> set[str]:
    """The files of the package: those under version control, or else all that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "src/rota"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:  # a copy without history
        found = (ROOT / "src" / "rota").rglob("*")
        listed = [str(p.relative_to(ROOT)) for p in found if p.is_file()]
        listed = [path for path in listed if "__pycache__" not in path]
    return {path.removeprefix("src/") for path in listed}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy, so that nothing is left in the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index",
               "--no-build-isolation", "--wheel-dir", str(folder), str(copy)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("rota/")}
    assert packed == package_files()


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has rota from the wheel."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(home, with_pip=False)
    programs = home / "bin"
    command = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install",
               "--quiet", "--no-deps", "--no-index", str(wheel)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (packages,) = home.glob("lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(others) + "\n")
    return programs


@dataclass(frozen=True)
class Shell:
    """A user in an empty folder, who has nothing but what was installed."""

    folder: Path
    environment: dict[str, str]

    def start(self, words: list[str], **how: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, cwd=self.folder, env=self.environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **how,
        )  # fmt: skip

    def run(self, words: list[str]) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True,
            check=False, timeout=LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def shell(installed: Path, tmp_path: Path) -> Iterator[Shell]:
    kept = ("LANG", "TMPDIR", "LD_LIBRARY_PATH", "NUMBA_NUM_THREADS")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PATH": f"{installed}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    (tmp_path / "empty").mkdir()
    shell = Shell(tmp_path / "empty", environment)
    yield shell
    queue = (
        json.loads(shell.run(["rota", "queue", "--json"])) if is_used(tmp_path) else {"jobs": []}
    )
    for job in queue["jobs"]:
        subprocess.run(["rota", "cancel", str(job["job"])], env=environment, check=False)


def is_used(home: Path) -> bool:
    return (home / ".local" / "state" / "rota").exists()


def test_the_package_comes_from_the_wheel(installed: Path, shell: Shell) -> None:
    code = "import rota, rota.cli; print(rota.__file__)"
    assert str(installed.parent) in shell.run(["python", "-c", code])
    assert "rota 0" in shell.run(["rota", "--version"])


@contextmanager
def daemon(shell: Shell, words: list[str]) -> Iterator[None]:
    """`rota run`, until all else is done."""
    with (shell.folder.parent / "daemon.txt").open("w") as out:
        process = subprocess.Popen(
            words, cwd=shell.folder, env=shell.environment, stdout=out, stderr=out
        )
        try:
            yield
            assert process.poll() is None, (shell.folder.parent / "daemon.txt").read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT_S)


def follow(process: subprocess.Popen[str]) -> str:
    """The first line that a job prints."""
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("page", STARTS, ids=lambda page: page.stem)
def test_every_command_of_a_page_works_in_an_empty_folder(page: Path, shell: Shell) -> None:
    for block in blocks("python", "toml", pages=[page]):
        if block.saved_as:
            (shell.folder / block.saved_as).write_text(smaller(block.text))
    (shell.folder / "jobs.txt").write_text(SACCT)
    if page.name == "README.md":  # whose last line cancels it
        (shell.folder / "train.py").write_text(ENDLESS)
    lines = [line for block in blocks("sh", pages=[page]) for line in command_lines(block.text)]
    assert len(lines) >= 3
    # Nothing is tried on a Slurm that may be here; tests/slurm has one of its own.
    ours = [line for line in lines if not line.startswith(OTHERS) and "--backend slurm" not in line]
    play(shell, [shlex.split(smaller(line)) for line in ours])


def play(shell: Shell, commands: list[list[str]]) -> None:
    """Run the commands one after the other; a daemon serves all that come after it."""
    for k, words in enumerate(commands):
        if words[:2] == ["rota", "run"]:
            with daemon(shell, words):
                play(shell, commands[k + 1 :])
            return
        if "--follow" in words:
            watching = shell.start(words)
            assert "workers" in follow(watching) + follow(watching)
            play(shell, commands[k + 1 :])  # such as cancelling it
            watching.communicate(timeout=LIMIT_S)
            assert watching.returncode == 0
            return
        if words[1] == "logs":
            wait_for(shell, words[2])
        shell.run(words)


def wait_for(shell: Shell, job: str) -> None:
    """Until a job has ended, as a reader of the page would see in the queue."""
    watching = shell.start(["rota", "logs", job, "--follow"])
    watching.communicate(timeout=LIMIT_S)


def test_the_policy_of_the_readme_passes_the_contract(shell: Shell) -> None:
    (block,) = blocks("python", pages=[ROOT / "README.md"])
    (shell.folder / "mine.py").write_text(block.text)
    code = "from mine import LongestWait; from rota.testing import check_policy; "
    shell.run(["python", "-c", f"{code} check_policy(LongestWait)"])
    shell.run(shlex.split("rota simulate venus:jobs=40 -p ./mine.py:LongestWait --nodes 80"))


def test_recipes_and_weights_that_ship_can_be_used(shell: Shell) -> None:
    code = (
        "from importlib.resources import files\n"
        "print(len(list((files('rota.systems') / 'presets').rglob('*.toml'))))"
    )
    assert int(shell.run(["python", "-c", code])) > 50
    shell.run(shlex.split("rota simulate --scenario dl2-busy --head 4 -p dl2-onepass"))
