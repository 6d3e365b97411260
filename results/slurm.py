"""Forty real jobs on a private Slurm under several policies, and what the simulator says of them.

`make results-slurm`; takes a quarter of an hour and rewrites the table of docs/slurm.md. Jobs are
processes that count steps and go on where they were stopped. What starts, ends and stops cost on
this machine is measured first, with other jobs; nothing is fitted to the forty.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.console import Console
from rich.progress import Progress
from worlds import rewrite

TESTS: Final = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "slurm"), str(TESTS / "helpers")]
from daemon import COUNTING, daemon, ledger  # noqa: E402
from lab import Lab  # noqa: E402

from rota.core import Cluster  # noqa: E402
from rota.policies import make_policy  # noqa: E402
from rota.sim import Conditions, simulate  # noqa: E402
from rota.traces import Trace  # noqa: E402

if TYPE_CHECKING:
    from rota.core import Decision, Policy, Snapshot
    from rota.core.types import Floats

POLICIES: Final = ("fifo-skip", "srtf", "deepshare")
JOBS: Final = 40
STEPS_PER_S: Final = 2
SCRIPT: Final = COUNTING.replace("sleep .1", f"sleep {1 / STEPS_PER_S}")
SHAPES: Final = ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4))
"""Nodes, and GPUs on each; those on several nodes have them for themselves."""
ODDS: Final = (0.3, 0.25, 0.25, 0.15, 0.05)
EVERY_S: Final = 2.0
WORLDS: Final = 20
"""Simulations of one run: how late a daemon sees a job come or go is a matter of chance."""
WITHIN: Final = 0.10


@dataclass(frozen=True)
class Workload:
    """Jobs, one entry each."""

    submit_s: Floats  # (J,) seconds after the first
    work_s: Floats  # (J,) alone, at the size that it asks for
    shape: list[tuple[int, int]]


@dataclass(frozen=True)
class Costs:
    """What was measured of this machine, in seconds."""

    begin_s: Floats
    """From submission to the first step of jobs that find everything free."""
    end_s: Floats
    """From the last step to the next job's first one on the same GPUs."""
    again_s: float
    """From a stop to the next step, beyond the two above."""
    step: float
    """How many times longer work takes than it should."""


