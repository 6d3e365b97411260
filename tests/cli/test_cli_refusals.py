"""Inputs that once ended in a lost file, in silence or in an internal error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rota.cli.app import run

if TYPE_CHECKING:
    from pathlib import Path

EXITS = """
class AtOnce:
    def __init__(self):
        raise SystemExit(0)

class Later:
    def decide(self, snapshot):
        raise SystemExit(0)
"""
SACCT = "JobID|State|Submit|Start|ElapsedRaw|TimelimitRaw|AllocTRES\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log.csv"
    file.write_text("job_id,submit_s,duration_s,num_gpus\na,0,10,1\nb,1,10,2\n")
    return file


def test_only_journals_are_replaced_by_force(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, own = log.read_text(), tmp_path / "own.db"
    words = ["simulate", str(log), "-p", "fifo", "--journal"]
    assert run([*words, str(log), "--force"]) == 1
    assert "log.csv is no journal, so --force does not replace it" in capsys.readouterr().err
    assert log.read_text() == before
    assert run([*words, str(own)]) == 0
    assert run([*words, str(own)]) == 1
    assert "replace it with --force" in capsys.readouterr().err
    assert run([*words, str(own), "--force"]) == 0
    own.write_bytes(b"")  # as a kill leaves it before it is begun
    assert run([*words, str(own), "--force"]) == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [("AtOnce", "Cannot make policy"), ("Later", "raised SystemExit in round 1")],
)
def test_a_policy_cannot_end_the_program(
    log: Path, tmp_path: Path, name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "exits.py"
    file.write_text(EXITS)
    assert run(["simulate", str(log), "-p", f"{file}:{name}"]) in (1, 2)
    assert says in capsys.readouterr().err


def test_a_time_limit_of_hundreds_of_digits_is_a_broken_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.txt"
    row = f"1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:00|60|{'9' * 400}|gres/gpu=1\n"
    file.write_text(SACCT + row)
    assert run(["traces", "describe", str(file)]) == 2
    assert "field 'TimelimitRaw': '999" in (said := capsys.readouterr().err)
    assert "internal error" not in said


def test_more_nodes_than_can_be_are_refused_at_once(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", str(log), "-p", "fifo", "--nodes", "100000000"]) == 2
    assert "1<=x<=1000000" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["run.seed=-1", "run.patience=-1"])
def test_a_negative_number_is_refused_before_a_training(
    setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "dl2-onepass", "--out", str(tmp_path / "out"), "--set", setting]
    assert run(words) == 2
    assert "must be 0 or more" in capsys.readouterr().err
