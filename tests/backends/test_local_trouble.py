"""What daemons go through: agents that do not answer, clocks, crashes, lost terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from children import child, eventually
from elastic_jobs import PATIENCE_S
from local_jobs import Site, asked, elastic, site, sweep

from rota.backends.local import StateDir, run_end, state_clock
from rota.backends.local.held import Held
from rota.backends.local.seating import Seat
from rota.cli.app import run
from rota.elastic.agent_forkserver import AgentForkServer
from rota.elastic.job import ElasticJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAUNCHED = Held(
    seats={"w1": Seat("worker", 1, (0,))},
    leaving={"w0": Seat("worker", 0, (0,))},
    serial=2,
    since_s=0.0,
    started_s=0.0,
)


@pytest.mark.parametrize("run_open", [(0, False), (1, True)])
def test_who_was_to_leave_when_the_daemon_was_killed_keeps_no_seat(
    tmp_path: Path, run_open: tuple[int, bool]
) -> None:
    with site(tmp_path / "state", gpus=1) as here:
        uid, other = here.submit(asked(["sleep", "1000"])), here.submit(asked(["sleep", "1000"]))
        here.store.keep(uid, replace(LAUNCHED, run=run_open[0], open=run_open[1]))
        here.reopen()
        here.give({other: [(0, 1)]})
        here.until(lambda: here.job(other).status and here.job(uid).status)
        assert here.store.held(uid).leaving == {}


def test_a_worker_that_left_while_no_daemon_was_there_frees_its_seat(tmp_path: Path) -> None:
    with site(tmp_path / "state", gpus=1) as here:
        config = {"epochs": 10**6, "pace_s": 0.005}
        uid = here.submit(elastic(tmp_path / "out", config, workers=2, min_workers=1))
        other = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({uid: [(0, 1), (1, 1)]})
        here.trains(uid, 2)
        held = here.job(uid).held
        name = next(name for name, seat in held.seats.items() if seat.node == 0)
        held.leaving = {name: held.seats.pop(name)}
        here.store.keep(uid, held)
        here.reopen()
        here.give({other: [(0, 1)]})
        here.until(lambda: here.job(other).status)
        here.trains(uid, 1)
        assert here.store.held(uid).leaving == {}


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Jobs, by number, whose agents take every call and never answer."""
    over, those, answers = threading.Event(), set[str](), ElasticJob.observe

    def observe(job: ElasticJob) -> object:
        if job.folder.parent.name in those:
            over.wait()
        return answers(job)

    monkeypatch.setattr(ElasticJob, "observe", observe)
    yield those
    over.set()


def test_agents_that_do_not_answer_hold_up_nobody_else(
    tmp_path: Path, silent: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    many = 12
    with site(tmp_path / "state", gpus=many, every_s=1e6) as here:
        stuck = [here.submit(asked(["sleep", "1000"], kind="elastic")) for _ in range(many)]
        silent.update(map(str, stuck))
        good = here.submit(asked(["sleep", "1"]))
        here.backend.wait(0)
        here.give({good: [(1, 1)], **{uid: [(0, 1)] for uid in stuck}})
        assert here.ends(good).state == "done"
        assert run(("queue", "--json", "--state", str(here.store.root))) == 0
        rows = json.loads(capsys.readouterr().out)["jobs"]
        assert [row["state"] for row in rows] == ["running"] * many
        assert all(row["done"] is None for row in rows)


def test_a_fork_server_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.elastic.agent_forkserver.LAUNCH_S", 0.2)
    made = AgentForkServer(["json"])
    try:
        os.kill(made._process.pid, signal.SIGSTOP)
        assert "has ended" in made.launch(tmp_path)
        assert made._process.wait(PATIENCE_S) == -signal.SIGKILL
        assert "has ended" in made.launch(tmp_path)
    finally:
        made._process.kill()
        made.close()


def test_a_module_that_cannot_be_imported_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("raise ValueError('two\\nlines')")
    for name, why in (("nosuchmod", "No module named 'nosuchmod'"), ("broken", "two lines")):
        made = AgentForkServer(["json", name])
        made._process.wait(PATIENCE_S)
        assert "has ended" in (made.launch(tmp_path) or "")
        made.close()
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(f"--warm {name} cannot be imported, so --warm has no effect (")
        assert why in line


def test_a_daemon_that_nobody_hears_goes_on(tmp_path: Path) -> None:
    """Its standard error is a pipe that nobody reads, then a full disk."""
    state, words = tmp_path / "state", [sys.executable, "-m", "rota", "run", "--gpus", "1"]
    store = StateDir(state)
    try:
        for k, heard in enumerate(("pipe", "full"), 1):
            store.submit(asked(["true"]))
            with open("/dev/full", "wb") as full:
                way = subprocess.PIPE if heard == "pipe" else full
                with child([*words, "--state", str(state)], stderr=way) as daemon:
                    if daemon.stderr:
                        daemon.stderr.close()
                    eventually(lambda k=k: store.ended(k))
                    assert daemon.poll() is None
                    daemon.send_signal(signal.SIGTERM)
                    assert daemon.wait(PATIENCE_S) in (0, 120)  # 120: what it said is lost
    finally:
        sweep(Site(state))


def test_lost_agents_count_only_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)

        def lose() -> None:
            failures = here.job(uid).held.failures
            here.give({uid: [(0, 1)]})
            here.until(lambda: here.job(uid).status)
            os.kill(here.agents()[-1], signal.SIGKILL)
            here.until(
                lambda: uid not in here.backend._jobs or here.job(uid).held.failures > failures
            )

        monkeypatch.setattr(run_end, "LONG_S", 0.0)  # every run counts as progress
        for _ in range(run_end.MOST_KILLS + 2):
            lose()
        assert here.job(uid).held.failures == run_end.MOST_KILLS + 2
        monkeypatch.setattr(run_end, "LONG_S", 1e9)
        for _ in range(run_end.MOST_KILLS):
            lose()
        assert here.ends(uid).state == "failed"


