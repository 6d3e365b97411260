"""Why jobs wait, hold, resume, resubmit, watch and failed starts, as a user sees them."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from children import child, eventually
from elastic_jobs import PATIENCE_S
from local_jobs import asked
from local_shell import shell

from rota.backends.local import StateDir
from rota.backends.local.archive import put_away
from rota.backends.local.held import Ended
from rota.cli.app import run

if TYPE_CHECKING:
    from pathlib import Path

    from local_shell import Shell


def row(sh: Shell, job: int) -> dict[str, Any]:
    """One job as `rota queue JOB --json` has it."""
    (found,) = json.loads(sh("queue", str(job), "--json").stdout)["jobs"]
    return dict(found)


def tiers(sh: Shell, job: int) -> list[str]:
    return [reason["tier"] for reason in row(sh, job)["reasons"]]


def test_a_queue_under_fifo_says_why_each_job_waits(tmp_path: Path) -> None:
    with shell(tmp_path) as sh:
        sh("submit", "--name", "runs", "--preemptible", "--", "sleep", "1000")
        sh("submit", "--name", "wide", "-w", "2", "--", "sleep", "1000")
        sh("submit", "--name", "late", "--", "sleep", "1000")
        assert tiers(sh, 3) == ["no-daemon"]
        daemon = sh.daemon("--policy", "fifo", gpus=1)
        sh.until(lambda: sh.state_of(1) == "running" and tiers(sh, 3) == ["passed"])
        text = sh("queue").stdout
        assert "needs 2 GPUs; 1 of 2 GPUs is free; job 1 holds 1" in text
        assert "it fits, but policy fifo did not start it: job 2 is ahead of it" in text
        assert row(sh, 2)["reasons"][0]["holders"] == [{"job": 1, "holds": 1}]
        assert row(sh, 3)["reasons"][0]["ahead"] == 2
        told = sh("queue", "2", "3").stdout
        assert "asks for 2 workers with 1 GPU each" in told
        assert "why      needs 2 GPUs" in told
        assert "next     The policy decides anew in every round." in told

        # What never fits has failed at once, and says what and how much.
        sh("submit", "-w", "9", "--", "true")
        sh.until(lambda: sh.state_of(4) == "failed")
        assert row(sh, 4)["why"] == (
            "it never fits: it asks for 9 workers with 1 GPU each; 2 nodes × 1 GPU have room for 2"
        )

        # On hold, the wide job is ahead of nobody.
        bad = sh("hold", "2", "99", "--json", code=2)
        assert [one["job"] for one in json.loads(bad.stdout)["jobs"]] == [2]
        assert [one["job"] for one in json.loads(bad.stdout)["errors"]] == [99]
        assert "There is no job 99" in bad.stderr
        sh.until(lambda: sh.state_of(3) == "running")
        assert row(sh, 2)["state"] == "held"
        assert "`rota resume 2` puts it back in line." in sh("queue", "2").stdout
        refused = sh("hold", "3", code=2).stderr
        assert "would begin again. Say --force" in refused
        sh("hold", "1")
        sh.until(lambda: sh.state_of(1) == "waiting")

        # All of that outlives the daemon.
        daemon.kill()
        daemon.wait()
        assert tiers(sh, 2) == ["held"]
        daemon = sh.daemon("--policy", "fifo", gpus=1)
        sh("resume", "1", "2")
        sh.until(lambda: sh.state_of(1) == "running")
        sh.until(lambda: tiers(sh, 2) == ["full"])
        assert "Job 1 is not held" in sh("resume", "1", code=2).stderr

        again = json.loads(sh("resubmit", "3", "99", "--json", code=2).stdout)
        assert again["jobs"] == [{"job": 5, "of": 3, "environment": "kept"}]
        assert row(sh, 5)["name"] == "late"
        ended = json.loads(sh("cancel", "--all", "--json").stdout)
        assert [one["job"] for one in ended["jobs"]] == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([sys.executable, "-c", "import nosuchmodule"], "No module named 'nosuchmodule'"),
        ([sys.executable, "nosuchscript.py"], "nosuchscript.py"),
        (["sh", "-c", "nosuchprogram --now"], "nosuchprogram"),
        ([sys.executable, "-c", "def f(:"], "SyntaxError"),
    ],
)
def test_a_job_that_could_not_begin_says_what_ran_and_what_to_do(
    tmp_path: Path, command: list[str], reason: str
) -> None:
    with shell(tmp_path) as sh:
        sh("submit", "--", *command)
        sh.daemon("--drain").wait(PATIENCE_S)
        assert sh.state_of(1) == "failed"
        program = shutil.which(command[0])
        for text in (sh("queue", "--all").stdout, sh("queue", "1").stdout, sh("logs", "1").stderr):
            assert reason in text
            assert f"{program}" in text
            assert any(word in text for word in ("install", "check the names", "correct", "path"))
        facts = json.loads(sh("logs", "1", "--json").stdout)
        assert facts["state"] == "failed"
        assert reason in facts["error"]


def test_what_was_put_away_is_submitted_again_with_the_present_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateDir(tmp_path / "state")
    first = store.submit(asked(["true"], name="first", workers=2, retries=3))
    store.end(first, Ended("done", 1.0))
    put_away(store, [first])
    monkeypatch.setenv("ROTA_STATE", str(store.root))
    monkeypatch.setenv("NEW_VARIABLE", "here")
    monkeypatch.chdir(tmp_path)
    assert run(("resubmit", str(first))) == 0
    out, err = capsys.readouterr()
    assert out == "2\n"
    assert "the environment of job 1 was not kept: the present one is used" in err
    new, old = store.request(2), store.request(1)
    assert (new.name, new.workers, new.retries, new.cwd) == ("first", 2, 3, old.cwd)
    assert new.env["NEW_VARIABLE"] == "here"
    assert "ROTA_STATE" not in new.env
    assert new.submitted_at > old.submitted_at
    # One that waits still has its own.
    monkeypatch.setenv("NEW_VARIABLE", "changed")
    assert run(("resubmit", "2", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["jobs"][0]["environment"] == "kept"
    assert store.request(3).env["NEW_VARIABLE"] == "here"


def test_a_job_whose_folder_is_gone_is_not_submitted_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateDir(tmp_path / "state")
    request = asked(["true"])
    object.__setattr__(request, "cwd", str(tmp_path / "gone"))
    store.submit(request)
    assert run(("resubmit", "1", "--state", str(store.root))) == 2
    assert "There is no folder" in capsys.readouterr().err
    assert store.uids() == [1]


def test_watching_goes_on_whatever_happens_to_the_state(tmp_path: Path) -> None:
    store, out = StateDir(tmp_path / "state"), tmp_path / "out"
    store.submit(asked(["true"], name="first"))
    words = ["queue", "--watch", "0.1s", "--state", str(store.root)]
    with out.open("wb") as file, child([sys.executable, "-m", "rota", *words], stdout=file) as me:
        eventually(lambda: "first" in out.read_text())
        store.submit(asked(["true"], name="second"))
        eventually(lambda: "second" in out.read_text())
        (store.folder(1) / "request.json").write_text("{")
        eventually(lambda: "is damaged" in out.read_text())
        shutil.move(store.root, tmp_path / "elsewhere")
        eventually(lambda: "error: There is no state directory" in out.read_text())
        shutil.move(tmp_path / "elsewhere", store.root)
        size = out.stat().st_size
        eventually(lambda: "second" in out.read_text()[size:])
        assert me.poll() is None
        me.send_signal(signal.SIGINT)
        assert me.wait(PATIENCE_S) == 0
    assert "\x1b" not in out.read_text()  # it is no terminal


def test_on_a_terminal_the_queue_is_drawn_in_place(tmp_path: Path) -> None:
    store = StateDir(tmp_path / "state")
    store.submit(asked(["true"], name="first"))
    ours, theirs = pty.openpty()
    seen = bytearray()

    def drawn(times: int) -> bool:
        seen.extend(os.read(ours, 4096))
        return seen.count(b"\x1b[H") >= times and b"first" in seen

    words = ["queue", "--watch", "0.1", "--state", str(store.root)]
    with child([sys.executable, "-m", "rota", *words], stdout=theirs) as me:
        os.close(theirs)
        eventually(lambda: drawn(3))
        me.send_signal(signal.SIGINT)
        assert me.wait(PATIENCE_S) == 0
    os.close(ours)
    assert b"\x1b[J" in seen


def test_a_queue_without_any_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROTA_STATE", str(StateDir(tmp_path / "state").root))
    assert run(("queue",)) == 0
    assert capsys.readouterr().out.startswith("No jobs wait or run")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("queue", "5"), "There is no job 5"),
        (("queue", "1", "--all"), "Name jobs, or say --all"),
        (("queue", "--watch", "0"), "--watch 0 is too short"),
        (("logs", "1", "--follow", "--json"), "leave --follow out"),
        (("hold", "5"), "There is no job 5"),
        (("resume", "1"), "Job 1 is not held"),
        (("resubmit", "5"), "There is no job 5"),
    ],
)
def test_bad_input(
    tmp_path: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = StateDir(tmp_path / "state")
    store.submit(asked(["true"]))
    assert run((*words, "--state", str(store.root))) == 2
    assert message in capsys.readouterr().err
