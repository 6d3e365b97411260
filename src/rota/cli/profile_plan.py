"""Which measurements `rota profile` makes: every job alone, then in pairs on the same nodes."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, NamedTuple

from rota.errors import ConfigError
from rota.perf.job_tables import PlacedModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.backends.local.request import Request
    from rota.core.cluster import Cluster

    Pair = tuple[PlacedModel, PlacedModel]


class ProfilePlan(NamedTuple):
    """Placements to measure alone, pairs of them to measure together, and what does not fit."""

    alone: list[PlacedModel]
    pairs: list[Pair]
    crowded: list[Pair]
    """Pairs that do not fit on the same nodes."""


def plan_profile(
    jobs: Mapping[str, Request],
    cluster: Cluster,
    *,
    workers: Sequence[int] = (),
    over: Sequence[int] = (),
    pairs: bool = True,
) -> ProfilePlan:
    """Every job with each number of workers, evenly over each number of nodes that divides it.

    Left out, workers are those a job asks for, its least and its most; nodes are 1 and up. A job is
    paired with each one, itself included, at the size it asks for, or else at its largest.
    """
    for nodes in over:
        if not 1 <= nodes <= len(cluster):
            raise ConfigError(
                f"--over {nodes}: there are {len(cluster)} nodes; name 1 to {len(cluster)}, or "
                "more nodes with --nodes."
            )
    spans = sorted(set(over)) or range(1, len(cluster) + 1)
    alone: dict[str, list[PlacedModel]] = {}
    for model, request in jobs.items():
        asked = [request.min_workers, request.workers, request.max_workers]
        sizes = sorted(set(workers)) or sorted(set(asked))
        if outside := [n for n in sizes if not request.min_workers <= n <= request.max_workers]:
            raise ConfigError(
                f"--workers {outside[0]}: job {model!r} takes {request.min_workers} to "
                f"{request.max_workers} workers; change its min_workers or max_workers."
            )
        alone[model] = [
            placed
            for size in sizes
            for nodes in spans
            if size % nodes == 0 and _fits(cluster, jobs, placed := PlacedModel(model, size, nodes))
        ]
        if not alone[model]:
            raise ConfigError(
                f"Job {model!r} with {' or '.join(map(str, sizes))} workers of "
                f"{request.gpus_per_worker} GPUs fits evenly on no number of nodes asked for "
                f"({', '.join(map(str, spans))}) of {cluster.describe()}; name others with "
                "--workers, --over, --nodes or --gpus."
            )
    found = ProfilePlan([one for own in alone.values() for one in own], [], [])
    if pairs:
        sized = {model: _paired(own, jobs[model].workers) for model, own in alone.items()}
        for a, b in combinations_with_replacement(sized, 2):
            for nodes in spans:
                if nodes in sized[a] and nodes in sized[b]:
                    pair = sized[a][nodes], sized[b][nodes]
                    fits = _fits(cluster, jobs, *pair)
                    (found.pairs if fits else found.crowded).append(pair)
    return found


def _fits(cluster: Cluster, jobs: Mapping[str, Request], *together: PlacedModel) -> bool:
    """Whether the first nodes have room for all of these at once."""
    nodes = together[0].nodes
    if nodes > len(cluster):
        return False
    need = sum(one.workers // nodes * jobs[one.model].gpus_per_worker for one in together)
    return need <= int(cluster.gpus[:nodes].min())


def _paired(own: Sequence[PlacedModel], asked: int) -> dict[int, PlacedModel]:
    """By nodes, the placement in which a job is measured beside others."""
    size = asked if any(one.workers == asked for one in own) else max(one.workers for one in own)
    return {one.nodes: one for one in own if one.workers == size}
