"""Play the baselines of DAS, our rules and `least-loss` in the das worlds; rewrite their table.

`make results-das`; takes some minutes. Seeds from 10 up, which no setting of a rule was chosen by;
ratios are of the means over the same seeds, with 95 % bootstrap intervals.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rota.policies import make_policy
from rota.run.stats import paired
from rota.scenarios import load
from rota.sim import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats

PAGE = Path("docs/least-loss.md")
BEGIN, END = "<!-- das -->", "<!-- end of das -->"
WORLDS = {"das-small": range(10, 20), "das-medium": range(10, 20), "das-large": range(10, 13)}
FAMILY = (
    "fifo-skip+first-fit", "fifo-skip+worst-fit", "drf+first-fit", "drf+worst-fit", "tetris",
    "tetris+worst-fit",
)  # fmt: skip
"""What DAS compares with."""
ROLLOUT = "contention-rollout:fraction=1,threshold=0.2"
OURS = ("srtf", "srsf", "gittins", ROLLOUT, "gavel-min-jct")
RULE = "least-loss"
VARIANTS = (
    "stops=0,moves=0", "stops=0", "moves=0", "displaces=0", "lengths=0", "drift=0.5", "horizon=7200"
)  # fmt: skip
SKIPPED = {("das-large", ROLLOUT)}
"""Hours of look-ahead."""


def one(scenario: str, policy: str, seed: int) -> tuple[float, float, float]:
    """Mean and 99th percentile of the completion time, and the mean fee."""
    drawn = load(scenario)
    world = drawn.draw(seed)
    chosen = make_policy(drawn.policy(policy))
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
    ran = [name for name in found if name in FAMILY]
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


def main() -> None:
    """Play and write."""
    policies = (*FAMILY, *OURS, RULE, *(f"{RULE}:{settings}" for settings in VARIANTS))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        parts = [table(world, played(pool, world, policies)) for world in WORLDS]
    text = "\n\n".join("\n".join(lines) for lines in parts)
    head, found, rest = PAGE.read_text().partition(BEGIN)
    if not found or END not in rest:
        raise SystemExit(f"{PAGE}: there is no place for the tables.")
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
