"""Trainings under rota.elastic on a real Slurm: resized while they run, without a restart."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from daemon import COUNTING, all_over, daemon, runs, state_of
from lab import NOBODY

from rota.backends.book_reader import read_known

if TYPE_CHECKING:
    from lab import Lab

pytestmark = pytest.mark.slurm
TRAIN = """\
import os, sys, time
import torch
from rota.elastic import Elastic

book, epochs = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
data = torch.arange(96.0).reshape(24, 4)
with Elastic(model, torch.optim.SGD(model.parameters(), lr=1e-6), samples=24, batch=12,
             epochs=epochs) as run:
    for batch in run:
        chosen = torch.from_numpy(batch.indices)
        time.sleep(0.05)
        if run.step(run.model(data[chosen]).pow(2).mean()):
            with open(f"{book}.{os.environ['ROTA_MEMBER']}.steps", "a") as out:
                print(run.steps, batch.epoch, run.size, os.getpid(), time.time(),
                      *(batch.indices.tolist() if batch.share else []), file=out)
"""
"""Every member notes its steps: number, epoch, size of the group, process, time, its samples."""
BATCH = """\
#!/bin/sh
echo "began $(date +%s.%N) $SLURM_JOB_NODELIST" >> "$SLURM_JOB_ID.ledger"
exec "{python}" -m rota elastic-run -- "{python}" train.py "$SLURM_JOB_ID" {epochs}
"""
HINTS = "--comment=rota:elastic=yes,min_nodes=1,max_nodes={most},model=line,estimate=10m"


def submit(lab: Lab, epochs: int, most: int, *words: str, hints: str = "") -> int:
    """Submit an elastic training with a node of four GPUs, that may have more of them."""
    (lab.work / "train.py").write_text(TRAIN)
    script = BATCH.format(python=sys.executable, epochs=epochs)
    return lab.submit(script, "-N1", "--gres=gpu:1", HINTS.format(most=most) + hints, *words)


def steps(lab: Lab, job: int) -> dict[str, list[list[str]]]:
    """What the members of a training have noted, by name."""
    return {
        path.name.split(".")[1]: [line.split() for line in path.read_text().splitlines()]
        for path in sorted(lab.work.glob(f"{job}.*.steps"))
    }


def size(lab: Lab, job: int) -> int:
    """Members of a training in its last step."""
    last = [noted[-1] for noted in steps(lab, job).values() if noted]
    return int(max(last, key=lambda row: int(row[0]))[2]) if last else 0


def satellites(lab: Lab, job: int, *states: str) -> list[dict[str, Any]]:
    """Satellites of a job that are in one of these states."""
    said = f"rota:satellite-of={job}"
    return [one for one in lab.jobs().values()
            if one["comment"] == said and one["job_state"] in states]  # fmt: skip


def check_each_sample_once(lab: Lab, job: int, epochs: int) -> None:
    """Steps follow one another without a gap, and each epoch has each sample once."""
    seen: dict[int, list[int]] = {epoch: [] for epoch in range(epochs)}
    numbers = set[int]()
    for rows in steps(lab, job).values():
        for row in rows:
            numbers.add(int(row[0]))
            seen[int(row[1])] += map(int, row[5:])
    assert numbers == set(range(1, 2 * epochs + 1))
    assert all(sorted(found) == list(range(24)) for found in seen.values())


def heartbeat(lab: Lab, job: int) -> dict[str, Any]:
    """What a training has told of itself."""
    return dict(json.loads((lab.work / f"rota-heartbeat-{job}.json").read_text()))


def test_a_training_grows_and_shrinks_in_place_and_survives_a_killed_daemon(lab: Lab) -> None:
    epochs = 400
    with daemon(lab, "las+elastic", name="grows") as rota:
        job = submit(lab, epochs, 3)
        lab.until(lambda: size(lab, job) == 3, "it has grown to three nodes")
        rota.kill()
    with daemon(lab, "las+elastic", name="grows") as rota:
        other = lab.submit(COUNTING.format(steps=20), "-N7", "--gres=gpu:4", "-t", "2")
        lab.until(lambda: runs(lab, other), "the other job runs")
        assert size(lab, job) == 1
        lab.until(lambda: all_over(lab, other), "the other job is over")
        lab.until(lambda: size(lab, job) == 3, "it has grown again")
        lab.until(lambda: all_over(lab, job), "it is over")
        lab.until(lambda: not satellites(lab, job, "PENDING", "RUNNING", "COMPLETING"),
                  "its satellites are gone")  # fmt: skip
    assert len(runs(lab, job)) == 1
    check_each_sample_once(lab, job, epochs)
    told = heartbeat(lab, job)
    assert (told["samples"], told["total"]) == (24 * epochs, 24 * epochs)
    (own,) = (rows for name, rows in steps(lab, job).items() if f"-{job}-0-0" in name)
    assert [int(row[0]) for row in own] == list(range(1, 2 * epochs + 1))
    assert len({row[3] for row in own}) == 1, "it was one process from the first step to the last"
    assert state_of(lab, job) == "COMPLETED"
    known = next(one for one in read_known(rota.journal) if one.name == str(job))
    assert known.rate > 0
    assert (known.samples, known.preemptions) == (24 * epochs, 0)


def test_a_training_goes_on_when_the_node_of_a_satellite_dies(lab: Lab) -> None:
    epochs = 400
    with daemon(lab, "las+elastic", name="dies"):
        job = submit(lab, epochs, 2)
        lab.until(lambda: size(lab, job) == 2, "it has grown to two nodes")
        (other,) = satellites(lab, job, "RUNNING")
        lab.kill_node(other["nodes"])
        lab.until(lambda: size(lab, job) == 1, "it goes on alone")
        lab.run("scontrol", "update", f"nodename={other['nodes']}", "state=down", "reason=test")
        lab.until(lambda: size(lab, job) == 2, "it has another node")
        lab.until(lambda: all_over(lab, job), "it is over")
    assert len(runs(lab, job)) == 1
    check_each_sample_once(lab, job, epochs)


def test_a_training_that_can_be_stopped_goes_on_where_it_was(lab: Lab) -> None:
    epochs = 300
    with daemon(lab, "srtf", name="stopped"):
        job = submit(lab, epochs, 2, "--gres=gpu:4", hints=",checkpointable=yes")
        lab.until(lambda: size(lab, job) >= 1, "it trains")
        short = lab.submit(COUNTING.format(steps=5), "-N8", "--gres=gpu:4",
                           "--comment=rota:estimate=1s")  # fmt: skip
        lab.until(lambda: all_over(lab, short, job), "both are over")
    assert len(runs(lab, job)) == 2
    check_each_sample_once(lab, job, epochs)


def test_nobody_makes_a_job_of_another_user_grow_or_end(lab: Lab) -> None:
    with daemon(lab, "las+elastic", name="hostile") as rota:
        job = submit(lab, 150, 1)
        hint = f"--comment=rota:satellite-of={job}"
        hostile = lab.submit(COUNTING.format(steps=3), "--gres=gpu:1", hint, uid=NOBODY)
        lab.until(lambda: all_over(lab, hostile, job), "both are over")
        assert f"satellite-of={job} is ignored" in rota.said
    assert len(runs(lab, job)) == len(runs(lab, hostile)) == 1


def test_a_satellite_that_was_cancelled_is_replaced(lab: Lab) -> None:
    epochs = 800
    with daemon(lab, "las+elastic", name="again"):
        job = submit(lab, epochs, 2)
        lab.until(lambda: size(lab, job) == 2, "it has grown to two nodes")
        (first,) = satellites(lab, job, "RUNNING")
        lab.run("scancel", str(first["job_id"]))
        lab.until(lambda: size(lab, job) == 1, "it goes on alone")
        lab.until(lambda: size(lab, job) == 2, "it has grown again")
        (other,) = satellites(lab, job, "RUNNING")
        assert other["job_id"] != first["job_id"]
        lab.until(lambda: all_over(lab, job), "it is over")
    assert len(runs(lab, job)) == 1
    check_each_sample_once(lab, job, epochs)
