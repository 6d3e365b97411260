"""Jobs that their users hold and resume, as the daemon treats them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from children import eventually
from elastic_jobs import runs
from local_jobs import asked, elastic, python, site
from test_local_backend import CHECKPOINTS

from rota.backends.local.holds import HOLD, hold_job, hold_of, resume_job
from rota.backends.local.queue_rows import QueueRows
from rota.core import Draft
from rota.core.layout import ARRIVE, START, STOP
from rota.errors import ConfigError
from rota.run.journal import Journal
from rota.run.loop import rounds
from rota.run.reader import read_journal
from rota.run.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from local_jobs import Site

    from rota.core import Decision, Snapshot


def seen(here: Site) -> list[int]:
    """The jobs that policies see."""
    return here.backend.observe().jobs.uid.tolist()


def state(here: Site, uid: int) -> str:
    return str(QueueRows(here.store).some([uid])[0]["state"])


def test_a_waiting_job_on_hold_is_seen_by_no_policy(tmp_path: Path) -> None:
    with site(tmp_path / "state", every_s=1e6) as here:
        one, two = (here.submit(asked(["sleep", "1000"])) for _ in range(2))
        here.backend.wait(0)
        hold_job(here.store, two)
        assert here.backend.wait(1e9)  # it calls for a decision
        assert seen(here) == [one]
        assert state(here, two) == "held"
        hold_job(here.store, two)  # once more does no harm
        here.reopen()
        assert seen(here) == [one]
        resume_job(here.store, two)
        assert here.backend.wait(1e9)
        assert seen(here) == [one, two]
        assert state(here, two) == "waiting"
        with pytest.raises(ConfigError, match=f"Job {two} is not held"):
            resume_job(here.store, two)


def test_a_script_with_a_checkpoint_is_stopped_held_and_goes_on(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        code = CHECKPOINTS.format(path=str(tmp_path / "done"), steps=10**6)
        uid = here.submit(python(code, preemptible=True))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        log = here.store.folder(uid) / "run-1/logs/w0.log"
        here.until(lambda: log.exists() and log.read_text())
        hold_job(here.store, uid)
        here.until(lambda: here.job(uid).on_hold and not here.job(uid).held.open)
        assert here.job(uid).held.preemptions == 0
        assert seen(here) == []
        reached = int((tmp_path / "done").read_text())
        row = QueueRows(here.store).some([uid])[0]
        assert (row["state"], row["reasons"][0]["tier"]) == ("held", "held")
        assert row["reasons"][0]["next"].endswith(
            "It goes on from its checkpoint when it is given GPUs again."
        )
        here.reopen()
        assert here.job(uid).on_hold
        resume_job(here.store, uid)
        here.until(lambda: not here.job(uid).on_hold)
        here.give({uid: [(1, 1)]})
        log = here.store.folder(uid) / "run-2/logs/w1.log"
        here.until(lambda: log.exists() and log.read_text())
        assert log.read_text() == f"from {reached} of 1\n"


def test_an_elastic_job_is_held_at_a_step_and_goes_on(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(elastic(tmp_path / "out", {"epochs": 10**6, "pace_s": 0.005}))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.trains(uid, 1)
        hold_job(here.store, uid)
        here.until(lambda: here.job(uid).on_hold and not here.job(uid).held.open)
        assert here.job(uid).held.parked == 1
        samples = here.job(uid).held.samples
        resume_job(here.store, uid)
        here.until(lambda: not here.job(uid).on_hold)
        here.give({uid: [(0, 1)]})
        here.trains(uid, 1)
        here.until(lambda: here.job(uid).held.samples > samples > 0)


def test_a_script_that_would_begin_again_is_held_by_force_only(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status)
        with pytest.raises(ConfigError, match=r"would begin again. Say --force"):
            hold_job(here.store, uid)
        assert hold_of(here.store, uid) is None
        pid = here.job(uid).status.pids["w0"]
        hold_job(here.store, uid, force=True)
        here.until(lambda: here.job(uid).on_hold and not here.job(uid).held.open)
        assert not runs(pid)
        assert here.job(uid).held.failures == 0
        here.store.cancel(uid)
        assert here.ends(uid).state == "cancelled"


def test_a_hold_that_comes_too_late_is_dropped(tmp_path: Path) -> None:
    """The job was started between the user's look and the daemon's."""
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        hold_job(here.store, uid)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status)
        here.until(lambda: hold_of(here.store, uid) is None)
        assert not here.job(uid).on_hold
        assert any("is not held: it had started before" in text for text in here.said)


def test_a_damaged_hold_still_holds_and_what_is_over_or_unknown_is_refused(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["true"]))
        (here.store.folder(uid) / HOLD).write_text("{")
        here.backend.wait(0)
        assert seen(here) == []
        here.store.cancel(uid)
        with pytest.raises(ConfigError, match="is being cancelled"):
            hold_job(here.store, uid)
        here.ends(uid)
        for do in (hold_job, resume_job):
            with pytest.raises(ConfigError, match="is over already"):
                do(here.store, uid)
            with pytest.raises(ConfigError, match="There is no job 77"):
                do(here.store, 77)


def test_a_stop_that_the_next_daemon_hears_of_late_is_no_failure(tmp_path: Path) -> None:
    """It was killed after it had told the agent, and the next one gives the job seats at once."""
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"], preemptible=True))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        here.until(lambda: here.job(uid).status)
        here.give({uid: []})
        here.until(lambda: here.job(uid).held.stop_asked)
        here.backend.close()
        eventually((here.store.run_folder(uid, 1) / "result.json").exists)
        here.open()
        here.give({uid: [(1, 1)]})
        here.until(lambda: uid not in here.backend._jobs or here.job(uid).held.run == 2)
        here.until(lambda: here.job(uid).status)
        assert here.job(uid).held.failures == 0


def test_held_jobs_do_not_keep_a_draining_daemon(tmp_path: Path) -> None:
    with site(tmp_path / "state", drain=True) as here:
        uid = here.submit(asked(["true"]))
        hold_job(here.store, uid)
        here.reopen()
        while here.backend.wait(here.backend.now_s + 1e9):
            here.backend.observe()
        assert here.store.ended(uid) is None


class Greedy:
    """Starts every job on the first node with a free GPU."""

    name = "greedy"

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        for job in range(len(snapshot.jobs)):
            if snapshot.jobs.waiting[job]:
                draft.place(job, [(0, 1)])
        return draft.commit()


def test_the_journal_knows_that_a_held_job_holds_nothing(tmp_path: Path) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"], preemptible=True))
        with Journal.create(
            tmp_path / "journal.db", meta={"policy": "greedy", "total_gpus": 4}
        ) as journal:
            recorder = Recorder(journal, here.backend)
            for turn in rounds(Greedy(), here.backend):
                recorder.write(turn)
                held = here.job(uid).held
                if held.open and not here.job(uid).on_hold and held.run == 1:
                    hold_job(here.store, uid)
                elif here.job(uid).on_hold and not held.open:
                    resume_job(here.store, uid)
                elif held.run == 2:
                    break
        with read_journal(tmp_path / "journal.db") as view:
            events, *_ = view.events()
        assert events["kind"].tolist() == [ARRIVE, START, STOP, START]
