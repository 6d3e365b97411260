"""What a perfect copy of a teacher reaches: the most that cloning through a lens can reach.

The teacher schedules each trace twice: by itself, and with every decision turned into actions of
the lens. The difference is due to the lens, and no training removes it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rota.envs import PerfectCopy
from rota.errors import InputError
from rota.run.stats import paired
from rota.sim import simulate
from rota.sim.briefing import briefed
from rota.traces.text_files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rota.core.seams import Policy
    from rota.envs import Lens
    from rota.scenarios.scenario import World


@dataclass(frozen=True)
class CopyScore:
    """A teacher and its perfect copy on the same traces; mean JCTs in units of the report."""

    teacher: str
    teacher_jct: float
    jct: float
    change: float
    """Of the copy's mean JCT against the teacher's: 0.1 says that the copy's is 10 % higher."""
    ci95: tuple[float, float] | None
    """The 95 % interval of the change, over traces; None if there is only one."""
    traces: int

    def words(self) -> str:
        """One sentence."""
        ends = "" if self.ci95 is None else f" [{self.ci95[0]:+.1%}, {self.ci95[1]:+.1%}]"
        return (
            f"a perfect copy of {self.teacher} through this lens: mean JCT {self.jct:.3f}, "
            f"{self.change:+.1%}{ends} against {self.teacher} itself ({self.traces} traces)"
        )

    def save(self, file: Path) -> None:
        """Write it to a file, since measuring takes time."""
        write_text(file, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, file: Path) -> CopyScore:
        """Read one that was saved."""
        try:
            facts = json.loads(file.read_text())
            ends = facts["ci95"]
            return cls(**facts | {"ci95": None if ends is None else (ends[0], ends[1])})
        except (ValueError, TypeError, KeyError, IndexError):
            raise InputError(f"{file}: This holds no score of a copy; delete it.") from None


def copy_score(
    worlds: Sequence[tuple[int, World]], lens: Lens, make_teacher: Callable[[], Policy], name: str,
    unit_s: float, report: Callable[[int], None] = lambda _done: None,
) -> CopyScore:  # fmt: skip
    """Measure it in worlds with their seeds; `report` is called with how many are done.

    Every run has a separate teacher, since policies may keep state.
    """
    own, copied = [], []
    for done, (seed, world) in enumerate(worlds, 1):
        # The copy first: if the teacher fails, that error says that it was the teacher.
        copied.append(_mean_jct_s(*_through(lens, make_teacher(), world), seed))
        own.append(_mean_jct_s(world, make_teacher(), seed))
        report(done)
    both = paired(np.array(copied), np.array(own), np.random.default_rng(0))
    return CopyScore(
        name, float(np.mean(own)) / unit_s, float(np.mean(copied)) / unit_s, both.ratio or 0.0,
        both.ratio_ci, both.n,
    )  # fmt: skip


def _through(lens: Lens, teacher: Policy, world: World) -> tuple[World, PerfectCopy]:
    """The world as the teacher is to see it, and the copy."""
    teacher, when, physics = briefed(teacher, world.when, world.physics, world.trace)
    return replace(world, when=when, physics=physics), PerfectCopy(lens, teacher)


def _mean_jct_s(world: World, policy: Policy, seed: int) -> float:
    outcome = simulate(
        world.cluster, world.trace, policy, world.when, seed=seed, physics=world.physics
    )
    return float(np.mean(outcome.done_s - outcome.submit_s))
