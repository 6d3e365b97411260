"""Measure the environments: steps per second of one core, without a network.

Both lenses play DL2's small cluster. Every step is the real one: edit, close, open, encode and
mask; the actions are random allowed ones, drawn by a kernel, or for the one-pass lens a
constant and a random choice per job. Seconds are of the process, since the machine has others to
serve.
"""

from __future__ import annotations

from time import process_time
from typing import TYPE_CHECKING

import numpy as np

from rota.envs import BatchEnv, WorldPool
from rota.errors import InputError
from rota.scenarios import load
from rota.systems.dl2.onepass import OnePass
from rota.systems.dl2.step_lens import StepByStep

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 256
REPEATS = 5


def worlds() -> tuple[WorldPool, str]:
    """As published where the measured table is at hand, else its mended likeness."""
    for name in ("dl2-small-published", "dl2-small"):
        try:
            return WorldPool.draw(load(name), range(64)), name
        except InputError:
            continue
    raise AssertionError("dl2-small needs no table")


def rate(step: Callable[[int], None], steps: int) -> float:
    """Steps per second, the best of several repeats."""
    fastest = np.inf
    for k in range(steps):
        step(k)
    for _ in range(REPEATS):
        began_s = process_time()
        for k in range(steps):
            step(k)
        fastest = min(fastest, process_time() - began_s)
    return steps * BATCH / fastest


def step_by_step(pool: WorldPool) -> float:
    lens, rng = StepByStep(), np.random.default_rng(0)
    env, actions = BatchEnv(pool, lens, batch=BATCH), np.zeros(BATCH, np.int64)
    _, info = env.reset()
    mask = info["mask"]

    def step(_: int) -> None:
        lens.sample(mask, rng.random(BATCH), actions)
        env.step(actions)

    return rate(step, 2000)


def one_pass(pool: WorldPool, cells: int) -> tuple[float, float]:
    """Slots and decisions per second, for a choice among this many cells."""
    lens, rng = OnePass(), np.random.default_rng(0)
    env = BatchEnv(pool, lens, batch=BATCH, masks=False)
    choices = [
        rng.integers(0, 256, (BATCH, lens.window)) if cells > 1 else np.full((BATCH, 1), 225)
        for _ in range(16)
    ]
    env.reset()
    jobs = []

    def step(k: int) -> None:
        jobs.append(env.book.shown.mean())
        env.step(choices[k % 16])

    slots = rate(step, 500)
    return slots, slots * float(np.mean(jobs))


def choosing(pool: WorldPool) -> float:
    """Slots per second of drawing choices from logits."""
    lens, rng = OnePass(), np.random.default_rng(0)
    env = BatchEnv(pool, lens, batch=BATCH, masks=False)
    env.reset()
    for _ in range(20):
        env.step(np.full((BATCH, 1), 225))
    shape = (BATCH, lens.window)
    logits = rng.standard_normal((*shape, lens.actions), np.float32)
    uniform, actions = rng.random(shape), np.zeros(shape, np.int64)
    logp, allowed = np.zeros(shape, np.float32), np.zeros((*shape, lens.actions), bool)

    def step(_: int) -> None:
        lens.choose(env.view, env.book, logits, uniform, False, actions, logp, allowed)

    return rate(step, 50)


def main() -> None:
    pool, name = worlds()
    print(f"{name}, {BATCH} clusters, one core")
    print(f"  step by step, random allowed actions {step_by_step(pool):12,.0f} steps/s")
    for label, cells in (("15 servers and 2 workers", 1), ("random choices", 256)):
        slots, decisions = one_pass(pool, cells)
        print(f"  one pass, {label:26} {slots:12,.0f} slots/s {decisions:12,.0f} decisions/s")
    print(f"  drawing choices from logits          {choosing(pool):12,.0f} slots/s")


if __name__ == "__main__":
    main()
