"""`rota explain` beside a real Slurm: a job of each tier, with and without a daemon."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from daemon import COUNTING, SLEEP, all_over, daemon, runs, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab import Lab

pytestmark = pytest.mark.slurm


def told(lab: Lab, name: str, job: int | str) -> dict[str, Any]:
    """What `rota explain JOB --json` says, also while the daemon has not looked yet."""
    command = (sys.executable, "-m", "rota", "explain", str(job), "--json")
    done = lab.attempt(*command, "--state", str(lab.state / name))
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr}


def comes(lab: Lab, name: str, job: int, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first answer that is so."""
    found: dict[str, Any] = {}

    def is_so() -> bool:
        found.clear()
        found.update(told(lab, name, job))
        return "error" not in found and holds(found)

    lab.until(is_so, f"job {job} is explained")
    return found


def test_a_job_of_each_tier_says_what_it_waits_for(lab: Lab) -> None:
    gpu, name = "--gres=gpu:4", "tiers"
    with daemon(lab, "fifo", name=name) as rota:
        runner = lab.submit(SLEEP.format(seconds=600), "-N4", gpu, "--comment=rota:estimate=10m")
        lab.until(lambda: state_of(lab, runner) == "RUNNING", "it runs")
        large = lab.submit(SLEEP.format(seconds=60), "-N8", gpu, "--comment=rota:estimate=1m")
        small = lab.submit(SLEEP.format(seconds=1), "--gres=gpu:1")
        many = lab.submit(SLEEP.format(seconds=1), "-N9", "--gres=gpu:1")
        fat = lab.submit(SLEEP.format(seconds=1), "--gres=gpu:9")
        after = lab.submit(SLEEP.format(seconds=1), f"--dependency=afterok:{runner}")
        later = lab.submit(SLEEP.format(seconds=1), "--begin=now+1hour")
        held = lab.submit(SLEEP.format(seconds=1), "--hold")
        alone = lab.submit(SLEEP.format(seconds=1), "-N8", "--exclusive")

        def tier(job: int, wanted: str, level: int) -> dict[str, Any]:
            found = comes(lab, name, job, lambda f: [wanted] == [r["tier"] for r in f["reasons"]])
            assert found["reasons"][0]["level"] == level
            return found

        assert "it asks for 9 nodes" in tier(many, "never", 1)["text"]
        assert "9 GPUs" in tier(fat, "never", 1)["text"]
        found = tier(large, "full", 2)
        assert found["reasons"][0]["holders"] == [{"job": str(runner), "holds": 16}]
        starts = lab.jobs()[runner]["start_time"]
        assert abs(found["expected"]["start_at"] - (starts + 600)) < 5
        assert (found["expected"]["position"], found["expected"]["before"]) == (1, [])
        found = tier(small, "passed", 3)
        assert f"job {large} is ahead" in found["text"]
        assert abs(found["expected"]["start_at"] - (starts + 660)) < 5
        assert found["expected"]["before"] == [str(large)]
        assert f"afterok:{runner}" in tier(after, "outside", 4)["text"]
        assert "begin time" in tier(later, "outside", 4)["text"]
        assert "its user holds it" in tier(held, "outside", 4)["text"]
        assert "itself alone" in tier(alone, "left", 4)["text"]
        found = told(lab, name, runner)
        assert (found["state"], found["steps"][1]["what"]) == ("running", "started")
        assert found["steps"][1]["by"] == "fifo"
        assert rota.stop() == 0
    assert f"job {large} is ahead" in told(lab, name, small)["text"]
    assert told(lab, name, small)["daemon"] is False
    assert "knows no job" in told(lab, name, 999999)["error"]


def test_a_stopped_job_says_by_which_policy_and_for_which_job(lab: Lab) -> None:
    hints, name = "--comment=rota:checkpointable=yes,estimate=1h", "stopped"
    long = lab.submit(COUNTING.format(steps=3000), "-N8", "--gres=gpu:4", hints)
    with daemon(lab, "srtf", name=name):
        lab.until(lambda: runs(lab, long), "it runs")
        short = lab.submit(SLEEP.format(seconds=20), "-N8", "--gres=gpu:4",
                           "--comment=rota:estimate=20s")  # fmt: skip
        found = comes(lab, name, long, lambda f: f["state"] == "waiting")
        stop = next(step for step in found["steps"] if step["what"] == "stopped")
        assert (stop["by"], stop["gainers"]) == ("srtf", [str(short)])
        assert f"by srtf, for job {short}" in found["reasons"][1]["text"]
        lab.until(lambda: all_over(lab, short), "the short job is over")
        found = comes(lab, name, short, lambda f: f["state"] == "over")
        assert found["text"].startswith("done at ")
        found = comes(lab, name, long, lambda f: f["state"] == "running")
        assert f"by srtf, for job {short}" in found["text"]
        lab.run("scancel", str(long))
