"""The command line as a whole: help, versions, exit codes, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from children import PATIENCE_S, child, eventually

from rota import __version__
from rota.cli import app as cli
from rota.cli.app import run
from rota.cli.progress import LateBar
from rota.errors import JournalError, TraceError

if TYPE_CHECKING:
    from pathlib import Path

ROTA = [sys.executable, "-m", "rota"]
SLOW = """
import pathlib, time

class Slow:
    def decide(self, snapshot):
        pathlib.Path("begun").touch()
        time.sleep(3600)
"""


def test_help_names_every_verb_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom rota.cli.app import run\nrun(['--help'])\n"
        "heavy = {'numpy', 'numba', 'rich', 'rota.sim', 'sqlite3', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, check=False, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert all(verb in shown.stdout for verb in ("simulate", "compare", "policies", "traces"))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"rota {__version__}\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nonsense"], 2),
        (["simulate"], 2),
        (["simulate", "poisson", "--bogus"], 2),
        (["simulate", "poisson", "-p", "fifo", "--nodes", "0"], 2),
        (["simulate", "poisson", "-p", "fifo", "--nodes", "many"], 2),
        (["traces", "describe", "no-such-file.csv"], 2),
        (["compare", "no-such-file.toml"], 2),
    ],
)
def test_wrong_usage_leaves_stdout_empty(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "rror: " in shown.err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (TraceError("is broken", file="a.csv", line=3), 2, "error: a.csv:3: is broken\n"),
        (JournalError("The disk is full."), 1, "error: The disk is full.\n"),
        (
            ValueError("oops"),
            1,
            "error: internal error: ValueError: oops; run again with --debug\n",
        ),
        (MemoryError(), 1, "error: not enough memory"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_every_error_has_its_message_and_exit_code(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_words: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_obey", fail)
    assert run([]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("words", [["--debug", "traces", "describe", "none.csv"],
                                   ["traces", "describe", "none.csv", "--debug"]])  # fmt: skip
def test_debug_shows_where_an_error_came_from(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" in shown.err
    assert shown.err.splitlines()[-1].startswith("error: none.csv")


def test_an_interrupt_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    command = [*ROTA, "simulate", "poisson:jobs=3", "-p", "slow.py:Slow", "--deadline", "3600"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with child(command, cwd=tmp_path, **pipes) as rota:
        eventually(lambda: (tmp_path / "begun").exists() or rota.poll() is not None)
        rota.send_signal(signal.SIGINT)
        out, err = rota.communicate(timeout=PATIENCE_S)
    assert rota.returncode == 130
    assert out == ""
    assert "Traceback" not in err


def test_a_reader_that_leaves_is_no_error() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    shown = subprocess.run(
        [*ROTA, "traces"], check=False, stdout=writes, stderr=subprocess.PIPE, text=True
    )
    os.close(writes)
    assert shown.returncode == 1
    assert shown.stderr == ""


def test_a_full_disk_behind_stdout_is_told() -> None:
    with open("/dev/full", "w") as full:
        shown = subprocess.run(
            [*ROTA, "traces"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert shown.returncode == 1
    assert shown.stderr == "error: cannot read or write: No space left on device\n"


def test_policies_are_listed_with_their_grammar(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policies"]) == 0
    table = capsys.readouterr().out
    assert "ordering[:setting=value,…][+placement][+elastic][@oracle]" in table
    assert run(["policies", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)["policies"]
    assert {entry["kind"] for entry in entries} == {
        "ordering", "speed-aware", "placement", "sizing", "trained",
    }  # fmt: skip
    assert all(entry["name"] in table for entry in entries)


def test_the_progress_bar_comes_late_and_goes(capsys: pytest.CaptureFixture[str]) -> None:
    with LateBar(after_s=60, shown=True) as bar:
        bar.begin("quick", 3)(3)
    assert capsys.readouterr().err == ""

    with LateBar(after_s=0, shown=True) as bar:
        report = bar.begin("slow", 3)
        eventually(lambda: bar._bar is not None)  # until the timer's thread has shown it
        report(2)
        assert bar._bar.tasks[0].completed == 2
        bar.begin("other", 5)(5)
        assert (bar._bar.tasks[0].description, bar._bar.tasks[0].total) == ("other", 5)
    assert not bar._bar.live.is_started
    assert capsys.readouterr().out == ""
