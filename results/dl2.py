"""Train DL2 in both forms with several seeds, test it on other traces, write the page's tables.

`make results-dl2` continues where an earlier run stopped: trainings in out/results/dl2 that are
over are not repeated, nor are tables. Checkpoints are those that each training kept by its
validation traces (seeds 1000 to 1049); the tables are of seeds from 2000 on, by which nothing was
chosen.

Which weights ship is a rule: of the trainings of a recipe as it stands, with the seeds TRAININGS,
the one with the lowest validation, before any test. `make weights` trains and ships, no more.
"""

from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.envs import BatchEnv, WorldPool
from rota.learn.batch_rollout_env import BatchRolloutEnv, uniform_jct_s
from rota.learn.checkpoint import best_of
from rota.learn.copy_score import copy_score
from rota.learn.deploy import load_network
from rota.learn.inference import infer
from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer
from rota.learn.training_folder import BEST, RESUME, WARM
from rota.policies import make_policy
from rota.run.metrics import summarise
from rota.run.stats import paired
from rota.scenarios import TEST as TESTS
from rota.scenarios import load
from rota.sim import simulate
from rota.systems.dl2.dl2_settings import ExploreConfig
from rota.systems.dl2.explore import Explorer
from rota.systems.dl2.onepass import OnePass
from rota.systems.dl2.step_lens import StepByStep
from rota.systems.registry import TRAININGS, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.core.types import Floats

OUT = Path("out/results/dl2")
PAGE = Path("docs/systems/dl2.md")
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
TEST, ELSEWHERE = TESTS[:100], TESTS[:20]
COPIES = range(1000, 1020)
AT_ONCE = 2
"""Trainings side by side, each of which uses one core."""
SHIPPED = ("dl2", "dl2-queue", "dl2-shared", "dl2-onepass")
"""Recipes whose weights ship, the longest training first."""
WITHOUT = "dl2-shared without warm-up"
CHANGES = {WITHOUT: ("clone.teacher=",)}
LENSES = {
    "steps, 20 jobs, least first (`dl2`)": StepByStep(),
    "steps, 60 jobs, least first": StepByStep(window=60),
    "steps, 20 jobs": StepByStep(least_first=False),
    "steps, 40 jobs (`dl2-queue`)": StepByStep(window=40, least_first=False),
    "one pass, 20 jobs (`dl2-onepass`)": OnePass(),
}
"""Through which `hull-greedy` is copied perfectly."""
METRICS = ("mean_jct_s", "p99_jct_s", "makespan_s", "resizes")


@dataclass(frozen=True)
class Row:
    """What one policy reached, trace by trace: {metric: (R,)}; several trainings are averaged."""

    name: str
    runs: tuple[dict[str, Floats], ...]

    def mean(self, metric: str) -> Floats:
        """By trace, over trainings."""
        return np.mean([run[metric] for run in self.runs], 0)


def folder_of(name: str, seed: int) -> Path:
    """The folder of a training."""
    return OUT / f"{name.replace(' ', '-')}-{seed}"


def train(name: str, seed: int) -> None:
    """One training, unless it is over."""
    folder = folder_of(name, seed)
    if (folder / "over").exists():
        return
    recipe = load_recipe(name.split()[0], [*CHANGES.get(name, ()), f"run.seed={seed}"])
    print(f"training {name}, seed {seed}", file=sys.stderr, flush=True)
    Trainer(recipe, folder, resume=(folder / RESUME).exists()).run()
    (folder / "over").touch()


def train_all(names: Sequence[str]) -> None:
    """Every training of these that is not over yet."""
    with ProcessPoolExecutor(AT_ONCE, get_context("spawn")) as pool:
        waiting = [pool.submit(train, name, seed) for name in names for seed in TRAININGS]
        for one in waiting:
            one.result()


def ship() -> None:
    """Copy the weights with the lowest validation to where rota ships them from."""
    for name in SHIPPED:
        best = best_of([folder_of(name, seed) / BEST for seed in TRAININGS])
        shutil.copyfile(best, WEIGHTS / f"{name}.ckpt")
        print(f"{name}: {best.parent.name} ships", file=sys.stderr, flush=True)


