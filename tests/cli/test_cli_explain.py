"""`rota explain` on jobs of this machine, and what both new verbs refuse."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from contextlib import closing, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from elastic_jobs import PATIENCE_S
from local_shell import shell

from rota.cli.app import run
from rota.cli.daemon import DaemonOptions
from rota.cli.explain import _policies
from rota.run.ask import name_of
from rota.run.last_round import Deciders

if TYPE_CHECKING:
    from pathlib import Path

    from local_shell import Shell


def told(sh: Shell, job: str) -> dict[str, Any]:
    """A job as `rota explain --json` has it, without starting a process each time it is asked."""
    with redirect_stdout(StringIO()) as out:
        assert run(["explain", job, "--json", "--state", str(sh.state)]) == 0
    return dict(json.loads(out.getvalue()))


def tiers(sh: Shell, job: str) -> list[str]:
    return [reason["tier"] for reason in told(sh, job)["reasons"]]


def test_jobs_of_this_machine_are_explained(tmp_path: Path) -> None:
    odd = 'it\'s; "odd" $(name) %s'
    with shell(tmp_path) as sh:
        sh("submit", "--name", "runs", "--estimate", "100s", "--", "sleep", "1000")
        sh("submit", "-w", "2", "--estimate", "10s", "--", "sleep", "1000")
        sh("submit", "--name", odd, "--", "sleep", "1000")
        sh("submit", "--", "sleep", "1000")
        sh("hold", "4")
        assert tiers(sh, "3") == ["no-daemon"]
        daemon = sh.daemon("--policy", "fifo", gpus=1)
        sh.until(lambda: sh.state_of(1) == "running" and tiers(sh, odd) == ["passed"])

        large = told(sh, "2")
        assert (large["reasons"][0]["tier"], large["reasons"][0]["level"]) == ("full", 2)
        assert large["reasons"][0]["holders"] == [{"job": "1", "holds": 1}]
        assert 0 < large["expected"]["start_at"] - large["as_of"] <= 100
        small = told(sh, odd)
        assert (small["uid"], small["expected"]["before"]) == (3, ["2"])
        assert small["expected"]["start_at"] == pytest.approx(
            large["expected"]["start_at"] + 10, abs=5
        )
        assert tiers(sh, "4") == ["held"]
        text = sh("explain", "3").stdout
        assert "job 2 is ahead of it [passed, tier 3 of 4]" in text
        assert "order     2 of 2 jobs that wait, after 2" in text
        text = sh("explain", "1").stdout
        assert "started at" in text
        assert "by fifo on node-0:1" in text

        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE_S) == 0
        assert tiers(sh, "3") == ["passed", "no-daemon"]
        assert told(sh, "3")["expected"]["position"] == 2
        assert "this is as of its last round" in sh("explain", "3").stderr
        sh("cancel", "1", "2", "3", "4")
        daemon = sh.daemon("--policy", "fifo", gpus=1)
        sh.until(lambda: sh.state_of(1) == "cancelled")
        sh.until(lambda: told(sh, "1")["state"] == "over")
        assert told(sh, "1")["text"].startswith("cancelled at ")


def test_what_is_not_there_or_damaged_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with shell(tmp_path) as sh:
        sh("submit", "--", "true")
        daemon = sh.daemon("--policy", "fifo", gpus=1)
        sh.until(lambda: sh.state_of(1) == "done")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE_S) == 0
        where = ("--state", str(sh.state))
        for job, said in {
            "99": "There is no job 99",
            "nobody": "No job is called 'nobody'",
        }.items():
            assert run(["explain", job, *where]) == 2
            assert said in capsys.readouterr().err
        sh("submit", "--name", "true", "--", "true")
        assert run(["explain", "true", *where]) == 2
        assert "Several jobs are called 'true'" in capsys.readouterr().err

        # Of a job that was put away long ago only the journal tells.
        (sh.state / "history.db").unlink()
        assert run(["explain", "1", *where]) == 0
        assert "done at" in capsys.readouterr().out
        journal = sh.state / "journal.db"
        with closing(sqlite3.connect(journal)) as db, db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.execute("DROP TABLE events")
        assert run(["explain", "2", *where]) == 0
        assert "what happened to it is not known" in capsys.readouterr().err
        journal.unlink()
        assert run(["explain", "2", *where]) == 0
        shutil.rmtree(sh.state / "jobs")
        assert run(["explain", "2", *where]) == 2
        assert "holds no journal" in capsys.readouterr().err


def test_a_doctor_for_other_backends_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--backend", "local"]) == 2
    assert "known: slurm" in capsys.readouterr().err


def test_a_trained_policy_is_made_with_the_weights_that_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, fallback = _policies(Deciders("dl2-onepass", "fifo"), tmp_path)
    assert name_of(policy).partition(":")[0].endswith("dl2-onepass.ckpt")
    assert fallback is not None
    assert name_of(fallback) == "fifo"
    (tmp_path / "running.ckpt").write_bytes(b"nonsense")
    policy, _ = _policies(Deciders("dl2-onepass", "fifo"), tmp_path)
    assert "left aside" in capsys.readouterr().err


def test_in_shadow_the_fallback_decides_but_on_slurm_nobody_is_obeyed() -> None:
    def deciders(**given: Any) -> Deciders:
        return DaemonOptions(policy="srtf", fallback="fifo", **given).deciders

    assert deciders() == Deciders("srtf", "fifo")
    assert deciders(shadow=True) == Deciders("fifo")
    assert deciders(shadow=True, backend="slurm") == Deciders("srtf", "fifo", watches=True)
