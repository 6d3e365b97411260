"""What every policy of a comparison faces: traces × clusters × restart costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from rota.cli import loading
from rota.traces.clusterfile import with_more_nodes

if TYPE_CHECKING:
    from rota.cli.compare_config import ClusterSpec, CompareConfig, TraceSpec
    from rota.core import Cluster
    from rota.sim import Conditions
    from rota.traces import Trace

SEPARATOR: Final = " · "
"""Between the parts of a label; names of traces have commas of their own."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One trace or scenario on one cluster with one restart cost."""

    label: str
    """What tables call it: the trace, and whatever else the comparison varies."""
    trace: TraceSpec
    cluster_name: str
    cluster: Cluster = field(compare=False)
    when: Conditions = field(compare=False)
    clusters: tuple[Cluster, ...] = field(compare=False)
    """Those of all cases of the trace; its own among them."""
    notes: tuple[str, ...] = ()
    """Where the cluster comes from, if the file does not say."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its trace."""
        return self.trace.seeds

    def facts(self) -> dict[str, Any]:
        """The case for JSON."""
        return {
            "trace": self.trace.label,
            "cluster_name": self.cluster_name,
            "cluster": loading.facts_of_cluster(self.cluster),
            "conditions": loading.facts_of_conditions(self.when),
            "restart_s": self.when.restart_s,
            "seeds": list(self.seeds),
        }


def cases_of(config: CompareConfig) -> tuple[Case, ...]:
    """All cases, trace by trace; a scenario has its own cluster and costs, so it is one case."""
    found: list[Case] = []
    for trace in config.traces:
        if trace.is_scenario:
            found.append(_of_scenario(trace))
            continue
        jobs = load_jobs(trace, trace.seeds[0])
        made = [(spec.name, *_cluster(spec, trace, jobs)) for spec in config.clusters]
        found += [
            Case(
                label=_label(config, trace, name, cost_s), trace=trace, cluster_name=name,
                cluster=cluster, when=replace(config.when, restart_s=cost_s),
                clusters=tuple(cluster for _, cluster, _ in made), notes=notes,
            )
            for name, cluster, notes in made
            for cost_s in config.restart_costs_s
        ]  # fmt: skip
    return tuple(found)


def load_jobs(trace: TraceSpec, seed: int) -> Trace:
    """The jobs of a trace that is no scenario."""
    return loading.loaded(
        trace.source, format_name=trace.format, seed=seed, skip_bad=trace.skip_bad,
        head=trace.head, ignore_gpu_types=trace.ignore_gpu_types,
    )  # fmt: skip


def _of_scenario(trace: TraceSpec) -> Case:
    from rota.scenarios import load

    scenario = load(trace.source)
    return Case(
        label=trace.label, trace=trace, cluster_name=scenario.name, cluster=scenario.cluster,
        when=scenario.when, clusters=(scenario.cluster,),
    )  # fmt: skip


def _cluster(spec: ClusterSpec, trace: TraceSpec, jobs: Trace) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster that an entry means for a trace."""
    notes: tuple[str, ...] = ()
    if spec.described is not None:
        cluster = spec.described
    else:
        source = trace.source if trace.format is None else ""  # with a format it is no journal
        cluster, notes = loading.cluster_for(
            jobs, source, nodes=spec.nodes, gpus=spec.gpus, instead="[cluster] would replace it"
        )
    if spec.add_nodes:
        cluster = with_more_nodes(cluster, spec.add_nodes, spec.gpu_type)
    return cluster, notes


def _label(config: CompareConfig, trace: TraceSpec, cluster: str, cost_s: float) -> str:
    parts = [trace.label]
    if len(config.clusters) > 1:
        parts.append(cluster)
    if len(config.restart_costs_s) > 1:
        parts.append(f"restart {cost_s:g} s")
    return SEPARATOR.join(parts)
