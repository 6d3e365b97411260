"""`rota simulate`: replay a trace under one or more policies."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.cli import loading, plays
from rota.cli.options import command
from rota.cli.progress import LateBar
from rota.cli.runs import over_seeds, print_runs, print_seeds
from rota.cli.simulate_options import SimulateOptions
from rota.cli.table import print_json
from rota.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rota.cli.plays import Play
    from rota.core import Policy
    from rota.run.outcome import Outcome
    from rota.scenarios import Scenario
    from rota.traces import Trace


@command(SimulateOptions)
def simulate(options: SimulateOptions) -> None:
    """Replay TRACE, or play a scenario, under one or more policies.

    Durations are written like 90s, 20m, 2h or 7d; a bare number counts seconds. Options that take
    several values are repeated.
    """
    _check_choice("kind of estimates", options.estimates or "true", ("true", "trace"))
    tables = tuple(dict.fromkeys(options.by or ()))
    for table in tables:
        _check_choice("table", table, ("size", "user"))
    if options.deadline <= 0:
        raise ConfigError("--deadline must be above 0.")
    scenario = _scenario(options)
    seeds = _seeds(options)
    policies = loading.named_policies(options.policy or [], scenario.policy if scenario else None)
    asked = Simulation(options=options, scenario=scenario, seeds=seeds, policies=policies)
    _tell_scenario(asked)
    first, runs = _played(asked)
    facts = _facts(asked, first)
    if len(seeds) > 1:
        facts["summary"] = over_seeds(runs, list(policies))
    if options.as_json:
        print_json({**facts, "runs": runs})
    elif len(seeds) > 1:
        if tables:
            loading.note("--by is about one seed; --json has the groups of every run.")
        print_seeds(facts, first.when.slot_s)
    else:
        print_runs(runs, facts, first.jobs, tables)


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The options of one command, and what they name."""

    options: SimulateOptions
    scenario: Scenario | None
    seeds: tuple[int, ...]
    policies: Mapping[str, Policy]


def _scenario(options: SimulateOptions) -> Scenario | None:
    from rota.traces import PRESETS

    if options.scenario is not None:
        from rota.scenarios import load

        return load(options.scenario)
    if options.seeds is not None:
        raise ConfigError("--seeds goes with --scenario; a trace takes one --seed.")
    if options.data is not None and (options.trace or "").partition(":")[0] in PRESETS:
        raise ConfigError("--data goes with --scenario or with a log; presets need no data.")
    return None


def _seeds(options: SimulateOptions) -> tuple[int, ...]:
    if options.seeds is None:
        return (options.seed or 0,)
    if options.seed is not None:
        raise ConfigError("Give --seed or --seeds, not both.")
    return plays.read_seeds(options.seeds)


