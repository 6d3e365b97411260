"""Train networks that grow and the agents that decide how, and compare them with baselines.

`make results-adapt` continues where an earlier run stopped: tables and trainings in
out/results/adapt that are there are not made again. Then it rewrites the tables and the pictures
of docs/systems/adaptation.md. Agents learn on the table `learn`, by validation accuracy; what is
reported is test accuracy on the table `held-out`: start networks and times that none has seen.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scatter import Group, Scatter, save

from rota.adapt.apprentice import apprentice
from rota.adapt.bandit import Bandit
from rota.adapt.cells import Cells, TableRuns
from rota.adapt.clock import EPOCHS, OCCASIONS, occasion
from rota.adapt.contest import Contest, Entry, plans
from rota.adapt.evaluation import evaluate
from rota.adapt.growth_agent import GrowthAgent
from rota.adapt.known_tables import TABLES
from rota.adapt.learning_curve import learning_curve, mean_gain
from rota.adapt.published_agent import MENDED, PUBLISHED
from rota.adapt.published_training import PublishedTraining
from rota.adapt.reinforce import Reinforce, ReinforceSettings
from rota.adapt.shipped_agent import PATH as SHIPPED
from rota.adapt.surrogate import Surrogate, held_out_error
from rota.adapt.table_build import build
from rota.adapt.table_file import TableFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rota.adapt.clock import Occasion
    from rota.adapt.evaluation import Evaluation

OUT = Path("out/results/adapt")
PAGE = Path("docs/systems/adaptation.md")
PICTURES = Path("docs/img")
BEGIN, END = "<!-- results: {} -->", "<!-- end of results -->"
SEEDS = (0, 1, 2)
BANDIT_EPISODES = 2_000
SHARE = 0.95
"""Of the oracle's gain, which learners should reach."""
MOST = {"ours": 2_000, "published": 10_000, "published, mended": 10_000}
RACERS = {"ours": SEEDS, "published": SEEDS, "published, mended": SEEDS[:1]}
EVERY = 16
"""Episodes between two looks at a learner's greedy policy."""


def note(text: str) -> None:
    """Say on stderr what happens."""
    print(text, file=sys.stderr, flush=True)


def runs_of(name: str) -> TableRuns:
    """A table, made as far as it is missing."""
    with TableFile.open(OUT / f"{name}.db", TABLES[name]) as table:
        made = build(table)
        note(f"table {name}: {TABLES[name].size} trainings, {made} made now")
        return TableRuns(table)


def kept(name: str, make: Callable[[], Any]) -> Any:
    """Figures that take long to make, from the file in which they were kept."""
    path = OUT / f"{name}.json"
    if not path.exists():
        note(f"measuring {name}")
        path.write_text(json.dumps(make(), indent=1))
    return json.loads(path.read_text())


# -- what agents are worth on networks and times that they have not seen -------------------------


def occasions_of(runs: TableRuns) -> list[Occasion]:
    """All occasions that a table has trainings for."""
    return [one for one in OCCASIONS.values() if one.epoch in runs.epochs]


def agents_on(cells: Cells, name: str) -> list[GrowthAgent]:
    """Our agent, trained once per seed."""
    found = []
    for seed in SEEDS:
        path = OUT / f"{name}-{seed}.ckpt"
        if not path.exists():
            note(f"training {name}, seed {seed}")
            state = path.with_suffix(".state")
            resume = state.exists()
            training = apprentice("ours", cells, seed=seed, state=state, resume=resume)
            training.run()
            training.save(path)
        found.append(GrowthAgent.load(path))
    return found


def ship(cells: Cells, agents: Sequence[GrowthAgent]) -> None:
    """Let rota have the agent that does best by validation accuracy where all have learned."""
    gains = [mean_gain(agent, cells) for agent in agents]
    best = int(np.argmax(gains))
    note(f"validation gains {', '.join(map(points, gains))}: seed {SEEDS[best]} ships")
    SHIPPED.parent.mkdir(exist_ok=True)
    SHIPPED.write_bytes((OUT / f"ours-{SEEDS[best]}.ckpt").read_bytes())


