"""Train DAS as published, and play it, its baselines and our rules in the das worlds.

`make results-das` continues where an earlier run stopped: trainings in out/results/das that are
over are not repeated, nor is what was played. Two processes at a time, each on one core; then it
rewrites the tables of docs/least-loss.md and docs/systems/das.md. Seeds from 10 up, which nothing
was learned from or chosen by; ratios are of the means over the same seeds, with 95 % bootstrap
intervals. Of several trainings the mean counts, trace by trace; that with the lowest validation
ships.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from das_play import LARGER, OUT, Table, in_words, ratio
from scatter import Group, Scatter, save

from rota.learn import checkpoint
from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer
from rota.learn.training_folder import BEST, RESUME
from rota.systems.registry import TRAININGS as SEEDED
from rota.systems.registry import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core.types import Floats

RULE_PAGE, PAGE = Path("docs/least-loss.md"), Path("docs/systems/das.md")
PICTURE = Path("docs/systems/das-front.svg")
SEEDS = {
    "das-small": range(10, 20), "das-medium": range(10, 20), "das-large": range(10, 20),
    "64 machines": range(10, 13), "256 machines": range(10, 13), "1,000 machines": range(10, 11),
}  # fmt: skip
UNSEEN = {"das-small": range(2000, 2060), "das-medium": range(2000, 2030)}
"""For `das` against the rule alone, whose difference is small."""
WORLDS = ("das-small", "das-medium", "das-large")
FAMILY = (
    "fifo-skip+first-fit", "fifo-skip+worst-fit", "drf+first-fit", "drf+worst-fit", "tetris",
    "tetris+worst-fit", "malo", "mosa", "rifling", "dl2",
)  # fmt: skip
"""What DAS compares with; DL2 as it ships, which learned in worlds where jobs may be resized."""
VARIANTS = ("das-paper-blind", "das-paper-da", "das-paper-mc", "das-paper-rwgp", "das-paper")
"""Recipes that are trained three times."""
SWITCHES: dict[str, tuple[str, tuple[str, ...]]] = {
    "targets: what it did before": ("das-paper-actions", ()),
    "the authors' reward": ("das-paper-reward", ()),
    "h = 1": ("das-paper", ("network.heads=1",)),
    "h = 8": ("das-paper", ("network.heads=8",)),
    "τ = 2": ("das-paper", ("lens.past=2",)),
    "τ = 16": ("das-paper", ("lens.past=16",)),
}
"""Changes of `das-paper`, each trained once: what they are, and the recipe."""
FEE = "das-paper-fee"
DOLLARS = (0, 50, 100, 200, 500, 1000)
ROLLOUT = "contention-rollout:fraction=1,threshold=0.2"
OURS = ("sjf", "srtf", "srsf", "gittins", "pollux", ROLLOUT, "gavel-min-jct")
RULE = "least-loss"
RULE_VARIANTS = (
    "stops=0,moves=0", "stops=0", "moves=0", "displaces=0", "lengths=0", "drift=0.5", "horizon=7200"
)  # fmt: skip
ADVISED = ("das", "das:lengths=0", "das:fee=0", "das:fee=200", "das:fee=1000")
SKIPPED = {("das-large", ROLLOUT), ("das-large", "pollux"), ("das-medium", "pollux")}
"""Hours of look-ahead or search."""
AT_SCALE = ("tetris", "srtf", RULE)


def table(world: str, found: dict[str, Floats]) -> list[str]:
    """One world: every policy against the best of the family and against `least-loss`."""
    best = min(
        (name for name in found if name in FAMILY), key=lambda name: found[name][:, 0].mean()
    )
    lines = [
        f"`{world}`, {in_words(SEEDS[world])}:",
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


def train(job: tuple[str, str, tuple[str, ...]]) -> None:
    """One training, from where it stopped: the folder's name, its recipe and changes."""
    name, recipe, changes = job
    folder = OUT / name
    if not (folder / "over").exists():
        Trainer(load_recipe(recipe, changes), folder, resume=(folder / RESUME).exists()).run()
        (folder / "over").touch()
        print(f"{name} is trained", file=sys.stderr, flush=True)


def trainings() -> list[tuple[str, str, tuple[str, ...]]]:
    """All of them."""
    often = [
        (f"{recipe}-{seed}", recipe, (f"run.seed={seed}",))
        for recipe in VARIANTS for seed in SEEDED
    ]  # fmt: skip
    once = [
        ("-".join([recipe, *changes, "0"]), recipe, changes)
        for recipe, changes in SWITCHES.values()
    ]
    return [*often, (f"{FEE}-0", FEE, ()), *once]


def best_of(name: str) -> str:
    """The checkpoint of a training."""
    return str(OUT / name / BEST)


def ship() -> None:
    """Copy the network with the lowest validation to where rota ships it from."""
    found = checkpoint.best_of([Path(best_of(f"das-paper-{seed}")) for seed in SEEDED])
    shutil.copyfile(found, WEIGHTS / "das-paper.ckpt")
    print(f"das-paper: {found.parent.name} ships", file=sys.stderr, flush=True)


def learned(plays: Table, world: str) -> dict[str, Floats]:
    """By variant: the mean over its trainings (seeds, 3)."""
    found = {}
    for recipe in VARIANTS:
        files = [best_of(f"{recipe}-{seed}") for seed in SEEDED]
        rows = np.stack(list(plays.played(world, files).values()))
        found[f"{recipe}, {len(SEEDED)} trained"] = rows.mean(axis=0)
    return found