def test_progress_makes_up_for_lost_agents(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"], kind="elastic", retries=0))
        here.backend.wait(0)
        job = here.job(uid)
        job.held.since_s = 0.0
        told = []
        for samples in (0, 0, 5, 5, 5, 9, 9, 9, 9):
            job.held.samples = samples
            told.append(run_end.count_failure(job.held, job.request, 1.0, killed=True))
        assert told == [False] * 8 + [True]
        assert run_end.count_failure(job.held, job.request, 1.0, killed=False)


def test_a_clock_that_was_set_back_takes_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status)
        before_s, now = here.backend.now_s, time.time()
        held = here.job(uid).held
        for back_s in (3600.0, 1e9):
            monkeypatch.setattr(state_clock, "time", lambda back_s=back_s: now - back_s)
            here.reopen()
            assert here.backend.now_s >= held.settled_s
            # From here on time passes as ever, and so does what the job is credited with.
            row = here.backend.observe().jobs.rows[0]
            here.until(
                lambda row=row: (
                    here.backend.observe().jobs.rows[0]["attained_gpu_s"] > row["attained_gpu_s"]
                )
            )
        late = here.submit(replace(asked(["true"]), submitted_at=now + 1e6))
        here.until(lambda: late in here.backend._jobs)
        assert here.job(late).submit_s <= here.backend.now_s
        assert before_s >= 0


def test_a_submission_is_seen_though_the_folder_looks_the_same(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        facts = here.store.jobs.stat()
        uid = here.submit(asked(["sleep", "1000"]))
        os.utime(here.store.jobs, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        here.until(lambda: uid in here.backend._jobs)


def test_what_ends_while_a_decision_is_carried_out_calls_for_another_one(tmp_path: Path) -> None:
    with site(tmp_path / "state", every_s=1e6) as here:
        uid = here.submit(asked(["true"]))
        waits = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        agent_s = time.monotonic() + PATIENCE_S
        # Only decisions are carried out, nobody waits: the end is noticed in one of them.
        while uid in here.backend._jobs:
            here.give({})
            assert time.monotonic() < agent_s
        assert here.backend.wait(here.backend.now_s + 1e6)
        assert here.job(waits)


def test_after_a_restart_freed_seats_are_given_at_once(tmp_path: Path) -> None:
    with site(tmp_path / "state", nodes=1, gpus=1, every_s=1e6) as here:
        uid, waits = here.submit(asked(["sleep", "1"])), here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        result = here.store.run_folder(uid, 1) / "result.json"
        here.until(lambda: here.job(uid).status)
        here.backend.close()
        eventually(result.exists)
        here.open()
        assert here.backend.wait(1e9)  # there are jobs
        while not here.backend.observe().nodes["free"][0]:
            assert here.backend.wait(1e9)  # its end was noticed
        here.give({waits: [(0, 1)]})
        here.until(lambda: here.job(waits).status)