def _check_choice(kind: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UnknownNameError(kind, given, known)


def _tell_scenario(asked: Simulation) -> None:
    """Say what a reader of the results must know of the scenario."""
    scenario = asked.scenario
    if scenario is None:
        return
    loading.tell_outside(asked.seeds)
    for key, value in plays.overrides(asked.options).items():
        loading.note(f"{key} = {value} replaces what scenario {scenario.name!r} says.")
    for name in asked.policies:
        if (meant := scenario.policy(name)) != name:
            loading.note(f"in {scenario.name}, {name} means {meant}.")


def _played(asked: Simulation) -> tuple[Play, list[dict[str, Any]]]:
    """All runs, policy by policy within each seed, and the world of the first seed."""
    from rota.sim.beside import compiled_beside
    from rota.sim.replay_choice import needs_compiling

    first: Play | None = None
    runs: list[dict[str, Any]] = []
    past = None
    with LateBar() as bar, ExitStack() as stack:
        bar.begin(f"reading {asked.options.trace or 'the scenario'}", 0)
        for play in _worlds(asked):
            if first is None:
                first, past = play, _history(asked, play.seed)
                _tell(play, asked)
                facts = play.cluster, play.when, play.jobs, play.physics
                slow = [p for p in asked.policies.values() if needs_compiling(p, *facts)]
                if slow:
                    loading.tell_compiling()
                    stack.enter_context(compiled_beside(slow, *facts))
            for name, policy in asked.policies.items():
                report = _progress(bar, asked, play, name, len(runs))
                runs.append(_run(name, policy, play, past, asked, report))
    assert first is not None
    return first, runs


def _progress(
    bar: LateBar, asked: Simulation, play: Play, policy: str, runs: int
) -> Callable[[int], None]:
    """A bar for this run, or for all of them where there are many."""
    jobs, name = len(play.jobs), loading.short_names(asked.policies)[policy]
    if len(asked.seeds) == 1:
        return bar.begin(name, jobs)
    report = bar.begin(f"seed {play.seed}, {name}", len(asked.seeds) * len(asked.policies) * jobs)
    report(runs * jobs)
    return lambda ended: report(runs * jobs + ended)


def _worlds(asked: Simulation) -> Iterator[Play]:
    if asked.scenario is None:
        return iter([plays.of_trace(asked.options, asked.seeds[0])])
    return plays.of_scenario(asked.scenario, asked.options, asked.seeds)


def _history(asked: Simulation, seed: int) -> Trace | None:
    if asked.options.history is None:
        return None
    return loading.loaded(asked.options.history, seed=seed, data=asked.options.data)


def _tell(play: Play, asked: Simulation) -> None:
    loading.tell_losses(play.jobs, play.oversized)
    for sentence in play.notes:
        loading.note(sentence)
    loading.tell_extrapolation(play.jobs, play.cluster, play.physics)
    if play.when.trust_trace:
        loading.tell_estimates(play.jobs)
    learners = loading.learners(asked.policies)
    if learners and asked.options.history is None:
        loading.note(
            f"{', '.join(learners)} learns from the very jobs it schedules; "
            "--history FILE gives it past ones."
        )


def _as_it_was(asked: Simulation, play: Play) -> dict[str, Any] | None:
    """What the log records of its own schedule; a scenario changes speeds, so none there."""
    from rota.sim.as_it_was import as_it_was, summary_as_it_was

    record = None if asked.scenario else as_it_was(play.jobs, play.cluster)
    return None if record is None else summary_as_it_was(record)


def _run(
    name: str, policy: Policy, play: Play, past: Trace | None, asked: Simulation,
    report: Callable[[int], None],
) -> dict[str, Any]:  # fmt: skip
    """One run, and all that is to be said about it."""
    from rota.run.metrics import summarise
    from rota.sim import simulate

    path = _journal_path(asked, name, play.seed)
    with ExitStack() as stack:
        journal = None
        if path is not None:
            from rota.run.journal import Journal

            meta = {
                "policy": name, "total_gpus": play.cluster.total_gpus, "trace": play.jobs.name,
                "seed": play.seed, "cluster": play.cluster, "conditions": play.when,
                "scenario": _named(asked.scenario), "oversized": play.oversized,
                "skipped": play.jobs.skipped, "left_out": dict(play.jobs.left_out),
            }  # fmt: skip
            journal = stack.enter_context(
                Journal.create(path, meta=meta, force=asked.options.force)
            )
        outcome: Outcome = simulate(
            play.cluster, play.jobs, policy, play.when, seed=play.seed, physics=play.physics,
            history=past, journal=journal, deadline_s=asked.options.deadline, progress=report,
        )  # fmt: skip
    for sentence in outcome.notes:
        loading.note(f"{name}: {sentence}")
    kept = {} if path is None else {"journal": str(path)}
    return {**summarise(outcome), "policy": name, **kept}


def _named(scenario: Scenario | None) -> dict[str, Any]:
    """Which scenario it is, in a way that tells versions apart."""
    if scenario is None:
        return {}
    return {"name": scenario.name, "version": scenario.version, "digest": scenario.digest}


def _journal_path(asked: Simulation, policy: str, seed: int) -> Path | None:
    """`FILE`, with policy and seed before its suffix where there are several."""
    path = asked.options.journal
    if path is None:
        return None
    names = loading.short_names(asked.policies)
    plain = {one: re.sub(r"[^\w.+=,-]", "-", name) for one, name in names.items()}
    if len(set(plain.values())) < len(plain):
        plain = {one: f"{k}-{name}" for k, (one, name) in enumerate(plain.items(), 1)}
    parts = [plain[policy]] * (len(asked.policies) > 1) + [f"seed{seed}"] * (len(asked.seeds) > 1)
    return path.with_name(".".join([path.stem, *parts]) + path.suffix)


def _facts(asked: Simulation, play: Play) -> dict[str, Any]:
    from rota import __version__

    jobs, scenario = play.jobs, asked.scenario
    facts: dict[str, Any] = {"rota": __version__}
    if scenario is not None:
        facts["scenario"] = {
            **_named(scenario),
            "overrides": plays.overrides(asked.options),
            "aliases": {
                name: scenario.policy(name)
                for name in asked.policies
                if scenario.policy(name) != name
            },
        }  # fmt: skip
    return {
        **facts,
        "trace": {
            "source": asked.options.trace or f"scenario {jobs.name}", "name": jobs.name,
            "jobs": len(jobs), "oversized": play.oversized, "skipped": jobs.skipped,
            "left_out": dict(jobs.left_out), "notes": list(jobs.notes),
        },
        "cluster": loading.facts_of_cluster(play.cluster),
        "conditions": loading.facts_of_conditions(play.when),
        "seed": play.seed,
        "seeds": list(asked.seeds),
        "notes": list(play.notes),
        "as_it_was": _as_it_was(asked, play),
    }  # fmt: skip