def switches(plays: Table) -> list[str]:
    """The variants and the switches in das-small, training by training."""
    world = "das-small"
    whole = learned(plays, world)[f"das-paper, {len(SEEDED)} trained"]
    lines = [
        f"`{world}`, {in_words(SEEDS[world])}:", "",
        "| what | mean JCT of each training | mean fee | against `das-paper` |",
        "|---|---|---|---|",
    ]  # fmt: skip
    named = {recipe: [f"{recipe}-{seed}" for seed in SEEDED] for recipe in VARIANTS}
    for about, (name, _, _) in zip(SWITCHES, trainings()[-len(SWITCHES) :], strict=True):
        named[about] = [name]
    for about, folders in named.items():
        rows = np.stack(list(plays.played(world, [best_of(name) for name in folders]).values()))
        each = ", ".join(f"{one[:, 0].mean():,.0f}" for one in rows)
        mean = rows.mean(0)
        versus = "" if about == "das-paper" else ratio(mean[:, 0], whole[:, 0])
        label = f"`{about}`" if about in VARIANTS else about
        lines.append(f"| {label} | {each} s | ${mean[:, 2].mean():.2f} | {versus} |")
    return lines


def front(plays: Table) -> list[str]:
    """Time and fee by the worth of a dollar, as a table and a picture."""
    makers = {FEE: best_of(f"{FEE}-0"), "das": "das", RULE: RULE}
    lines = [
        "| a dollar is worth | " + " | ".join(f"`{name}`: JCT, fee" for name in makers) + " |",
        "|---|" + "---|" * len(makers),
    ]
    plots = []
    for world in ("das-small", "das-medium"):
        points: list[list[tuple[float, float]]] = [[] for _ in makers]
        for dollar in DOLLARS:
            cells = []
            for own, name in zip(points, makers.values(), strict=True):
                (rows,) = plays.played(world, [f"{name}:fee={dollar}"]).values()
                mean_s, _, fee = rows.mean(0)
                own.append((mean_s / 3600, fee))
                cells.append(f"{mean_s:,.0f} s, ${fee:.2f}")
            lines.append(f"| {dollar:,} s, `{world}` | {' | '.join(cells)} |")
        plots.append(_plot(world, points))
    groups = [Group(name, [f"{dollar}" for dollar in DOLLARS], linked=True) for name in makers]
    save(PICTURE, "Completion time and fee by the worth of a dollar", groups, plots)
    return lines


def _plot(world: str, points: list[list[tuple[float, float]]]) -> Scatter:
    every = np.array([point for own in points for point in own])
    low, high = np.floor(every.min(0)), np.ceil(every.max(0))
    ticks = [[float(x) for x in np.linspace(low[k], high[k], 5)] for k in range(2)]
    return Scatter(world, "mean JCT, hours", "mean fee, dollars", points, ticks[0], ticks[1])


def ahead(plays: Table) -> list[str]:
    """Whether learning adds anything to the rule, on many traces that nothing else has seen."""
    lines = [
        "| world | policy | mean JCT | against the rule | mean fee | against the rule |",
        "|---|---|---|---|---|---|",
    ]
    for world, seeds in UNSEEN.items():
        found = plays.played(world, (RULE, "das:fee=0", "das"), seeds)
        for name, rows in found.items():
            mean_s, _, fee = rows.mean(0)
            time, paid = ("", "") if name == RULE else (
                ratio(rows[:, k], found[RULE][:, k]) for k in (0, 2)
            )  # fmt: skip
            lines.append(
                f"| `{world}`, {in_words(seeds)} | `{name}` | {mean_s:,.0f} s | {time} | "
                f"${fee:.2f} | {paid} |"
            )
    return lines


def at_scale(plays: Table) -> list[str]:
    """What learned on 8 machines, on up to 1,000."""
    lines = [
        "| machines | policy | mean JCT | mean fee | `das-paper` against it |",
        "|---|---|---|---|---|",
    ]
    for world in LARGER:
        files = [best_of(f"das-paper-{seed}") for seed in SEEDED]
        own = np.stack(list(plays.played(world, files).values())).mean(0)
        found = {f"das-paper, {len(SEEDED)} trained": own, **plays.played(world, AT_SCALE)}
        for name, rows in found.items():
            mean_s, _, fee = rows.mean(0)
            versus = "" if rows is own else ratio(own[:, 0], rows[:, 0])
            size = world.partition(" ")[0]
            lines.append(f"| {size} | `{name}` | {mean_s:,.0f} s | ${fee:.2f} | {versus} |")
    return lines


def write(page: Path, mark: str, parts: Sequence[Sequence[str]]) -> None:
    """Replace what is between the marks of a page."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    head, found, rest = page.read_text().partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{page}: there is no place for {begin}.")
    text = "\n\n".join("\n".join(part) for part in parts)
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def played(plays: Table, world: str, policies: Sequence[str]) -> dict[str, Floats]:
    """By policy, without those that would take hours there."""
    return plays.played(world, [name for name in policies if (world, name) not in SKIPPED])


def main() -> None:
    """Train, play and write."""
    plays = Table(SEEDS)
    list(plays.pool.map(train, trainings()))
    ship()
    rule_parts, parts = [], []
    for world in WORLDS:
        family, rules = played(plays, world, FAMILY), played(plays, world, (*OURS, RULE))
        variants = [f"{RULE}:{settings}" for settings in RULE_VARIANTS]
        rule_parts.append(table(world, family | rules | played(plays, world, variants)))
        advised = played(plays, world, ADVISED)
        parts.append(table(world, family | learned(plays, world) | rules | advised))
    write(RULE_PAGE, "das", rule_parts)
    write(PAGE, "das", parts)
    write(PAGE, "switches", [switches(plays)])
    write(PAGE, "ahead", [ahead(plays)])
    write(PAGE, "front", [front(plays)])
    write(PAGE, "scale", [at_scale(plays)])


if __name__ == "__main__":
    main()
