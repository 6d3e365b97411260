"""The verbs of the local backend, as a user types them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from time import sleep
from typing import TYPE_CHECKING

import pytest
from elastic_jobs import PATIENCE_S, PRELOAD, runs, script
from local_shell import shell

from rota.backends.local import StateDir
from rota.cli.app import run
from rota.learn.journal_replay import JournalReplay
from rota.run.journal_file import told
from rota.run.reader import read_journal
from rota.scenarios import load
from rota.sim.past import past_cluster, past_jobs

if TYPE_CHECKING:
    from pathlib import Path


def test_submit_run_queue_logs_cancel(tmp_path: Path) -> None:
    with shell(tmp_path) as sh:
        first = sh("submit", "--name", "hello", "--", "sh", "-c", "echo hi; echo $ROTA_NODE")
        assert first.stdout == "1\n"
        assert "no daemon schedules" in first.stderr
        assert json.loads(sh("submit", "--json", "-w", "2", "--", "sleep", "1000").stdout) == {
            "job": 2
        }
        sh("submit", "--", "sleep", "1000")
        assert [row["state"] for row in sh.jobs().values()] == ["waiting"] * 3
        daemon = sh.daemon("--policy", "fifo")
        sh.until(lambda: sh.state_of(1) == "done")
        assert re.fullmatch(r"hi\nnode-[01]\n", sh("logs", "1").stdout)
        sh.until(lambda: sh.state_of(3) == "running")
        shown = sh("queue").stdout
        assert "hello" not in shown
        assert "2 of 2" in shown
        sh("cancel", "3")
        sh.until(lambda: sh.state_of(3) == "cancelled")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE_S) == 0
        assert "leaves 1 jobs to themselves" in sh.log.read_text()
        assert sh.state_of(2) == "running"
        sh("cancel", "--all")
        sh.daemon("--drain").wait(PATIENCE_S)
        assert sh.state_of(2) == "cancelled"
    with read_journal(sh.state / "journal.db") as view:
        outcome = view.outcome()
        assert list(outcome.job_id) == ["1", "2", "3"]
        assert (outcome.done_s > outcome.submit_s).all()
        assert outcome.gave_up.tolist() == [False, True, True]


def test_a_policy_that_hangs_leaves_the_jobs_to_the_fallback(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("class Sleeps:\n    def decide(self, snapshot):\n        "
                   "import time\n        time.sleep(100)\n")  # fmt: skip
    with shell(tmp_path) as sh:
        sh("submit", "--", "true")
        daemon = sh.daemon("--policy", f"{bad}:Sleeps", "--deadline", "0.2s", "--drain")
        assert daemon.wait(PATIENCE_S) == 0
        assert sh.state_of(1) == "done"
        assert re.search(r"tries out .*bad\.py:Sleeps on made-up jobs", sh.log.read_text())


def test_a_daemon_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    with shell(tmp_path) as sh:
        size = ("-w", "2", "--min-workers", "1", "--max-workers", "4")
        preload = [word for name in PRELOAD for word in ("--preload", name)]
        warm = [word for name in PRELOAD for word in ("--warm", name)]
        long = script(tmp_path / "out", epochs=10**6, pace_s=0.005)
        sh("submit", "--elastic", *size, *preload, "--", *long)
        sh("submit", "--", "sleep", "1000")
        sh("submit", "--", "sleep", "2")
        daemon = sh.daemon("--policy", "hull-greedy", *warm)
        agents_of = sh.state / "jobs"
        sh.until(lambda: len(list(agents_of.glob("[12]/run-1/agent.json"))) == 2)
        for pause_s in (0.0, 0.3, 1.1):
            sleep(pause_s)
            daemon.kill()
            daemon.wait()
            daemon = sh.daemon("--policy", "hull-greedy", *warm)
        sh.until(lambda: sh.state_of(3) == "done")
        folders = sorted((sh.state / "jobs").glob("[12]/run-*"))
        assert [folder.name for folder in folders] == ["run-1", "run-1"]  # nobody was restarted
        agents = [json.loads((folder / "agent.json").read_text())["pid"] for folder in folders]
        assert all(map(runs, agents))
        sh("cancel", "1", "2")
        sh.until(lambda: sh.state_of(1) == sh.state_of(2) == "cancelled")
        daemon.send_signal(signal.SIGINT)
        assert daemon.wait(PATIENCE_S) == 0
        sh.until(lambda: not any(map(runs, agents)))
    with read_journal(sh.state / "journal.db") as view:
        events, *_ = view.events()
        kinds = {job: events["kind"][events["job"] == job].tolist() for job in range(3)}
    assert kinds[1][:2] == kinds[2][:2] == [0, 1]  # arrived and started, once each
    assert all(own.count(0) == own.count(1) == 1 for own in kinds.values())
    assert (kinds[0][-1], kinds[1][-1], kinds[2][-1]) == (7, 7, 5)


def test_a_live_journal_is_played_again_under_another_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with shell(tmp_path) as sh:
        preload = [word for name in PRELOAD for word in ("--preload", name)]
        warm = [word for name in PRELOAD for word in ("--warm", name)]
        size = ("-w", "2", "--min-workers", "1", "--max-workers", "4", "--model", "net")
        steps = script(tmp_path / "out", epochs=30, pace_s=0.02)  # 300 of 20 ms or more
        sh("submit", "--elastic", *size, *preload, "--", *steps)
        sh("submit", "--", "sleep", "2")
        first = sh.daemon("--policy", "hull-greedy", *warm)
        sh.until(lambda: StateDir(sh.state).held(1).starts)
        first.kill()
        first.wait()
        assert sh.daemon("--policy", "hull-greedy", "--drain", *warm).wait(PATIENCE_S) == 0
    path = sh.state / "journal.db"
    trace = past_jobs(path)
    assert (trace.job_id.tolist(), trace.left_out) == (["1", "2"], {})
    assert (trace.min_workers.tolist(), trace.max_workers.tolist()) == ([1, 1], [4, 1])
    assert (trace.num_gpus.tolist(), trace.names("model")) == ([2, 1], ["net", ""])
    assert trace.duration_s[0] > 1.0
    assert trace.duration_s[1] > 1.9
    assert trace.restart_s[0] > 0
    capsys.readouterr()
    assert run(("simulate", str(path), "-p", "srtf", "-p", "hull-greedy", "--json")) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["cluster"]["nodes"], facts["cluster"]["gpus"]) == (2, 4)
    for played in facts["runs"]:
        assert (played["jobs"], played["finished"]) == (2, 2)
        assert played["mean_jct_s"] > 0
    # And it teaches: what was decided can be carried out again, and everybody ends in time.
    told = list(JournalReplay(path, load("dl2-testbed")).rounds())
    assert len(told) >= 2


def test_two_daemons_on_one_directory(tmp_path: Path) -> None:
    with shell(tmp_path) as sh:
        sh("submit", "--", "sleep", "1000")
        first = sh.daemon()
        sh.until(lambda: sh.state_of(1) == "running")
        second = sh("run", code=2)
        assert f"A daemon runs on {sh.state} already (process {first.pid})" in second.stderr
        assert first.poll() is None


def test_a_policy_that_fails_is_replaced_and_one_in_shadow_only_speaks(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "class Bad:\n    def decide(self, snapshot):\n        raise ValueError('no idea')\n"
    )
    with shell(tmp_path) as sh:
        sh("submit", "--", "sleep", "0.5")
        sh.daemon("--policy", f"{tmp_path}/bad.py:Bad", "--drain").wait(PATIENCE_S)
        assert sh.state_of(1) == "done"
        assert "no idea" in sh.log.read_text()
        sh("submit", "--", "sleep", "0.5")
        sh.daemon("--policy", "srtf", "--shadow", "--fallback", "fifo", "--drain").wait(PATIENCE_S)
        assert sh.state_of(2) == "done"
    with read_journal(sh.state / "journal.db") as view:
        notes = view.notes().values()
    assert any("no idea" in note.get("trouble", "") for note in notes)
    assert any(note.get("shadow") for note in notes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("submit", "--", "no-such-program"), "'no-such-program' does not exist"),
        (("submit", "-w", "4", "--max-workers", "2", "--", "true"), "workers=4 must lie between"),
        (("submit", "--servers", "1", "--", "true"), "--servers needs a script that uses"),
        (("cancel",), "Say which jobs to cancel"),
        (("cancel", "5"), "There is no job 5"),
        (("logs", "5"), "There is no job 5"),
        (("run", "--policy", "fifi"), "Did you mean 'fifo'?"),
        (("run", "--backend", "slrm"), "No backend is called 'slrm'"),
        (("run", "--policy", "gittins"), "draws on past jobs; name them with --history"),
    ],
)
def test_bad_input(
    tmp_path: Path,
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROTA_STATE", str(tmp_path))
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.count("\n") == 1
    assert not out


def test_durations_are_refused_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [("submit", "--estimate", "soon", "--", "true"), ("run", "--min-run", "-3s"),
             ("submit", "--grace", "nan", "--", "true"), ("queue", "--watch", "fast")]  # fmt: skip
    for words in wrong:
        assert run(words) == 2
        assert "is no duration; write one like 90s" in capsys.readouterr().err


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from rota.cli import main; sys.argv[0] = 'rota'; sys.exit(main())"
    )
    words = ["submit", "--state", str(tmp_path), "--", "true"]
    env = {**os.environ, "PADDING": "x" * 200}
    failed = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=env
    )
    assert failed.returncode == 1
    assert "Cannot submit a job" in failed.stderr
    assert os.listdir(tmp_path / "jobs") == []


def test_a_daemon_on_another_cluster_says_so_in_the_journal(tmp_path: Path) -> None:
    with shell(tmp_path) as sh:
        for gpus in (2, 2, 3):
            sh("submit", "--", "true")
            assert sh.daemon("--drain", gpus=gpus).wait(PATIENCE_S) == 0
    with read_journal(sh.state / "journal.db") as view:
        assert [cluster["gpus"] for cluster in told(view.meta, "cluster")] == [[2, 2], [3, 3]]
        last = past_cluster(view.meta)
    assert last is not None
    assert last.total_gpus == 6
