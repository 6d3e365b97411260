"""`rota traces`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rota.cli.traces import app
from rota.errors import ConfigError, RotaError, TraceError
from rota.traces import FORMATS, PRESETS, SACCT_COMMAND, load_trace

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

LOG = """\
JobID|User|State|Submit|ElapsedRaw|AllocTRES
1|ann|COMPLETED|2026-01-01T00:00:00|60|gres/gpu=2
2|ann|PENDING|2026-01-01T00:01:00|0|
3|ann|COMPLETED|soon|60|gres/gpu=2
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(LOG)
    return path


def test_lists_presets_formats_and_the_sacct_command() -> None:
    shown = run()
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in (*PRESETS, *FORMATS, SACCT_COMMAND))

    facts = json.loads(run("--json").stdout)
    assert facts["presets"].keys() == PRESETS.keys()
    assert facts["formats"].keys() == FORMATS.keys()


def test_describes_on_stdout_and_notes_on_stderr(log: Path) -> None:
    shown = run("describe", log, "--skip-bad", "--gpus", "4")
    assert shown.exit_code == 0
    assert "sacct.txt: 1 job over" in shown.stdout
    assert "1 user, most jobs" in shown.stdout
    assert "GPUs per job" in shown.stdout
    assert "Left out 1 job: still queued." in shown.stderr
    assert "Skipped 1 broken line." in shown.stderr


def test_describes_as_json(log: Path) -> None:
    facts = json.loads(run("describe", log, "--skip-bad", "--json").stdout)
    assert (facts["jobs"], facts["skipped"], facts["left_out"]) == (1, 1, {"still queued": 1})


def test_describes_types_limits_and_starts(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(
        "JobID|State|Submit|Start|ElapsedRaw|TimelimitRaw|AllocTRES\n"
        "1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|3600|120|node=1,gres/gpu:a100=4\n"
        "2|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:00|600|5|node=1,gres/gpu=1\n"
    )
    shown = run("describe", path, "--nodes", "2", "--gpus", "4").stdout
    assert "GPU types    a100 (1 job, 4.0 GPU hours, up to 4 a node), any (1 job," in shown
    assert "time limits  2 of 2 jobs have one; they run 125 % of it at the median" in shown
    assert "1 run over it" in shown
    assert "starts       recorded of 2 of 2 jobs; wait median 30 s" in shown
    assert "up to 5 GPUs in use at once" in shown
    plain = run("describe", "poisson:jobs=5").stdout
    assert not any(word in plain for word in ("GPU types", "time limits", "starts"))
    facts = json.loads(run("describe", "poisson:jobs=50", "--nodes", "2", "--json").stdout)
    assert facts["gpus"] == 16


def test_notes_of_the_reader_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("1 0 5 100 8 -1 -1 8 600 -1 1 3 1 -1 1 -1 -1 -1 7\n")
    shown = run("describe", path)
    assert shown.stderr.count("1 line has more than 18 fields; the extra fields are ignored.") == 1


def test_describes_a_preset_by_seed() -> None:
    one, same, other = (
        run("describe", "poisson:jobs=50", "--seed", seed, "--json").stdout
        for seed in ("1", "1", "2")
    )
    assert one == same != other


def test_errors_pass_through_for_the_main_entry_to_print(log: Path) -> None:
    assert isinstance(run("describe", log).exception, TraceError)
    assert isinstance(run("describe", "nowhere.csv").exception, TraceError)


@pytest.mark.parametrize("command", ["describe", "convert"])
def test_help_tells_how_to_export_from_slurm(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100", "TERM": "dumb"})
    assert " ".join(SACCT_COMMAND.split()) in " ".join(shown.stdout.split())


def test_converts_to_the_plain_form(log: Path, tmp_path: Path) -> None:
    for name in ("out.csv", "out.csv.gz"):
        shown = run("convert", log, tmp_path / name, "--skip-bad")
        assert shown.exit_code == 0
        assert shown.stdout == ""
        assert load_trace(tmp_path / name).num_gpus.tolist() == [2]


def test_overwrites_only_by_force(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")

    assert isinstance(run("convert", "poisson:jobs=5", out).exception, ConfigError)
    assert out.read_text() == "mine"
    assert run("convert", "poisson:jobs=5", out, "--force").exit_code == 0
    assert len(load_trace(out)) == 5


@pytest.mark.parametrize("name", ["out.json", "folder.csv", "no/such/folder/out.csv"])
def test_refuses_an_output_that_cannot_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    shown = run("convert", "poisson:jobs=5", tmp_path / name, "--force")
    assert isinstance(shown.exception, RotaError)


def test_importing_the_command_does_not_wait_for_numpy() -> None:
    code = "import sys, rota.cli.traces; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
