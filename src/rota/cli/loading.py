"""What several commands need: traces, clusters, policies, and notes to the user."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rota.cli.logs import located
from rota.cli.table import shown
from rota.dash.units import plural
from rota.errors import ConfigError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rota.core import Cluster, Policy
    from rota.core.types import Bools
    from rota.perf.physics import Physics
    from rota.sim import Conditions
    from rota.traces import Trace


MOST_FOLDERS = 8
"""Folders that are tried to tell files of one name apart."""
MOST_NOTES = 3
"""More sentences of one kind are only counted."""


def note(message: str) -> None:
    """Tell the user something on stderr."""
    typer.echo(f"note: {shown(message)}", err=True)


def named_policies(
    names: Sequence[str], meaning: Callable[[str], str] | None = None
) -> dict[str, Policy]:
    """The policies with these names, each once; `meaning` translates names beforehand."""
    from rota.policies import make_policy

    if not names:
        raise InputError(
            "Name at least one policy, such as -p fifo -p srtf+consolidate -p tiresias; "
            "`rota policies` lists them all."
        )
    return {name: _make(make_policy, meaning(name) if meaning else name) for name in names}


def _make(make_policy: Any, name: str) -> Policy:
    if ":" in name and "" not in sys.path and "." not in sys.path:
        sys.path.append("")  # `module:Name` may name a module in the working directory
    made: Policy = make_policy(name)
    return made


def short_names(policies: Iterable[str]) -> dict[str, str]:
    """By policy: its name for tables; of a file of the user's own without its folder.

    Files of the same name get as many of their folders as tell them apart.
    """
    found = {policy: _short_name(policy, 0) for policy in policies}
    for folders in range(1, MOST_FOLDERS + 2):
        times = Counter(found.values())
        for policy in [policy for policy, name in found.items() if times[name] > 1]:
            whole = folders > MOST_FOLDERS  # as with ./mine.py and mine.py
            found[policy] = policy if whole else _short_name(policy, folders)
    return found


def _short_name(policy: str, folders: int) -> str:
    """The name of a policy with so many of the folders above its file."""
    where, mark, rest = policy.partition(".ckpt:" if ".ckpt:" in policy else ".py:")
    if not mark and not policy.endswith(".ckpt"):
        return policy
    return f"{Path(*Path(where).parts[-1 - folders :])}{mark}{rest}"


def cluster_for(
    jobs: Trace, source: str, *, file: Path | None = None, nodes: int | None = None,
    gpus: int | None = None, data: Path | None = None,
    instead: str = "--cluster, --nodes or --gpus replace it",
) -> tuple[Cluster, tuple[str, ...]]:  # fmt: skip
    """The cluster that jobs run on, and sentences that say where it comes from.

    What the options say comes first, then the cluster of a journal or of a preset, then what a log
    with GPU types tells of its own; else it is 16 nodes of 8 GPUs. `instead` tells users how to
    have another one.
    """
    from rota.traces.log_cluster import cluster_of_log
    from rota.traces.presets import preset_cluster

    if file is None and nodes is None and gpus is None:
        if (found := cluster_of(source, data)) is not None:
            own, clusters = found
            about = own.describe()
            said = f"{jobs.name} is a journal with its own cluster, {about}; {instead}."
            turns = f"the journal tells of {clusters} clusters in turn; the last, {about}, is taken"
            return own, (said, *([f"{jobs.name}: {turns}."] if clusters > 1 else []))
        if (published := preset_cluster(source)) is not None:
            name = source.partition(":")[0]
            said = f"{name} comes with its own cluster: {published[1]}; {instead}."
            return published[0], (said,)
    if file is None and (made := cluster_of_log(jobs, nodes, gpus)) is not None:
        said = (
            f"{jobs.name}: the cluster is made of the GPU types in the log: {made[1]}; {instead}."
        )
        return made[0], (said,)
    return cluster_from(file, nodes, gpus), ()


def cluster_from(file: Path | None, nodes: int | None, gpus: int | None) -> Cluster:
    """The cluster that the options describe; 16 nodes of 8 GPUs if they say nothing."""
    from rota.core import Cluster
    from rota.traces.clusterfile import load_cluster
    from rota.traces.log_cluster import USUAL_GPUS, USUAL_NODES

    if file is None:
        return Cluster.uniform(nodes or USUAL_NODES, gpus or USUAL_GPUS)
    if nodes is not None or gpus is not None:
        raise ConfigError("A cluster file describes every node; leave out --nodes and --gpus.")
    return load_cluster(file)


def loaded(
    source: str | Path, *, format_name: str | None = None, seed: int = 0, skip_bad: bool = False,
    head: int | None = None, data: Path | None = None, ignore_gpu_types: bool = False,
) -> Trace:  # fmt: skip
    """The trace, or its first `head` jobs; never without any. `data`: where logs may also be."""
    where = located(source, data)
    trace = trace_from(where, format_name=format_name, seed=seed, skip_bad=skip_bad)
    if not len(trace):
        raise InputError(f"{trace.name} holds no jobs to replay.")
    trace = trace.without_gpu_types() if ignore_gpu_types else trace
    return trace if head is None else trace.head(head)


def trace_from(
    source: str | Path, *, format_name: str | None = None, seed: int = 0, skip_bad: bool = False
) -> Trace:
    """The jobs of a log, of a preset, or of a journal."""
    from rota.sim.past import is_journal, past_jobs
    from rota.traces import load_trace

    if format_name is None and is_journal(source):
        return past_jobs(source)
    return load_trace(source, format=format_name, seed=seed, skip_bad=skip_bad)


def cluster_of(source: str, data: Path | None = None) -> tuple[Cluster, int] | None:
    """The last cluster that a journal tells of, and of how many; None without journal or any."""
    from rota.sim.past import count_clusters, is_journal, opened, past_cluster

    where = located(source, data)
    if not is_journal(where):
        return None
    with opened(where) as view:
        cluster = past_cluster(view.meta)
        return None if cluster is None else (cluster, count_clusters(view.meta))


def without_oversized(trace: Trace, cluster: Cluster) -> tuple[Trace, int]:
    """The jobs that the empty cluster can hold, and how many it cannot."""
    fits = _fits(trace, cluster)
    if not fits.any():
        from rota.traces.log_cluster import missing_types

        why = missing_types(trace, cluster)
        raise InputError(
            f"{trace.name}: the cluster ({cluster.describe()}) can hold none of its "
            f"{plural(len(trace), 'job')}, even when empty{f': {why}' if why else '.'}"
        )
    return (trace, 0) if fits.all() else (trace.take(fits), int((~fits).sum()))


def _fits(trace: Trace, cluster: Cluster) -> Bools:
    import numpy as np

    from rota.sim.setup import Conditions, job_records
    from rota.sim.simulator import fitting

    return fitting(cluster, job_records(trace, cluster, Conditions(), np.random.default_rng(0)))


def tell_losses(trace: Trace, oversized: int = 0) -> None:
    """Say on stderr what of a file did not become a job, and what else its reader found."""
    for sentence in trace.notes:
        note(f"{trace.name}: {sentence}")
    if trace.skipped:
        note(f"{trace.name}: skipped {plural(trace.skipped, 'broken line')}.")
    for reason, count in trace.left_out.items():
        note(f"{trace.name}: left out {plural(count, 'job')}: {reason}.")
    if oversized:
        note(
            f"{trace.name}: left out {plural(oversized, 'job')} that the empty cluster cannot hold."
        )


def tell_outside(seeds: Sequence[int]) -> None:
    """Say which seeds nothing may be fitted to."""
    from rota.scenarios import OUTSIDE

    if max(seeds) >= OUTSIDE:
        note(f"seeds from {OUTSIDE:,} up are for outside checks: never fit, train or tune on them.")


def learners(policies: Mapping[str, Policy]) -> list[str]:
    """The names of those policies that draw on past jobs."""
    from rota.policies import Heuristic

    return [name for name, p in policies.items() if isinstance(p, Heuristic) and p.learns]


def tell_extrapolation(jobs: Trace, cluster: Cluster, physics: Physics) -> None:
    """Name the models whose jobs may get sizes at which their speed was not measured."""
    from rota.perf.doubt import beyond

    if physics.curves is None:
        return
    found: list[str] = []
    for code, model in enumerate(jobs.models):
        own = jobs.model == code
        if own.any():
            workers = int(jobs.max_workers[own].max())
            spanned = min(len(cluster), workers)
            other = spanned if physics.curves.by_nodes else int(jobs.max_servers[own].max())
            found += beyond(physics.curves, [model], other, workers)
    for sentence in found[:MOST_NOTES]:
        note(sentence)
    if len(found) > MOST_NOTES:
        note(f"the same is true of {len(found) - MOST_NOTES} more models.")


def tell_estimates(jobs: Trace) -> None:
    """Say of how many jobs the trace has no estimate."""
    bare = int((jobs.estimate_s != jobs.estimate_s).sum())  # NaN
    if bare:
        note(
            f"{jobs.name}: no estimate of {bare:,} of {plural(len(jobs), 'job')}; "
            "policies do not know how long they take."
        )


def tell_compiling() -> bool:
    """Say that the compiler takes a while; returns True, so that callers say it once."""
    typer.echo("compiling the simulator (only the first time, about 10 s) …", err=True)
    return True


def facts_of_cluster(cluster: Cluster) -> dict[str, Any]:
    """A cluster in a few words and numbers, for JSON."""
    from rota.dash.groups import cluster_facts

    return cluster_facts(cluster)


def facts_of_conditions(when: Conditions) -> dict[str, Any]:
    """Conditions and faults as one flat mapping for JSON; None stands for never."""
    import math

    every = {f.name: getattr(when, f.name) for f in fields(when) if f.name != "faults"}
    every |= {f.name: getattr(when.faults, f.name) for f in fields(when.faults)}
    return {key: None if value == math.inf else value for key, value in every.items()}