def bandits_on(cells: Cells) -> list[Any]:
    """The bandit, trained once per seed; a matter of seconds."""
    found = []
    for seed in SEEDS:
        bandit = Bandit(cells, seed=seed)
        while bandit.episodes < BANDIT_EPISODES:
            bandit.advance()
        found.append(bandit.chooser)
    return found


def compared() -> Evaluation:
    """All agents and baselines on what is held out."""
    runs, others = runs_of("learn"), runs_of("held-out")
    cells = Cells(runs, runs.spec.starts, occasions_of(runs))
    model = Surrogate(runs)
    every = [one for epoch in model.epochs for one in at_epoch(epoch)]
    agents = {
        "ours": agents_on(cells, "ours"),
        "ours, on the model": agents_on(Cells(model, runs.spec.starts, every), "model"),
        "bandit": bandits_on(cells),
    }
    ship(cells, agents["ours"])
    held_out = Cells(others, others.spec.starts, occasions_of(others))
    return evaluate(held_out, agents, cells)


def at_epoch(epoch: int) -> list[Occasion]:
    """All changes of resources after an epoch."""
    from rota.adapt.clock import occasions_at

    return occasions_at(epoch)


def points(value: float) -> str:
    """A difference of accuracies in points."""
    return f"{100 * value:+.2f}"


def standings_table(found: Evaluation) -> str:
    """Everybody's mean, and how far our agent is above it."""
    against = {d.baseline: d for d in found.differences if d.agent == "ours"}
    rows = ["| who decides | accuracy | over no growth | ours is better by [95 % interval] |",
            "|---|---|---|---|"]  # fmt: skip
    for one in found.standings:
        d = against.get(one.name)
        ahead = "" if d is None else f"{points(d.mean)} [{points(d.low)}, {points(d.high)}]"
        accuracy = f"{100 * one.accuracy:.2f} %"
        rows.append(f"| {one.name}: {one.about} | {accuracy} | {points(one.gain)} | {ahead} |")
    return "\n".join(rows)


def by_network_table(found: Evaluation) -> str:
    """The gain over no growth, for each start network."""
    starts = list(dict.fromkeys(case.partition("/")[0] for case in found.cases))
    rows = ["| over no growth, in points | " + " | ".join(starts) + " |",
            "|---" * (1 + len(starts)) + "|"]  # fmt: skip
    for one in found.standings:
        if not one.lines:
            continue
        means = [
            np.mean([line.gain for line in one.lines if line.case.startswith(f"{name}/")])
            for name in starts
        ]
        rows.append(f"| {one.name} | " + " | ".join(map(points, means)) + " |")
    return "\n".join(rows)


# -- how many episodes agents need, on the same table ---------------------------------------------


def learner_of(kind: str, cells: Cells, seed: int) -> Any:
    """A learner that begins from scratch."""
    if kind == "ours":
        settings = ReinforceSettings(groups=2, unmeasured=0.0, episodes=MOST[kind])
        return Reinforce(cells, settings=settings, seed=seed)
    return PublishedTraining(cells, seed=seed, defects=PUBLISHED if kind == "published" else MENDED)


def episodes_needed(task: tuple[str, str, str, int]) -> dict[str, Any]:
    """How many episodes a learner needs on one case; None if more than it was given."""
    torch.set_num_threads(1)
    kind, start, when, seed = task
    with TableFile.open(OUT / "deepen.db") as table:
        cells = Cells(TableRuns(table), [start], [occasion(when)])
    contest = Contest(cells)
    goal = SHARE * contest.gain(Entry("oracle", (contest.hindsight(),)))
    learner = learner_of(kind, cells, seed)
    curve = learning_curve([learner], cells, goal=goal, every=EVERY, most=MOST[kind])
    best = max(check.gain for check in curve.checks)
    return {
        "kind": kind, "case": f"{start}/{when}", "seed": seed, "reached": curve.reached,
        "goal": goal, "best": best, "curve": [[c.episodes, c.gain] for c in curve.checks],
    }  # fmt: skip


