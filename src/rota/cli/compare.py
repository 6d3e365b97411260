"""`rota compare`: traces × seeds × policies, and what differs by more than chance."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rota.cli import loading
from rota.cli.progress import LateBar
from rota.cli.table import print_json, print_table
from rota.dash import units
from rota.errors import InputError, RotaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.cli.config import CompareConfig
    from rota.cli.digest import Book
    from rota.cli.work import Task
    from rota.core import Policy

RESULTS, REPORT = "results.json", "report.html"
ROUGH: Final = (
    "Intervals over jobs take the jobs of a run as independent, which they are not quite: "
    "read them as a rough guide, or give three seeds or traces."
)


def compare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="What to run; a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; default: out/NAME of CONFIG.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; default: one per core.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace earlier results in OUT.")] = False,
) -> None:
    """Compare policies over many traces and seeds.

    Every trace runs under every policy and seed, in parallel; the differences to a baseline
    come with confidence intervals.
    """
    from rota.cli.config import load_config

    wanted = load_config(config)
    folder = Path("out") / wanted.name if out is None else out
    _check_folder(folder, force)
    policies = {
        name: loading.named_policies([spec])[spec] for name, spec in wanted.policies.items()
    }
    if drawn := [seed for trace in wanted.traces if trace.is_scenario for seed in trace.seeds]:
        loading.tell_outside(drawn)
    book = _played(wanted, policies, jobs or _cores())
    results = _results(wanted, book, loading.learners(policies))
    _write(folder, results)
    if as_json:
        print_json({key: value for key, value in results.items() if key != "curves"})
    else:
        _print(results)
    typer.echo(f"Wrote {folder / RESULTS} and {folder / REPORT}.", err=True)


def _cores() -> int:
    """Cores that this process may use, where the system tells; else all there are."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _check_folder(folder: Path, force: bool) -> None:
    """Refuse to mix with what is there, unless it is ours and may be replaced."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out needs a folder.")
    there = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if foreign := sorted(name for name in there - {RESULTS, REPORT} if name[0] != "."):
        raise InputError(
            f"{folder} holds other files ({foreign[0]}); give --out a folder of its own."
        )
    if there and not force:
        raise InputError(f"{folder} holds earlier results; --force replaces them.")


def _played(config: CompareConfig, policies: Mapping[str, Policy], jobs: int) -> Book:
    """All runs, each as often as it can differ."""
    from rota.cli.digest import Book
    from rota.cli.work import run_all

    varies = _what_varies(config, policies)
    with LateBar() as bar:
        bar.begin("preparing", 0)
        _look_ahead(config, policies)
        tasks = _tasks(config, varies)
        results = run_all(tasks, jobs, bar.begin(f"{len(tasks)} runs", len(tasks)))
    keys = [(task.trace.label, task.label, task.seed) for task in tasks]
    return Book(config, dict(zip(keys, results, strict=True)), varies)


def _what_varies(
    config: CompareConfig, policies: Mapping[str, Policy]
) -> dict[tuple[str, str], bool]:
    """Which results depend on the seed: presets do, faults do, wrong estimates do."""
    from math import isfinite

    faults = config.when.faults
    always = isfinite(faults.node_mtbf_s) or isfinite(faults.job_mtbf_s)
    always = always or config.when.estimate_error > 0
    return {
        (trace.label, name): always or trace.is_drawn or getattr(policy, "error", 0) > 0
        for trace in config.traces
        for name, policy in policies.items()
    }


def _look_ahead(config: CompareConfig, policies: Mapping[str, Policy]) -> None:
    """Meet bad traces, and the compiler, before any process is started."""
    from rota.cli.work import meant, prepared
    from rota.sim import Simulator
    from rota.sim.beside import compiled_beside
    from rota.sim.simulate import informed, needs_compiling, warm_up

    told = False

    for spec in config.traces:
        seed = spec.seeds[0]
        play = prepared(spec, seed, config.cluster, config.when, config.drop_oversized)
        loading.tell_losses(play.jobs, play.oversized)
        loading.tell_extrapolation(play.jobs, play.cluster, play.physics)
        sim = Simulator(play.cluster, play.jobs, play.when, seed=seed, physics=play.physics)
        facts = play.cluster, play.when, play.jobs, play.physics
        slow = []
        for name, policy in policies.items():
            if (other := meant(spec, config.policies[name])) != config.policies[name]:
                policy = loading.named_policies([other])[other]
            if needs_compiling(policy, *facts):
                told = told or loading.tell_compiling()
                slow.append(policy)
        with compiled_beside(slow, *facts):
            for policy in slow:
                warm_up(sim, informed(policy, play.jobs))


def _tasks(config: CompareConfig, varies: Mapping[tuple[str, str], bool]) -> list[Task]:
    from rota.cli.digest import ENOUGH_PAIRS
    from rota.cli.work import Task

    return [
        Task(
            trace=trace, seed=seed, label=name, policy=spec, cluster=config.cluster,
            when=config.when, history=config.history, drop_oversized=config.drop_oversized,
            deadline_s=config.deadline_s,
            keep_jobs=len(trace.seeds) < ENOUGH_PAIRS or not varies[trace.label, name],
            keep_series=seed == trace.seeds[0],
        )
        for trace in config.traces
        for seed in trace.seeds
        for name, spec in config.policies.items()
        if varies[trace.label, name] or seed == trace.seeds[0]
    ]  # fmt: skip


def _results(config: CompareConfig, book: Book, learners: Sequence[str]) -> dict[str, Any]:
    """Everything there is to say, as JSON has it."""
    import platform
    from datetime import UTC, datetime

    import numba
    import numpy as np

    from rota import __version__
    from rota.cli import digest

    compared = digest.comparisons(book)
    return {
        "name": config.name,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "rota": __version__, "python": platform.python_version(), "numpy": np.__version__,
            "numba": numba.__version__,
        },
        "cluster": loading.facts_of_cluster(config.cluster),
        "conditions": loading.facts_of_conditions(config.when),
        "seeds": list(config.seeds),
        "baseline": config.baseline,
        "policies": list(config.policies),
        "traces": [trace.label for trace in config.traces],
        "scenarios": _facts_of_scenarios(config),
        "journals": _facts_of_journals(config),
        "resamples": config.resamples,
        "notes": [*_notes(config, book, compared), *_note_on_learning(config, learners)],
        "table": digest.table(book),
        "comparisons": compared,
        "runs": [run.summary for run in book.runs.values()],
        "curves": digest.curves(book),
    }  # fmt: skip


def _facts_of_scenarios(config: CompareConfig) -> dict[str, Any]:
    """What each scenario brings with it, by label."""
    from rota.scenarios import load

    found = {}
    for spec in config.traces:
        if spec.is_scenario:
            scenario = load(spec.source)
            found[spec.label] = {
                "name": scenario.name, "version": scenario.version, "digest": scenario.digest,
                "seeds": list(spec.seeds), "cluster": loading.facts_of_cluster(scenario.cluster),
                "conditions": loading.facts_of_conditions(scenario.when),
                "aliases": {
                    name: scenario.policy(policy)
                    for name, policy in config.policies.items()
                    if scenario.policy(policy) != policy
                },
            }  # fmt: skip
    return found


def _facts_of_journals(config: CompareConfig) -> dict[str, Any]:
    """What each journal brings with it, by label."""
    return {
        spec.label: {"cluster": loading.facts_of_cluster(spec.cluster)}
        for spec in config.traces
        if spec.cluster is not None
    }


def _notes(config: CompareConfig, book: Book, compared: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader must know to read the numbers rightly."""
    notes = []
    free = config.when.restart_s == 0 and not config.when.resize_s
    if free and not all(trace.is_scenario for trace in config.traces):
        notes.append("Preemption and moving are free (conditions.restart_s = 0).")
    once = [label for label in (t.label for t in config.traces)
            if not any(book.varies[label, policy] for policy in config.policies)]  # fmt: skip
    if once and len(config.seeds) > 1:
        notes.append(
            f"Seeds make no difference to {', '.join(once)} (a file, without faults or errors of "
            "estimates), so each policy ran there once."
        )
    over = {row["over"] for row in compared}
    if "runs" in over:
        notes.append("Differences over runs: a pair is one trace and seed under both policies.")
    if "jobs" in over:
        notes.append(f"Differences over jobs: a pair is one job under both policies. {ROUGH}")
    notes += [
        f"{label} is scenario {facts['name']} (version {facts['version']}, {facts['digest']}) with "
        f"its own cluster and conditions, {units.plural(len(facts['seeds']), 'seed')} from "
        f"{facts['seeds'][0]}"
        + "".join(f"; {name} means {other} there" for name, other in facts["aliases"].items())
        + "."
        for label, facts in _facts_of_scenarios(config).items()
    ]
    notes += [
        f"{label} is a journal with its own cluster, {facts['cluster']['about']}; [cluster] would "
        "replace it."
        for label, facts in _facts_of_journals(config).items()
    ]
    dropped = {run["trace"]: run["oversized"] for run in (r.summary for r in book.runs.values())}
    notes += [
        f"{trace}: {units.plural(count, 'job')} left out that the empty cluster cannot hold."
        for trace, count in dropped.items()
        if count
    ]
    return notes


