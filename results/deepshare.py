"""Train DeepShare by candidates with three seeds, and play it against rules on traces never seen.

`make results-deepshare` continues where an earlier run stopped: trainings in out/results/deepshare
that are over are not repeated. Two trainings run at a time, each on one core. The best by
validation ships. Shorter trainings without one of its parts follow. Then it rewrites the tables of
docs/systems/deepshare.md. Traces are seeds from 2000 up, which nothing was learned from or chosen
by.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs import BatchEnv, WorldPool
from rota.learn import checkpoint
from rota.learn.batch_rollout_env import uniform_jct_s
from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer
from rota.learn.training_folder import BEST, RESUME
from rota.policies import make_policy
from rota.run.stats import paired
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.registry import TRAININGS, WEIGHTS, system

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rota.core.decision import Decision
    from rota.core.snapshot import Snapshot
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
LARGE = "contention-large"
LARGE_TRACES = 10
ROLLOUTS = (ROLLOUT, f"{ROLLOUT}:threshold=0.85")
"""On 64 nodes: as it is, and set for that scenario."""
SIZES = {64: (500, 5), 256: (2000, 5), 1000: (8000, 2)}
"""Numbers of nodes that it never learned on; of jobs there, and of traces."""
GREEDIES = (GREEDY, f"{GREEDY}:threshold=0.85", f"{GREEDY}:fraction=1,threshold=0.85")
PARTS = ("blind", "eager", "cold", "still", "today")
"""Recipes deepshare-… that lack something."""
SHORT = ("run.updates=120", "run.validate_every=40")
"""How the trainings differ that show what its parts are worth; also the one with all of them."""
PART_WORLDS = ("deepshare", "contention-arrivals-080")
PART_TRACES = 40
FIRST = 2000


@dataclass(frozen=True)
class Runs:
    """How a policy did, by trace."""

    mean_s: Floats
    p99_s: Floats
    makespan_s: Floats
    decision_s: Floats
    slow_decision_s: Floats

    @classmethod
    def joined(cls, parts: Sequence[Runs]) -> Runs:
        """The mean over several trainings, trace by trace."""
        columns = [field.name for field in fields(cls)]
        return cls(*(np.mean([getattr(part, name) for part in parts], 0) for name in columns))


def train(job: tuple[str, str, tuple[str, ...]]) -> None:
    """One training, from where it stopped: its folder, recipe and changes."""
    name, recipe, changes = job
    folder = OUT / name
    if (folder / "over").exists():
        return
    began_s = perf_counter()
    Trainer(load_recipe(recipe, changes), folder, resume=(folder / RESUME).exists()).run()
    (folder / "over").touch()
    print(f"{name}: {(perf_counter() - began_s) / 60:.1f} minutes", file=sys.stderr, flush=True)


class Timed:
    """A policy whose decisions are timed where jobs wait."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.took_s = policy, list[float]()

    def decide(self, snapshot: Snapshot) -> Decision:
        began_s = perf_counter()
        decision: Decision = self.policy.decide(snapshot)
        if snapshot.jobs.waiting.any():
            self.took_s.append(perf_counter() - began_s)
        return decision


def one(scenario: str, changes: tuple[str, ...], policy: str, seed: int) -> tuple[float, ...]:
    """Mean, 99th percentile and makespan of one run; mean and 99th percentile of its decisions."""
    drawn = load(scenario, changes)
    world = drawn.draw(seed)
    chosen = make_policy(policy if policy.endswith(".ckpt") else drawn.policy(policy))
    if policy.startswith("contention-") or policy.endswith(".ckpt"):  # others run compiled
        chosen = Timed(chosen)
    run = simulate(world.cluster, world.trace, chosen, world.when, seed=seed, physics=world.physics)
    jct_s = run.done_s - run.submit_s
    took_s = np.array(getattr(chosen, "took_s", None) or [np.nan] * 4)[
        3:
    ]  # the first ones load code
    return (
        jct_s.mean(), np.percentile(jct_s, 99), run.done_s.max() - run.begin_s, took_s.mean(),
        np.percentile(took_s, 99),
    )  # fmt: skip


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


def _beside(own_s: Floats, other_s: Floats) -> str:
    """Two times of decisions."""
    own_ms, other_ms = 1e3 * float(own_s.mean()), 1e3 * float(other_s.mean())
    return f"{own_ms:.2f} / {other_ms:.2f} ms (1/{other_ms / own_ms:.0f})"


