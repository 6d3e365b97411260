"""Learn on from shipped weights on journals of other worlds; rewrite the table of its page.

`make results-learn`; takes half an hour. For each seed of SEEDS, the shipped weights run
a world that they were not trained in, and `rota learn` goes on from the journal of that, but for
one case with its own defaults. Both weights then play the world's seeds 2000 to 2019, of which
neither the training nor the verdict has seen anything.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np
from worlds import rewrite

from rota.learn import checkpoint
from rota.learn.fine_tune import fine_tune
from rota.policies import make_policy
from rota.run.journal import Journal
from rota.run.stats import paired
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.registry import trained

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.learn.fine_tune import FineTuned
    from rota.scenarios import Scenario

SEEDS: Final = range(3010, 3013)
FRESH: Final = range(2000, 2020)


@dataclass(frozen=True)
class Drift:
    """Weights, and the world that they come into."""

    policy: str
    about: str
    scenario: str
    changes: tuple[str, ...]
    jobs: int = 600
    """Jobs of the journal."""
    stretch: int = 20
    settings: tuple[str, ...] = ()
    """Of the learning."""


CASES: Final = (
    Drift("dl2-queue", "none: its own world", "dl2-busy", ()),
    Drift("dl2-queue", "half the machines, a heavy tail of lengths", "dl2-busy-heavy", ()),
    Drift("dl2-shared", "no slots, jobs queue, other models", "dl2-busy", ()),
    Drift(
        "dl2-shared",
        "the same; 1,800 jobs, `--stretch 60`, 300 updates of the full step size",
        "dl2-busy",
        (),
        1800,
        60,
        ("run.updates=300", "ppo.learning_rate=0.001"),
    ),
    Drift("dl2-onepass", "no slots, jobs queue, other models", "dl2-busy", ()),
    Drift("deepshare", "load .9 in place of .5", "deepshare", ("workload.load=0.9",)),
    Drift("das-paper", "load .95 in place of .65", "das-small", ("workload.load=0.95",)),
)


def journal_of(case: Drift, seed: int, path: Path) -> Path:
    """What the shipped weights did in the other world."""
    world = load(case.scenario, [*case.changes, f"workload.jobs={case.jobs}"]).draw(seed)
    meta = {
        "policy": case.policy, "total_gpus": world.cluster.total_gpus, "seed": seed,
        "cluster": world.cluster, "conditions": world.when,
    }  # fmt: skip
    with Journal.create(path, meta=meta) as journal:
        simulate(
            world.cluster, world.trace, make_policy(case.policy), world.when, seed=seed,
            physics=world.physics, journal=journal,
        )  # fmt: skip
    return path


def fresh_jct_s(scenario: Scenario, policy: str) -> Floats:
    """The mean completion time of each fresh seed."""
    found = []
    for seed in FRESH:
        world = scenario.draw(seed)
        run = simulate(
            world.cluster, world.trace, make_policy(policy), world.when, seed=seed,
            physics=world.physics,
        )  # fmt: skip
        found.append(float((run.done_s - run.submit_s).mean()))
    return np.array(found)


def change(new_s: Floats, old_s: Floats) -> str:
    """The difference in percent, with its interval."""
    found = paired(new_s, old_s, np.random.default_rng(0))
    low, high = (f"{100 * end:+.1f}" for end in found.ratio_ci or (np.nan, np.nan))
    return f"{100 * (found.ratio or 0):+.1f} % [{low}, {high}]".replace("-", "−")


def verdict(tuned: FineTuned) -> str:
    """What `rota learn` says, in a word or two."""
    if tuned.new is None:
        return "nothing better found"
    return "**swapped**" if tuned.comparison.not_worse else "refused"


def row(case: Drift, seed: int) -> str:
    """One learning, told as a row of the table."""
    scenario, began_s = load(case.scenario, case.changes), monotonic()
    changes = [f"world.changes={list(case.changes)}".replace("'", '"'), *case.settings]
    with tempfile.TemporaryDirectory() as folder:
        journal = journal_of(case, seed, Path(folder) / "run.db")
        tuned = fine_tune(
            trained()[case.policy], journal, scenario=case.scenario, size=case.stretch,
            changes=changes, watch=lambda _: None, say=lambda _: None,
        )  # fmt: skip
        took_s, held, later = monotonic() - began_s, "–", "–"
        if tuned.new is not None:
            path = Path(folder) / "new.ckpt"
            checkpoint.save(path, tuned.new.about, tuned.new.weights)
            held = change(tuned.new_s, tuned.running_s)
            later = change(fresh_jct_s(scenario, str(path)), fresh_jct_s(scenario, case.policy))
    cells = (f"`{case.policy}`", case.about, seed, held, verdict(tuned), later, f"{took_s:.0f} s")
    line = f"| {' | '.join(map(str, cells))} |"
    print(line, file=sys.stderr)
    return line


def main() -> None:
    """Write the table."""
    lines = [
        "| weights | what changed | seed | held-out stretches | verdict | fresh worlds | time |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [row(case, seed) for case in CASES for seed in SEEDS]
    rewrite("learn-live.md", "drift", lines)


if __name__ == "__main__":
    main()
