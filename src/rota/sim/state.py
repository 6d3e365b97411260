"""The simulator's memory: flat arrays with a leading batch axis, one cluster per entry."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from rota.core.layout import JOB
from rota.core.types import Floats, Ints, Records
from rota.perf.contention_kernels import Traffic

TRUTH: Final = np.dtype(
    [
        ("work_s", np.float64),  # what is really left, in seconds at the requested size
        ("event_s", np.float64),  # when the running job ends or fails
        ("done_s", np.float64),  # NaN until it has ended
        ("unit", np.float64),  # the speed in its curve at which its pace is 1
        ("alone", np.float64),  # its pace without contention
        ("sends", np.bool_),  # whether it sends from its nodes, so that `Traffic` lists it there
        ("fee", np.float64),  # dollars, settled up to JOB.settled_s
        ("fee_rate", np.float64),  # dollars per second
        ("stint_s", np.float64),  # progress_s at the start of the present stint
        ("checkpoint_s", np.float64),  # progress between two checkpoints; inf: none
        ("fail_in_s", np.float64),  # progress time until its next failure
        ("lost_s", np.float64),  # progress lost in failures
        ("failures", np.int32),
        ("moves", np.int32),
        ("resizes", np.int32),
        ("shape", np.int32),  # equal shapes ask for equal resources
        ("heap", np.int64),  # place among the running, −1 if not running
    ],
    align=True,
)
"""What the simulator knows of a job and a policy does not."""

CLOCK: Final = np.dtype(
    [
        ("now_s", np.float64),
        ("begin_s", np.float64),  # the first submission
        ("slot_s", np.float64),  # decide only at multiples of this; 0: at every event
        ("whole_slots", np.bool_),  # jobs end at the end of a slot only
        ("idle", np.int64),  # slots in a row in which nothing happened or could
        ("wake_s", np.float64),  # the policy asked to be called by then
        ("since_s", np.float64),  # the integrals below reach up to here
        ("held_gpu_s", np.float64),
        ("up_gpu_s", np.float64),
        ("stray_gpu_s", np.float64),  # free GPUs on partly used nodes, over time
        ("jobs", np.int64),
        ("arrived", np.int64),
        ("ended", np.int64),  # done or failed for good
        ("running", np.int64),
        ("live", np.int64),  # entries of `order`
        ("used", np.int64),  # shares in use, dead ones included
        ("held", np.int64),  # GPUs
        ("up", np.int64),  # GPUs
        ("shares", np.int64),  # the most that jobs can hold at once
        ("bare", np.bool_),  # some jobs ask for no GPUs
        ("even", np.int64),  # GPUs of every node, 0 if they differ
        ("fault", np.int64),  # next in `faults`
        ("burst", np.int64),  # most jobs that arrive between two decisions
        ("rounds", np.int64),
        ("starts", np.int64),
        ("stops", np.int64),
        ("moves", np.int64),
        ("resizes", np.int64),
        ("kills", np.int64),  # by a failing node or by a failure of its own
        ("events", np.int64),  # in the log
        ("entries", np.int64),
        ("logged", np.int64),  # rounds in the log
        ("lost", np.int64),  # events and rounds that did not fit into the log
        ("overfull", np.int64),  # shares given on a node that had less free
        ("dirty", np.int64),  # jobs whose pace must be computed again
        ("drift_step_s", np.float64),  # time between two changes of the machines' speed; inf: none
        ("scaling", np.float64),  # exponent of the pace by workers of a job without a curve
        ("grain_s", np.float64),  # stints are billed in multiples of this
        ("priced", np.bool_),  # some node has a price
        ("whole_nodes", np.bool_),  # a job pays for all GPUs of the nodes it touches
        ("by_nodes", np.bool_),  # curves depend on the nodes spanned, not on servers
        ("local", np.bool_),  # where a job sits changes its pace or its fee
        ("freed", np.bool_),  # something became free since the last decision
        ("indexed", np.bool_),  # waiting jobs go to `queue`, not to `order`
        ("queued", np.int64),  # jobs put into `queue` until now
        ("shapes", np.int64),  # entries of `shapes`
    ],
    align=True,
)
"""Where one simulated cluster stands."""

ASK: Final = np.dtype(
    [(name, JOB[name]) for name in (
        "gpus", "workers", "gpus_per_worker", "servers", "gpu_type", "cpus_per_worker",
        "memory_gb_per_worker", "cpus_per_server", "memory_gb_per_server",
    )],
    align=True,
)  # fmt: skip
"""What a job asks for: the fields of JOB that tell whether it may fit."""

FAULT: Final = np.dtype([("time_s", np.float64), ("node", np.int64), ("up", np.bool_)], align=True)
"""A node goes down, or comes back."""


class Breakdowns(NamedTuple):
    """What only a simulation in which nodes or jobs fail needs."""

    faults: Records  # (F,) FAULT
    failures: Floats  # (J, R) progress time between failures of a job; (J, 0) if none


class Net(NamedTuple):
    """What only a simulation with contention or drift needs."""

    traffic: Traffic
    dirty: Ints  # (J,) jobs whose pace must be computed again
    marked: Any  # (J,) bool: whether a job is among them
    grows: Any  # (J,) bool: scratch
    machine_speed: Floats  # (N, steps) the machines' speeds over time; (N, 0): always 1


class State(NamedTuple):
    """The whole state, with a batch axis B in front; kernels see one cluster, without it.

    `speed` and the laws in `net` are shared by the whole batch and have no such axis.
    """

    jobs: Records  # (J,) JOB
    truth: Records  # (J,) TRUTH
    clock: Records  # (1,) CLOCK
    nodes: Records  # (N,) NODE
    level: Any  # (G+2, N/64) index of nodes by free GPUs
    running: Ints  # (J,) heap of running jobs by event_s
    order: Ints  # (J,) live jobs that are not in `queue`; policies sort them
    key: Floats  # (J,) the policy's scores
    at: Ints  # (J,) the draft: what a job shall hold
    length: Ints  # (J,)
    shares: Records  # (S,) SHARE
    spare: Records  # (S,) SHARE: scratch for `tidy`
    node: Ints  # (N,) scratch
    part: Ints  # (N,) scratch
    queue: Ints  # (J,) waiting jobs, a heap per shape
    begins: Ints  # (C+1,) where each shape's heap lies in `queue`
    waits: Ints  # (C,) the number of jobs in it
    shapes: Ints  # (C,) the shapes of waiting jobs, where there are many
    asks: Records  # (C,) ASK: what the jobs of each shape ask for, close together
    full: Any  # (C,) bool: this shape does not fit at present
    events: Records  # (E,) EVENT: the log; (0,) if none is kept
    entries: Records  # (E,) SHARE
    rounds: Records  # (E,) ROUND
    speed: Floats  # (C, T, A, W) Curves.speed; (0, 0, 0, 0) if there are none
    breakdowns: Any  # Breakdowns; None where nothing fails, which is another type to the compiler
    net: Any  # Net; None without contention and drift, likewise


def one_of_batch(s: State, b: int) -> State:
    """The b-th cluster of a batch, for Python; compiled code has its own."""
    net, breakdowns = s.net, s.breakdowns
    if breakdowns is not None:
        breakdowns = Breakdowns(breakdowns.faults[b], breakdowns.failures[b])
    if net is not None:
        t = net.traffic
        traffic = Traffic(t.laws, *(part[b] for part in t[1:]))
        net = Net(traffic, net.dirty[b], net.marked[b], net.grows[b], net.machine_speed[b])
    return State._make([*(array[b] for array in s[:-3]), s.speed, breakdowns, net])