def race() -> list[dict[str, Any]]:
    """All learners on all single cases of the table `deepen`, in parallel."""
    runs_of("deepen")
    tasks = [
        (kind, start, f"{when}-1to2", seed)
        for kind in MOST
        for start in TABLES["deepen"].starts
        for when in ("early", "middle", "late")
        for seed in RACERS[kind]
    ]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(episodes_needed, tasks))


MOST_TOGETHER = {"ours": 6_000, "published": 20_000}


def together(task: tuple[str, int]) -> dict[str, Any]:
    """How many episodes a learner needs for all cases of the table `deepen` at once.

    The goal is a share of what is best on the other seeds: the best of 64 noisy means in each of
    ten cases is too high by more than what is left to learn.
    """
    torch.set_num_threads(1)
    kind, seed = task
    with TableFile.open(OUT / "deepen.db") as table:
        runs = TableRuns(table)
    cells = Cells(runs, runs.spec.starts, [occasion(f"{when}-1to2") for when in EPOCHS])
    contest = Contest(cells)
    goal = SHARE * contest.gain(Entry("foresight", (contest.foresight(),)))
    most = MOST_TOGETHER[kind]
    if kind == "ours":
        settings = ReinforceSettings(groups=4, unmeasured=0.0, episodes=most)
        learner: Any = Reinforce(cells, settings=settings, seed=seed)
    else:
        learner = PublishedTraining(cells, defects=PUBLISHED, seed=seed)
    curve = learning_curve([learner], cells, goal=goal, every=40, most=most)
    return {"kind": kind, "seed": seed, "reached": curve.reached, "goal": goal,
            "best": max(check.gain for check in curve.checks)}  # fmt: skip


def race_together() -> list[dict[str, Any]]:
    """Both learners on all cases at once, in parallel."""
    tasks = [(kind, seed) for kind in MOST_TOGETHER for seed in SEEDS]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(together, tasks))


def together_table(found: Sequence[dict[str, Any]]) -> str:
    """Episodes, and the best gain on the way."""
    rows = ["| learner | episodes | best on the way, of the goal |", "|---|---|---|"]
    for kind, most in MOST_TOGETHER.items():
        own = [one for one in found if one["kind"] == kind]
        words = [f"> {most:,}" if one["reached"] is None else f"{one['reached']:,}" for one in own]
        best = [f"{100 * one['best'] / one['goal']:.0f} %" for one in own]
        rows.append(f"| {kind} | {', '.join(words)} | {', '.join(best)} |")
    return "\n".join(rows)


def race_table(found: Sequence[dict[str, Any]]) -> str:
    """Episodes to 95 % of the oracle's gain, by case and learner."""
    cases = list(dict.fromkeys(one["case"] for one in found))
    rows = ["| case | goal, in points | " + " | ".join(MOST) + " |", "|---" * (2 + len(MOST)) + "|"]
    for case in cases:
        own = [one for one in found if one["case"] == case]
        cells = []
        for kind in MOST:
            reached = [one["reached"] for one in own if one["kind"] == kind]
            words = [f"> {MOST[kind]:,}" if many is None else f"{many:,}" for many in reached]
            cells.append(", ".join(words))
        rows.append(f"| {case} | {points(own[0]['goal'])} | " + " | ".join(cells) + " |")
    met = [case for case in cases
           if any(one["reached"] for one in found if one["case"] == case)]  # fmt: skip
    means = []
    for kind in MOST:
        needed = [one["reached"] or MOST[kind] for one in found
                  if one["kind"] == kind and one["case"] in met]  # fmt: skip
        means.append(f"{np.mean(needed):,.0f}, {np.median(needed):,.0f}")
    rows.append("| mean, median where any reached it | | " + " | ".join(means) + " |")
    return "\n".join(rows)


