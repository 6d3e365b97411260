"""`rota simulate`: replay a trace under one or more policies."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli import loading
from rota.cli.progress import LateBar
from rota.cli.runs import print_runs
from rota.cli.table import print_json
from rota.errors import UnknownNameError

if TYPE_CHECKING:
    from rota.core import Cluster, Policy
    from rota.run.outcome import Outcome
    from rota.sim import Conditions
    from rota.traces import Trace

HOUR_S = 3600.0

Source = Annotated[
    str, typer.Argument(metavar="TRACE", help="A job log, or a preset; `rota traces` lists them.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", "-p", metavar="NAME", help="Repeat to compare; `rota policies` lists them."
    ),
]
Nodes = Annotated[int | None, typer.Option(min=1, help="Nodes of the cluster; 16 if not given.")]
Gpus = Annotated[int | None, typer.Option(min=1, help="GPUs of each node; 8 if not given.")]
ClusterFile = Annotated[
    Path | None, typer.Option("--cluster", help="A cluster file, in place of --nodes and --gpus.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seeds everything random; same seed, same numbers.")]
JournalFile = Annotated[
    Path | None,
    typer.Option("--journal", help="Keep every event here; one file per policy if several."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace journals that exist already.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, not a table.")]
FormatName = Annotated[
    str | None, typer.Option("--format", help="Read TRACE as this format; default: look at it.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over broken lines and count them.")]
Head = Annotated[int | None, typer.Option(min=1, help="Take the first N jobs only.")]
DropOversized = Annotated[
    bool,
    typer.Option("--drop-oversized", help="Leave out jobs that the empty cluster cannot hold."),
]
RestartCost = Annotated[
    float, typer.Option(min=0, help="Seconds without progress after a stop, move or resize.")
]
MinRun = Annotated[
    float, typer.Option(min=0, help="Seconds for which a started job may not be stopped.")
]
Slot = Annotated[
    float, typer.Option(min=0, help="Decide every so many seconds only; 0: at every event.")
]
CheckpointEvery = Annotated[
    float,
    typer.Option(min=0, help="Seconds of progress between checkpoints: what a failure costs."),
]
NodeMtbf = Annotated[
    float | None, typer.Option(min=0.001, help="Mean hours until a node fails; default: never.")
]
NodeRepair = Annotated[
    float, typer.Option(min=0.001, help="Mean hours until a failed node is back.")
]
JobMtbf = Annotated[
    float | None,
    typer.Option(min=0.001, help="Mean hours of run time until a job fails; default: never."),
]
Retries = Annotated[int, typer.Option(min=0, help="How often a job that failed is tried again.")]
Estimates = Annotated[
    str, typer.Option(metavar="true|trace", help="What policies know of durations.")
]
History = Annotated[
    str | None, typer.Option(help="Past jobs for policies that learn; default: TRACE itself.")
]
Deadline = Annotated[
    float, typer.Option(min=0.001, help="Seconds that a policy of your own may take per round.")
]
By = Annotated[
    str | None, typer.Option(metavar="size|user", help="Further tables, by job size or by user.")
]


def simulate(
    trace: Source,
    policy: Policies = None,
    nodes: Nodes = None,
    gpus: Gpus = None,
    cluster: ClusterFile = None,
    seed: Seed = 0,
    journal: JournalFile = None,
    force: Force = False,
    as_json: AsJson = False,
    by: By = None,
    format_name: FormatName = None,
    skip_bad: SkipBad = False,
    head: Head = None,
    drop_oversized: DropOversized = False,
    restart_cost: RestartCost = 0.0,
    min_run: MinRun = 0.0,
    slot: Slot = 0.0,
    checkpoint_every: CheckpointEvery = 1800.0,
    node_mtbf: NodeMtbf = None,
    node_repair: NodeRepair = 4.0,
    job_mtbf: JobMtbf = None,
    retries: Retries = 3,
    estimates: Estimates = "true",
    history: History = None,
    deadline: Deadline = 60.0,
) -> None:
    """Replay TRACE under one or more policies."""
    _check_choice("kind of estimates", estimates, ("true", "trace"))
    _check_choice("table", by or "size", ("size", "user"))
    policies = loading.named_policies(policy or [])
    with LateBar() as bar:
        bar.begin(f"reading {trace}", 0)
        setting = Setting(
            cluster=loading.cluster_from(cluster, nodes, gpus),
            when=_conditions(
                restart_s=restart_cost, min_run_s=min_run, slot_s=slot,
                checkpoint_s=checkpoint_every, trust_trace=estimates == "trace",
                node_mtbf=node_mtbf, node_repair=node_repair, job_mtbf=job_mtbf, retries=retries,
            ),
            seed=seed, deadline_s=deadline,
            history=None if history is None else loading.loaded(history, seed=seed),
        )  # fmt: skip
        jobs = loading.loaded(
            trace, format_name=format_name, seed=seed, skip_bad=skip_bad, head=head
        )
        oversized = 0
        if drop_oversized:
            jobs, oversized = loading.without_oversized(jobs, setting.cluster)
    _tell(jobs, oversized, policies, history)
    loading.tell_compiling(policies.values(), setting.cluster, setting.when)
    with LateBar() as bar:
        runs = [
            _run(name, made, jobs, setting, _journal_path(journal, name, len(policies)), force, bar)
            for name, made in policies.items()
        ]
    facts = _facts(trace, jobs, oversized, setting)
    if as_json:
        print_json({**facts, "runs": runs})
    else:
        print_runs(runs, facts, jobs, by)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all runs of one command share."""

    cluster: Cluster
    when: Conditions
    seed: int
    deadline_s: float
    history: Trace | None


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
) -> Conditions:
    """The conditions that the options describe; their hours become seconds."""
    from math import inf

    from rota.sim import Conditions, Faults

    faults = Faults(
        node_mtbf_s=inf if node_mtbf is None else node_mtbf * HOUR_S,
        node_repair_s=node_repair * HOUR_S,
        job_mtbf_s=inf if job_mtbf is None else job_mtbf * HOUR_S,
        retries=retries,
    )
    return Conditions(faults=faults, **rest)