def play(scenario: str, seeds: Sequence[int], policy: Any) -> dict[str, Floats]:
    """The metrics of every trace under a policy."""
    chosen, found = load(scenario), []
    for seed in seeds:
        world = chosen.draw(seed)
        outcome = simulate(
            world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics
        )
        found.append(summarise(outcome))
    return {name: np.array([one[name] for one in found], np.float64) for name in METRICS}


def known(scenario: str, seeds: Sequence[int], name: str) -> Row:
    """A policy by the name it has in the scenario."""
    return Row(name, (play(scenario, seeds, make_policy(load(scenario).policy(name))),))


def learned(scenario: str, seeds: Sequence[int], name: str, file: str = "best.ckpt") -> Row:
    """All trainings of one kind, each playing all traces at once."""
    pool = WorldPool.draw(load(scenario), seeds)
    files = [folder_of(name, seed) / file for seed in TRAININGS]
    return Row(name, tuple(play_batch(pool, one) for one in files))


def play_batch(pool: WorldPool, file: Path) -> dict[str, Floats]:
    """The same metrics by the batched environment, which tests hold equal to the simulator."""
    kind, lens, network = load_network(file)
    envs = BatchRolloutEnv(BatchEnv(pool, lens, "progress", len(pool)), kind.agents)
    found = {name: np.full(len(pool), np.nan) for name in METRICS}
    while np.isnan(found["mean_jct_s"]).any():
        envs.step(envs.choose(infer(network, envs.observe()), None).actions)
        if "episode" not in envs.info:
            continue
        ends = envs.info["episode"]
        for b in np.flatnonzero(envs.info["_episode"] & np.isnan(found["mean_jct_s"])):
            p99_s = np.nanpercentile(ends["jcts_s"][b], 99)
            one = (ends["jct_s"][b], p99_s, ends["makespan_s"][b], ends["resizes"][b])
            for metric, value in zip(METRICS, one, strict=True):
                found[metric][b] = value
    return found


def chance(rules: bool) -> Row:
    """Any allowed action, or DL2's exploration rules over it; mean JCTs alone are kept."""
    lens, rng = StepByStep(), np.random.default_rng(0)
    pool = WorldPool.draw(load("dl2-small-published"), TEST)
    explorer = Explorer(ExploreConfig(kind="job-aware"), lens, len(pool), rng) if rules else None
    found = uniform_jct_s(
        lambda: BatchEnv(pool, lens, "progress", len(pool)), rng, explorer=explorer
    )
    return Row("exploration rules alone" if rules else "uniform actions", ({"mean_jct_s": found},))


def constant(servers: int, workers: int) -> Row:
    """The same for every job."""
    lens = OnePass()
    pool = WorldPool.draw(load("dl2-small-published"), TEST)
    env = BatchEnv(pool, lens, "progress", len(pool))
    env.reset()
    choice = np.full((len(pool), lens.window), (servers - 1) * lens.most + workers - 1)
    found = np.full(len(pool), np.nan)
    while np.isnan(found).any():
        *_, info = env.step(choice)
        first = info["_episode"] & np.isnan(found)
        if first.any():
            found[first] = info["episode"]["jct_s"][first]
    return Row(f"{servers} servers and {workers} workers for every job", ({"mean_jct_s": found},))


def against(row: Row, other: Row) -> str:
    """The change of the mean JCT, with its interval over traces."""
    if row is other:
        return "= 1"
    both = paired(row.mean("mean_jct_s"), other.mean("mean_jct_s"), np.random.default_rng(0))
    low, high = both.ratio_ci or (np.nan, np.nan)
    return f"{both.ratio:+.1%} [{low:+.1%}, {high:+.1%}]".replace("%", " %").replace("-", "−")