def drawn(seed: int) -> Workload:
    """The forty jobs: arrivals at random times, lengths from a heavy tail."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.exponential(1.8, JOBS))
    work_s = np.clip(rng.lognormal(np.log(14.0), 0.8, JOBS), 4.0, 80.0).round()
    return Workload(submit_s - submit_s[0], work_s,
                    [SHAPES[k] for k in rng.choice(len(SHAPES), JOBS, p=ODDS)])  # fmt: skip


def submit(lab: Lab, work_s: float, nodes: int, gpus: int) -> int:
    """One real job."""
    steps = round(work_s * STEPS_PER_S) * nodes  # it does as many at a time as it has nodes
    hints = f"rota:checkpointable=yes,estimate={work_s:g}s,restart=3s,model=steps"
    return lab.submit(SCRIPT.format(steps=steps), f"-N{nodes}", f"--gres=gpu:{gpus}",
                      f"--comment={hints}")  # fmt: skip


def live(lab: Lab, policy: str, work: Workload, tell: Progress) -> tuple[Floats, list[int]]:
    """Completion times of the real jobs, and how often each was started."""
    bar = tell.add_task(f"{policy}, real", total=JOBS)
    jobs, came_s = list[int](), np.zeros(JOBS)
    with daemon(lab, policy, name=f"forty-{policy}", interval=f"{EVERY_S:g}s"):
        began = time.monotonic()
        for k, (at_s, work_s, shape) in enumerate(
            zip(work.submit_s, work.work_s, work.shape, strict=True)
        ):
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            came_s[k] = time.time()
            jobs.append(submit(lab, work_s, *shape))
        while (left := _not_over(lab, jobs)) > 0:
            tell.update(bar, completed=JOBS - left)
            time.sleep(0.5)
        tell.update(bar, completed=JOBS)
    notes = [ledger(lab, job) for job in jobs]
    done_s = np.array([own[-1][1] for own in notes])
    ends = [[what for what, *_ in own] for own in notes]
    if any(own.count("ended") != 1 or own[-1] != "ended" for own in ends):
        raise SystemExit(f"A job has not run once to its end: {ends}")
    return done_s - came_s, [own.count("began") for own in ends]


def _not_over(lab: Lab, jobs: list[int]) -> int:
    found = lab.jobs()
    return sum(found[job]["job_state"] != "COMPLETED" for job in jobs)


def measure(lab: Lab, tell: Progress) -> Costs:
    """What it costs to begin, to end and to stop, by jobs that are not among the forty."""
    turns = 8
    bar = tell.add_task("measure", total=turns + 3)
    begin_s, end_s, steps, again_s = [], [], [], []
    with daemon(lab, "fifo-skip", name="measure", interval=f"{EVERY_S:g}s"):
        for _ in range(turns):
            at = time.time()
            pair = [submit(lab, 3.0, 8, 4) for _ in range(2)]
            lab.until(lambda own=pair: _not_over(lab, own) == 0, "both are over")
            first, second = (ledger(lab, job) for job in pair)
            begin_s.append(first[0][1] - at)
            end_s.append(second[0][1] - first[-1][1])
            steps += [(own[-1][1] - own[0][1]) / 3.0 for own in (first, second)]
            tell.advance(bar)
    with daemon(lab, "srtf", name="measure-stops", interval=f"{EVERY_S:g}s"):
        for _ in range(3):
            long = submit(lab, 40.0, 8, 4)
            lab.until(lambda job=long: ledger(lab, job), "it runs")
            time.sleep(2.0)
            short = submit(lab, 3.0, 8, 4)
            lab.until(lambda own=(long, short): not _not_over(lab, [own[1]]), "it is over")
            lab.until(lambda job=long: len(ledger(lab, job)) > 2, "the other runs again")
            own, other = ledger(lab, long), ledger(lab, short)
            again_s.append(other[0][1] - own[1][1])
            lab.run("scancel", str(long))
            tell.advance(bar)
    return Costs(np.array(begin_s), np.array(end_s), float(np.mean(again_s)), float(np.mean(steps)))


@dataclass(frozen=True)
class AsLive:
    """A policy that is asked as often as by the daemon."""

    policy: Policy

    def decide(self, snapshot: Snapshot) -> Decision:
        decision = self.policy.decide(snapshot)
        return replace(decision, wake_s=min(decision.wake_s, snapshot.time_s + EVERY_S))


def predicted(policy: str, work: Workload, costs: Costs) -> tuple[float, float]:
    """The mean JCT and the stops and moves, over simulations with costs drawn from the measured."""
    rng, found = np.random.default_rng(0), []
    nodes, gpus = (np.array(column) for column in zip(*work.shape, strict=True))
    for _ in range(WORLDS):
        # A job is seen `late_s` after it came; from its start until others can have its GPUs
        # it holds them for `around_s` longer than it works.
        begin_s, around_s = rng.choice(costs.begin_s, JOBS), rng.choice(costs.end_s, JOBS)
        jobs = Trace.build(
            "forty", submit_s=work.submit_s + begin_s, num_gpus=nodes * gpus,
            duration_s=work.work_s * costs.step + around_s, gpus_per_worker=gpus,
        )  # fmt: skip
        run = simulate(Cluster.uniform(8, 4), jobs, AsLive(make_policy(policy)),
                       Conditions(restart_s=costs.again_s))  # fmt: skip
        order = np.argsort(work.submit_s + begin_s, kind="stable")
        jct_s = run.done_s - around_s[order] - work.submit_s[order]
        found.append((jct_s.mean(), run.preemptions.sum() + run.moves))
    jct, stops = np.mean(found, axis=0)
    return float(jct), float(stops)


def main() -> None:
    """Measure, play, predict, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", help="Only these; the page stays as it is.")
    parser.add_argument("--seed", type=int, default=8, help="Of the forty jobs.")
    told = parser.parse_args()
    work, rows = drawn(told.seed), list[str]()
    with Lab() as lab, Progress(console=Console(stderr=True), transient=True) as tell:
        costs = measure(lab, tell)
        print(costs, file=sys.stderr)
        for policy in told.policy or POLICIES:
            lab.clear()
            jct_s, starts = live(lab, policy, work, tell)
            rows.append(_row(policy, jct_s, starts, predicted(policy, work, costs)))
            print(rows[-1], flush=True)
    head = [
        "| policy | run to the end | stops and moves | simulated | mean JCT | simulated | off |",
        "|---|---|---|---|---|---|---|",
    ]
    if not told.policy:
        rewrite("slurm.md", "forty", [*head, *rows])


def _row(policy: str, jct_s: Any, starts: list[int], said: tuple[float, float]) -> str:
    mean_s = float(jct_s.mean())
    return (
        f"| `{policy}` | {len(jct_s)} of {JOBS} | {sum(starts) - JOBS} | {said[1]:.1f} "
        f"| {mean_s:.1f} s | {said[0]:.1f} s | {mean_s / said[0] - 1:+.1%} |"
    )


if __name__ == "__main__":
    main()
