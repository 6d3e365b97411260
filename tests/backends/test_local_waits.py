"""What the queue says of waiting jobs: the file of reasons, and rows made of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from local_jobs import asked, site

from rota.backends.local import Request
from rota.backends.local.queue_rows import QueueRows
from rota.backends.local.start_hint import start_hint
from rota.backends.waits_file import WAITS, WaitsFile
from rota.core import Draft
from rota.run.wait_reason import WaitReason
from rota.run.why import why_waiting

if TYPE_CHECKING:
    from pathlib import Path

    from rota.backends.local import StateDir

FULL = WaitReason("full", "needs 2 GPUs", "Later.", ((1, 2), (7, 1.5)), "GPUs")
PASSED = WaitReason("passed", "it fits", ahead=3)


def test_reasons_are_kept_and_shared(tmp_path: Path) -> None:
    WaitsFile(tmp_path).write({1: FULL, 2: FULL, 9: PASSED})
    assert WaitsFile(tmp_path).read() == {1: FULL, 2: FULL, 9: PASSED}
    assert len(json.loads((tmp_path / WAITS).read_text())["reasons"]) == 2


def test_what_has_not_changed_is_not_written_again(tmp_path: Path) -> None:
    file = WaitsFile(tmp_path)
    file.write({1: FULL})
    (tmp_path / WAITS).unlink()
    file.write({1: FULL})
    assert not (tmp_path / WAITS).exists()
    file.write({})
    assert file.read() == {}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "{}", '{"reasons": 3, "jobs": {}}', '{"reasons": [], "jobs": {"1": 0}}',
     '{"reasons": [{}], "jobs": {"1": 0}}', '{"reasons": [{"tier": "x"}], "jobs": {"1": 0}}',
     '{"reasons": [{"tier": "full", "text": 3}], "jobs": {"1": 0}}',
     '{"reasons": [null], "jobs": {"a": 0, "2": -1, "3": true, "4": 1.5}}',
     '{"reasons": [{"tier": "full", "text": "", "next": "", "unit": "", "holders": [[1, "x"]], '
     '"ahead": null}], "jobs": {"1": 0}}'],
)  # fmt: skip
def test_a_damaged_file_gives_no_reasons(tmp_path: Path, text: str) -> None:
    (tmp_path / WAITS).write_text(text)
    assert WaitsFile(tmp_path).read() == {}


def test_jobs_that_others_start_are_kept_by_name(tmp_path: Path) -> None:
    WaitsFile(tmp_path).write({1: FULL}, {"30": "it has a reservation"})
    assert WaitsFile(tmp_path).left() == {"30": "it has a reservation"}
    assert WaitsFile(tmp_path).read() == {1: FULL}
    for text in ("", "[]", '{"left": 3}', '{"left": {"30": 3}}'):
        (tmp_path / WAITS).write_text(text)
        assert WaitsFile(tmp_path).left() == {}


def tiers(store: StateDir, uid: int) -> list[str]:
    return [one["tier"] for one in QueueRows(store).some([uid])[0]["reasons"]]


def test_reasons_from_the_first_wait_to_the_run(tmp_path: Path) -> None:
    with site(tmp_path / "state", nodes=1, gpus=1) as here:
        old = here.submit(asked(["sleep", "1000"], preemptible=True))
        assert tiers(here.store, old) == ["no-daemon"]
        with here.store.locked():
            assert tiers(here.store, old) == ["pending"]
            here.backend.wait(0)
            here.give({old: [(0, 1)]})
            here.until(lambda: here.job(old).status)
            assert tiers(here.store, old) == []
            new = here.submit(asked(["sleep", "1000"]))
            here.until(lambda: new in here.backend._jobs)
            snapshot = here.backend.observe()
            here.backend.note_waits(why_waiting(snapshot, Draft(snapshot).commit(), "fifo"))
            row = QueueRows(here.store).some([new])[0]
            assert row["why"] == f"needs 1 GPU; 0 of 1 GPUs are free; job {old} holds 1"
            assert row["reasons"][0]["holders"] == [{"job": old, "holds": 1}]
            draft = Draft(snapshot)
            draft.stop(0)
            draft.place(1, [(0, 1)])
            decision = draft.commit()
            # Nothing is pushed yet: the old job's process is there, the new job has its seat.
            here.backend._push = lambda: False
            here.backend.apply(decision.diff(snapshot))
            here.backend.remark(decision.diff(snapshot), "srtf")
            here.backend.note_waits(why_waiting(snapshot, decision, "srtf"))
            assert tiers(here.store, old) == ["preempted", "leaving", "full"]
            assert tiers(here.store, new) == ["leaving"]
            starting = QueueRows(here.store).some([new])[0]["why"]
            assert starting == f"starts when the processes of job {old} on its GPUs have ended"
            del here.backend._push
            here.until(lambda: here.job(new).status)
            assert tiers(here.store, new) == []
            assert tiers(here.store, old) == ["preempted", "full"]
            stopped = QueueRows(here.store).some([old])[0]
            assert stopped["why"].endswith(f"by srtf for job {new}")
            assert stopped["reasons"][0]["next"].startswith("It goes on from its checkpoint")


def test_a_job_that_failed_and_is_tried_again_says_so(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["false"], retries=1))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).held.failures == 1)
        why = QueueRows(here.store).some([uid])[0]["why"]
        assert why.startswith("failed at ")
        assert "retry 1 of 1: w0: it exited with code 1" in why


def request(program: str) -> Request:
    return Request(
        command=(program, "train.py"), cwd="/jobs", env={"PATH": "/usr/bin"}, submitted_at=0.0
    )


@pytest.mark.parametrize(
    ("program", "error", "hint"),
    [
        ("sh", "w0: it exited with code 1: ModuleNotFoundError: No module named 'torch.nn'",
         "It ran /usr/bin/sh in /jobs: install torch for it (/usr/bin/sh -m pip install torch), or "
         "submit with the full path of the Python that has it"),
        ("./run", "w0: it exited with code 127: run: 3: nosuch: not found",
         "It ran /jobs/run in /jobs: check the names and paths in the command; relative ones start "
         "at /jobs"),
        ("sh", "w0: it exited with code 126: Permission denied",
         "It ran /usr/bin/sh in /jobs: make the program executable (chmod +x), or put its "
         "interpreter before it"),
        ("sh", "w0: it exited with code 1: SyntaxError: invalid syntax",
         "It ran /usr/bin/sh in /jobs: correct the script, or submit with another Python"),
        ("sh", "w0: it exited with code 3: oh no",
         "It ran /usr/bin/sh in /jobs: rota logs shows all that it printed"),
        ("sh", "w0: it exited with code 1: No module named x; /usr/bin/sh ran it, try: pip", ""),
        ("sh", "w0: it was killed by SIGKILL", ""),
        ("sh", "", ""),
    ],
)  # fmt: skip
def test_a_failed_start_says_what_ran_and_what_to_do(program: str, error: str, hint: str) -> None:
    assert start_hint(request(program), error) == hint
