"""One world under one policy: played in every way, and again, and held against the rules."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import DecisionError, InputError, PolicyError, RotaError
from rota.policies.catalogue import make_policy
from rota.testing.candidates import base_names, base_of, draw_policies
from rota.testing.drawing import Dice, draw_world
from rota.testing.invariants import Violation, differences, violations
from rota.testing.world_runs import TooManyRoundsError, play, ways
from rota.testing.worlds import WorldSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.scenarios.scenario import World
    from rota.testing.world_runs import Run, Way

REFUSED: Final = "refused"
"""The kind of an answer that is no failure: the policy says that it cannot play here, and why."""


@dataclass(frozen=True)
class Finding:
    """What a policy did wrong in a world."""

    world: WorldSpec
    policy: str
    kind: str
    message: str

    @property
    def failed(self) -> bool:
        """Whether it is more than a refusal."""
        return self.kind != REFUSED

    def snippet(self) -> str:
        """Python that shows it again."""
        return (
            "from rota.testing import WorldSpec, examine\n"
            f"world = WorldSpec.from_json({self.world.to_json()!r})\n"
            f"print(examine(world, {self.policy!r}))"
        )


def drawn(
    seed: int, number: int, count: int, policies: Sequence[str] = ()
) -> tuple[WorldSpec, list[str]]:
    """World `number` of a series, and `count` policies to try there (or those given)."""
    spec = draw_world(seed, number)
    dice = Dice(np.random.default_rng([seed, number, 1]))
    return spec, list(policies) or draw_policies(dice, spec, count)


def warm_up(spec: WorldSpec, policy: str) -> None:
    """Compile what `examine` needs, by playing a world of one job with the same laws."""
    net = "contention" in spec.physics or "drift" in spec.physics
    curves = "curves" in spec.physics
    key = (policy.partition("@")[0], net, curves)
    if key in _warm or base_of(policy) not in base_names():
        return
    _warm.add(key)
    physics: dict[str, Any] = {"drift": {"sd": 0.1, "step_s": 1.0}} if net else {}
    if curves:
        physics["curves"] = {"by_nodes": True, "bend": [0.9], "loss": 0.1}
    job = {"submit_s": 0.0, "duration_s": 1.0, "num_gpus": 1}
    when = {"restart_s": 1.0} if spec.when.get("restart_s") else {}
    cluster = {"gpus": [1, 1]}
    examine(WorldSpec(cluster=cluster, jobs=[job, job], when=when, physics=physics), policy)


_warm: set[tuple[str, bool, bool]] = set()


def examine(spec: WorldSpec, policy: str) -> list[Finding]:
    """Everything that `policy` does wrong in this world; the first of each kind."""
    try:
        world = spec.build()
        way_of_play = ways(make_policy(policy), world)
    except RotaError as error:
        return [Finding(spec, policy, REFUSED, str(error))]
    found: dict[str, str] = {}
    runs: dict[Way, Run] = {}
    for way in way_of_play:
        result = _attempt(spec, world, policy, way)
        if isinstance(result, Violation):
            found.setdefault(result.kind, f"({way}) {result.message}")
            continue
        runs[way] = result
        for broken in violations(world, result):
            found.setdefault(broken.kind, f"({way}) {broken.message}")
    if runs:
        way = next(iter(runs))
        again = _attempt(spec, world, policy, way, checked=False)  # it must be the same run
        if isinstance(again, Violation):
            found.setdefault("again", f"({way}) the second time: {again.message}")
        elif wrong := differences(runs[way].outcome, again.outcome):
            found.setdefault("again", f"({way}) the second time {', '.join(wrong)} are others.")
    first = next(iter(runs), None)
    for way, run in runs.items():
        if first and (wrong := differences(runs[first].outcome, run.outcome)):
            found.setdefault("differs", f"{first} and {way} differ in {', '.join(wrong)}.")
    if 0 < len(runs) < len(way_of_play) and not found.keys() - {REFUSED}:
        found["differs"] = f"it is refused in some ways of playing, not in {', '.join(runs)}."
    return [Finding(spec, policy, kind, message) for kind, message in found.items()]


def _attempt(
    spec: WorldSpec, world: World, policy: str, way: Way, *, checked: bool = True
) -> Run | Violation:
    try:
        return play(world, make_policy(policy), way, spec.seed, checked=checked)
    except InputError as error:
        return Violation(REFUSED, str(error))
    except TooManyRoundsError as error:
        return Violation("rounds", str(error))
    except MemoryError as error:
        return Violation("memory", f"it asks for more memory than there is: {error}")
    except (PolicyError, DecisionError) as error:
        kind = "starved" if "starves" in str(error) else "decision"
        if isinstance(error.__cause__, MemoryError):
            kind = "memory"
        return Violation(kind, str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('/')[2]}:{where.lineno}"
        return Violation("error", f"{type(error).__name__}: {error} ({place})")