# -- the published tables, from trainings that were repeated --------------------------------------

CURRICULA = (
    ("early",), ("middle",), ("late",), ("early", "late", "middle"), ("late", "middle", "early"),
)  # fmt: skip
EPISODES = 10_000


def trained_on(times: Sequence[str], runs: TableRuns, seed: int) -> Any:
    """The published agent with its defects, taught one time after the other."""
    agent = None
    for when in times:
        cells = Cells(runs, runs.spec.starts, [occasion(f"{when}-1to2")])
        training = PublishedTraining(cells, defects=PUBLISHED, seed=seed, agent=agent)
        while training.episodes < EPISODES:
            training.advance()
        agent = training.chooser
    return agent


def ranking(task: tuple[tuple[str, ...], int]) -> dict[str, Any]:
    """What the published agent takes at every time, and the rank of that among 64 sequences."""
    torch.set_num_threads(1)
    times, seed = task
    with TableFile.open(OUT / "published.db") as table:
        runs = TableRuns(table)
    agent = trained_on(times, runs, seed)
    cells = Cells(runs, runs.spec.starts, [occasion(f"{when}-1to2") for when in EPOCHS])
    lines = Contest(cells).lines(Entry("published", (plans(agent, cells),)))
    return {"times": "-".join(times), "seed": seed, "lines": [asdict(line) for line in lines]}


def rankings() -> list[dict[str, Any]]:
    """All curricula, in parallel."""
    runs_of("published")
    tasks = [(times, seed) for times in CURRICULA for seed in SEEDS[:1]]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(ranking, tasks))


def ranking_table(found: Sequence[dict[str, Any]]) -> str:
    """Accuracy and rank of what the published agent takes; below, what needs no agent."""
    with TableFile.open(OUT / "published.db") as table:
        runs = TableRuns(table)
    cells = Cells(runs, runs.spec.starts, [occasion(f"{when}-1to2") for when in EPOCHS])
    contest = Contest(cells)
    rows = ["| learned on | " + " | ".join(EPOCHS) + " | mean |", "|---" * (2 + len(EPOCHS)) + "|"]
    for one in found:
        own = one["lines"]
        words = [f"{line['accuracy']:.4f}/{line['rank']}" for line in own]
        mean = np.mean([line["accuracy"] for line in own])
        rows.append(f"| {one['times']} | " + " | ".join(words) + f" | {mean:.4f} |")
    for label, pick in (("best of 64", np.max), ("mean of 64", np.mean), ("worst of 64", np.min)):
        values = [float(pick(table.means)) for table in contest.tables]
        cells_ = " | ".join(f"{value:.4f}" for value in values)
        rows.append(f"| {label} | {cells_} | {np.mean(values):.4f} |")
    count = range(len(contest.tables))
    for label, look in (("no growth, rate falls", cells.reference),
                        ("no growth, one restart", cells.restarted)):  # fmt: skip
        means = [np.mean([look(case, r) for r in range(cells.replicas)]) for case in count]
        rows.append(f"| {label} | " + " | ".join(f"{m:.4f}" for m in means)
                    + f" | {np.mean(means):.4f} |")  # fmt: skip
    noise = [
        float(table.accuracy.std(1, ddof=1).mean() / np.sqrt(cells.replicas))
        for table in contest.tables
    ]
    rows.append("| standard error of a cell | " + " | ".join(f"{n:.4f}" for n in noise) + " | |")
    return "\n".join(rows)


# -- pictures -------------------------------------------------------------------------------------


