"""What each seed of a command makes every policy face: a trace, or a scenario's own jobs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from rota.cli import loading
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rota.core import Cluster
    from rota.perf.physics import Physics
    from rota.scenarios import Scenario
    from rota.sim import Conditions
    from rota.traces import Trace

SEEDS_WANT: Final = "whole numbers such as 0,3,7, or a range such as 0:20 for 0 … 19"
MOST_SEEDS: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class Play:
    """One seed's world."""

    seed: int
    cluster: Cluster
    jobs: Trace
    when: Conditions
    physics: Physics
    oversized: int = 0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the options of `rota simulate` say about what is to be simulated."""

    trace: str | None
    format_name: str | None = None
    skip_bad: bool = False
    head: int | None = None
    drop_oversized: bool = False
    nodes: int | None = None
    gpus: int | None = None
    cluster: Path | None = None
    when: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Conditions` that were asked for."""
    data: Path | None = None
    """Where logs, and measured tables in place of the shipped ones, may be."""


def read_seeds(text: str) -> tuple[int, ...]:
    """The seeds of `A:B`, half-open, or of `a,b,c`."""
    first, colon, end = (part.strip() for part in text.partition(":"))
    if colon:
        if not (first.isdecimal() and end.isdecimal()):
            raise InputError(f"--seeds {text} must be {SEEDS_WANT}.")
        if not 0 < int(end) - int(first) <= MOST_SEEDS:
            raise InputError(
                f"--seeds {text} holds {max(0, int(end) - int(first)):,} seeds; the end is not "
                f"among them, and it takes from 1 to {MOST_SEEDS:,}."
            )
        return tuple(range(int(first), int(end)))
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdecimal() for item in items):
        raise InputError(f"--seeds {text} must be {SEEDS_WANT}.")
    return tuple(dict.fromkeys(map(int, items)))


def of_trace(wish: Wish, seed: int) -> Play:
    """The plain case: a job log or a preset, at the speed that it says."""
    from rota.perf.physics import Physics
    from rota.sim import Conditions

    if wish.trace is None:
        raise InputError(
            "Name a TRACE to replay, a job log or a preset, or a --scenario; `rota traces` and "
            "`rota scenarios` list them."
        )
    asked = (wish.cluster, wish.nodes, wish.gpus)
    own = loading.cluster_of(wish.trace, wish.data) if asked == (None, None, None) else None
    cluster = own or loading.cluster_from(*asked)
    jobs = loading.loaded(
        wish.trace, format_name=wish.format_name, seed=seed, skip_bad=wish.skip_bad,
        head=wish.head, data=wish.data,
    )  # fmt: skip
    play = Play(
        seed=seed, cluster=cluster, jobs=jobs, when=Conditions(**wish.when), physics=Physics()
    )
    return _that_fit(play) if wish.drop_oversized else play


def of_scenario(scenario: Scenario, wish: Wish, seeds: tuple[int, ...]) -> Iterator[Play]:
    """A scenario's world under each seed, with what the options replace."""
    from rota.traces import PRESETS

    cluster, given = _cluster(scenario, wish), None
    drawn = wish.trace is not None and wish.trace.partition(":")[0] in PRESETS
    for seed in seeds:
        if wish.trace is not None and (given is None or drawn):  # a file is read once
            given = loading.loaded(
                wish.trace, format_name=wish.format_name, seed=seed, skip_bad=wish.skip_bad,
                data=wish.data,
            )  # fmt: skip
        world = scenario.draw(seed, wish.data, given, cluster=cluster, when=wish.when)
        jobs = world.trace if wish.head is None else world.trace.head(wish.head)
        play = Play(
            seed=seed, cluster=world.cluster, jobs=jobs, when=world.when, physics=world.physics
        )
        yield _that_fit(play) if wish.drop_oversized else play


def _that_fit(play: Play) -> Play:
    jobs, oversized = loading.without_oversized(play.jobs, play.cluster)
    return replace(play, jobs=jobs, oversized=oversized)


def _cluster(scenario: Scenario, wish: Wish) -> Cluster | None:
    """The cluster that the options ask for in place of the scenario's, if they do."""
    if wish.cluster is not None:
        return loading.cluster_from(wish.cluster, wish.nodes, wish.gpus)
    if wish.nodes is None and wish.gpus is None:
        return None
    if scenario.nodes:
        raise ConfigError(
            f"Scenario {scenario.name!r} has several kinds of nodes, so --nodes and --gpus cannot "
            "change it; describe another cluster with --cluster FILE."
        )
    asked = {"nodes": wish.nodes, "gpus": wish.gpus}
    own = {**scenario.settings["cluster"], **{k: v for k, v in asked.items() if v is not None}}
    return replace(scenario, settings={**scenario.settings, "cluster": own}).cluster


def overrides(wish: Wish) -> dict[str, Any]:
    """What the options put in place of the scenario's own, for people and machines."""
    found: dict[str, Any] = {
        "trace": wish.trace, "nodes": wish.nodes, "gpus": wish.gpus, "head": wish.head,
        "cluster": None if wish.cluster is None else str(wish.cluster),
    }  # fmt: skip
    found |= {key: value for key, value in wish.when.items() if key != "faults"}
    if "faults" in wish.when:
        found["faults"] = str(wish.when["faults"])
    return {key: value for key, value in found.items() if value is not None}
