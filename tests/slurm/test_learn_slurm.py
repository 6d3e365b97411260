"""Beside a real Slurm: weights are learned from the journal of a running daemon, and swapped."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from daemon import SLEEP, daemon
from learned_weights import learned, put

from rota.learn import checkpoint
from rota.learn.live_weights import OFFERED, REFUSED, RUNNING
from rota.learn.verdict import short
from rota.run.reader import read_journal
from rota.systems.registry import trained

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

pytestmark = pytest.mark.slurm
JOBS = 40
LITTLE = ["--stretch", "2", "--set", "run.updates=2", "--set", "world.clusters=4",
          "--set", "look_ahead.steps=2"]  # fmt: skip


def decided(path: Path) -> list[str]:
    """The weights that decided, one after another."""
    with read_journal(path) as view:
        return [one.weights for one in view.weights()]


def over(path: Path) -> int:
    """Jobs of which a journal says that they are done."""
    with read_journal(path) as view:
        return int((view.outcome().done_s > 0).sum())


def test_a_daemon_learns_from_its_own_journal(lab: Lab) -> None:
    shipped = checkpoint.load(trained()["deepshare"])
    for gpus in (1, 2):
        lab.submit(SLEEP.format(seconds=gpus), "-a", f"1-{JOBS // 2}", f"--gres=gpu:{gpus}")
    with daemon(lab, "deepshare", name="learn") as rota:
        lab.until(lambda: over(rota.journal) == JOBS, "all jobs are over")
        assert decided(rota.journal) == [short(shipped.digest)]

        words = ["learn", "deepshare", "--from", str(rota.journal), *LITTLE, "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "rota", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert facts["running"] == shipped.digest
        assert facts["held_out"] == 6
        now = shipped
        if facts["not_worse"]:
            lab.until((rota.state / RUNNING).exists, "it is taken")
            now = checkpoint.load(rota.state / RUNNING)
            assert now.digest == facts["learned"]

        after = learned(now)
        put(rota.state / OFFERED, after)
        lab.submit(SLEEP.format(seconds=1), "--gres=gpu:1")
        lab.until(lambda: decided(rota.journal)[-1:] == [short(after.digest)],
                  "the learned weights decide")  # fmt: skip
        lab.until(lambda: over(rota.journal) == JOBS + 1, "the job is over")

        put(rota.state / OFFERED, learned(after, 0.05))
        lab.until((rota.state / REFUSED).exists, "worse ones are refused")
        rota.kill()
    with daemon(lab, "deepshare", name="learn") as rota:
        lab.submit(SLEEP.format(seconds=1), "--gres=gpu:1")
        lab.until(lambda: over(rota.journal) == JOBS + 2, "the job is over")
        assert rota.stop() == 0
    assert f"goes on with the weights {short(after.digest)}" in rota.said
    *_, last = decided(rota.journal)
    assert last == short(after.digest)
