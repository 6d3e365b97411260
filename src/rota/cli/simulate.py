"""`rota simulate`: replay a trace under one or more policies."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.cli import loading, plays
from rota.cli.progress import LateBar
from rota.cli.runs import over_seeds, print_runs, print_seeds
from rota.cli.simulate_options import (  # noqa: TC001
    AsJson,
    By,
    CheckpointEvery,
    ClusterFile,
    DataFolder,
    Deadline,
    DropOversized,
    Estimates,
    Force,
    FormatName,
    Gpus,
    Head,
    History,
    JobMtbf,
    JournalFile,
    MinRun,
    NodeMtbf,
    NodeRepair,
    Nodes,
    Policies,
    ResizeCost,
    RestartCost,
    Retries,
    ScenarioName,
    Seed,
    Seeds,
    SkipBad,
    Slot,
    Source,
)
from rota.cli.table import print_json
from rota.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rota.cli.plays import Play, Wish
    from rota.core import Policy
    from rota.run.outcome import Outcome
    from rota.scenarios import Scenario
    from rota.traces import Trace

HOUR_S = 3600.0


def simulate(
    trace: Source = None,
    policy: Policies = None,
    scenario: ScenarioName = None,
    seeds: Seeds = None,
    data: DataFolder = None,
    nodes: Nodes = None,
    gpus: Gpus = None,
    cluster: ClusterFile = None,
    seed: Seed = None,
    journal: JournalFile = None,
    force: Force = False,
    as_json: AsJson = False,
    by: By = None,
    format_name: FormatName = None,
    skip_bad: SkipBad = False,
    head: Head = None,
    drop_oversized: DropOversized = False,
    restart_cost: RestartCost = None,
    resize_cost: ResizeCost = None,
    min_run: MinRun = None,
    slot: Slot = None,
    checkpoint_every: CheckpointEvery = None,
    node_mtbf: NodeMtbf = None,
    node_repair: NodeRepair = 4.0,
    job_mtbf: JobMtbf = None,
    retries: Retries = 3,
    estimates: Estimates = None,
    history: History = None,
    deadline: Deadline = 60.0,
) -> None:
    """Replay TRACE, or play a scenario, under one or more policies."""
    _check_choice("kind of estimates", estimates or "true", ("true", "trace"))
    tables = tuple(dict.fromkeys(by or ()))
    for table in tables:
        _check_choice("table", table, ("size", "user"))
    wish = plays.Wish(
        trace=trace, format_name=format_name, skip_bad=skip_bad, head=head,
        drop_oversized=drop_oversized, nodes=nodes, gpus=gpus, cluster=cluster, data=data,
        when=_conditions(
            restart_s=restart_cost, resize_s=resize_cost, min_run_s=min_run, slot_s=slot,
            checkpoint_s=checkpoint_every,
            trust_trace=None if estimates is None else estimates == "trace",
            node_mtbf=node_mtbf, node_repair=node_repair, job_mtbf=job_mtbf, retries=retries,
        ),
    )  # fmt: skip
    chosen = _scenario(scenario, seeds, data, trace)
    wanted = _seeds(seed, seeds)
    policies = loading.named_policies(policy or [], chosen.policy if chosen else None)
    _tell_scenario(chosen, wish, wanted, policies)
    task = Task(
        wish=wish, scenario=chosen, seeds=wanted, policies=policies, deadline_s=deadline,
        history=history, journal=journal, force=force,
    )  # fmt: skip
    first, runs = _played(task)
    facts = _facts(task, first)
    if len(wanted) > 1:
        facts["summary"] = over_seeds(runs, list(policies))
    if as_json:
        print_json({**facts, "runs": runs})
    elif len(wanted) > 1:
        if tables:
            loading.note("--by is about one seed; --json has the groups of every run.")
        print_seeds(facts, first.when.slot_s)
    else:
        print_runs(runs, facts, first.jobs, tables)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one command is to do."""

    wish: Wish
    scenario: Scenario | None
    seeds: tuple[int, ...]
    policies: Mapping[str, Policy]
    deadline_s: float
    history: str | None
    journal: Path | None
    force: bool


def _scenario(
    name: str | None, seeds: str | None, data: Path | None, trace: str | None
) -> Scenario | None:
    from rota.traces import PRESETS

    if name is not None:
        from rota.scenarios import load

        return load(name)
    if seeds is not None:
        raise ConfigError("--seeds goes with --scenario; a trace takes one --seed.")
    if data is not None and (trace or "").partition(":")[0] in PRESETS:
        raise ConfigError("--data goes with --scenario or with a log; presets need no data.")
    return None


def _seeds(seed: int | None, seeds: str | None) -> tuple[int, ...]:
    if seeds is None:
        return (seed or 0,)
    if seed is not None:
        raise ConfigError("Give --seed or --seeds, not both.")
    return plays.read_seeds(seeds)


