"""Play the classic policies in the scenarios that docs/ has tables of, and rewrite those tables.

`make results-worlds`; takes some minutes. Seeds 0 to 19 (`das-small`: 0 to 4), differences over
the same seeds with 95 % bootstrap intervals.
"""

from __future__ import annotations

import sys
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

DOCS = Path(__file__).resolve().parent.parent / "docs"
SEEDS = range(20)
ARRIVALS = {
    ".55": "contention-arrivals-055",
    ".65": "contention-arrivals",
    ".80": "contention-arrivals-080",
}
GREEDY = {
    "`threshold=0.2`": "contention-greedy:threshold=0.2",
    "`threshold=0`": "contention-greedy",
    "`threshold=0.3`": "contention-greedy:threshold=0.3",
    "`threshold=0.2,size=0.25`": "contention-greedy:threshold=0.2,size=0.25",
    "`contention-rollout`": "contention-rollout",
}
BLIND = ("fifo-skip", "gittins", "las", "tiresias", "srsf@oracle", "srtf@oracle")
TYPED = ("fifo-skip", "srtf", "pollux", "gavel-max-min", "gavel-min-jct", "least-loss")


def played(scenario: str, policies: Sequence[str], seeds: range) -> dict[str, Floats]:
    """By policy: mean completion time and mean fee of each seed (seeds, 2)."""
    chosen, found = load(scenario), {}
    worlds = [chosen.draw(seed) for seed in seeds]
    for name in policies:
        policy, rows = make_policy(chosen.policy(name)), []
        for seed, world in zip(seeds, worlds, strict=True):
            run = simulate(
                world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics
            )
            rows.append((float((run.done_s - run.submit_s).mean()), float(run.fee.mean())))
        found[name] = np.array(rows)
        print(f"{scenario}: {name} {found[name][:, 0].mean():,.0f} s", file=sys.stderr)
    return found


def against(found: dict[str, Floats], name: str, base: str) -> str:
    """The difference of the mean completion time to that of `base`, in percent."""
    versus = paired(found[name][:, 0], found[base][:, 0], np.random.default_rng(0))
    low, high = (f"{100 * end:+.1f}" for end in versus.ratio_ci)
    return f"{100 * versus.ratio:+.1f} % [{low}, {high}]".replace("-", "−")


def arrivals() -> list[str]:
    """Who waits for better company, at three loads."""
    lines = [f"| load | greedy, {' | '.join(GREEDY)} |", "|---" * (len(GREEDY) + 1) + "|"]
    base, *others = GREEDY.values()
    for about, scenario in ARRIVALS.items():
        found = played(scenario, list(GREEDY.values()), SEEDS)
        mean_s = found[base][:, 0].mean()
        differences = [against(found, name, base) for name in others]
        lines.append(f"| {about} | {' | '.join([f'{mean_s:,.0f} s', *differences])} |")
    return lines


def blind() -> list[str]:
    """Rigid gangs of unknown length, as on two clusters."""
    worlds = ("rigid-blind", "rigid-blind-philly")
    found = {world: played(world, BLIND, SEEDS) for world in worlds}
    lines = [f"| policy | {' | '.join(f'`{world}`' for world in worlds)} |", "|---|---|---|"]
    for name in BLIND:
        cells = [
            f"{found[world][name][:, 0].mean():,.0f} s" if name == BLIND[0]
            else against(found[world], name, BLIND[0])
            for world in worlds
        ]  # fmt: skip
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return lines


def typed() -> list[str]:
    """GPU types, neighbours, drift and prices."""
    found = played("das-small", TYPED, range(5))
    lines = ["| policy | mean JCT | against `fifo-skip` | mean fee |", "|---|---|---|---|"]
    for name in TYPED:
        mean_s, fee = found[name].mean(axis=0)
        versus = "" if name == TYPED[0] else against(found, name, TYPED[0])
        lines.append(f"| `{name}` | {mean_s:,.0f} s | {versus} | ${fee:,.2f} |")
    return lines


def rewrite(page: str, mark: str, lines: Sequence[str]) -> None:
    """Put `lines` between `<!-- mark -->` and `<!-- end of mark -->` of a page."""
    path = DOCS / page
    before, found, rest = path.read_text().partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition(f"<!-- end of {mark} -->")
    if not (found and end):
        raise SystemExit(f"{path}: there is no place for {mark!r}.")
    path.write_text(before + found + "\n".join(lines) + "\n" + end + after)


def main() -> None:
    """All tables, or those that are named."""
    tables = {"arrivals": arrivals, "blind": blind, "typed": typed}
    pages = {"arrivals": ("contention-policies.md", "results.md"), "blind": ("results.md",),
             "typed": ("results.md",)}  # fmt: skip
    for name in sys.argv[1:] or tables:
        lines = tables[name]()
        for page in pages[name]:
            rewrite(page, name, lines)


if __name__ == "__main__":
    main()
