"""Forty real jobs on a private Slurm under several policies, and what the simulator says of them.

`make results-slurm`; takes a quarter of an hour and rewrites the table of docs/slurm.md. Jobs are
processes that count steps and go on where they were stopped; every fourth can be given one to four
nodes. What starts, ends and stops cost on this machine is measured first, with other jobs; nothing
is fitted to the forty.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
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

from rota.backends.slurm.replies import ENDS  # noqa: E402
from rota.core import Cluster  # noqa: E402
from rota.policies import make_policy  # noqa: E402
from rota.sim import Conditions, simulate  # noqa: E402
from rota.traces import Trace  # noqa: E402

if TYPE_CHECKING:
    from rota.core.types import Floats

POLICIES: Final = ("fifo", "srtf", "deepshare", "srtf+elastic")
JOBS: Final = 40
STEPS_PER_S: Final = 2
SCRIPT: Final = COUNTING.replace("sleep .1", f"sleep {1 / STEPS_PER_S}")
SHAPES: Final = ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4))
"""Nodes, and GPUs on each; those on several nodes have them for themselves."""
ODDS: Final = (0.3, 0.25, 0.25, 0.15, 0.05)
ELASTIC: Final = 4
"""Every fourth job can be given another size, by a new run on other nodes."""
MOST_NODES: Final = 4
LOOK_S: Final = 2.0
"""Between two looks of the daemon at the queue: it decides after each that found something new."""
MIN_RUN_S: Final = 5.0
WORLDS: Final = 40
"""Simulations of one run: when looks are made, relative to the jobs, is a matter of chance."""


@dataclass(frozen=True)
class Workload:
    """Jobs, one entry each."""

    submit_s: Floats  # (J,) seconds after the first
    work_s: Floats  # (J,) alone, at the size that it asks for
    shape: list[tuple[int, int]]


@dataclass(frozen=True)
class Costs:
    """What was measured of this machine, in seconds."""

    begin_s: float
    """From submission to the first step of a job that finds room, if it is seen at once."""
    end_s: float
    """From the last step to the next job's first one on the same GPUs, if that is seen at once."""
    again_s: float
    """How much longer than that it takes where the next job is one that was stopped."""
    resize_s: float
    """From a stop to the next step of the same job, on more nodes."""
    step: float
    """How many times longer work takes than it should."""


