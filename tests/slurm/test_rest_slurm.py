"""Reading a real Slurm through slurmrestd: the same documents, and jobs go on when it is gone."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from daemon import COUNTING, SLEEP, all_over, daemon, runs

from rota.backends.slurm.replies import read_jobs, read_nodes
from rota.backends.slurm.rest import Slurmrestd
from rota.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab import Lab

pytestmark = pytest.mark.slurm


@pytest.fixture
def rest(lab: Lab) -> Iterator[Slurmrestd]:
    """The slurmrestd of the lab."""
    address = lab.start_rest()
    yield Slurmrestd(address)
    lab.kill_rest()


def test_the_documents_are_those_of_squeue_and_sinfo(lab: Lab, rest: Slurmrestd) -> None:
    jobs = [
        lab.submit(SLEEP.format(seconds=600), "-p", "free", "-N2", "--gres=gpu:3"),
        lab.submit(SLEEP.format(seconds=1), "--comment=rota:estimate=1s"),
        lab.submit(SLEEP.format(seconds=1), "-a", "0-9%2", "--gpus=8"),
    ]
    lab.until(lambda: rest.jobs() == read_jobs(lab.run("squeue", "--json")), "they are the same")
    assert {job.job_id for job in rest.jobs()} >= set(jobs)
    assert rest.version.startswith("v0.0.")
    nodes = lambda: read_nodes(lab.run("sinfo", "--json"))  # noqa: E731
    lab.until(lambda: rest.nodes() == nodes(), "nodes are the same")


def test_jobs_are_scheduled_through_it_and_without_it(lab: Lab, rest: Slurmrestd) -> None:
    with daemon(lab, "srtf", "--slurmrestd", rest.address, name="rest") as rota:
        job = lab.submit(COUNTING.format(steps=5), "-N2", "--gres=gpu:2")
        lab.until(lambda: all_over(lab, job), "it is over")
        assert "slurmrestd" not in rota.said
        lab.kill_rest()
        other = lab.submit(COUNTING.format(steps=5), "-N3", "--gres=gpu:4")
        lab.until(lambda: all_over(lab, other), "the other one is over, too")
        assert rota.said.count("slurmrestd does not answer") == 1
        lab.start_rest()
        lab.until(lambda: "slurmrestd answers again" in rota.said, "it is asked again")
        assert rota.stop() == 0
    assert [len(runs(lab, one)) for one in (job, other)] == [1, 1]


def test_the_doctor_asks_it(lab: Lab, rest: Slurmrestd) -> None:
    def found() -> dict[str, str]:
        done = lab.attempt(
            sys.executable, "-m", "rota", "doctor", "--partition", "rota", "--json",
            "--slurmrestd", rest.address, "--heartbeat", str(lab.heartbeat),
            "--state", str(lab.state / "rota"),
        )  # fmt: skip
        every = json.loads(done.stdout)["findings"]
        (own,) = [one for one in every if one["check"] == "slurmrestd"]
        return dict(own)

    assert found()["level"] == "ok"
    assert "8 nodes" in found()["found"]
    lab.kill_rest()
    assert found()["level"] == "bad"


def test_a_controller_that_is_away_is_told_of(lab: Lab, rest: Slurmrestd) -> None:
    assert rest.nodes()
    lab.end_ctld()
    try:
        with pytest.raises(BackendError, match=r"GET /slurm/v0\.0\..*/jobs/?: 500: "):
            rest.jobs()
    finally:
        lab.start_ctld()
    lab.until(rest.nodes, "it answers again")
