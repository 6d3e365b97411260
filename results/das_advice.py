"""Let the two agents of `das` learn by evolution, and write what they learned.

`make results-das-advice`; about an hour on two cores. Traces to learn from are seeds from 3000 up.
A candidate costs the mean logarithm of its completion time over that of `least-loss` on the same
traces. After the last generation the mean of the distribution ships if it beats the rule on the
validation traces, seeds from 1000 up, else weights of 0 do.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.learn.evolution import Evolution
from rota.policies.contention.advised_loss import HIDDEN, KNOWN, LEARNED, WEIGHTS, AdvisedLoss
from rota.policies.contention.least_loss import LeastLoss
from rota.policies.contention.loss_advice_kernels import ORDERING, PLACING
from rota.scenarios import load
from rota.sim import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rota.core.types import Floats

OUT = Path("out/results/das-advice")
TRACES = (("das-small", 8), ("das-medium", 1))
"""Scenarios, and the traces of each that a generation plays."""
POPULATION = 16
SEEDS = range(3000, 3600)
VALIDATE = (("das-small", range(1000, 1020)), ("das-medium", range(1000, 1004)))
WIDTHS = (0.12,) * len(ORDERING) + (0.1,) * len(PLACING) + (0.2,) * len(LEARNED)
RULE = LeastLoss()
SETTINGS = np.array([float(getattr(RULE, name)) for name in LEARNED])


def table_of(x: Floats) -> dict[str, Any]:
    """A candidate as a table of the file; settings are factors of those of the rule."""
    order, place, rest = np.split(x, [len(ORDERING), len(ORDERING) + len(PLACING)])
    settings = dict(zip(LEARNED, SETTINGS * np.exp(np.clip(rest, -3, 3)), strict=True))
    settings["margin"] = max(1.0, settings["margin"])
    return {
        **{name: float(value) for name, value in settings.items()},
        "ordering": dict(zip(ORDERING, order.tolist(), strict=True)),
        "placing": dict(zip(PLACING, place.tolist(), strict=True)),
    }


@cache
def drawn(scenario: str, seed: int) -> Any:
    """A world; kept, as every candidate of a generation plays it."""
    return load(scenario).draw(seed)


def played(lengths: bool, job: tuple[list[float], str, int]) -> float:
    """The logarithm of the mean completion time."""
    x, scenario, seed = job
    world = drawn(scenario, seed)
    policy = AdvisedLoss.of(table_of(np.array(x)), lengths=lengths)
    run = simulate(world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics)
    return float(np.log((run.done_s - run.submit_s).mean()))


def costs(
    pool: ProcessPoolExecutor, lengths: bool, xs: Floats, traces: Iterable[tuple[str, int]]
) -> Floats:
    """The mean over the traces for every candidate but the first, minus the first's."""
    traces = list(traces)
    jobs = [(x.tolist(), *trace) for x in xs for trace in traces]
    found = np.array(list(pool.map(partial(played, lengths), jobs, chunksize=2)))
    found = found.reshape(len(xs), len(traces))
    mean: Floats = (found[1:] - found[0]).mean(axis=1)
    return mean


def learn(pool: ProcessPoolExecutor, which: str, generations: int, seed: int) -> Floats:
    """The numbers that were learned; all 0 if they are no better than the rule."""
    D, lengths = len(WIDTHS), which == KNOWN
    widths = np.array(WIDTHS)
    if lengths:
        widths[-2:] = 1e-9  # how lengths are guessed does not matter
    found = Evolution(np.zeros(D), widths, POPULATION, np.random.default_rng(seed))
    for generation in range(generations):
        traces = [
            (name, SEEDS[(generation * many + k) % len(SEEDS)])
            for name, many in TRACES
            for k in range(many)
        ]
        asked = found.ask()
        cost = costs(pool, lengths, np.concatenate([np.zeros((1, D)), asked]), traces)
        found.tell(cost)
        print(
            f"{which}, seed {seed}, generation {generation + 1}: mean {np.exp(cost.mean()):.4f}, "
            f"best {np.exp(cost.min()):.4f}, width {found.width:.2f}",
            file=sys.stderr,
        )
        note(which, seed, found.mean)
    traces = [(name, seed) for name, seeds in VALIDATE for seed in seeds]
    gain = float(costs(pool, lengths, np.stack([np.zeros(D), found.mean]), traces)[0])
    print(f"{which}, seed {seed}: {np.exp(gain):.4f} on the validation traces", file=sys.stderr)
    note(which, seed, found.mean, gain)
    return found.mean if gain < 0 else np.zeros(D)


def note(which: str, seed: int, x: Floats, gain: float | None = None) -> None:
    """Keep what was learned so far."""
    OUT.mkdir(parents=True, exist_ok=True)
    facts = {"x": x.tolist(), "gain": gain}
    (OUT / f"{which}-{seed}.json").write_text(json.dumps(facts))


def toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The file that ships."""
    lines = ["# Written by results/das_advice.py: weights by what the agents of `das` see."]
    for which, table in tables.items():
        lines += ["", f"[{which}]", *(f"{name} = {table[name]:.6g}" for name in LEARNED)]
        for part in ("ordering", "placing"):
            lines += ["", f"[{which}.{part}]"]
            lines += [f'"{name}" = {value:.4f}' for name, value in table[part].items()]
    return "\n".join(lines) + "\n"


def best(which: str) -> Floats:
    """The numbers with the lowest cost on the validation traces; all 0 if the rule's is lower."""
    kept = [json.loads(path.read_text()) for path in sorted(OUT.glob(f"{which}-*.json"))]
    over = [facts for facts in kept if facts["gain"] is not None and facts["gain"] < 0]
    if not over:
        return np.zeros(len(WIDTHS))
    return np.array(min(over, key=lambda facts: facts["gain"])["x"])


def main() -> None:
    """Learn and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each table")
    parser.add_argument("--only", choices=(KNOWN, HIDDEN), help="learn this table only")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.processes, mp_context=get_context("fork")) as pool:
        for which in (KNOWN, HIDDEN) if given.only is None else (given.only,):
            for seed in range(given.seeds):
                learn(pool, which, given.generations, seed)
    known, hidden = best(KNOWN), best(HIDDEN)
    known[-2:] = hidden[-2:]  # for single jobs whose length is unknown
    WEIGHTS.write_text(toml({KNOWN: table_of(known), HIDDEN: table_of(hidden)}))


if __name__ == "__main__":
    main()