def drawn(seed: int) -> Workload:
    """The forty jobs: arrivals at random times, lengths from a heavy tail."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.exponential(1.8, JOBS))
    work_s = np.clip(rng.lognormal(np.log(14.0), 0.8, JOBS), 4.0, 80.0).round()
    return Workload(submit_s - submit_s[0], work_s,
                    [SHAPES[k] for k in rng.choice(len(SHAPES), JOBS, p=ODDS)])  # fmt: skip


def submit(lab: Lab, work_s: float, nodes: int, gpus: int, *, elastic: bool = False) -> int:
    """One real job."""
    steps = round(work_s * STEPS_PER_S) * nodes  # it does as many at a time as it has nodes
    hints = f"rota:checkpointable=yes,estimate={work_s:g}s,restart=1s,model=steps"
    if elastic:
        hints += f",min_nodes=1,max_nodes={MOST_NODES}"
    return lab.submit(SCRIPT.format(steps=steps), f"-N{nodes}", f"--gres=gpu:{gpus}",
                      f"--comment={hints}")  # fmt: skip


def live(lab: Lab, policy: str, work: Workload, tell: Progress) -> tuple[Floats, list[int]]:
    """Completion times of the real jobs, and how often each was started."""
    bar = tell.add_task(f"{policy}, real", total=JOBS)
    jobs, came_s = list[int](), np.zeros(JOBS)
    often = ("--interval", f"{LOOK_S:g}s", "--min-run", f"{MIN_RUN_S:g}s", "--preempt-rate", "9999")
    with daemon(lab, policy, *often, name=f"forty-{policy}"):
        began = time.monotonic()
        for k, (at_s, work_s, shape) in enumerate(
            zip(work.submit_s, work.work_s, work.shape, strict=True)
        ):
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            came_s[k] = time.time()
            jobs.append(submit(lab, work_s, *shape, elastic=k % ELASTIC == 0))
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
    found = lab.jobs()  # Slurm forgets jobs that have long been over
    states = {job: found[job]["job_state"] for job in jobs if job in found}
    if wrong := {job: one for job, one in states.items() if ENDS.get(one, "done") != "done"}:
        raise SystemExit(f"These jobs have not run to their end: {wrong}")
    return sum(one != "COMPLETED" for one in states.values())


def measure(lab: Lab, tell: Progress) -> Costs:
    """What it costs to begin, to end and to stop, by jobs that are not among the forty."""
    turns = 8
    bar = tell.add_task("measure", total=turns + 6)
    begin_s, end_s, steps, again_s, resize_s = [], [], [], [], []
    with daemon(lab, "fifo-skip", name="measure", interval=f"{LOOK_S:g}s"):
        for _ in range(turns):
            at = time.time()
            pair = [submit(lab, 3.0, 8, 4) for _ in range(2)]
            lab.until(lambda own=pair: _not_over(lab, own) == 0, "both are over")
            first, second = (ledger(lab, job) for job in pair)
            begin_s.append(first[0][1] - at)
            end_s.append(second[0][1] - first[-1][1])
            steps += [(own[-1][1] - own[0][1]) / 3.0 for own in (first, second)]
            tell.advance(bar)
    with daemon(lab, "srtf", name="measure-stops", interval=f"{LOOK_S:g}s"):
        for _ in range(3):
            long = submit(lab, 40.0, 8, 4)
            lab.until(lambda job=long: ledger(lab, job), "it runs")
            time.sleep(2.0)
            short = submit(lab, 3.0, 8, 4)
            lab.until(lambda job=long: len(ledger(lab, job)) > 2, "the other runs again")
            again_s.append(ledger(lab, long)[2][1] - ledger(lab, short)[-1][1])
            lab.run("scancel", str(long))
            tell.advance(bar)
    with daemon(lab, "srtf+elastic", name="measure-resizes", interval=f"{LOOK_S:g}s"):
        for _ in range(3):
            short = submit(lab, 5.0, 6, 4)
            lab.until(lambda job=short: ledger(lab, job), "it runs")
            long = submit(lab, 40.0, 2, 4, elastic=True)
            lab.until(lambda job=long: len(ledger(lab, job)) > 2, "it has grown")
            own = ledger(lab, long)
            resize_s.append(own[2][1] - own[1][1])
            lab.run("scancel", str(long))
            tell.advance(bar)
    # The least that was seen is what remains if the daemon looks at the right moment.
    again = max(0.0, min(again_s) - min(end_s))
    return Costs(min(begin_s), min(end_s), again, min(resize_s), float(np.mean(steps)))


def predicted(policy: str, work: Workload, costs: Costs) -> tuple[Floats, Floats]:
    """The mean JCT, and the stops, moves and resizes, of simulations that look at other moments."""
    rng, found = np.random.default_rng(0), []
    nodes, gpus = (np.array(column) for column in zip(*work.shape, strict=True))
    elastic = np.arange(JOBS) % ELASTIC == 0
    when = Conditions(
        restart_s=costs.again_s, resize_s=costs.resize_s, min_run_s=MIN_RUN_S, slot_s=LOOK_S
    )
    for late_s in rng.uniform(0, LOOK_S, WORLDS):
        # From its start until others can have its GPUs a job holds them longer than it works.
        came_s = work.submit_s + costs.begin_s + late_s
        jobs = Trace.build(
            "forty", submit_s=came_s, num_gpus=nodes * gpus, gpus_per_worker=gpus,
            duration_s=work.work_s * costs.step + costs.end_s,
            min_workers=np.where(elastic, 1, nodes),
            max_workers=np.where(elastic, MOST_NODES, nodes),
        )  # fmt: skip
        run = simulate(Cluster.uniform(8, 4), jobs, make_policy(policy), when)
        jct_s = run.done_s - costs.end_s - late_s - work.submit_s
        found.append((jct_s.mean(), run.preemptions.sum() + run.moves + run.resizes))
    jct, stops = np.transpose(found)
    return jct, stops


def main() -> None:
    """Measure, play, predict, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", help="Only these; the page stays as it is.")
    parser.add_argument("--seed", type=int, default=7, help="Of the forty jobs.")
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
        "| policy | run to the end | started again | simulated | mean JCT | simulated | off |",
        "|---|---|---|---|---|---|---|",
    ]
    if not told.policy:
        rewrite("slurm.md", "forty", [*head, *rows])


def _row(policy: str, jct_s: Any, starts: list[int], said: tuple[Floats, Floats]) -> str:
    mean_s, (jct, stops) = float(jct_s.mean()), said
    off = mean_s / float(jct.mean()) - 1
    return (
        f"| `{policy}` | {len(jct_s)} of {JOBS} | {sum(starts) - JOBS} | {stops.mean():.0f} "
        f"| {mean_s:.1f} s | {jct.mean():.1f} ± {jct.std():.1f} s | {off:+.1%} |"
    )


if __name__ == "__main__":
    main()