def _note_on_learning(config: CompareConfig, learners: Sequence[str]) -> list[str]:
    if not learners or config.history is not None:
        return []
    return [f"{', '.join(learners)} learns from the very jobs it schedules (no history given)."]


def _write(folder: Path, results: Mapping[str, Any]) -> None:
    import json

    from rota.dash.report import write_report
    from rota.traces.files import write_text

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RotaError(f"Cannot make the folder {folder}: {error.strerror}.") from None
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(folder / RESULTS, f"{text}\n")
    write_report(folder / REPORT, results)


def _print(results: Mapping[str, Any]) -> None:
    found = {(row["scope"], row["policy"]): row for row in results["comparisons"]}
    for trace in results["traces"]:
        rows = [row for row in results["table"] if row["trace"] == trace]
        against = [found.get((trace, row["policy"])) for row in rows]
        columns = [
            ("policy", [loading.short_name(row["policy"]) for row in rows]),
            ("runs", units.counts([row["runs"] for row in rows])),
            ("mean JCT", units.times([row["mean_jct_s"] for row in rows])),
            (f"vs {loading.short_name(results['baseline'])}", [_change(row) for row in against]),
            ("95 % interval", [_interval(row) for row in against]),
            ("over", ["" if row is None else f"{row['n']:,} {row['over']}" for row in against]),
            ("p99 JCT", units.times([row["p99_jct_s"] for row in rows])),
            ("mean wait", units.times([row["mean_wait_s"] for row in rows])),
            ("utilisation", units.percents([row["utilisation"] for row in rows])),
        ]
        own = {**results["scenarios"], **results["journals"]}.get(trace, results)
        print_table(columns, title=f"{trace} on {own['cluster']['about']}")
        typer.echo()
    overall = [row for row in results["comparisons"] if row["scope"] not in results["traces"]]
    if overall:
        columns = [
            ("policy", [loading.short_name(row["policy"]) for row in overall]),
            ("mean JCT", [_change(row) for row in overall]),
            ("95 % interval", [_interval(row) for row in overall]),
            ("over", [f"{row['n']:,} {row['over']}" for row in overall]),
        ]
        baseline = loading.short_name(results["baseline"])
        print_table(columns, title=f"{overall[0]['scope']}, against {baseline}")
        typer.echo()
    for line in results["notes"]:
        typer.echo(line)


def _change(row: Mapping[str, Any] | None) -> str:
    return "baseline" if row is None else units.change(row["ratio"])


def _interval(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else units.change_within(row["ratio_ci"])
