"""`rota report --shadow`, from the outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from shadow_journal import TURNS, write_shadow_journal

from rota.cli.app import run
from rota.dash.page import GENERATOR

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_shadow_journal(tmp_path / "week.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "week.db"


def test_json_has_both_comparisons(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(journal), "--shadow", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["asked"], found["compared"], found["not_compared"]) == (["srtf"], 2, {})
    assert found["slurm"]["mean_wait_s"] == 50
    rows = {row["policy"]: row for row in found["policies"]}
    assert list(rows) == ["srtf", "fifo", "fifo-easy"]
    assert rows["srtf"]["mean_wait_s"] == pytest.approx(5)
    assert [rows["srtf"][key] for key in ("less", "more", "same", "check")] == [1, 1, 0, False]
    assert rows["fifo"]["mean_wait_s"] == pytest.approx(50)
    assert [rows["fifo"][key] for key in ("less", "more", "same", "check")] == [0, 0, 2, True]
    assert [job["slurm_wait_s"] for job in found["jobs"]] == [0, 100]
    assert [job["wait_s"]["srtf"] for job in found["jobs"]] == pytest.approx([10, 0])
    assert [row["user"] for row in found["by_user"]] == [None]
    assert found["live"]["decided"] == {"srtf": 8, "fifo-skip": 1}
    assert not list(journal.parent.glob("*.html"))


def test_it_is_told_in_sentences_and_drawn(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(journal), "--shadow"]) == 0
    told = capsys.readouterr()
    for words in (
        "2 jobs compared",
        "Under srtf, 1 of 2 jobs would have waited less, 1 more; the mean wait would be 5.00 s in "
        "place of 50.0 s.",
        "Check: of what Slurm itself did, fifo in the simulator is off by 0.00 s in the mean wait, "
        "and by 0.00 s in the wait of one job on average",
        "Live: 9 rounds; srtf in 8, fifo-skip in 1 decided.",
        "in 1 Slurm did just what the policy would have done; in 2 it did not.",
        "the policy was asked before 2 of these starts, and would have made 1.",
        "it would have stopped 1 running job (1 time)",
        "1 ×: Policy 'srtf' has not answered",
    ):
        assert words in told.out
    assert "Wrote week.shadow.html." in told.err
    page = journal.with_name("week.shadow.html").read_text()
    assert GENERATOR in page
    for words in ("Waiting jobs over time", "Wait by job", "What is assumed"):
        assert words in page


def test_other_policies_can_be_asked_for(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", str(journal), "--shadow", "--json", "-p", "fifo", "-p", "las"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [(row["policy"], row["check"]) for row in found["policies"]]
    assert rows == [("fifo", False), ("las", False), ("fifo-easy", True)]


def test_a_journal_of_too_little_is_told_so(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    young = journal.with_name("young.db")
    write_shadow_journal(young, TURNS[:2])
    assert run(["report", str(young), "--shadow"]) == 0
    told = capsys.readouterr()
    assert "No job can be compared yet" in told.out
    assert "1 job not compared: not over yet." in told.err
    assert "1 job not compared: still waiting." in told.err
    empty = journal.with_name("empty.db")
    write_shadow_journal(empty, TURNS[:1])
    assert run(["report", str(empty), "--shadow"]) == 2
    assert "report later" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-p", "srtf"], "-p goes with --shadow"),
        (["--shadow", "--by", "user"], "--by is not for --shadow"),
    ],
)
def test_what_does_not_go_together_is_refused(
    journal: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(journal), *words]) == 2
    assert said in capsys.readouterr().err


def test_another_journal_is_refused(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = journal.with_name("real.db")
    write_shadow_journal(real, shadow=False)
    assert run(["report", str(real), "--shadow"]) == 2
    assert "was not written by `rota run --shadow`" in capsys.readouterr().err
