"""Real processes under the local backend."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from elastic_jobs import PATIENCE_S, runs
from local_jobs import asked, elastic, python, site

from rota.backends.local.held import Held
from rota.backends.local.seating import Seat
from rota.backends.local.speed_meter import AHEAD_S
from rota.core import Cluster
from rota.core.layout import FINISH, KILL
from rota.elastic.protocol import Status
from rota.testing.backend_contract import check_backend

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINTS = """
import os, signal, sys, time
from pathlib import Path
file = Path({path!r})
done = int(file.read_text()) if file.exists() else 0
signal.signal(signal.SIGTERM, lambda *_: (file.write_text(str(done)), sys.exit(0)))
print("from", done, "of", os.environ["WORLD_SIZE"], flush=True)
while done < {steps}:
    time.sleep(0.01)
    done += 1
"""


def test_it_keeps_the_contract(tmp_path: Path) -> None:
    with site(tmp_path, drain=True) as here:
        for k in range(4):
            here.submit(asked(["sleep", str(0.5 + k / 5)], workers=1 + k % 2, preemptible=True))
        here.reopen()
        check_backend(lambda: here.backend, patience_s=PATIENCE_S)
        ends = [here.store.ended(uid) for uid in range(1, 5)]
        assert [ended.state for ended in ends] == ["done"] * 4
        assert here.backend.ending(1) == (FINISH, ends[0].time_s)
        assert here.backend.listing(2).num_gpus == 2


def test_a_plain_job_is_stopped_resized_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        code = CHECKPOINTS.format(path=str(tmp_path / "done"), steps=10**6)
        uid = here.submit(python(code, max_workers=2, preemptible=True))
        here.backend.wait(0)
        here.give({uid: [(1, 1)]})
        log = here.store.folder(uid) / "run-1/logs/w0.log"
        here.until(lambda: log.exists() and log.read_text())
        here.give({uid: []})
        here.until(lambda: not here.job(uid).held.open)
        assert not here.job(uid).share
        first = int((tmp_path / "done").read_text())
        here.give({uid: [(0, 1), (1, 1)]})
        logs = [here.store.folder(uid) / f"run-2/logs/w{k}.log" for k in (1, 2)]
        here.until(lambda: all(log.exists() and log.read_text() for log in logs))
        assert logs[0].read_text() == f"from {first} of 2\n"
        here.store.cancel(uid)
        assert here.ends(uid).state == "cancelled"
        assert here.backend.ending(uid)[0] == KILL
        assert not here.backend.jobs


def test_an_elastic_job_grows_shrinks_moves_and_waits_without_losing_work(tmp_path: Path) -> None:
    samples, epochs = 240, 60
    with site(tmp_path / "state") as here:
        config = {"samples": samples, "epochs": epochs, "pace_s": 0.01, "gates": [500]}
        uid = here.submit(elastic(tmp_path / "out", config))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.trains(uid, 1)
        here.give({uid: [(0, 2), (1, 1)]})
        here.trains(uid, 3)
        here.give({uid: [(1, 1)]})
        here.trains(uid, 1)
        pid = next(iter(here.job(uid).status.pids.values()))
        here.give({uid: []})
        here.until(lambda: not here.job(uid).held.open)
        assert not runs(pid)
        assert here.job(uid).held.parked == 1
        here.give({uid: [(0, 1)]})
        here.trains(uid, 1)
        here.until(lambda: here.job(uid).held.rate > 0)
        row = here.backend.observe().jobs.rows[0]
        assert row["progress_s"] + row["remaining_s"] == pytest.approx(row["estimate_s"])
        assert row["preemptions"] == 1
        assert row["attained_gpu_s"] > 0
        # What changes and starts have cost: as was seen of both, in both runs.
        held = here.job(uid).held
        assert (held.starts, held.changes >= 2) == (2, True)
        assert 0 < row["restart_s"] == pytest.approx(held.starting_s / 2)
        assert 0 < row["resize_s"] == pytest.approx(held.paused_s / held.changes)
        (tmp_path / "out" / "gate500").touch()
        assert here.ends(uid).state == "done"
        took: dict[tuple[int, int], set[int]] = {}
        for path in (tmp_path / "out").glob("*.jsonl"):
            for text in path.read_text().splitlines():
                line = json.loads(text)
                if "took" in line:
                    took.setdefault((line["epoch"], line["step"]), set()).update(line["took"])
        assert sum(map(len, took.values())) == samples * epochs
        assert not list(here.store.folder(uid).glob("parked-*"))


def test_a_job_whose_agent_is_killed_goes_on_from_the_last_state_it_kept(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        config = {"samples": 240, "epochs": 60, "pace_s": 0.01, "gates": [500]}
        uid = here.submit(elastic(tmp_path / "out", config, park_every_s=0.01))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        manifest = here.store.park_folder(uid, 1) / "parked.json"
        here.until(lambda: manifest.exists() and json.loads(manifest.read_text())["step"] > 5)
        os.kill(here.agents()[0], signal.SIGKILL)
        here.until(lambda: not here.job(uid).held.open)
        assert here.job(uid).held.parked == 1
        step = json.loads(manifest.read_text())["step"]
        here.give({uid: [(0, 1)]})
        here.trains(uid, 1)
        (tmp_path / "out" / "gate500").touch()
        assert here.ends(uid).state == "done"
        again = (tmp_path / "out" / "w1.jsonl").read_text().splitlines()
        assert json.loads(again[0])["step"] == step
        assert not list(here.store.folder(uid).glob("parked-*"))


def test_progress_is_told_as_of_now(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(elastic(tmp_path / "out", {}))
        here.backend.wait(0)
        job = here.job(uid)
        job.held.samples, job.held.total = 100, 1000
        assert job.meter.samples(50.0) == 100
        job.meter.status = Status(state="running", samples=100, samples_per_s=40.0, ago_s=0.5)
        job.meter.heard_s = 50.0
        assert job.meter.samples(50.25) == 100  # while it changes
        job.meter.settled_s = 40.0
        assert job.meter.samples(50.25) == 130
        assert job.meter.samples(99.0) == 100 + AHEAD_S * 40
        job.held.total = 120
        assert job.meter.samples(50.25) == 120
        for rate in (float("nan"), float("inf"), -3.0):
            job.meter.status = replace(job.meter.status, samples_per_s=rate)
            assert job.meter.samples(50.25) == 100
        job.meter.status = None  # its processes are its own


def test_speed_is_seen_from_when_a_job_has_what_it_shall_have(tmp_path: Path) -> None:
    # What a job does on its way there tells nothing of its speed when it is there.
    with site(tmp_path / "state", every_s=1e6) as here:
        uid = here.submit(elastic(tmp_path / "out", {"epochs": 10**6, "pace_s": 0.005}))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        for workers in (1, 2):
            here.give({uid: [(0, workers)]})
            here.trains(uid, workers)
            here.until(lambda: here.job(uid).held.rate)
            book = here.backend._speeds._by[True].book
            assert book["seen_s"][0] >= here.job(uid).meter.settled_s


def test_a_lost_worker_is_replaced_and_a_killed_agent_begins_again(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        config = {"epochs": 10**6, "pace_s": 0.005}
        uid = here.submit(elastic(tmp_path / "out", config, workers=2, min_workers=1))
        here.backend.wait(0)
        here.give({uid: [(0, 2)]})
        here.trains(uid, 2)
        name, pid = next(iter(here.job(uid).status.pids.items()))
        os.kill(pid, signal.SIGKILL)
        here.until(lambda: name not in here.job(uid).held.seats)
        here.trains(uid, 2)
        assert here.job(uid).share == ((0, 2, 0),)
        assert any("was lost" in text for text in here.said)
        os.kill(here.agents()[0], signal.SIGKILL)
        here.until(lambda: not here.job(uid).share)
        here.give({uid: [(1, 1)]})
        here.trains(uid, 1)
        assert here.job(uid).held.failures == 1


def test_a_job_that_is_about_to_end_may_be_resized_in_vain(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(elastic(tmp_path / "out", {"epochs": 1, "linger": True}))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status and here.job(uid).status.state == "stopping")
        here.give({uid: [(0, 2)]})
        (tmp_path / "out" / "end").touch()
        assert here.ends(uid).state == "done"


def test_two_jobs_may_change_places(tmp_path: Path) -> None:
    with site(tmp_path / "state", nodes=2, gpus=1) as here:
        one, two = (
            here.submit(elastic(tmp_path / f"out{k}", {"epochs": 10**6, "pace_s": 0.005}))
            for k in range(2)
        )
        here.backend.wait(0)
        here.give({one: [(0, 1)], two: [(1, 1)]})
        here.trains(one, 1)
        here.trains(two, 1)
        here.give({one: [(1, 1)], two: [(0, 1)]})
        here.trains(one, 1)
        here.trains(two, 1)
        assert here.job(one).share == ((1, 1, 0),)
        assert here.job(two).share == ((0, 1, 0),)


def test_another_daemon_finds_the_jobs_again(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(elastic(tmp_path / "out", {"epochs": 10**6, "pace_s": 0.005}))
        plain = here.submit(asked(["sleep", "1000"]))
        short = here.submit(asked(["sleep", "1"]))
        here.backend.wait(0)
        here.give({uid: [(0, 1)], plain: [(0, 1)], short: [(1, 1)]})
        here.trains(uid, 1)
        here.until(lambda: here.job(plain).status)
        here.until(lambda: here.backend.observe().curves.measured[0, 1] > 0)
        before, pids = here.backend.observe(), here.agents()
        here.reopen()
        after = here.backend.observe()
        assert after.curves.measured[0].tolist() == before.curves.measured[0].tolist() == [1, 1]
        for name in ("uid", "status", "held_workers", "submit_s", "started_s", "since_s"):
            kept = {int(u): v for u, v in zip(before.jobs.uid, before.jobs.rows[name], strict=True)}
            for u, value in zip(after.jobs.uid, after.jobs.rows[name], strict=True):
                assert value == kept[int(u)]
        assert (after.jobs.attained_gpu_s >= before.jobs.attained_gpu_s[: len(after.jobs)]).all()
        here.trains(uid, 1)
        here.give({uid: [(0, 1), (1, 1)]})
        here.trains(uid, 2)
        assert here.ends(short).state == "done"
        assert here.agents()[:2] == pids[:2]
        assert all(runs(pid) for pid in pids[:2])


def test_a_launch_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    """The daemon was killed when the agent had not been started, or not even been asked for."""
    with site(tmp_path / "state") as here:
        asked_for, not_yet = (here.submit(asked(["sleep", "1000"])) for _ in range(2))
        for uid in (asked_for, not_yet):
            held = Held(seats={"w0": Seat("worker", uid - 1, (0,))}, serial=1, run=1, open=True)
            here.store.keep(uid, replace(held, since_s=0.0, started_s=0.0))
        lost = here.store.run_folder(asked_for, 1) / "job.json"
        lost.parent.mkdir()
        lost.touch()
        os.utime(lost, (0, 0))
        here.reopen()
        here.until(lambda: here.job(asked_for).held.failures == 1)
        assert not here.job(asked_for).share
        here.give({asked_for: [(0, 1)]})
        here.until(lambda: here.job(asked_for).status and here.job(not_yet).status)
        assert here.job(not_yet).held.run == 2
        assert here.job(not_yet).held.failures == 0


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        (lambda _: python("raise SystemExit(3)"), "code 3"),
        (lambda _: python("print('oh no'); import sys; sys.exit('it broke')"), "it broke"),
        (lambda out: elastic(out, {"misdeeds": {"w0": ["raise", 3]}}), "the script is wrong"),
        (lambda out: elastic(out, {"misdeeds": {"w0": ["forget", 3]}}), r"did not call step\(\)"),
        (lambda _: asked([sys.executable, "-c", "pass"], kind="elastic"), "ended before"),
    ],
)
def test_a_job_that_fails_says_why_and_disturbs_nobody(tmp_path: Path, request_of, error) -> None:
    with site(tmp_path / "state") as here:
        other = here.submit(asked(["sleep", "1000"]))
        uid = here.submit(request_of(tmp_path / "out"))
        here.backend.wait(0)
        here.give({other: [(1, 1)], uid: [(0, 1)]})
        ended = here.ends(uid)
        assert ended.state == "failed"
        assert re.search(error, ended.error)
        assert here.job(other).share == ((1, 1, 0),)
        here.until(lambda: here.job(other).status)
        assert here.job(other).status.state == "running"


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); "
        "time.sleep(1000)"
    )
    with site(tmp_path / "state") as here:
        uid = here.submit(python(code, grace_s=0.3))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        log = here.store.folder(uid) / "run-1/logs/w0.log"
        here.until(lambda: log.exists() and log.read_text())
        here.until(lambda: here.job(uid).status)
        pid = here.job(uid).status.pids["w0"]
        here.store.cancel(uid)
        assert here.ends(uid).state == "cancelled"
        assert not runs(pid)


def test_a_retry_and_then_the_end(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(python("raise SystemExit(1)", retries=1))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).held.failures == 1)
        assert not here.job(uid).share
        here.give({uid: [(0, 1)]})
        assert here.ends(uid).state == "failed"
        assert here.store.held(uid).run == 2


def test_what_can_never_run_is_refused_and_what_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["true"], workers=5))
        broken = here.submit(asked(["true"]))
        (here.store.folder(broken) / "request.json").write_text("{")
        here.backend.wait(here.backend.now_s + 1)
        assert "room for 4" in here.ends(uid).error
        (said,) = (text for text in here.said if f"job {broken} is set aside" in text)
        assert "damaged" in said
        assert here.store.ended(broken) is None
        assert not here.backend.jobs


def test_only_jobs_that_report_samples_teach_how_jobs_slow_each_other_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site(tmp_path / "state") as here:
        here.submit(asked(["true"]))
        trains = here.submit(asked(["true"], kind="elastic"))
        here.until(lambda: len(here.backend.jobs) == 2)
        seen, see = list[object](), here.backend._speeds.see
        monkeypatch.setattr(
            here.backend._speeds, "see", lambda *a, **k: (seen.append(k["told"]), see(*a, **k))[1]
        )
        here.backend.observe()
        assert seen == [{trains}]


def test_a_smaller_cluster_stops_who_does_not_fit(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        one, two = here.submit(asked(["sleep", "1000"])), here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({one: [(0, 1)], two: [(1, 1)]})
        here.until(lambda: here.job(one).status and here.job(two).status)
        here.cluster = Cluster.uniform(1, 2)
        here.reopen()
        snapshot = here.backend.observe()
        assert snapshot.jobs.held_workers.tolist() == [1, 0]
        here.until(lambda: not here.job(two).held.open)
        here.give({two: [(0, 1)]})
        here.until(lambda: here.job(two).status)
        assert here.job(two).held.run == 2
        assert here.job(one).held.run == 1
