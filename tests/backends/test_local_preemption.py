"""Who may be stopped for others, and what its user is told of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from local_jobs import asked, elastic, site

from rota.cli.app import run
from rota.core import Draft
from rota.core.plan import Stop
from rota.policies import make_policy
from rota.run.guard import Guard, Guarded

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core import Decision, Snapshot


class Stops:
    """Stops everybody, whatever that costs."""

    name = "stops"

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        for job in range(len(snapshot.jobs)):
            draft.stop(job)
        return draft.commit()


class Moves(Stops):
    name = "moves"

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        draft.stop(0)
        draft.place(0, [(1, 1)])
        return draft.commit()


class Grows(Stops):
    name = "grows"

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        draft.stop(0)
        draft.place(0, [(0, 2)])
        return draft.commit()


@pytest.mark.parametrize("policy", ["hull-greedy", "srtf", "las", "fifo-skip"])
def test_no_policy_stops_a_script_that_would_begin_again(tmp_path: Path, policy: str) -> None:
    with site(tmp_path / "state", nodes=1, gpus=1) as here:
        long = here.submit(asked(["sleep", "1000"], estimate_s=1e6))
        here.backend.wait(0)
        here.give({long: [(0, 1)]})
        short = here.submit(asked(["sleep", "1"], estimate_s=1.0))
        here.until(lambda: short in here.backend._jobs)
        for age_s in (0.0, 12.0, 1e5):
            here.job(long).held.since_s = here.backend.now_s - age_s
            snapshot = here.backend.observe()
            assert np.isinf(snapshot.jobs.min_run_s).tolist() == [True, False]
            decision = make_policy(policy).decide(snapshot)
            assert not len(decision.diff(snapshot))
            assert not np.isnan(decision.wake_s)


@pytest.mark.parametrize("policy", ["hull-greedy", "srtf"])
def test_who_says_so_may_be_stopped(tmp_path: Path, policy: str) -> None:
    with site(tmp_path / "state", nodes=1, gpus=1) as here:
        long = here.submit(asked(["sleep", "1000"], estimate_s=1e6, preemptible=True))
        here.backend.wait(0)
        here.give({long: [(0, 1)]})
        short = here.submit(asked(["sleep", "1"], estimate_s=1.0))
        here.until(lambda: short in here.backend._jobs)
        here.job(long).held.since_s -= 1e5
        snapshot = here.backend.observe()
        plan = make_policy(policy).decide(snapshot).diff(snapshot)
        assert [action.uid for action in plan if isinstance(action, Stop)] == [long]


@pytest.mark.parametrize("policy", [Stops(), Moves(), Grows()])
def test_a_policy_that_does_not_care_is_overruled(tmp_path: Path, policy: Stops) -> None:
    with site(tmp_path / "state") as here:
        uid = here.submit(asked(["sleep", "1000"], max_workers=2))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        snapshot = here.backend.observe()
        ruling = Guarded(policy, Guard()).rule(snapshot, 1)
        assert not len(ruling.plan)
        assert "runs until it has ended" in ruling.trouble
        # Nor does the backend obey, should it be asked by somebody without a guard.
        here.backend.apply(policy.decide(snapshot).diff(snapshot))
        assert here.job(uid).share == ((0, 1, 0),)
        assert any("left as it is" in text for text in here.said)


def test_nobody_is_stopped_before_the_least_run_time(tmp_path: Path) -> None:
    with site(tmp_path / "state", min_run_s=600.0) as here:
        uid = here.submit(elastic(tmp_path / "out", {"epochs": 10**6}))
        here.backend.wait(0)
        here.give({uid: [(0, 1)]})
        snapshot = here.backend.observe()
        assert snapshot.jobs.min_run_s.tolist() == [600.0]
        assert "runs until 600 s" in Guarded(Stops(), Guard()).rule(snapshot, 1).trouble
        # To resize an elastic job costs next to nothing.
        assert len(Guarded(Grows(), Guard()).rule(snapshot, 1).plan) == 1
        here.job(uid).held.since_s -= 601.0
        assert len(Guarded(Stops(), Guard()).rule(here.backend.observe(), 1).plan) == 1
        # It counts anew from a resize, as in the simulator.
        here.give({uid: [(0, 2)]})
        assert "runs until" in Guarded(Stops(), Guard()).rule(here.backend.observe(), 1).trouble


def test_the_queue_says_why_a_job_was_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site(tmp_path / "state", nodes=1, gpus=1) as here:
        old = here.submit(asked(["sleep", "1000"], preemptible=True))
        new = here.submit(asked(["sleep", "1000"]))
        here.backend.wait(0)
        here.give({old: [(0, 1)]})
        here.until(lambda: here.job(old).status)
        snapshot = here.backend.observe()
        draft = Draft(snapshot)
        draft.stop(0)
        draft.place(1, [(0, 1)])
        draft.reason(0, "it is the longest")
        plan = draft.commit().diff(snapshot)
        here.backend.apply(plan)
        here.backend.remark(plan, "hull-greedy")
        here.until(lambda: here.job(new).status)
        assert run(("queue", "--json", "--state", str(here.store.root))) == 0
        row = json.loads(capsys.readouterr().out)["jobs"][0]
        assert row["state"] == "waiting"
        assert row["why"].startswith("stopped at ")
        assert row["why"].endswith(f" by hull-greedy for job {new}: it is the longest")
        here.reopen()
        assert here.store.held(old).stopped == row["why"]
