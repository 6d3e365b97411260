"""The table of verbs: it says what the verbs themselves say, and spares their imports."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer

from rota.cli.app import app, run
from rota.cli.verbs import VERBS, imported

if TYPE_CHECKING:
    from pathlib import Path


def imports_of(*words: str) -> set[str]:
    """The modules that are loaded when a command is over."""
    code = (
        "import sys; from rota.cli.app import run; code = run(sys.argv[1:]);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.parametrize("name", VERBS)
def test_the_table_says_of_a_verb_what_its_own_help_begins_with(name: str) -> None:
    command = imported(name)
    assert command.name == name
    assert " ".join(command.help.split("\n\n")[0].split()) == VERBS[name].about
    assert command.hidden == VERBS[name].hidden


def test_help_imports_no_verb() -> None:
    modules = {f"rota.cli.{verb.where.partition(':')[0]}" for verb in VERBS.values()}
    assert not imports_of("--help") & modules


def test_a_verb_imports_no_other() -> None:
    modules = {f"rota.cli.{verb.where.partition(':')[0]}" for verb in VERBS.values()}
    assert imports_of("hold", "--help") & modules == {"rota.cli.hold"}


def test_submit_and_queue_import_nothing_heavy(tmp_path: Path) -> None:
    state = ("--state", str(tmp_path / "state"))
    for words in (("submit", *state, "--", "true"), ("queue", *state)):
        heavy = {"numpy", "rich", "sqlite3", "hmac", "socket", "concurrent.futures"}
        assert not imports_of(*words) & heavy


def test_a_misspelt_verb_is_told_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulat"]) == 2
    assert "No such command 'simulat'. Did you mean 'simulate'?" in capsys.readouterr().err


def test_shells_can_complete_verbs_and_their_options() -> None:
    def completed(words: list[str], begun: str) -> list[str]:
        command: Any = typer.main.get_command(app)
        context: Any = command.make_context("rota", words, resilient_parsing=True)
        for word in words:
            _, command, rest = command.resolve_command(context, [word])
            context = command.make_context(word, rest, parent=context, resilient_parsing=True)
        return [item.value for item in command.shell_complete(context, begun)]

    assert completed([], "re") == ["report", "resume", "resubmit"]
    assert completed([], "fu") == []  # hidden
    assert "--watch" in completed(["queue"], "--")
    assert completed(["traces"], "d") == ["describe"]
