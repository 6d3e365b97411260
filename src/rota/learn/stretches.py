"""The jobs of a journal in stretches of time: to learn from, to choose by, and to judge by."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.errors import InputError
from rota.sim import Conditions, Faults
from rota.sim.past import opened, past_cluster, past_jobs
from rota.sim.setup import job_records
from rota.sim.simulator import fitting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rota.core.cluster import Cluster
    from rota.scenarios import Scenario
    from rota.scenarios.scenario import World
    from rota.traces import Trace

JUDGE: Final = 3
"""One in this many stretches is held out from the learning, to judge what came of it."""
CHOOSE: Final = 4
"""One in this many of the others chooses among the networks of a training."""
LEAST_JUDGED: Final = 6
"""Held-out stretches without which there is no verdict."""
LEAST: Final = LEAST_JUDGED * JUDGE
"""Stretches without which nothing is learned."""
MOST: Final = 90
"""Stretches that are taken, the latest ones: what is long ago says little of what is to come."""
_LIVE: Final = {"slot_s": 0.0, "whole_slots": False}
"""What is true of every live cluster, whatever its network was trained in."""


@dataclass(frozen=True)
class Stretches:
    """Consecutive parts of a journal's jobs, by their use, and the world that they ran in."""

    learn: tuple[Trace, ...]
    choose: tuple[Trace, ...]
    judge: tuple[Trace, ...]
    cluster: Cluster
    when: Mapping[str, Any]
    """Conditions of the journal, in place of the scenario's."""

    @property
    def jobs(self) -> int:
        """The number of jobs in all of them."""
        return sum(map(len, (*self.learn, *self.choose, *self.judge)))

    def world(self, scenario: Scenario, trace: Trace, data: Path | None = None) -> World:
        """The world of one stretch: the journal's machines under the scenario's laws."""
        return scenario.draw(0, data, trace, cluster=self.cluster, when=self.when)

    def words(self) -> str:
        """How many there are of each use."""
        return (
            f"{self.jobs} jobs in {len(self.learn) + len(self.choose) + len(self.judge)} stretches:"
            f" {len(self.learn)} to learn from, {len(self.choose)} to choose by, "
            f"{len(self.judge)} to judge by"
        )


def split(count: int) -> tuple[list[int], list[int], list[int]]:
    """The numbers of the stretches to learn from, to choose by, and to judge by; none is in two."""
    judge = list(range(JUDGE - 1, count, JUDGE))
    others = [k for k in range(count) if k % JUDGE != JUDGE - 1]
    choose = others[CHOOSE - 1 :: CHOOSE]
    return [k for k in others if k not in choose], choose, judge


def read_stretches(journal: Path, scenario: Scenario, size: int) -> Stretches:
    """The latest jobs of a journal that have run, `size` to a stretch."""
    trace = past_jobs(journal)
    with opened(journal) as view:
        meta = dict(view.meta)
    cluster = past_cluster(meta) or scenario.cluster
    rows = job_records(trace, cluster, Conditions(), np.random.default_rng(0))
    trace = trace.take(fitting(cluster, rows))
    count = len(trace) // size
    if count < LEAST:
        raise InputError(
            f"{journal}: {len(trace)} jobs have run and are over, which makes {count} stretches of "
            f"{size}; {LEAST} are needed ({LEAST * size} jobs), of which {LEAST_JUDGED} are held "
            "out to judge by. Wait for more jobs, or make stretches shorter (--stretch)."
        )
    count = min(count, MOST)
    trace = trace.take(slice(len(trace) - count * size, None))
    ends = np.linspace(0, len(trace), count + 1).astype(int).tolist()
    parts = [trace.take(slice(a, b)) for a, b in pairwise(ends)]
    learn, choose, judge = (tuple(parts[k] for k in use) for use in split(count))
    return Stretches(learn, choose, judge, cluster, _conditions(meta))


def _conditions(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What a journal says of its conditions; a live one says nothing of them."""
    told = dict(meta.get("conditions") or _LIVE)
    known = {field.name for field in fields(Conditions)}
    found = {key: value for key, value in told.items() if key in known}
    if "faults" in found:
        found["faults"] = Faults(**found["faults"])
    return found
