"""Small worlds to simulate: made by hand or drawn by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from rota.core import Cluster
from rota.policies import Heuristic, make_policy
from rota.sim import Conditions, Faults, simulate
from rota.sim.briefing import informed
from rota.sim.state import FAULT
from rota.testing.world_runs import ByRounds
from rota.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core import Policy
    from rota.run.outcome import Outcome

Jobs = list[tuple[int, int, int]]


def examples(count: int) -> settings:
    """So many for every hundred of the profile; see conftest."""
    return settings(max_examples=count * settings().max_examples // 100)


def trace_of(jobs: Sequence[tuple[float, float, int]], **columns: Any) -> Trace:
    """A trace of (submit, duration, GPUs) triples."""
    submit_s, duration_s, num_gpus = zip(*jobs, strict=True)
    return Trace.build(
        "test", submit_s=submit_s, duration_s=duration_s, num_gpus=num_gpus, **columns
    )


def cluster_of(gpus: Sequence[int], **columns: Any) -> Cluster:
    return Cluster(gpus=np.array(gpus, np.int64), **columns)


def by_rounds(
    cluster: Cluster,
    trace: Trace,
    policy: Policy,
    when: Conditions | None = None,
    *,
    seed: int = 0,
    **more: Any,
) -> Outcome:
    """Like `simulate`, but through the Python loop."""
    asked = ByRounds(informed(policy, trace))
    if isinstance(policy, Heuristic) and policy.error:
        when = replace(when or Conditions(), estimate_error=policy.error)
    return simulate(cluster, trace, asked, when, seed=seed, **more)


def done_s(
    gpus: Sequence[int], jobs: Jobs, name: str, when: Conditions | None = None, **columns: Any
) -> list[float]:
    """When each job is done, after both ways of playing have been found equal."""
    cluster, trace, policy = cluster_of(gpus), trace_of(jobs, **columns), make_policy(name)
    fast = simulate(cluster, trace, policy, when)
    assert_same(fast, by_rounds(cluster, trace, policy, when))
    return fast.done_s.tolist()


FACTS = (
    "started_s", "done_s", "gave_up", "preemptions", "lost_s", "begin_s", "end_s", "held_gpu_s",
    "up_gpu_s", "stray_gpu_s", "moves", "resizes", "kills", "rounds",
)  # fmt: skip


def assert_same(a: Outcome, b: Outcome) -> None:
    """Bit for bit."""
    for fact in FACTS:
        np.testing.assert_array_equal(getattr(a, fact), getattr(b, fact), err_msg=fact)


@dataclass(frozen=True, kw_only=True)
class Scripted(Faults):
    """Faults at moments that a test chooses."""

    nodes: tuple[tuple[float, int, bool], ...] = ()
    """(time, node, whether it comes back)"""
    jobs: tuple[tuple[float, ...], ...] = ()
    """Run time to each failure of each job: as many as there are retries, plus one."""

    @property
    def never(self) -> bool:
        return not self.nodes and not self.jobs

    def of_nodes(self, nodes: int, begin_s: float, horizon_s: float, rng: Any) -> Any:  # noqa: ARG002
        return np.array(sorted(self.nodes), FAULT)

    def of_jobs(self, jobs: int, rng: Any) -> Any:  # noqa: ARG002
        return np.array(self.jobs, np.float64) if self.jobs else np.zeros((jobs, 0))


@st.composite
def worlds(
    draw: st.DrawFn,
    *,
    sizes: Sequence[int] | None = None,
    equal_nodes: bool = False,
    most_jobs: int = 12,
    most_nodes: int = 5,
) -> tuple[list[int], Jobs]:
    """Nodes, and jobs with many ties of time and gangs up to the whole cluster."""
    count = draw(st.integers(1, most_nodes))
    if equal_nodes:
        gpus = [draw(st.sampled_from([1, 2, 4, 8]))] * count
    else:
        gpus = draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=count, max_size=count))
    total, largest = sum(gpus), max(gpus)
    possible = [
        size for size in (sizes or range(1, total + 1)) if size <= largest or holds(gpus, size)
    ]
    job = st.tuples(
        st.integers(0, 12).map(lambda k: 10 * k) | st.integers(0, 120),
        st.sampled_from([1, 5, 10, 20, 30, 40, 60, 100]) | st.integers(1, 200),
        st.sampled_from(possible),
    )
    return gpus, sorted(draw(st.lists(job, min_size=1, max_size=most_jobs)), key=lambda j: j[0])


def holds(gpus: list[int], size: int) -> bool:
    """Whether an empty cluster holds a gang: whole nodes, the rest on a further one."""
    left, rest = size, []
    for has in gpus:
        if has <= left:
            left -= has
        else:
            rest.append(has)
    return left == 0 or any(has >= left for has in rest)


@st.composite
def outages(draw: st.DrawFn, nodes: int) -> tuple[tuple[float, int, bool], ...]:
    """Each node may go down a few times, and comes back."""
    found: list[tuple[float, int, bool]] = []
    for node in range(nodes):
        spans = draw(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 50)), max_size=2))
        now = 0
        for lasts, repair in spans:
            found += [(now + lasts, node, False), (now + lasts + repair, node, True)]
            now += lasts + repair
    return tuple(sorted(found))
