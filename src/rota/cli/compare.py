"""`rota compare`: traces × clusters × restart costs × seeds × policies, and what is not chance."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli import loading
from rota.cli.options import AsJson, command  # noqa: TC001
from rota.cli.progress import LateBar
from rota.cli.table import print_json
from rota.errors import InputError, RotaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.cli.cases import Case
    from rota.cli.compare_config import CompareConfig
    from rota.cli.digest import AllRuns
    from rota.cli.work import Task
    from rota.core import Policy

RESULTS, REPORT = "results.json", "report.html"


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Everything that `rota compare` can be asked for."""

    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="What to run; a TOML file.")]
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the results; default: out/NAME of CONFIG."),
    ] = None
    as_json: AsJson = False
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Runs at a time; default: one per core.")
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Replace earlier results in the folder.")
    ] = False


@command(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Compare policies over many traces, clusters, restart costs and seeds.

    Every trace runs on every cluster, with every restart cost, under every policy and seed, in
    parallel; the differences to a baseline come with confidence intervals.
    """
    from rota.cli.cases import cases_of
    from rota.cli.compare_config import load_config, naming
    from rota.cli.compare_results import results_of
    from rota.cli.compare_tables import print_results

    with naming(options.config):
        wanted = load_config(options.config)
    folder = Path("out") / wanted.name if options.out is None else options.out
    _check_folder(folder, options.force)
    if drawn := [seed for trace in wanted.traces if trace.is_scenario for seed in trace.seeds]:
        loading.tell_outside(drawn)
    with naming(options.config):
        policies = {
            name: loading.named_policies([spec])[spec] for name, spec in wanted.policies.items()
        }
        cases = cases_of(wanted)
        all_runs, records = _played(wanted, cases, policies, options.jobs or _cores())
    results = results_of(wanted, all_runs, records, loading.learners(policies))
    _write(folder, results)
    if options.as_json:
        print_json({key: v for key, v in results.items() if not key.startswith("curves")})
    else:
        print_results(results)
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


def _played(
    config: CompareConfig, cases: tuple[Case, ...], policies: Mapping[str, Policy], jobs: int
) -> tuple[AllRuns, list[dict[str, Any]]]:
    """All runs, each as often as it can differ, and what the logs record of their own."""
    from rota.cli.digest import AllRuns
    from rota.cli.work import run_all

    varies = _what_varies(config, cases, policies)
    with LateBar() as bar:
        bar.begin("preparing", 0)
        records = _look_ahead(config, cases, policies)
        tasks = _tasks(config, cases, varies)
        results = run_all(tasks, jobs, bar.begin(f"{len(tasks)} runs", len(tasks)))
    keys = [(task.case.label, task.label, task.seed) for task in tasks]
    return AllRuns(config, cases, dict(zip(keys, results, strict=True)), varies), records


def _what_varies(
    config: CompareConfig, cases: Sequence[Case], policies: Mapping[str, Policy]
) -> dict[tuple[str, str], bool]:
    """Which results depend on the seed: presets do, faults do, wrong estimates do."""
    from math import isfinite

    faults = config.when.faults
    always = isfinite(faults.node_mtbf_s) or isfinite(faults.job_mtbf_s)
    always = always or config.when.estimate_error > 0
    return {
        (case.label, name): always or case.trace.is_drawn or getattr(policy, "error", 0) > 0
        for case in cases
        for name, policy in policies.items()
    }


def _look_ahead(
    config: CompareConfig, cases: Sequence[Case], policies: Mapping[str, Policy]
) -> list[dict[str, Any]]:
    """Read every trace and compile what is needed before any process is started.

    Returns what each log records of its own schedule.
    """
    from rota.cli.compare_results import record_of
    from rota.cli.work import meant, prepared
    from rota.sim import Simulator
    from rota.sim.beside import compiled_beside
    from rota.sim.briefing import informed
    from rota.sim.replay_choice import needs_compiling, warm_up

    told, records = False, []
    for case in cases:
        seed = case.seeds[0]
        play = prepared(case, seed, config.drop_oversized)
        if case is next(other for other in cases if other.trace == case.trace):
            loading.tell_losses(play.jobs, play.oversized)
        loading.tell_extrapolation(play.jobs, play.cluster, play.physics)
        records += record_of(case, play)
        sim = Simulator(play.cluster, play.jobs, play.when, seed=seed, physics=play.physics)
        facts = play.cluster, play.when, play.jobs, play.physics
        slow = []
        for name, policy in policies.items():
            if (other := meant(case.trace, config.policies[name])) != config.policies[name]:
                policy = loading.named_policies([other])[other]
            if needs_compiling(policy, *facts):
                told = told or loading.tell_compiling()
                slow.append(policy)
        with compiled_beside(slow, *facts):
            for policy in slow:
                warm_up(sim, informed(policy, play.jobs))
    return records


def _tasks(
    config: CompareConfig, cases: Sequence[Case], varies: Mapping[tuple[str, str], bool]
) -> list[Task]:
    """All runs, those of one trace and seed next to each other: they share the jobs."""
    from rota.cli.digest import ENOUGH_PAIRS
    from rota.cli.work import Task

    return [
        Task(
            case=case, seed=seed, label=name, policy=spec, history=config.history,
            drop_oversized=config.drop_oversized, deadline_s=config.deadline_s,
            keep_jobs=len(case.seeds) < ENOUGH_PAIRS or not varies[case.label, name],
            keep_series=seed == case.seeds[0],
        )
        for trace in config.traces
        for seed in trace.seeds
        for case in cases if case.trace == trace
        for name, spec in config.policies.items()
        if varies[case.label, name] or seed == case.seeds[0]
    ]  # fmt: skip


def _write(folder: Path, results: Mapping[str, Any]) -> None:
    import json

    from rota.dash.compare_page import write_report
    from rota.traces.text_files import write_text

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RotaError(f"Cannot make the folder {folder}: {error.strerror}.") from None
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(folder / RESULTS, f"{text}\n")
    write_report(folder / REPORT, results)
