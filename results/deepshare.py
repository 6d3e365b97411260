"""Train DeepShare by candidates with three seeds, and play it against rules on traces never seen.

`make results-deepshare` continues where an earlier run stopped: trainings in out/results/deepshare
that are over are not repeated. Two trainings run at a time, each on one core. The best by
validation ships. Then it rewrites the tables of docs/systems/deepshare.md. Traces are seeds from
2000 up, which nothing was learned from or chosen by.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rota.learn import checkpoint
from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer
from rota.learn.training_folder import BEST, RESUME
from rota.policies import make_policy
from rota.run.stats import paired
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.registry import TRAININGS, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.core.types import Floats

OUT = Path("out/results/deepshare")
PAGE = Path("docs/systems/deepshare.md")
BEGIN, END = "<!-- candidates -->", "<!-- end of candidates -->"
ROLLOUT, GREEDY = "contention-rollout", "contention-greedy"
WORLDS = {
    "contention-arrivals-055": 100, "contention-arrivals": 100, "contention-arrivals-080": 100,
    "deepshare": 100, "deepshare-published": 20,
}  # fmt: skip
"""Scenarios, and how many traces of each are played."""
CLAIMED = ("las+spread", "srtf+spread")
"""What the authors compare with, corrected; where jobs arrive."""
SIZES = {64: 500, 256: 2000, 1000: 8000}
"""Numbers of nodes that it never learned on, and of jobs there."""
FIRST = 2000


@dataclass(frozen=True)
class Runs:
    """How a policy did, by trace."""

    mean_s: Floats
    p99_s: Floats
    makespan_s: Floats

    @classmethod
    def joined(cls, parts: Sequence[Runs]) -> Runs:
        """The mean over several trainings, trace by trace."""
        names = ("mean_s", "p99_s", "makespan_s")
        return cls(*(np.mean([getattr(part, name) for part in parts], 0) for name in names))


def train(seed: int) -> None:
    """One training, from where it stopped."""
    folder = OUT / f"seed-{seed}"
    if (folder / "over").exists():
        return
    recipe = load_recipe("deepshare", [f"run.seed={seed}"])
    Trainer(recipe, folder, resume=(folder / RESUME).exists()).run()
    (folder / "over").touch()


def one(scenario: str, changes: tuple[str, ...], policy: str, seed: int) -> tuple[float, ...]:
    """Mean, 99th percentile and makespan of one run."""
    drawn = load(scenario, changes)
    world = drawn.draw(seed)
    chosen = make_policy(policy if policy.endswith(".ckpt") else drawn.policy(policy))
    run = simulate(world.cluster, world.trace, chosen, world.when, seed=seed, physics=world.physics)
    jct_s = run.done_s - run.submit_s
    return jct_s.mean(), np.percentile(jct_s, 99), run.done_s.max() - run.begin_s


def played(
    pool: ProcessPoolExecutor, scenario: str, policy: str, traces: int, changes: Iterable[str] = ()
) -> Runs:
    """Play a policy on the first traces from FIRST on."""
    seeds = range(FIRST, FIRST + traces)
    found = list(pool.map(partial(one, scenario, tuple(changes), policy), seeds))
    runs = Runs(*np.array(found).T)
    print(f"{scenario} {policy}: {runs.mean_s.mean():,.0f} s", file=sys.stderr, flush=True)
    return runs


def ratio(own: Floats, other: Floats) -> str:
    """The ratio of means, with its 95 % interval over traces."""
    both = paired(own, other, np.random.default_rng(0))
    low, high = both.ratio_ci or (np.nan, np.nan)
    return f"{1 + (both.ratio or 0.0):.3f} [{1 + low:.3f}, {1 + high:.3f}]"


def main_table(pool: ProcessPoolExecutor, networks: Sequence[str]) -> list[str]:
    """Every scenario: the mean of the trainings, and each, against the rollout."""
    lines = [
        f"| scenario, traces | mean, against `{ROLLOUT}` | each training | p99 | makespan "
        "| mean, ks |",
        "|---|---|---|---|---|---|",
    ]
    for scenario, traces in WORLDS.items():
        rule = played(pool, scenario, ROLLOUT, traces)
        each = [played(pool, scenario, network, traces) for network in networks]
        own = Runs.joined(each)
        ratios = ", ".join(f"{runs.mean_s.mean() / rule.mean_s.mean():.3f}" for runs in each)
        cells = (
            f"`{scenario}`, {traces}", ratio(own.mean_s, rule.mean_s), ratios,
            ratio(own.p99_s, rule.p99_s), ratio(own.makespan_s, rule.makespan_s),
            f"{own.mean_s.mean() / 1e3:.2f} ({rule.mean_s.mean() / 1e3:.2f})",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def claim_table(pool: ProcessPoolExecutor, network: str) -> list[str]:
    """Against the authors' baselines, corrected."""
    lines = ["| scenario | against | mean | p99 |", "|---|---|---|---|"]
    for scenario in ("contention-arrivals", "deepshare"):
        own = played(pool, scenario, network, 20)
        for name in CLAIMED:
            other = played(pool, scenario, name, 20)
            cells = ratio(own.mean_s, other.mean_s), ratio(own.p99_s, other.p99_s)
            lines.append(f"| `{scenario}` | `{name}` | {' | '.join(cells)} |")
    return lines


def size_table(pool: ProcessPoolExecutor, network: str) -> list[str]:
    """Clusters far larger than it learned on."""
    lines = [
        f"| nodes, jobs | against `{GREEDY}` | its best of two settings | against that |",
        "|---|---|---|---|",
    ]
    for nodes, jobs in SIZES.items():
        changes = (f"cluster.nodes={nodes}", f"workload.jobs={jobs}")
        traces = 5 if nodes < 1000 else 2
        own = played(pool, "contention-large", network, traces, changes)
        rules = {
            name: played(pool, "contention-large", name, traces, changes)
            for name in (GREEDY, f"{GREEDY}:fraction=1,threshold=0.85")
        }
        best = min(rules, key=lambda name: float(rules[name].mean_s.mean()))
        cells = (f"{nodes}, {jobs:,}", ratio(own.mean_s, rules[GREEDY].mean_s), f"`{best}`",
                 ratio(own.mean_s, rules[best].mean_s))  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def ship(networks: Sequence[str]) -> str:
    """Copy the network with the lowest validation to where rota ships it from."""
    best = min(
        networks, key=lambda path: checkpoint.load(Path(path)).about.scores["validation_jct"]
    )
    shutil.copyfile(best, WEIGHTS / "deepshare.ckpt")
    return best


def main() -> None:
    """Train, ship, play, write."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(train, TRAININGS))
        networks = [str(OUT / f"seed-{seed}" / BEST) for seed in TRAININGS]
        best = ship(networks)
        parts = [main_table(pool, networks), claim_table(pool, best), size_table(pool, best)]
    text = "\n\n".join("\n".join(lines) for lines in parts)
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