def _check_choice(kind: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UnknownNameError(kind, given, known)


def _conditions(
    *,
    node_mtbf: float | None,
    node_repair: float,
    job_mtbf: float | None,
    retries: int,
    **rest: Any,
) -> dict[str, Any]:
    """The conditions that the options ask for; their hours become seconds."""
    from math import inf

    from rota.sim import Faults

    asked = {key: value for key, value in rest.items() if value is not None}
    if node_mtbf is not None or job_mtbf is not None:
        asked["faults"] = Faults(
            node_mtbf_s=inf if node_mtbf is None else node_mtbf * HOUR_S,
            node_repair_s=node_repair * HOUR_S,
            job_mtbf_s=inf if job_mtbf is None else job_mtbf * HOUR_S,
            retries=retries,
        )
    return asked


def _tell_scenario(
    scenario: Scenario | None, wish: Wish, seeds: tuple[int, ...], policies: Mapping[str, Policy]
) -> None:
    """Say what a reader of the results must know of the scenario."""
    if scenario is None:
        return
    loading.tell_outside(seeds)
    for key, value in plays.overrides(wish).items():
        loading.note(f"{key} = {value} replaces what scenario {scenario.name!r} says.")
    for name in policies:
        if (meant := scenario.policy(name)) != name:
            loading.note(f"in {scenario.name}, {name} means {meant}.")


def _played(task: Task) -> tuple[Play, list[dict[str, Any]]]:
    """All runs, policy by policy within each seed, and the world of the first seed."""
    from rota.sim.beside import compiled_beside
    from rota.sim.simulate import needs_compiling

    first: Play | None = None
    runs: list[dict[str, Any]] = []
    past = None
    with LateBar() as bar, ExitStack() as stack:
        bar.begin(f"reading {task.wish.trace or 'the scenario'}", 0)
        for play in _worlds(task):
            if first is None:
                first, past = play, _history(task, play.seed)
                _tell(play, task)
                facts = play.cluster, play.when, play.jobs, play.physics
                slow = [p for p in task.policies.values() if needs_compiling(p, *facts)]
                if slow:
                    loading.tell_compiling()
                    stack.enter_context(compiled_beside(slow, *facts))
            for name, policy in task.policies.items():
                report = _progress(bar, task, play, name, len(runs))
                runs.append(_run(name, policy, play, past, task, report))
    assert first is not None
    return first, runs


def _progress(
    bar: LateBar, task: Task, play: Play, policy: str, runs: int
) -> Callable[[int], None]:
    """A bar for this run, or for all of them where there are many."""
    jobs, name = len(play.jobs), loading.short_name(policy)
    if len(task.seeds) == 1:
        return bar.begin(name, jobs)
    report = bar.begin(f"seed {play.seed}, {name}", len(task.seeds) * len(task.policies) * jobs)
    report(runs * jobs)
    return lambda ended: report(runs * jobs + ended)


def _worlds(task: Task) -> Iterator[Play]:
    if task.scenario is None:
        return iter([plays.of_trace(task.wish, task.seeds[0])])
    return plays.of_scenario(task.scenario, task.wish, task.seeds)


def _history(task: Task, seed: int) -> Trace | None:
    if task.history is None:
        return None
    return loading.loaded(task.history, seed=seed, data=task.wish.data)


def _tell(play: Play, task: Task) -> None:
    loading.tell_losses(play.jobs, play.oversized)
    loading.tell_extrapolation(play.jobs, play.cluster, play.physics)
    if play.when.trust_trace:
        loading.tell_estimates(play.jobs)
    learners = loading.learners(task.policies)
    if learners and task.history is None:
        loading.note(
            f"{', '.join(learners)} learns from the very jobs it schedules; "
            "--history FILE gives it past ones."
        )


def _run(
    name: str, policy: Policy, play: Play, past: Trace | None, task: Task,
    report: Callable[[int], None],
) -> dict[str, Any]:  # fmt: skip
    """One run, and all that is to be said about it."""
    from rota.run.metrics import summarise
    from rota.sim import simulate

    path = _journal_path(task, name, play.seed)
    with ExitStack() as stack:
        journal = None
        if path is not None:
            from rota.run.journal import Journal

            meta = {
                "policy": name, "total_gpus": play.cluster.total_gpus, "trace": play.jobs.name,
                "seed": play.seed, "cluster": play.cluster, "conditions": play.when,
                "scenario": _named(task.scenario),
            }  # fmt: skip
            journal = stack.enter_context(Journal.create(path, meta=meta, force=task.force))
        outcome: Outcome = simulate(
            play.cluster, play.jobs, policy, play.when, seed=play.seed, physics=play.physics,
            history=past, journal=journal, deadline_s=task.deadline_s, progress=report,
        )  # fmt: skip
    kept = {} if path is None else {"journal": str(path)}
    return {**summarise(outcome), "policy": name, **kept}


def _named(scenario: Scenario | None) -> dict[str, Any]:
    """Which scenario it is, in a way that tells versions apart."""
    if scenario is None:
        return {}
    return {"name": scenario.name, "version": scenario.version, "digest": scenario.digest}


def _journal_path(task: Task, policy: str, seed: int) -> Path | None:
    """`FILE`, with policy and seed before its suffix where there are several."""
    path = task.journal
    if path is None:
        return None
    plain = re.sub(r"[^\w.+=,-]", "-", loading.short_name(policy))
    parts = [plain] * (len(task.policies) > 1) + [f"seed{seed}"] * (len(task.seeds) > 1)
    return path.with_name(".".join([path.stem, *parts]) + path.suffix)


def _facts(task: Task, play: Play) -> dict[str, Any]:
    from rota import __version__

    jobs, scenario = play.jobs, task.scenario
    facts: dict[str, Any] = {"rota": __version__}
    if scenario is not None:
        facts["scenario"] = {
            **_named(scenario),
            "overrides": plays.overrides(task.wish),
            "aliases": {
                name: scenario.policy(name)
                for name in task.policies
                if scenario.policy(name) != name
            },
        }  # fmt: skip
    return {
        **facts,
        "trace": {
            "source": task.wish.trace or f"scenario {jobs.name}", "name": jobs.name,
            "jobs": len(jobs), "oversized": play.oversized, "skipped": jobs.skipped,
            "left_out": dict(jobs.left_out),
        },
        "cluster": loading.facts_of_cluster(play.cluster),
        "conditions": loading.facts_of_conditions(play.when),
        "seed": play.seed,
        "seeds": list(task.seeds),
    }  # fmt: skip