def table(rows: Sequence[Row], others: Sequence[Row], unit_s: float, unit: str) -> str:
    """A table of the page."""
    heads = [unit, *(f"against {other.name}" for other in others), "p99", "makespan", "resizes"]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for row in rows:
        means = [float(run["mean_jct_s"].mean()) / unit_s for run in row.runs]
        each = f" ({', '.join(f'{mean:.3f}' for mean in means)})" if len(means) > 1 else ""
        cells = [f"{np.mean(means):.3f}{each}", *(against(row, other) for other in others)]
        for metric in METRICS[1:]:
            if metric in row.runs[0]:
                value = float(row.mean(metric).mean())
                cells.append(f"{value:.0f}" if metric == "resizes" else f"{value / unit_s:.2f}")
            else:
                cells.append("")
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def published() -> str:
    """The scenario of the claim."""
    where = ("dl2-small-published", TEST)
    drf, optimus, bound = (known(*where, name) for name in ("drf", "optimus", "hull-greedy"))
    rows = [drf, optimus, bound, chance(rules=False), chance(rules=True), constant(15, 2)]
    for name in ("dl2", "dl2-shared"):
        warm = learned(*where, name, WARM)
        rows.append(Row(f"{name}, warm-up alone", warm.runs))
        rows.append(learned(*where, name))
    rows += [learned(*where, WITHOUT), learned(*where, "dl2-onepass")]
    return table(rows, (drf, optimus), load(where[0]).when.slot_s, "slots")


def elsewhere(scenario: str) -> str:
    """The same weights where they were not trained, against honest policies."""
    where = (scenario, ELSEWHERE)
    rows = [known(*where, name) for name in ("drf-bundles", "optimus", "hull-greedy")]
    rows += [learned(*where, name) for name in ("dl2-shared", "dl2-onepass", "dl2-queue")]
    return table(rows, rows[:3], 3600.0, "hours")


def copies() -> str:
    """What perfect copies reach, by lens and scenario."""
    names = ("dl2-small", "dl2-template", "dl2-busy")
    lines = [f"| | {' | '.join(f'`{name}`' for name in names)} |", "|---" * (len(names) + 1) + "|"]
    for title, lens in LENSES.items():
        cells = []
        for name in names:
            worlds = [(seed, load(name).draw(seed)) for seed in COPIES]
            score = copy_score(
                worlds, lens, lambda: make_policy("hull-greedy"), "hull-greedy", 3600.0
            )
            low, high = score.ci95 or (np.nan, np.nan)
            cells.append(f"{score.change:+.1%} [{low:+.1%}, {high:+.1%}]")
        lines.append(f"| {title} | {' | '.join(cells)} |".replace("%", " %").replace("-0", "−0"))
    return "\n".join(lines)


def _kept(title: str, make: Callable[[], str]) -> str:
    """A table, made once: testing takes minutes, and may be interrupted."""
    file = OUT / f"{title.split('`')[1]}.md"
    if not file.exists():
        print(f"testing {title}", file=sys.stderr, flush=True)
        file.write_text(make() + "\n")
    return file.read_text().strip()


def main() -> None:
    """Train and ship; unless no more is wanted, test and write the page's tables."""
    if sys.argv[1:] == ["weights"]:
        train_all(SHIPPED)
        ship()
        return
    train_all([*SHIPPED, WITHOUT])
    ship()
    parts: dict[str, Callable[[], str]] = {"`dl2-small-published`, seeds 2000 to 2099": published}
    for name in ("dl2-small", "dl2-template", "dl2-busy"):
        parts[f"`{name}`, seeds 2000 to 2019"] = lambda name=name: elsewhere(name)  # type: ignore[misc]
    parts["A perfect copy of `hull-greedy`, seeds 1000 to 1019"] = copies
    text = [BEGIN]
    for title, make in parts.items():
        text += [f"### {title}", "", _kept(title, make), ""]
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(head + "\n".join([*text, END]) + rest.partition(END)[2])
    curves = {
        str(folder_of(name, seed).name): [
            json.loads(line) for line in (folder_of(name, seed) / "curve.jsonl").open()
        ]
        for name in (*SHIPPED, WITHOUT)
        for seed in TRAININGS
    }
    (OUT / "curves.json").write_text(json.dumps(curves) + "\n")


if __name__ == "__main__":
    main()
