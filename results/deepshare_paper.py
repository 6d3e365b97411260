"""Train DeepShare as published with its five pairs of weights, and play it against its baselines.

`make results-deepshare-paper` continues where an earlier run stopped: trainings in
out/results/deepshare-paper that are over are not repeated. Then it rewrites the table and the
picture of docs/systems/deepshare.md. Traces are seeds 2000 to 2004, which nothing was learned from.
As the authors do, networks play with the weights that training ended with, and by chance.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scatter import Group, Scatter, save

from rota.envs import LensPolicy
from rota.learn.deploy import load_network
from rota.learn.inference import infer
from rota.learn.recipe_file import load_recipe
from rota.learn.states import States
from rota.learn.trainer import Trainer
from rota.learn.training_folder import LAST, RESUME
from rota.policies import make_policy
from rota.run.stats import paired
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.choice_kernels import pick_rows
from rota.systems.deepshare.paper_lens import PaperLens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.core.decision import Decision
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.core.types import Floats, Ints

OUT = Path("out/results/deepshare-paper")
PAGE = Path("docs/systems/deepshare.md")
PICTURE = Path("docs/img/deepshare-paper.svg")
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
SCENARIO = "deepshare-published"
SEEDS = range(2000, 2005)
LETTERS = "abcde"
HOUR_S = 3600.0
AS_PUBLISHED = ("deepshare-las", "deepshare-srtf")
CORRECTED = ("deepshare-las-corrected", "deepshare-srtf-corrected")
OTHERS = ("fifo-skip+spread", "srsf+spread", "contention-greedy")
"""Policies of the catalogue; the last one alone knows of contention."""


class Counting:
    """A policy, and the number of rounds in which each job runs under it."""

    def __init__(self, policy: Policy, jobs: int) -> None:
        self.policy, self.rounds = policy, np.zeros(jobs)

    def decide(self, snapshot: Snapshot) -> Decision:
        """What the policy decides."""
        decision = self.policy.decide(snapshot)
        for j, uid in enumerate(snapshot.jobs.uid.tolist()):
            self.rounds[uid] += len(decision.share(j)) > 0
        return decision


@dataclass(frozen=True)
class Row:
    """How one policy did, by seed (5,)."""

    name: str
    running_s: Floats
    """The mean time that jobs ran, which the authors call JCT."""
    used: Floats
    jct_s: Floats
    p99_s: Floats
    makespan_s: Floats
    stops: Floats


def played(name: str, make: Callable[[int], Policy]) -> Row:
    """Play the policy that `make` gives for a seed, on every trace."""
    scenario, found = load(SCENARIO), []
    for seed in SEEDS:
        world = scenario.draw(seed)
        policy = Counting(make(seed), len(world.trace))
        run = simulate(
            world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics
        )
        jct_s = run.done_s - run.submit_s
        found.append((
            policy.rounds.mean() * world.when.slot_s, run.held_gpu_s / run.up_gpu_s, jct_s.mean(),
            np.percentile(jct_s, 99), run.done_s.max() - run.begin_s, run.preemptions.sum(),
        ))  # fmt: skip
    row = Row(name, *np.array(found).T)
    print(f"{name}: {row.running_s.mean():,.0f} s, {row.jct_s.mean():,.0f} s", file=sys.stderr)
    return row


def by_chance(lens: PaperLens, network: Any, seed: int) -> LensPolicy:
    """A network that draws its actions; without one, all are equally likely."""
    rng = np.random.default_rng(seed)
    action, log_prob = np.zeros(1, np.int64), np.zeros(1, np.float32)

    def act(seen: Any, mask: Any, _view: Any, _book: Any) -> Ints:
        logits = np.zeros(mask.shape, np.float32)
        if network is not None:
            logits = infer(network, States(seen))
        pick_rows(logits, mask, rng.random(1, np.float32), action, log_prob)
        return action

    return LensPolicy(lens, act)


def known(name: str) -> Row:
    """A policy of the catalogue."""
    return played(f"`{name}`", lambda _: make_policy(name))


def learned(letter: str, hybrid: bool) -> Row:
    """What a training ended with."""
    _, lens, network = load_network(OUT / letter / LAST)
    network.eval()
    lens = replace(lens, hybrid=hybrid)
    title = f"{'hybrid' if hybrid else 'base'} {letter.upper()}"
    return played(title, lambda seed: by_chance(lens, network, seed))


def train_all() -> None:
    """Train every preset once, with its own seed."""
    for letter in LETTERS:
        folder = OUT / letter
        if (folder / "over").exists():
            continue
        print(f"training {letter}", file=sys.stderr, flush=True)
        recipe = load_recipe(f"deepshare-paper-{letter}")
        Trainer(recipe, folder, resume=(folder / RESUME).exists()).run()
        (folder / "over").touch()


def table(rows: Sequence[Row], base: Row) -> str:
    """The table of the page; percentages are against `base`."""
    heads = ["running, h", "utilisation", "true JCT, h", "p99, h", "makespan, h", "stops"]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]

    def hours(row: Row, name: str) -> str:
        mine, theirs = (float(getattr(one, name).mean()) for one in (row, base))
        change = "" if row is base else f" ({mine / theirs - 1:+.0%})".replace("%", " %")
        return f"{mine / HOUR_S:.2f}{change}".replace("-", "−")

    for row in rows:
        cells = [hours(row, "running_s"), f"{row.used.mean():.3f}", hours(row, "jct_s")]
        cells += [hours(row, "p99_s"), hours(row, "makespan_s"), f"{row.stops.mean():.0f}"]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(groups: dict[str, Sequence[Row]]) -> None:
    """The scatter: the authors' axes, and the same with queueing counted."""
    plots = []
    for title, name, ticks in (
        ("Time running, which the authors call JCT", "running_s", (1.2, 1.4, 1.6, 1.8)),
        ("True JCT: from submission to end", "jct_s", (10, 20, 30, 40, 50, 60, 70)),
    ):
        points = [
            [(float(getattr(row, name).mean()) / HOUR_S, float(row.used.mean())) for row in rows]
            for rows in groups.values()
        ]
        marks = (0.2, 0.4, 0.6, 0.8, 1.0)
        plots.append(Scatter(title, "hours, mean", "utilisation", points, ticks, marks))
    labels = {
        "as published": ("LAS", "SRTF"), "corrected": ("LAS", "SRTF"),
        "base A–E": LETTERS.upper(), "uniform actions": ("base", "hybrid"),
        "rules of rota": [name.partition("+")[0] for name in OTHERS],
    }  # fmt: skip
    shown = [
        Group(name, labels.get(name, [""] * len(rows)), linked=len(rows) == len(LETTERS))
        for name, rows in groups.items()
    ]
    save(PICTURE, "Utilisation over time: DeepShare as published and others", shown, plots)