def _tell(jobs: Trace, oversized: int, policies: dict[str, Policy], history: str | None) -> None:
    loading.tell_losses(jobs, oversized)
    learners = loading.learners(policies)
    if learners and history is None:
        loading.note(
            f"{', '.join(learners)} learns from the very jobs it schedules; "
            "--history FILE gives it past ones."
        )


def _run(
    name: str, policy: Policy, jobs: Trace, setting: Setting, path: Path | None, force: bool,
    bar: LateBar,
) -> dict[str, Any]:  # fmt: skip
    """One run, and all that is to be said about it."""
    from rota.run.metrics import summarise
    from rota.sim import simulate

    progress = bar.begin(loading.short_name(name), len(jobs))
    with ExitStack() as stack:
        journal = None
        if path is not None:
            from rota.run.journal import Journal

            meta = {
                "policy": name, "total_gpus": setting.cluster.total_gpus, "trace": jobs.name,
                "seed": setting.seed, "cluster": setting.cluster, "conditions": setting.when,
            }  # fmt: skip
            journal = stack.enter_context(Journal.create(path, meta=meta, force=force))
        outcome: Outcome = simulate(
            setting.cluster, jobs, policy, setting.when, seed=setting.seed,
            history=setting.history, journal=journal, deadline_s=setting.deadline_s,
            progress=progress,
        )  # fmt: skip
    kept = {} if path is None else {"journal": str(path)}
    return {**summarise(outcome), "policy": name, **kept}


def _journal_path(path: Path | None, policy: str, runs: int) -> Path | None:
    """`FILE`, with the policy's name before its suffix if there are several."""
    if path is None or runs == 1:
        return path
    plain = re.sub(r"[^\w.+=,-]", "-", loading.short_name(policy))
    return path.with_name(f"{path.stem}.{plain}{path.suffix}")


def _facts(source: str, jobs: Trace, oversized: int, setting: Setting) -> dict[str, Any]:
    from rota import __version__

    return {
        "rota": __version__,
        "trace": {
            "source": source, "name": jobs.name, "jobs": len(jobs), "oversized": oversized,
            "skipped": jobs.skipped, "left_out": dict(jobs.left_out),
        },
        "cluster": loading.facts_of_cluster(setting.cluster),
        "conditions": loading.facts_of_conditions(setting.when),
        "seed": setting.seed,
    }  # fmt: skip
