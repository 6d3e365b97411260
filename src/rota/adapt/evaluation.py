"""Agents against baselines on cases that they have not learned on, by test accuracy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.adapt.constants import Nothing, Random, best_constant, constants_of_others
from rota.adapt.contest import Contest, Control, Entry, plans, plans_apart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.adapt.cells import Cells
    from rota.adapt.contest import ContestLine, Difference
    from rota.adapt.growth_cases import Chooser

BASELINES: Final = (
    "nothing",
    "restart",
    "random",
    "constant",
    "constant-same-network",
    "foresight",
    "hindsight",
)
"""Names that no agent may have beside them."""
_LOTS: Final = 20
"""Random choosers whose mean is compared with."""


@dataclass(frozen=True)
class ContestStanding:
    """One agent, or baseline: how it does in the mean, and case by case."""

    name: str
    about: str
    accuracy: float
    gain: float
    """Over the same trainings without growth."""
    lines: tuple[ContestLine, ...]


@dataclass(frozen=True)
class Evaluation:
    """What became of a contest."""

    cases: tuple[str, ...]
    standings: tuple[ContestStanding, ...]
    differences: tuple[Difference, ...]
    """Of every agent to every baseline."""

    def facts(self) -> dict[str, Any]:
        """All of it, as JSON can keep it."""
        return asdict(self)


def evaluate(
    cells: Cells,
    agents: Mapping[str, Sequence[Chooser]],
    learned_on: Cells | None,
    *,
    seed: int = 0,
) -> Evaluation:
    """Compare agents, each with one chooser per seed of its training, with what needs no agent.

    Constants are chosen by validation accuracy: on the cases that agents learn on, if they are
    given, and on the other times of the same start network, which is more than any agent sees.
    """
    reported = cells.of_split("test")
    contest, rng = Contest(reported), np.random.default_rng(seed)
    times = [f"{name}/{occasion.epoch}" for name, occasion in cells.cases]
    baselines: list[tuple[Entry | Control, str]] = [
        (Entry("nothing", (plans(Nothing(), reported),)), "no growth"),
        (_restart(reported), "no growth, one restart of the learning rate"),
        (
            Entry("random", tuple(plans(Random(rng), reported) for _ in range(_LOTS))),
            f"any choice; the mean of {_LOTS} draws",
        ),
    ]
    if learned_on is not None:
        best = best_constant(learned_on, range(len(learned_on.names)))
        baselines.append(
            (Entry("constant", (plans(best, reported),)), f"best where agents learn: {best}")
        )
    if len(set(times)) > len({name for name, _ in cells.cases}):
        best_of_others = _of_other_times(cells, times)
        baselines.append(
            (
                Entry("constant-same-network", (plans_apart(best_of_others, reported),)),
                "best at other times of the same start network, which agents have not seen",
            )
        )
    entries: list[tuple[Entry | Control, str]] = [
        (Entry(name, tuple(plans(one, reported) for one in choosers)), "agent")
        for name, choosers in agents.items()
    ]
    bounds: list[tuple[Entry | Control, str]] = [
        (Entry("foresight", (contest.foresight(),)), "best on the case's other seeds"),
        (Entry("hindsight", (contest.hindsight(),)), "best on the case itself: a bound"),
    ]
    clusters = [name for name, _ in cells.cases]
    differences = [
        contest.difference(entry, baseline, rng, clusters=clusters)
        for entry, _ in entries
        for baseline, _ in baselines
    ]
    return Evaluation(
        tuple(reported.names),
        tuple(_standing(contest, *pair) for pair in (*baselines, *entries, *bounds)),
        tuple(differences),
    )


def _restart(cells: Cells) -> Control:
    found = [
        [cells.restarted(case, replica) for replica in range(cells.replicas)]
        for case in range(len(cells.names))
    ]
    return Control("restart", np.array(found))


def _of_other_times(cells: Cells, times: Sequence[str]) -> list[Chooser]:
    """For every case, the constant that is best at the other times of its start network."""
    found: dict[int, Chooser] = {}
    for name in dict.fromkeys(name for name, _ in cells.cases):
        own = [case for case, (other, _) in enumerate(cells.cases) if other == name]
        part = cells.only(own)
        best = constants_of_others(part, [times[case] for case in own])
        found.update(zip(own, best, strict=True))
    return [found[case] for case in range(len(cells.cases))]


def _standing(contest: Contest, entry: Entry | Control, about: str) -> ContestStanding:
    lines = () if isinstance(entry, Control) else tuple(contest.lines(entry))
    accuracy = float(contest.accuracies(entry).mean())
    return ContestStanding(entry.name, about, accuracy, contest.gain(entry), lines)