def large_table(pool: ProcessPoolExecutor, network: str) -> list[str]:
    """On 64 nodes against rollouts: how good, and how quick."""
    lines = [
        "| against | mean | p99 | a decision, mean | p99 of decisions |",
        "|---|---|---|---|---|",
    ]
    own = played(pool, LARGE, network, LARGE_TRACES)
    for name in (*ROLLOUTS, GREEDIES[1]):
        rule = played(pool, LARGE, name, LARGE_TRACES)
        times = (
            _beside(own.decision_s, rule.decision_s),
            _beside(own.slow_decision_s, rule.slow_decision_s),
        )
        cells = ratio(own.mean_s, rule.mean_s), ratio(own.p99_s, rule.p99_s), *times
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def size_table(pool: ProcessPoolExecutor, network: str) -> list[str]:
    """Clusters far larger than it learned on."""
    lines = [
        f"| nodes, jobs | against `{GREEDY}` | its best of three settings | against that |",
        "|---|---|---|---|",
    ]
    for nodes, (jobs, traces) in SIZES.items():
        changes = (f"cluster.nodes={nodes}", f"workload.jobs={jobs}")
        own = played(pool, LARGE, network, traces, changes)
        rules = {name: played(pool, LARGE, name, traces, changes) for name in GREEDIES}
        best = min(rules, key=lambda name: float(rules[name].mean_s.mean()))
        cells = (f"{nodes}, {jobs:,}", ratio(own.mean_s, rules[GREEDY].mean_s), f"`{best}`",
                 ratio(own.mean_s, rules[best].mean_s))  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def by_chance(scenario: str, traces: int) -> Floats:
    """The mean JCT of each trace if candidates are chosen at random."""
    built = system("deepshare")
    lens = built.make_lens(built.lens_settings())
    seeds = range(FIRST, FIRST + traces)
    pool = WorldPool.of([load(scenario).draw(seed) for seed in seeds], list(seeds))
    return uniform_jct_s(lambda: BatchEnv(pool, lens, batch=traces), np.random.default_rng(0))


def part_table(pool: ProcessPoolExecutor) -> list[str]:
    """What is lost without a part, in shorter trainings."""
    lines = [f"| | {' | '.join(f'`{name}`' for name in PART_WORLDS)} |", "|---|---|---|"]
    whole = [played(pool, name, str(OUT / "short" / BEST), PART_TRACES) for name in PART_WORLDS]
    rows = {f"`deepshare-{part}`": str(OUT / f"short-{part}" / BEST) for part in PARTS}
    rows |= {f"`{name}`": name for name in (f"{GREEDY}:threshold=0.2", ROLLOUT)}
    for label, policy in rows.items():
        other = [played(pool, name, policy, PART_TRACES) for name in PART_WORLDS]
        cells = [ratio(a.mean_s, b.mean_s) for a, b in zip(other, whole, strict=True)]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    chance = list(pool.map(partial(by_chance, traces=PART_TRACES), PART_WORLDS))
    cells = [ratio(a, b.mean_s) for a, b in zip(chance, whole, strict=True)]
    return [*lines, f"| candidates at random | {' | '.join(cells)} |"]


def ship(networks: Sequence[str]) -> str:
    """Copy the network with the lowest validation to where rota ships it from."""
    best = checkpoint.best_of([Path(path) for path in networks])
    shutil.copyfile(best, WEIGHTS / "deepshare.ckpt")
    return str(best)


def main() -> None:
    """Train, ship, play, write."""
    jobs = [(f"seed-{seed}", "deepshare", (f"run.seed={seed}",)) for seed in TRAININGS]
    jobs.append(("short", "deepshare", SHORT))
    jobs += [(f"short-{part}", f"deepshare-{part}", SHORT) for part in PARTS]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(train, jobs))
        networks = [str(OUT / f"seed-{seed}" / BEST) for seed in TRAININGS]
        best = ship(networks)
        parts = [
            main_table(pool, networks), claim_table(pool, best), large_table(pool, best),
            size_table(pool, best), part_table(pool),
        ]  # fmt: skip
    text = "\n\n".join("\n".join(lines) for lines in parts)
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