def draw_networks(found: Evaluation) -> None:
    """The gain of agents against that of the constant, one point for each start network."""
    starts = list(dict.fromkeys(case.partition("/")[0] for case in found.cases))
    gain = {
        one.name: [
            100 * float(np.mean([x.gain for x in one.lines if x.case.startswith(f"{name}/")]))
            for name in starts
        ]
        for one in found.standings
        if one.lines
    }
    top = 5 * int(np.ceil(max(gain["foresight"] + gain["ours"]) / 5))
    ticks = range(0, top + 1, 5)
    # Where all gain little, names would lie upon each other.
    far = [name if 2 * y > ticks[-1] / 3 else "" for name, y in zip(starts, gain["ours"],
                                                                   strict=True)]  # fmt: skip
    groups = [Group("ours", far), Group("equally good", ["", ""], linked=True)]
    plots = [
        Scatter(
            f"Points over no growth, against {against}", against, "ours",
            [list(zip(gain[against], gain["ours"], strict=True)), [(0, 0), (top, top)]],
            ticks, ticks,
        )
        for against in ("constant", "foresight")
    ]  # fmt: skip
    save(PICTURES / "adaptation-networks.svg", "Gains by start network", groups, plots)


def draw_race(found: Sequence[dict[str, Any]]) -> None:
    """The share of the oracle's gain by the logarithm of episodes, one plot for each network."""
    marks = np.unique(np.round(np.geomspace(EVERY, max(MOST.values()), 14) / EVERY).astype(int))
    plots = []
    for start in TABLES["deepen"].starts:
        points = []
        for kind in MOST:
            own = [
                one for one in found if one["kind"] == kind and one["case"].startswith(f"{start}/")
            ]
            points.append([(float(np.log10(mark * EVERY)), share_after(own, mark * EVERY))
                           for mark in marks if mark * EVERY <= MOST[kind]])  # fmt: skip
        plots.append(
            Scatter(start, "episodes (log10)", "share of the oracle's gain", points,
                    (1, 2, 3, 4), (-0.5, 0, 0.5, 1))
        )  # fmt: skip
    groups = [Group(kind, [""] * len(own), linked=True) for kind, own in zip(
        MOST, plots[0].points, strict=True)]  # fmt: skip
    save(PICTURES / "adaptation-race.svg", "How fast agents learn", groups, plots)


def share_after(found: Sequence[dict[str, Any]], episodes: int) -> float:
    """The mean share of the oracle's gain at the last look before so many episodes."""
    shares = []
    for one in found:
        seen = [gain for many, gain in one["curve"] if many <= episodes]
        shares.append(seen[-1] / (one["goal"] / SHARE))
    return float(np.clip(np.mean(shares), -0.5, 1.0))


# -- the page ------------------------------------------------------------------------------------


def surrogate_table() -> str:
    """How far the model of a table is off at times that it was not fitted to."""
    runs = runs_of("deepen")
    rows = ["| time left out | the model | the nearest time instead |", "|---|---|---|"]
    for name in ("early-middle", "middle-late"):
        error = held_out_error(runs, EPOCHS[name])
        model, nearest = 100 * error["model"], 100 * error["nearest"]
        rows.append(f"| {name} | {model:.2f} | {nearest:.2f} |")
    return "\n".join(rows)


def put(parts: dict[str, str]) -> None:
    """Rewrite what stands between the marks of the page."""
    text = PAGE.read_text()
    for name, table in parts.items():
        before, mark, rest = text.partition(BEGIN.format(name))
        _, end, after = rest.partition(END)
        if not (mark and end):
            raise SystemExit(f"{PAGE} has no part for {name!r}.")
        text = f"{before}{mark}\n{table}\n{end}{after}"
    PAGE.write_text(text)


def main() -> None:
    """Make what is missing, then the page."""
    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    found = compared()
    raced = kept("race", race)
    draw_networks(found)
    draw_race(raced)
    put({
        "standings": standings_table(found),
        "networks": by_network_table(found),
        "race": race_table(raced),
        "together": together_table(kept("together", race_together)),
        "ranking": ranking_table(kept("ranking", rankings)),
        "model": surrogate_table(),
    })  # fmt: skip


if __name__ == "__main__":
    main()
