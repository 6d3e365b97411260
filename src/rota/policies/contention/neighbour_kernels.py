"""How jobs on one node slow each other down: compiled, for policies that look ahead.

An `Occupancy` is a copy of the cluster that can be played forward: every node lists the jobs on it
(`job`, with `held` GPUs each) and what it leaves each of them of its speed (`here`). A job runs at
`alone` × the least of these, over its nodes and the uplinks between them. Speeds are relative to a
job's reference, so a job's `left` is in seconds at speed 1.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from rota.core.speed import LINKS, MACHINES, PAIRS
from rota.core.types import Floats, Ints
from rota.jit import part

SLOWEST: Final = 1e-9
"""The least speed of a job that runs."""


class Law(NamedTuple):
    """How jobs slow each other down; see `rota.core.speed.Contention`."""

    mode: int
    floor: float
    ratio: Floats  # (K, K)
    hurt: Floats  # (K,)
    harm: Floats  # (K,)
    traffic_gbps: Floats  # (K,)
    talk: Floats  # (K,)
    link_gbps: Floats  # (N,)
    uplink_gbps: Floats  # (R + 1,) of racks, the last is the spine; (0,): none to look at


class Options(NamedTuple):
    """What can be placed: waiting jobs by type, and the spreads that each type may take."""

    jobs: Any  # (J,) JOB
    weight: Floats  # (J,) what a job's speed counts for
    size: Floats  # (J,) GPUs, or workers where they need none
    sign: Ints  # (J,) random numbers: a node's jobs are known by their sum
    queue: Ints  # (W,) waiting jobs, one type after the other
    end: Ints  # (Q,) where the jobs of a type end in `queue`
    type: Ints  # (P,) of a spread
    span: Ints  # (P,) the number of nodes it goes over
    kind: Ints  # (P,) its sort of traffic
    speed: Floats  # (P, T) alone, by GPU type, relative to the job's reference


class Occupancy(NamedTuple):
    """The cluster at one moment; changes as jobs come and go."""

    head: (
        Ints  # (Q + 1,) the next job of a type, as a place in `Options.queue`; last, how many types
    )
    gpus: Ints  # (N,)
    type: Ints  # (N,)
    rack: Ints  # (N,) 0 where the law has no uplinks
    free: Ints  # (N,) GPUs; −1 while a node is down
    cpus: Floats  # (N,) free
    memory_gb: Floats  # (N,) free
    load: Floats  # (N,) Gb/s that jobs there want of its link
    drift: Floats  # (N,) speed seen there, as a part of what tables say; 1 where none was seen
    sign: Ints  # (N,) the sum of its jobs' signs: equal where the same jobs hold the same
    jobs_on: Ints  # (N,) the number of jobs there
    job: Ints  # (N, S)
    held: Ints  # (N, S) GPUs
    here: Floats  # (N, S) what the node leaves the job of its speed
    kind: Ints  # (J,)
    alone: Floats  # (J,)
    low: Floats  # (J,) the least that nodes and uplinks leave the job of its speed
    left: Floats  # (J,)
    span: Ints  # (J,)
    node: Ints  # (J, M) the nodes of a running job
    run: Ints  # (J + 1,) the running jobs; the last entry is their number
    up_load: Floats  # (R + 1,) Gb/s that jobs want of uplinks and spine
    riders: Ints  # (R + 1,) the number of jobs on each
    rider: Ints  # (R + 1, J) these jobs
    changed: Ints  # (N + 1,) when what a node is worth last changed; the last entry is the clock
    up_changed: Ints  # (R + 1,) when what an uplink leaves last changed


class Scratch(NamedTuple):
    """Scratch space."""

    hit: Floats  # (J,) `low` as it would be
    seen: Ints  # (J + 1,) when `hit` was written; the last entry is the clock
    able: Ints  # (N,)
    pick: Ints  # (N,)
    order: Ints  # (N,)
    twin: Ints  # (N,) the next lower node with the same content, −1: none
    loss: Floats  # (N,) what the jobs of a node lose by the newcomer
    gain: Floats  # (N,) what a node would add to a set that grows, NaN: to be worked out
    up_ratio: Floats  # (I + 1, R + 1) by option: what an uplink leaves the newcomer
    up_loss: Floats  # (I + 1, R + 1) by option: what the jobs on an uplink lose by the newcomer
    up_weighed: Ints  # (I + 1,) up to which change a row of these is true
    rack_ratio: Floats  # (R + 1,) what uplinks leave the newcomer with a further node in a rack
    rack_loss: Floats  # (R + 1,) what others lose on uplinks by a further node in a rack
    opened: Ints  # (R + 1,) when the newcomer began to use an uplink, by the clock of `seen`
    by_rack: Ints  # (N,) nodes, rack by rack
    ends: Ints  # (R + 1,) where the nodes of a rack end there
    rack_changed: Ints  # (R + 1,) when what a node of a rack is worth last changed
    home: Ints  # (I + 1, N) by option: the best set within each rack, where its nodes are listed
    home_score: Floats  # (I + 1, R + 1) its score, −inf: none
    home_limit: Floats  # (I + 1, R + 1) what gained less than this was given up
    home_when: Ints  # (I + 1,) up to which change a row of these is true
    home_weight: Floats  # (I + 1,) the weight of the job that they are true for
    rank: Ints  # (P,) options, those first that scored most in the last scan
    bound: Floats  # (P,) what each scores at best
    last: Floats  # (P,) what each scored in the last scan
    with_free: Ints  # (F,) nodes with at least so many free GPUs; the last counts all with more
    weighed: Ints  # (I + 2,) up to which change a row of `part_ratio` is true; last, the last scan
    part_ratio: Floats  # (I + 1, N) by option: what a node leaves the newcomer, −1: no room there
    part_loss: Floats  # (I + 1, N) by option: what the jobs of a node lose


class GreedySettings(NamedTuple):
    """Settings of the greedy rule; see `ContentionGreedy`."""

    threshold: float
    min_ratio: float
    size: float


class Found(NamedTuple):
    """The best placements, best first."""

    score: Floats  # (K + 1,)
    option: Ints  # (K + 1,) the last entry is the number of placements found
    job: Ints  # (K + 1,)
    node: Ints  # (K + 1, M)


@part
def left_by(talk: float, load_gbps: float, link_gbps: float) -> float:
    """What is left to a job of its speed if all jobs share a link alike."""
    if load_gbps <= link_gbps:
        return 1.0
    return 1.0 / (1.0 - talk + talk * load_gbps / link_gbps)


@part
def on_link(law: Law, k: int, n: int, load_gbps: float) -> float:
    """What is left to kind k of its speed by the link of node n."""
    return left_by(law.talk[k], load_gbps, law.link_gbps[n])


@part
def beside(law: Law, room: Occupancy, k: int, o: int, held: int, n: int) -> float:
    """What kind k keeps of its speed beside kind o, which holds `held` GPUs of node n."""
    if k < 0 or o < 0:
        return 1.0
    if law.mode == PAIRS:
        return law.ratio[k, o]
    weight = held / room.gpus[n] if law.mode == MACHINES else 1.0
    return max(0.0, 1.0 - weight * law.hurt[k] * law.harm[o])


@part
def kept(law: Law, room: Occupancy, k: int, n: int, but: int) -> float:
    """What node n leaves a job of kind k; `but` is its own slot there, −1 if it is to come."""
    if k < 0:
        return 1.0
    if law.mode == LINKS:
        return on_link(law, k, n, room.load[n] + (law.traffic_gbps[k] if but < 0 else 0.0))
    ratio = 1.0
    for s in range(room.jobs_on[n]):
        if s != but:
            one = beside(law, room, k, room.kind[room.job[n, s]], room.held[n, s], n)
            ratio = min(ratio, one) if law.mode == PAIRS else ratio * one
    return ratio


@part
def after(law: Law, room: Occupancy, n: int, s: int, k: int, held: int) -> float:
    """What node n leaves the job in slot s once kind k with `held` GPUs joins."""
    mine, now = room.kind[room.job[n, s]], room.here[n, s]
    if mine < 0 or k < 0:
        return now
    if law.mode == LINKS:
        return on_link(law, mine, n, room.load[n] + law.traffic_gbps[k])
    one = beside(law, room, mine, k, held, n)
    return min(now, one) if law.mode == PAIRS else now * one


@part
def rate_of(law: Law, room: Occupancy, j: int) -> float:
    """The speed of running job j; never 0, so that it ends some day."""
    return max(SLOWEST, room.alone[j] * max(law.floor, room.low[j]))


@part
def workers_at(workers: int, span: int, i: int) -> int:
    """The workers that the i-th of `span` nodes gets: equal parts, the first ones one more."""
    return workers // span + (1 if i < workers % span else 0)
