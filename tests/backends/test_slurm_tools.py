"""Slurm's commands are run without a shell, with nothing but plain words, and not for ever."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rota.backends.slurm.tools import SlurmTools
from rota.errors import BackendError

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["a b", "a\nb", "$(touch evil)", "`touch evil`", "';touch evil;'", '"', "|", "&", ">", "é"]
RECORD = """\
#!/bin/sh
printf '%s\\n' "$0" "$@" >> {log}
exit {code}
"""


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return folder


def command(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


def test_words_reach_a_command_as_they_are(bin_folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command(bin_folder, "squeue", RECORD.format(log=log, code=0))
    assert SlurmTools().run("squeue", *WORDS).code == 0
    assert log.read_text().split("\n", 1)[1] == "".join(f"{word}\n" for word in WORDS)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("word", [word for word in WORDS if word != "a b"])
def test_what_is_written_into_jobs_is_plain(bin_folder: Path, tmp_path: Path, word: str) -> None:
    command(bin_folder, "scontrol", RECORD.format(log=tmp_path / "log", code=0))
    with pytest.raises(BackendError, match="cannot be handed to scontrol"):
        SlurmTools().update("7", {"ReqNodeList": word})
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    "call", ["", "-1", "7;8", "7 8", "--all", "7_x", "99999999999", "7_[1-3]", "７"]
)
def test_what_is_no_number_of_a_job_is_not_handed_over(
    bin_folder: Path, tmp_path: Path, call: str
) -> None:
    for name in ("scontrol", "scancel"):
        command(bin_folder, name, RECORD.format(log=tmp_path / "log", code=0))
    tools = SlurmTools()
    for ask in (lambda: tools.update(call, {}), lambda: tools.cancel(call),
                lambda: tools.control(("release",), call)):  # fmt: skip
        with pytest.raises(BackendError, match="no number of a job"):
            ask()
    assert not (tmp_path / "log").exists()


def test_a_command_that_hangs_is_killed_with_all_that_it_has_started(bin_folder: Path) -> None:
    command(bin_folder, "squeue", "#!/bin/sh\nsleep 1000 & echo $! > child; wait\n")
    said = SlurmTools(patience_s=0.5).run("squeue")
    assert said.code is None
    assert "did not answer" in said.line


def test_what_went_wrong_is_told_in_one_short_line(bin_folder: Path) -> None:
    command(bin_folder, "squeue", "#!/bin/sh\nseq 1 1000 >&2; exit 3\n")
    said = SlurmTools().run("squeue")
    assert (said.code, "\n" in said.line, len(said.line) < 400) == (3, False, True)
    with pytest.raises(BackendError, match="squeue --json: 1 2 3"):
        SlurmTools().ask("squeue", "--json")


def test_bytes_that_are_no_text_are_no_trouble(bin_folder: Path) -> None:
    command(bin_folder, "squeue", "#!/bin/sh\nprintf '\\377\\376{}'\n")
    assert SlurmTools().ask("squeue").endswith("{}")


def test_a_missing_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BackendError, match="no command 'squeue'"):
        SlurmTools().run("squeue")
