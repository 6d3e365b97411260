"""Reasons that the agent gives for processes that could not start, or have ended."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

import pytest

from rota.elastic import JobSpec, Member
from rota.elastic.failures import Failures, explain_exit, explain_start, full_path

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = "/opt/python"


def failures(folder: Path, *command: str) -> Failures:
    (folder / "logs").mkdir()
    return Failures(folder, JobSpec(command=command, members=(Member("a"),)))


@pytest.mark.parametrize(
    ("last", "advice"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "pip install 'rota[elastic]'"),
        ("ModuleNotFoundError: No module named 'rota.elastic'", "pip install 'rota[elastic]'"),
        ("/opt/python: No module named yaml", "pip install yaml"),
    ],
)
def test_a_missing_module_names_the_python_that_lacks_it(last: str, advice: str) -> None:
    assert explain_exit(["…", last], PYTHON) == f"{last}; install it: {PYTHON} -m {advice}"


def test_an_error_in_the_script_is_given_as_printed() -> None:
    assert explain_exit(["Traceback …", "ValueError: no data"], PYTHON) == "ValueError: no data"
    assert explain_exit([], PYTHON) == "it printed nothing"


def test_a_syntax_error_names_its_last_place() -> None:
    printed = [
        '  File "run.py", line 1, in <module>',
        '  File "model.py", line 7',
        "    if x print(x)",
        "SyntaxError: invalid syntax",
    ]
    said = explain_exit(printed, PYTHON)
    assert said.startswith("SyntaxError: invalid syntax (model.py, line 7); ")
    assert said.endswith(f"another Python than {PYTHON}")
    assert explain_exit(printed[-1:], PYTHON).startswith("SyntaxError: invalid syntax; ")


def test_whatever_a_process_leaves_in_its_log_the_reason_is_short(tmp_path: Path) -> None:
    told = failures(tmp_path, sys.executable, "x.py")
    for rubbish in (b"", b"\0" * 9000, b"\xff\xfe\n" * 3000, b"x" * 10**6, b"\n \n"):
        (tmp_path / "logs" / "a.log").write_bytes(rubbish)
        said = told.of_exit(1, "a")
        assert said.startswith("it exited with code 1: ")
        assert len(said) < 400
        assert "\n" not in said
    assert told.of_exit(2, "no-such-log") == "it exited with code 2: it printed nothing"


def test_a_signal_without_a_name_is_given_by_its_number(tmp_path: Path) -> None:
    told = failures(tmp_path, sys.executable)
    assert told.of_exit(0, "a") == ""
    assert told.of_exit(-9, "a") == "it was killed by SIGKILL"
    assert told.of_exit(-39, "a") == "it was killed by signal 39"  # a real-time signal


def test_a_command_is_shown_in_one_line_with_its_full_path(tmp_path: Path) -> None:
    assert (
        failures(tmp_path, "sh", "-c", "a\nb 'c'")
        .command()
        .endswith("/sh -c 'a b '\"'\"'c'\"'\"''")
    )
    (tmp_path / "other").mkdir()
    assert len(failures(tmp_path / "other", "sh", "x" * 10**5).command()) == 300


def test_a_program_is_found_by_path_or_relative_to_the_working_directory(tmp_path: Path) -> None:
    assert os.path.isabs(full_path("sh", {"PATH": os.defpath}, tmp_path))
    assert full_path("sh", {"PATH": ""}, tmp_path) == "sh"
    assert full_path("./a.sh", {}, tmp_path) == str(tmp_path / "a.sh")
    assert full_path("/bin/../bin/sh", {}, tmp_path) == "/bin/sh"


def test_a_program_that_the_kernel_refuses_is_named_with_what_to_do() -> None:
    for number, program, advice in (
        (errno.ENOENT, "pyhton", "give its full path, or add its folder to PATH=/bin"),
        (errno.ENOENT, "/no/such", "correct the path in the job's command"),
        (errno.ENOENT, "/etc/passwd", "the interpreter that its first line (#!) names"),
        (errno.EACCES, "/etc/passwd", "make it executable"),
        (errno.ENOEXEC, "/etc/passwd", "make it executable"),
        (errno.E2BIG, "/bin/sh", "Argument list too long"),
    ):
        error = OSError(number, os.strerror(number), program)
        said = explain_start(error, program, {"PATH": "/bin"})
        assert said.startswith(f"{program} cannot be started: {os.strerror(number)}")
        assert advice in said
