"""What policies are run on under each seed: a trace, or a scenario's own jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rota.cli import loading
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.cli.simulate_options import SimulateOptions
    from rota.core import Cluster
    from rota.perf.physics import Physics
    from rota.scenarios import Scenario
    from rota.sim import Conditions
    from rota.traces import Trace

SEEDS_WANT: Final = "whole numbers such as 0,3,7, or a range such as 0:20 for 0 … 19"
MOST_SEEDS: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class Play:
    """What policies are run on under one seed."""

    seed: int
    cluster: Cluster
    jobs: Trace
    when: Conditions
    physics: Physics
    oversized: int = 0
    notes: tuple[str, ...] = ()
    """What a user should know of the cluster and of the log's own record, in whole sentences."""


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


def of_trace(options: SimulateOptions, seed: int) -> Play:
    """The plain case: a job log or a preset, at the speed that it says."""
    from rota.perf.physics import Physics
    from rota.sim import Conditions
    from rota.sim.as_it_was import doubts_as_it_was

    if options.trace is None:
        raise InputError(
            "Name a TRACE to replay, a job log or a preset, or a --scenario; `rota traces` and "
            "`rota scenarios` list them."
        )
    jobs = _loaded(options, options.trace, seed)
    jobs = jobs if options.head is None else jobs.head(options.head)
    cluster, said = loading.cluster_for(
        jobs, options.trace, file=options.cluster, nodes=options.nodes, gpus=options.gpus,
        data=options.data,
    )  # fmt: skip
    play = Play(
        seed=seed, cluster=cluster, jobs=jobs, when=Conditions(**options.conditions()),
        physics=Physics(),
    )  # fmt: skip
    play = _that_fit(play) if options.drop_oversized else play
    return replace(play, notes=(*said, *doubts_as_it_was(play.jobs, cluster)))


def of_scenario(
    scenario: Scenario, options: SimulateOptions, seeds: tuple[int, ...]
) -> Iterator[Play]:
    """A scenario's world under each seed, with what the options replace."""
    from rota.traces import PRESETS

    cluster, given = _cluster(scenario, options), None
    drawn = options.trace is not None and options.trace.partition(":")[0] in PRESETS
    for seed in seeds:
        if options.trace is not None and (given is None or drawn):  # a file is read once
            given = _loaded(options, options.trace, seed)
        world = scenario.draw(seed, options.data, given, cluster=cluster, when=options.conditions())
        jobs = world.trace if options.head is None else world.trace.head(options.head)
        play = Play(
            seed=seed, cluster=world.cluster, jobs=jobs, when=world.when, physics=world.physics
        )
        yield _that_fit(play) if options.drop_oversized else play


def _loaded(options: SimulateOptions, source: str, seed: int) -> Trace:
    return loading.loaded(
        source, format_name=options.format_name, seed=seed, skip_bad=options.skip_bad,
        data=options.data, ignore_gpu_types=options.ignore_gpu_types,
    )  # fmt: skip


def _that_fit(play: Play) -> Play:
    jobs, oversized = loading.without_oversized(play.jobs, play.cluster)
    return replace(play, jobs=jobs, oversized=oversized)


def _cluster(scenario: Scenario, options: SimulateOptions) -> Cluster | None:
    """The cluster that the options ask for in place of the scenario's, if they do."""
    if options.cluster is not None:
        return loading.cluster_from(options.cluster, options.nodes, options.gpus)
    if options.nodes is None and options.gpus is None:
        return None
    if scenario.nodes:
        raise ConfigError(
            f"Scenario {scenario.name!r} has several kinds of nodes, so --nodes and --gpus cannot "
            "change it; describe another cluster with --cluster FILE."
        )
    asked = {"nodes": options.nodes, "gpus": options.gpus}
    own = {**scenario.settings["cluster"], **{k: v for k, v in asked.items() if v is not None}}
    return replace(scenario, settings={**scenario.settings, "cluster": own}).cluster


def overrides(options: SimulateOptions) -> dict[str, Any]:
    """What the options put in place of the scenario's own, for people and machines."""
    found: dict[str, Any] = {
        "trace": options.trace, "nodes": options.nodes, "gpus": options.gpus,
        "head": options.head,
        "cluster": None if options.cluster is None else str(options.cluster),
    }  # fmt: skip
    when = options.conditions()
    found |= {key: value for key, value in when.items() if key != "faults"}
    if "faults" in when:
        found["faults"] = str(when["faults"])
    return {key: value for key, value in found.items() if value is not None}
