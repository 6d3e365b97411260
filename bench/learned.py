"""Measure learned systems: a decision at deployment, and training from rollout to update.

Decisions are on 500 nodes with a window of 40 jobs; one of DAS is on 1,000 empty machines. Weights
are random, so that a slot is written to its end and not stopped early; each is drawn from its own
name, so that two commits decide the same whatever else they draw. Seconds are of the wall clock, as
a cluster would wait; the first rounds, which compile, do not count.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import torch

from rota.learn.collect import play
from rota.learn.deploy import as_policy
from rota.learn.recipe_file import load_recipe
from rota.learn.training_worlds import TrainingWorlds
from rota.run.loop import rounds
from rota.scenarios import load
from rota.sim import Simulator
from rota.systems.registry import system

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.core.types import Floats
    from rota.learn.ppo import PPO

WINDOW = 40
SKIPPED, ROUNDS = 20, 300
UPDATES = 4
MACHINES = {"v100": 375, "p100": 375, "k80": 250}
WAITING = 200


def draw_weights(network: torch.nn.Module) -> None:
    """Draw every weight from its own name."""
    for weight, values in network.named_parameters():
        own = torch.Generator().manual_seed(crc32(weight.encode()))
        torch.nn.init.normal_(values, std=0.1, generator=own)


def decide_s(name: str, **form: str) -> Floats:
    """Seconds of each decision of a system whose weights are random."""
    kind = system(name)
    lens = kind.make_lens(kind.lens_settings(window=WINDOW))
    network = kind.make_network(kind.network_settings(**form), lens)
    draw_weights(network)
    world = load("dl2-large").draw(1000)
    sim = Simulator(world.cluster, world.trace, world.when, seed=1000, physics=world.physics)
    turns = rounds(as_policy(kind, lens, network, name), sim, deadline_s=3600.0)
    return np.array([turn.decide_s for turn in islice(turns, SKIPPED, SKIPPED + ROUNDS)])


def decisions() -> Iterator[tuple[str, float, float]]:
    """By system: its name, and the median and the 99th percentile of a decision in ms."""
    for name, form in (("dl2", {}), ("dl2", {"kind": "shared"}), ("dl2-onepass", {})):
        p50, p99 = np.percentile(1e3 * decide_s(name, **form), [50, 99])
        yield " ".join([name, *form.values()]), float(p50), float(p99)


def first_round_ms() -> float:
    """Milliseconds of the round in which das-paper starts 200 jobs on 1,000 empty machines.

    It never waits, so it goes on until nothing fits. The round is decided twice: the first
    compiles.
    """
    kind = system("das-paper")
    lens = kind.make_lens(kind.lens_settings(wait=False))
    network = kind.make_network(kind.network_settings(), lens)
    draw_weights(network)
    policy = as_policy(kind, lens, network, kind.name)
    plain = load("das-large", [f"workload.jobs={WAITING}"])
    nodes = [{**group, "count": MACHINES[group["name"]]} for group in plain.nodes]
    world = replace(plain, nodes=nodes).draw(1)
    trace = replace(world.trace, submit_s=np.zeros(WAITING))
    for _ in range(2):
        sim = Simulator(world.cluster, trace, world.when, seed=1, physics=world.physics)
        took_s = next(iter(rounds(policy, sim, deadline_s=3600.0))).decide_s
    return 1e3 * took_s


def training_rates(preset: str = "dl2") -> tuple[float, float]:
    """Decisions per second of rollout, inference and update together.

    The best of the first few updates, which mostly stop early because the policy has moved far
    enough; and the mean of some that never do, as most of a training's are.
    """
    recipe = load_recipe(preset)
    rng = np.random.default_rng(0)
    worlds = TrainingWorlds(recipe)
    make, config = recipe.learner.make, recipe.learning
    generator = torch.Generator().manual_seed(0)
    envs = worlds.training_env(rng)

    def took_s(learner: PPO) -> float:
        began_s = perf_counter()
        torch.set_num_threads(1)
        rollout = play(envs, worlds.network, worlds.critic, learner.config.steps, rng)
        torch.set_num_threads(recipe.run.threads)
        learner.update(rollout, 1.0)
        return (perf_counter() - began_s) / len(rollout.decisions)

    both = worlds.network, worlds.critic
    learner = make(*both, config, generator, recipe.built_by.agents)
    took_s(learner)  # compiles
    first = min(took_s(learner) for _ in range(UPDATES))
    learner = make(*both, replace(config, max_kl=np.inf), generator, recipe.built_by.agents)
    whole = sum(took_s(learner) for _ in range(4 * UPDATES)) / (4 * UPDATES)
    return 1 / first, 1 / whole


def main() -> None:
    print(f"dl2-large, 500 nodes, {WINDOW} jobs in the window, with the network")
    for name, p50, p99 in decisions():
        print(f"  {name:24} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms")
    print(f"das-large with {sum(MACHINES.values()):,} empty machines, {WAITING} jobs waiting")
    print(f"  {'das-paper, one round':24}     {first_round_ms():7.2f} ms")
    first, whole = training_rates()
    print(f"training dl2, its first updates  {first:12,.0f} steps/s")
    print(f"training dl2, whole updates      {whole:12,.0f} steps/s")


if __name__ == "__main__":
    main()
