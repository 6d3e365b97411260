"""Logs that are not here are looked for below the data folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.cli.app import run

LOG = "job_id,submit_s,duration_s,num_gpus\n0,0,10,1\n1,5,10,1\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without logs, beside two data folders."""
    for place in ("here", "data/traces/mine", "other"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "data" / "traces" / "mine" / "log.csv").write_text(LOG)
    (tmp_path / "other" / "short.csv").write_text(LOG.rsplit("1,5", 1)[0])
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("ROTA_DATA", raising=False)
    return tmp_path


def jobs(capsys: pytest.CaptureFixture[str], *words: str) -> int:
    assert run(["simulate", *words, "-p", "fifo", "--json"]) == 0
    return int(json.loads(capsys.readouterr().out)["trace"]["jobs"])


def test_a_log_is_found_below_the_data_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jobs(capsys, "mine/log.csv", "--data", str(home / "data")) == 2
    assert jobs(capsys, "short.csv", "--data", str(home / "other")) == 1
    monkeypatch.setenv("ROTA_DATA", str(home / "data"))
    assert jobs(capsys, "mine/log.csv") == 2
    assert run(["traces", "describe", "mine/log.csv"]) == 0
    assert "2 jobs" in capsys.readouterr().out
    # What is here comes before what is there, and --data before the variable.
    Path("mine").mkdir()
    Path("mine/log.csv").write_text(LOG + "2,6,10,1\n")
    assert jobs(capsys, "mine/log.csv") == 3


def test_a_comparison_finds_it_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROTA_DATA", str(home / "data"))
    Path("all.toml").write_text('traces = ["mine/log.csv"]\npolicies = ["fifo"]\n')
    assert run(["compare", "all.toml", "--out", "out"]) == 0
    assert "mine/log.csv" in capsys.readouterr().out


def test_what_is_nowhere_is_told_as_it_was_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROTA_DATA", str(home / "data"))
    assert run(["simulate", "none.csv", "-p", "fifo"]) == 2
    assert "error: none.csv" in capsys.readouterr().err


def test_published_scenarios_run_without_any_data(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "--scenario", "dl2-testbed-published", "-p", "dl2-drf", "--json"]
    assert run(words) == 0
    without = json.loads(capsys.readouterr().out)["runs"]
    # A folder of logs changes no table, be it named by the variable or by the option.
    monkeypatch.setenv("ROTA_DATA", str(home / "data"))
    assert run([*words, "--data", str(home / "data")]) == 0
    again = json.loads(capsys.readouterr().out)["runs"]
    assert [row["mean_jct_s"] for row in again] == [row["mean_jct_s"] for row in without]
