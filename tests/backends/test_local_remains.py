"""A GPU has one owner: nothing of a run outlives it, whatever its script has started."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from children import child, eventually
from elastic_jobs import runs
from local_jobs import asked, elastic, python, site

from rota.backends.local import agent_calls, live_job
from rota.elastic.run_processes import (
    MEMBERS,
    Process,
    end_processes,
    processes_of,
    register_member,
    with_descendants,
)

if TYPE_CHECKING:
    from local_jobs import Site

STAYS = "import os, sys, time; open(sys.argv[1] + f'/{os.getpid()}', 'w'); time.sleep(1000)"
"""Says where it is, and stays."""
TWICE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(3):
            os.close(number)
        open(sys.argv[1] + f'/{os.getpid()}', 'w')
        time.sleep(1000)
    os._exit(0)
while not os.path.exists(sys.argv[1] + '/end'):
    time.sleep(0.01)
"""
UNTIL = 'until [ -e "$2/end" ]; do sleep 0.01; done'
PY = sys.executable
WAYS = {
    "child of a shell": ["bash", "-c", f'"$0" -c "$1" "$2" & {UNTIL}', PY, STAYS],
    "setsid and nohup": [
        *("bash", "-c", f'nohup setsid "$0" -c "$1" "$2" >/dev/null 2>&1 & {UNTIL}', PY, STAYS)
    ],
    "double fork": [PY, "-c", TWICE],
    "clean environment": ["bash", "-c", f'env -i "$0" -c "$1" "$2" & {UNTIL}', PY, STAYS],
}
"""Scripts that go on until there is a file `end`, and leave somebody behind."""


def _stranger(tmp_path: Path, here: Site) -> int:
    """The process that a script has left somewhere."""
    out = tmp_path / "out"
    found = here.until(lambda: os.listdir(out))
    (out / found[0]).unlink()
    return int(found[0])


def _started(tmp_path: Path, here: Site, way: str) -> int:
    """A job that leaves a process behind in this way, on its seat."""
    (tmp_path / "out").mkdir()
    uid = here.submit(asked([*WAYS[way], str(tmp_path / "out")]))
    here.backend.wait(0)
    here.give({uid: [(0, 1)]})
    return uid


@pytest.mark.parametrize("way", WAYS)
def test_what_a_script_left_behind_ends_with_its_agent(tmp_path: Path, way: str) -> None:
    with site(tmp_path / "state") as here:
        uid = _started(tmp_path, here, way)
        first = _stranger(tmp_path, here)
        os.kill(here.agents()[0], signal.SIGKILL)
        here.until(lambda: here.job(uid).held.failures == 1)
        assert not runs(first)
        assert not here.job(uid).share
        here.give({uid: [(0, 1)]})
        second = _stranger(tmp_path, here)
        here.store.cancel(uid)
        assert here.ends(uid).state == "cancelled"
        assert not runs(second)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_script_left_behind_ends_with_it(tmp_path: Path, way: str) -> None:
    """Here the script ends by itself, and its agent sees to the rest."""
    with site(tmp_path / "state") as here:
        uid = _started(tmp_path, here, way)
        left = _stranger(tmp_path, here)
        (tmp_path / "out" / "end").touch()
        assert here.ends(uid).state == "done"
        assert not runs(left)


def test_a_seat_is_free_when_all_that_its_member_started_is_gone(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        config = {"epochs": 10**6, "pace_s": 0.005, "leaves": str(tmp_path / "out")}
        (tmp_path / "out").mkdir()
        uid = here.submit(elastic(tmp_path / "log", config, workers=2, min_workers=1))
        here.backend.wait(0)
        here.give({uid: [(0, 2)]})
        here.trains(uid, 2)
        left = {int(path.name) for path in (tmp_path / "out").iterdir()}
        assert len(left) == 2
        here.give({uid: [(0, 1)]})
        here.until(lambda: not here.job(uid).held.leaving)
        assert sum(map(runs, left)) == 1
        os.kill(here.agents()[0], signal.SIGKILL)
        here.until(lambda: here.job(uid).held.failures == 1)
        assert not any(map(runs, left))


def test_seats_stay_taken_while_a_process_cannot_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = [4711]
    monkeypatch.setattr(agent_calls, "end_processes", lambda folder: end_processes(folder) or stuck)
    with site(tmp_path / "state", nodes=1, gpus=1) as here:
        uid = here.submit(asked(["true"], preemptible=True))
        other = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: "4711" in here.store.held(uid).note)
        assert here.job(uid).share == ((0, 1, 0),)
        here.give({uid: [], other: [(0, 1)]})
        for _ in range(20):
            here.backend.wait(here.backend.now_s + 0.05)
        assert not here.job(other).held.open
        stuck.clear()
        assert here.ends(uid).state == "done"
        here.until(lambda: here.job(other).status)


def test_an_agent_that_does_not_answer_is_ended_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_job, "FORCE_S", 0.5)
    with site(tmp_path / "state") as here:
        uid = here.submit(python("import time; time.sleep(1000)", grace_s=0.5))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status and here.job(uid).status.pids)
        member = here.job(uid).status.pids["w0"]
        agent = here.agents()[0]
        os.kill(agent, signal.SIGSTOP)
        here.store.cancel(uid)
        assert here.ends(uid).state == "cancelled"
        assert not runs(member)
        assert not runs(agent)


def test_a_number_that_was_given_again_is_nobody_elses_death(tmp_path: Path) -> None:
    (tmp_path / MEMBERS).mkdir()
    with child([PY, "-c", "import time; time.sleep(1000)"]) as innocent:
        eventually(lambda: Process.of(innocent.pid))
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        record = tmp_path / MEMBERS / "w0"
        record.write_text(f"{innocent.pid} 1 {boot} spawned\n")  # of one that started earlier
        assert processes_of(tmp_path) == []
        before = Process.of(innocent.pid)
        other = Process(innocent.pid, before.parent, before.session, before.started - 1)
        assert other.kill() is None
        record.write_text(f"{innocent.pid} {before.started} another-start spawned\n")
        assert processes_of(tmp_path) == []
        assert end_processes(tmp_path) == []
        for damage in ("", "x", "1 2", f"{'9' * 30} 1 {boot} forked\n"):
            record.write_text(damage)
            assert processes_of(tmp_path) == []
        assert innocent.poll() is None
        record.write_text(f"{innocent.pid} {before.started} {boot} spawned\n")
        assert end_processes(tmp_path) == []
        assert innocent.wait(60) == -signal.SIGKILL


def test_a_full_disk_keeps_nobody_from_starting(tmp_path: Path) -> None:
    register_member(tmp_path / "nowhere", "w0")
    register_member(tmp_path / "nowhere", "w0", forked=True)


def test_nobody_looks_at_all_processes_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    # An agent does so whenever a member ends, while the others wait for its word.
    def look() -> dict[int, Process]:
        raise AssertionError("all processes are looked at")

    monkeypatch.setattr("rota.elastic.run_processes._processes", look)
    assert with_descendants([]) == []
