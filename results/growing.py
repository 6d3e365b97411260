"""Play what decides about growth in the scenario `growing`, and rewrite the tables of its page.

`make results-growing`; takes some minutes on one core. Seeds 2000 to 2019, on which no weight was
chosen (seeds 1000 to 1009 were for that); differences over the same seeds with 95 % bootstrap
intervals.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from worlds import rewrite

from rota.policies import make_policy
from rota.run.stats import paired
from rota.scenarios import load
from rota.sim import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats
    from rota.run.outcome import Outcome

SEEDS: Final = range(2000, 2020)
WEIGHTS: Final = ("0", "0.01", "0.03", "0.1", "0.3")
BASES: Final = ("hull-greedy", "las/elastic")
FEW: Final = ("0.03",)
"""Weights over the second base."""


@dataclass(frozen=True)
class Played:
    """One policy over all seeds (S,)."""

    accuracy: Floats
    jct_s: Floats
    grown: Floats  # part of the jobs
    late: Floats  # part of the jobs that ended after their deadline
    spared: Floats  # (S,) JCT of the jobs that did not grow / that of the same jobs in the base


def play(policy: str, base: Sequence[Outcome] | None) -> tuple[Played, list[Outcome]]:
    """Play a policy on all seeds; `base` has the runs of the policy below it."""
    scenario, made, rows, runs = load("growing"), make_policy(policy), [], []
    for k, seed in enumerate(SEEDS):
        world = scenario.draw(seed)
        run = simulate(
            world.cluster, world.trace, made, world.when, seed=seed, physics=world.physics
        )
        jct_s, same = run.done_s - run.submit_s, run.level == 0
        spared = np.nan
        if base is not None and same.any():
            before_s = base[k].done_s - base[k].submit_s
            spared = jct_s[same].mean() / before_s[same].mean()
        late = (run.done_s > world.trace.deadline_s).mean()
        rows.append((run.accuracy.mean(), jct_s.mean(), (~same).mean(), late, spared))
        runs.append(run)
    found = Played(*np.array(rows).T)
    print(f"{policy}: {found.accuracy.mean():.4f}, {found.jct_s.mean():,.0f} s", file=sys.stderr)
    return found, runs


def points(a: Played, b: Played) -> str:
    """The difference in accuracy, in points of a percent."""
    versus = paired(a.accuracy, b.accuracy, np.random.default_rng(0))
    low, high = (f"{100 * end:+.2f}" for end in versus.difference_ci)
    return f"{100 * versus.difference:+.2f} [{low}, {high}]".replace("-", "−")


def slower(a: Played, b: Played) -> str:
    """The difference in mean completion time, in percent."""
    versus = paired(a.jct_s, b.jct_s, np.random.default_rng(0))
    low, high = (f"{100 * end:+.1f}" for end in versus.ratio_ci)
    return f"{100 * versus.ratio:+.1f} % [{low}, {high}]".replace("-", "−")


def row(name: str, own: Played, never: Played) -> str:
    """One line of the table."""
    spared = np.nanmean(own.spared) - 1 if np.isfinite(own.spared).any() else None
    cells = [
        f"`{name}`", f"{100 * own.accuracy.mean():.2f} %",
        "" if own is never else points(own, never),
        f"{own.jct_s.mean() / 3600:.2f} h", "" if own is never else slower(own, never),
        "" if spared is None else f"{100 * spared:+.1f} %".replace("-", "−"),
        f"{100 * own.grown.mean():.0f} %", f"{100 * own.late.mean():.0f} %",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def table(base: str) -> tuple[list[str], dict[str, Played]]:
    """What growth gives and takes over one base."""
    plain = base.replace("/", "+")
    never, runs = play(plain, None)
    found = {plain: never}
    tail = "" if base == BASES[0] else f"base={base},"
    names = [f"grow:{tail}weight={weight}" for weight in (FEW if tail else WEIGHTS)]
    names.append(f"grow:{tail}patient=0")
    names.append(f"grow-always:base={base}" if tail else "grow-always")
    for name in names:
        found[name] = play(name, runs)[0]
    lines = [
        "| policy | accuracy | points more | mean JCT | against the base | jobs that did not grow "
        "| grown | late |", "|---" * 8 + "|",
    ]  # fmt: skip
    return [*lines, *(row(name, own, never) for name, own in found.items())], found


def verdict(found: dict[str, Played]) -> list[str]:
    """Whether weighing beats growing always, in both at once."""
    always = next(own for name, own in found.items() if name.startswith("grow-always"))
    lines = ["| against growing always | accuracy, points more | mean JCT |", "|---|---|---|"]
    for name, own in found.items():
        if own is not always:
            lines.append(f"| `{name}` | {points(own, always)} | {slower(own, always)} |")
    return lines


def main() -> None:
    """All tables of docs/growing.md."""
    for number, base in enumerate(BASES):
        lines, found = table(base)
        rewrite("growing.md", f"growth over base {number}", lines)
        if number == 0:
            rewrite("growing.md", "against always", verdict(found))


if __name__ == "__main__":
    main()
