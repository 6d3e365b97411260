"""Rivals: policies that a trained network is compared with on its validation traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import InputError
from rota.policies import make_policy
from rota.sim import simulate
from rota.traces.text_files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from rota.core.types import Floats
    from rota.scenarios import Scenario
    from rota.scenarios.scenario import World

AUTO: Final = "auto"
"""In a list of rivals: rules that fit the scenario."""


def fitting_rules(scenario: Scenario, world: World) -> tuple[str, ...]:
    """Rules for worlds of this kind; docs/results.md knows none clearly stronger than the last."""
    if (world.trace.max_workers > world.trace.min_workers).any():
        # In scenarios of published systems `drf` is the published version.
        drf = "drf" if "drf" in scenario.aliases else "drf-bundles"
        return drf, "optimus", "hull-greedy"
    if world.physics.curves is not None and len(world.cluster.gpu_types) > 1:
        return "srtf", "gavel-min-jct", "least-loss"
    if world.physics.contention is not None:
        return "fifo-skip", "contention-greedy:threshold=0.2", "contention-rollout"
    if world.when.hide_durations:
        return "fifo-skip", "las", "gittins"
    return "fifo-skip", "tiresias", "srtf"


def named_rivals(names: Iterable[str], scenario: Scenario, world: World) -> list[str]:
    """The names without repetition, with rules that fit the scenario in place of `AUTO`."""
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys(fitting_rules(scenario, world) if name == AUTO else (name,))
    return list(found)


def measure_rivals(
    names: Sequence[str], scenario: Scenario, worlds: Sequence[tuple[int, World]], file: Path,
    report: Callable[[int, int], None],
) -> dict[str, Floats]:  # fmt: skip
    """By policy: its mean JCT, in seconds, in each of the worlds, which are given with their seeds.

    Results are kept in a file, since measuring takes time. `report` is called with how many runs
    are done, of how many.
    """
    kept = _read(file, len(worlds)) if file.is_file() else {}
    total, done = len(names) * len(worlds), 0
    for name in names:
        if name not in kept:
            found = []
            for number, (seed, world) in enumerate(worlds, 1):
                outcome = simulate(
                    world.cluster, world.trace, make_policy(scenario.policy(name)), world.when,
                    seed=seed, physics=world.physics,
                )  # fmt: skip
                found.append(float(np.mean(outcome.done_s - outcome.submit_s)))
                report(done + number, total)
            kept[name] = np.array(found)
            facts = {key: values.tolist() for key, values in kept.items()}
            write_text(file, json.dumps(facts, indent=2) + "\n")
        done += len(worlds)
    return {name: kept[name] for name in names}


def _read(file: Path, count: int) -> dict[str, Floats]:
    try:
        facts = json.loads(file.read_text())
        kept = {str(name): np.array(jcts, np.float64) for name, jcts in facts.items()}
        if any(jct_s.shape != (count,) for jct_s in kept.values()):
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise InputError(
            f"{file}: This does not hold {count} mean JCTs for each policy; delete it."
        ) from None
    return kept