def against(row: Row, other: Row) -> str:
    """The change of the true mean JCT, with its interval over traces."""
    both = paired(row.jct_s, other.jct_s, np.random.default_rng(0))
    low, high = both.ratio_ci or (np.nan, np.nan)
    words = f"{both.ratio:+.1%} [{low:+.1%}, {high:+.1%}]".replace("%", " %").replace("-", "−")
    return f"{row.name} against {other.name}: {words}"


def main() -> None:
    """Train, play, write."""
    train_all()
    published, corrected = [known(name) for name in AS_PUBLISHED], [known(n) for n in CORRECTED]
    base = [learned(letter, hybrid=False) for letter in LETTERS]
    hybrid = [learned(letter, hybrid=True) for letter in LETTERS]
    chance = [
        played(f"uniform actions, {'hybrid' if on else 'base'}",
               lambda seed, on=on: by_chance(PaperLens(hybrid=on), None, seed))
        for on in (False, True)
    ]  # fmt: skip
    others = [known(name) for name in OTHERS]
    groups: dict[str, Sequence[Row]] = {
        "as published": published, "corrected": corrected, "base A–E": base, "hybrid A–E": hybrid,
        "uniform actions": chance, "rules of rota": others,
    }  # fmt: skip
    rows = [row for group in groups.values() for row in group]
    draw(groups)
    best = min(hybrid, key=lambda row: float(row.jct_s.mean()))
    text = [
        BEGIN, table(rows, published[0]), "",
        f"Means of seeds {SEEDS[0]} to {SEEDS[-1]}; in brackets, against `{AS_PUBLISHED[0]}`. "
        "True JCT with 95 % intervals over traces:", "",
        f"- {against(best, chance[1])}, with the best of the five by these very traces;",
        f"- {against(others[1], best)};",
        f"- {against(others[2], best)};",
        f"- {against(corrected[1], published[0])}.",
        END,
    ]  # fmt: skip
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(head + "\n".join(text) + rest.partition(END)[2])


if __name__ == "__main__":
    main()
