"""`rota report`, from the outside."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from rota.cli.app import run
from rota.dash.page import GENERATOR

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a small simulation with failures."""
    folder = tmp_path_factory.mktemp("report")
    log = folder / "jobs.csv"
    lines = [f"{k},{60 * k},{600 + 70 * k},{1 + k % 4},user{k % 3}" for k in range(30)]
    log.write_text("job_id,submit_s,duration_s,num_gpus,user\n" + "\n".join([*lines, "x,9,9,64,z"]))
    words = f"simulate {log} -p srtf --nodes 2 --gpus 4 --drop-oversized --job-mtbf 1h"
    assert run([*words.split(), "--journal", str(folder / "run.db")]) == 0
    return folder / "run.db"


def test_a_report_is_printed_and_drawn(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["report", str(journal), "--by", "user"]) == 0
    shown = capsys.readouterr()
    assert "srtf on 2 nodes × 4 GPUs" in shown.out
    assert "srtf by user" in shown.out
    assert "1 job left out that the empty cluster cannot hold." in shown.out
    assert shown.err == "Wrote run.html.\n"
    text = (tmp_path / "run.html").read_text()
    for words in ("By node", "By user", "user2", "1 job left out that the empty cluster"):
        assert words in text


BREAKS = """
from rota.policies import make_policy

class Breaks:
    def decide(self, snapshot):
        if snapshot.time_s > 600:
            raise ValueError("no idea")
        return make_policy("fifo-skip").decide(snapshot)
"""


def test_a_run_that_raised_keeps_its_rounds_and_says_that_it_stopped(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(BREAKS)
    words = ["simulate", str(journal.with_name("jobs.csv")), "--drop-oversized", "--nodes", "2"]
    assert run([*words, "-p", "own.py:Breaks", "--journal", "part.db"]) == 1
    assert "no idea" in capsys.readouterr().err
    assert run(["report", "part.db", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    # A job comes every minute: rounds at 0, 60, …, 600 s are carried out, the next is not.
    assert (facts["ended"], facts["end_s"]) == (False, 660)
    assert facts["rounds"] >= 11
    first, later, *_ = facts["notes"]
    assert first.startswith("The run stopped early: Policy 'Breaks' raised ValueError in round")
    assert later == "18 jobs of the trace were still to come then."


def test_json_has_the_numbers_and_writes_no_page_unless_told(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["report", str(journal), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["jobs"], facts["ended"], facts["cluster"]["gpus"]) == (30, True, 8)
    assert len(facts["over_time"]["held_gpus"]) == len(facts["over_time"]["time_s"]) > 0
    assert {row["user"] for row in facts["by_user"]} == {"user0", "user1", "user2"}
    assert not list(tmp_path.iterdir())
    assert run(["report", str(journal), "--json", "--out", "page.html"]) == 0
    assert GENERATOR in (tmp_path / "page.html").read_text()


def test_a_page_is_replaced_but_nothing_else_is(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, other = tmp_path / "page.html", tmp_path / "other.html"
    other.write_text("mine")
    for _ in range(2):
        assert run(["report", str(journal), "--out", str(page)]) == 0
    before = journal.read_bytes()
    for wrong in (other, journal, tmp_path):
        capsys.readouterr()
        assert run(["report", str(journal), "--out", str(wrong)]) == 2
        assert str(wrong) in capsys.readouterr().err
    assert (other.read_text(), journal.read_bytes()) == ("mine", before)


def test_what_is_no_sound_journal_is_refused(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = journal.read_bytes()
    damaged = bytearray(sound)
    for k in range(len(sound) // 3, len(sound), 101):
        damaged[k] ^= 0x55
    bad = {
        "empty.db": b"", "text.db": b"job_id,submit_s\n", "cut.db": sound[:20000],
        "damaged.db": bytes(damaged),
    }  # fmt: skip
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE jobs (id)")
    db.close()
    for name in (*bad, "other.db", "missing.db", "."):
        assert run(["report", str(tmp_path / name), "--out", str(tmp_path / "x.html")]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith("error: ")
        assert "internal error" not in shown.err
    assert not (tmp_path / "x.html").exists()


def test_an_unknown_group_is_refused(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(journal), "--by", "model"]) == 2
    assert "--by takes size or user, not 'model'" in capsys.readouterr().err
