"""Train DAS as published, and play it, its baselines and our rules in the das worlds.

`make results-das` continues where an earlier run stopped: trainings in out/results/das that are
over are not repeated. Two trainings run at a time, each on one core; then it rewrites the tables of
docs/least-loss.md and docs/systems/das.md. Seeds from 10 up, which nothing was learned from or
chosen by; ratios are of the means over the same seeds, with 95 % bootstrap intervals. Of several
trainings the mean counts, trace by trace.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer
from rota.learn.training_folder import BEST, RESUME
from rota.policies import make_policy
from rota.run.stats import paired
from rota.scenarios import load
from rota.sim import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats

PAGE, TABLE_PAGE = Path("docs/least-loss.md"), Path("docs/systems/das.md")
OUT = Path("out/results/das")
BEGIN, END = "<!-- das -->", "<!-- end of das -->"
WORLDS = {"das-small": range(10, 20), "das-medium": range(10, 20), "das-large": range(10, 13)}
FAMILY = (
    "fifo-skip+first-fit", "fifo-skip+worst-fit", "drf+first-fit", "drf+worst-fit", "tetris",
    "tetris+worst-fit",
)  # fmt: skip
"""What DAS compares with."""
SEARCHES = ("malo", "mosa", "rifling")
"""The same; they search or learn."""
TRAININGS = {"das-paper-da": 1, "das-paper-mc": 1, "das-paper-rwgp": 1, "das-paper": 3}
"""Recipes, and how many trainings of each."""
ROLLOUT = "contention-rollout:fraction=1,threshold=0.2"
OURS = ("srtf", "srsf", "gittins", ROLLOUT, "gavel-min-jct")
RULE = "least-loss"
VARIANTS = (
    "stops=0,moves=0", "stops=0", "moves=0", "displaces=0", "lengths=0", "drift=0.5", "horizon=7200"
)  # fmt: skip
ADVISED = ("das", "das:lengths=0", "das:fee=50", "das:fee=200", "das:fee=1000")
SKIPPED = {("das-large", ROLLOUT)}
"""Hours of look-ahead."""


def one(scenario: str, policy: str, seed: int) -> tuple[float, float, float]:
    """Mean and 99th percentile of the completion time, and the mean fee."""
    drawn = load(scenario)
    world = drawn.draw(seed)
    chosen = make_policy(policy if policy.endswith(".ckpt") else drawn.policy(policy))
    run = simulate(world.cluster, world.trace, chosen, world.when, seed=seed, physics=world.physics)
    jct_s = run.done_s - run.submit_s
    return float(jct_s.mean()), float(np.percentile(jct_s, 99)), float(run.fee.mean())


def played(pool: ProcessPoolExecutor, scenario: str, policies: Sequence[str]) -> dict[str, Floats]:
    """By policy: (seeds, 3)."""
    found = {}
    for policy in policies:
        if (scenario, policy) not in SKIPPED:
            rows = list(pool.map(partial(one, scenario, policy), WORLDS[scenario]))
            found[policy] = np.array(rows)
            print(f"{scenario}: {policy} {found[policy][:, 0].mean():,.0f} s", file=sys.stderr)
    return found


def ratio(own: Floats, other: Floats) -> str:
    """The ratio of two means over the same seeds."""
    versus = paired(own, other, np.random.default_rng(0))
    low, high = (1 + end for end in versus.ratio_ci)
    return f"{1 + versus.ratio:.3f} [{low:.3f}, {high:.3f}]"


def table(scenario: str, found: dict[str, Floats]) -> list[str]:
    """One world: every policy against the best of the family and against `least-loss`."""
    ran = [name for name in found if name in (*FAMILY, *SEARCHES)]
    best = min(ran, key=lambda name: found[name][:, 0].mean())
    seeds = WORLDS[scenario]
    lines = [
        f"`{scenario}`, seeds {seeds[0]} to {seeds[-1]}:",
        "",
        f"| policy | mean JCT | 99th percentile | mean fee | against `{best}` | against `{RULE}` |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        mean_s, p99_s, fee = rows.mean(0)
        versus = [
            "" if name == other else ratio(rows[:, 0], found[other][:, 0]) for other in (best, RULE)
        ]
        lines.append(
            f"| `{name}` | {mean_s:,.0f} s | {p99_s:,.0f} s | ${fee:.2f} | {versus[0]} | "
            f"{versus[1]} |"
        )
    return lines


def train(job: tuple[str, int]) -> None:
    """One training, from where it stopped: its recipe and seed."""
    recipe, seed = job
    folder = OUT / f"{recipe}-{seed}"
    if not (folder / "over").exists():
        changed = load_recipe(recipe, (f"run.seed={seed}",))
        Trainer(changed, folder, resume=(folder / RESUME).exists()).run()
        (folder / "over").touch()
        print(f"{folder.name} is trained", file=sys.stderr, flush=True)


def trained(pool: ProcessPoolExecutor, scenario: str) -> dict[str, Floats]:
    """By recipe: the mean over its trainings (seeds, 3)."""
    found = {}
    for recipe, many in TRAININGS.items():
        files = [str(OUT / f"{recipe}-{seed}" / BEST) for seed in range(many)]
        rows = np.stack(list(played(pool, scenario, files).values()))
        found[f"{recipe}, {many} trained" if many > 1 else recipe] = rows.mean(axis=0)
    return found


def write(page: Path, text: str) -> None:
    """Replace what is between the marks of a page."""
    head, found, rest = page.read_text().partition(BEGIN)
    if not found or END not in rest:
        raise SystemExit(f"{page}: there is no place for the tables.")
    page.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Train, play and write."""
    rules = (*FAMILY, *OURS, RULE)
    variants = tuple(f"{RULE}:{settings}" for settings in VARIANTS)
    jobs = [(recipe, seed) for recipe, many in TRAININGS.items() for seed in range(many)]
    parts, tables = [], []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(train, jobs))
        for world in WORLDS:
            found = played(pool, world, rules)
            parts.append(table(world, found | played(pool, world, variants)))
            searched, learned = played(pool, world, SEARCHES), trained(pool, world)
            advised = played(pool, world, ADVISED)
            own = {name: rows for name, rows in found.items() if name in FAMILY}
            ours = {name: rows for name, rows in found.items() if name not in FAMILY}
            tables.append(table(world, own | searched | learned | ours | advised))
    for page, lines in ((PAGE, parts), (TABLE_PAGE, tables)):
        write(page, "\n\n".join("\n".join(part) for part in lines))


if __name__ == "__main__":
    main()
