"""What both agents of DAS have in common in compiled code: weights, memory, jobs that hear."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rota.jit import part
from rota.systems.das.dense_kernels import (
    HALF,
    ONE,
    ZERO,
    add,
    add_product,
    bend,
    copy,
    cut,
    dense,
    tanh_of,
)


class EncoderWeights(NamedTuple):
    """Weights of an encoder of F numbers."""

    first: Any  # (F, D)
    first_bias: Any  # (D,)
    second: Any  # (D, D)
    second_bias: Any  # (D,)


class HearingWeights(NamedTuple):
    """Weights of `Communicate`; P is D, or 2 D with the maximum; 0 if jobs hear nothing."""

    message: Any  # (P, D)
    message_bias: Any  # (D,)
    gate_job: Any  # (D, D)
    gate_message: Any  # (D, D)
    gate_bias: Any  # (D,)


class OrderingWeights(NamedTuple):
    """Weights of the ordering agent; L layers."""

    heads: int
    position: Any  # (W, D) waves by place in the queue
    before_scale: Any  # (L, D)
    before_shift: Any  # (L, D)
    mix: Any  # (L, D, 3 D)
    mix_bias: Any  # (L, 3 D)
    unite: Any  # (L, D, D)
    unite_bias: Any  # (L, D)
    think_scale: Any  # (L, D)
    think_shift: Any  # (L, D)
    wide: Any  # (L, D, 2 D)
    wide_bias: Any  # (L, 2 D)
    back: Any  # (L, 2 D, D)
    back_bias: Any  # (L, D)
    norm_scale: Any  # (D,)
    norm_shift: Any  # (D,)
    logit: Any  # (D,)
    logit_bias: Any  # (1,)
    end: Any  # (D,)
    end_bias: Any  # (1,)


class PlacingWeights(NamedTuple):
    """Weights of the placement agent; those that its form has no use for are empty."""

    form: int  # one of FORMS, or ATTENTION
    noise: float
    pair_job: Any  # (D, D)
    pair_machine: Any  # (D, D)
    pair_record: Any  # (2, D) what was observed at a machine; attention only
    pair_bias: Any  # (D,)
    out: Any  # (D, D)
    out_bias: Any  # (D,)
    step: Any  # (D, D) query and key of a walk's steps, multiplied
    start: Any  # (D,)
    fade: Any  # (terms + 1,) what walks of each length count
    query: Any  # (D, D) attention only, scaled
    query_bias: Any  # (D,)
    fit_pair: Any  # (PAIR, D)
    fit_machine: Any  # (MACHINE, D)
    fit_job: Any  # (D, D)
    fit_bias: Any  # (D,)
    fit_last: Any  # (D,)
    fit_last_bias: Any  # (1,)


class Agents(NamedTuple):
    """The weights of both agents: float32, (in, out) each."""

    job: EncoderWeights
    machine: EncoderWeights
    hear: HearingWeights
    order: OrderingWeights
    place: PlacingWeights


class AgentScratch(NamedTuple):
    """What the agents work in: float32 if not said otherwise.

    Machines are kept in 2 + T states: as the ordering agent sees them, as the placement agent
    does, and the past.
    """

    who: Any  # (W,) ints: the jobs that are shown
    told: Any  # (F,) numbers that describe a job
    jobs: Any  # (W, D) their embeddings
    heard: Any  # (W, D) the same, once they heard of the machines
    raw: Any  # (2 + T, K, MACHINE) numbers that describe the machines
    machines: Any  # (2 + T, K, D) their embeddings
    paired: Any  # (2 + T, K, D) what `MachineForJob` makes of them before it looks at the job
    looks: Any  # (MACHINE,) numbers that describe a machine
    pair: Any  # (K, PAIR)
    observed: Any  # (T, K)
    known: Any  # (T, K) bools
    useful: Any  # (T,) bools: whether anything was observed at a machine that is shown
    pooled: Any  # (2 D,)
    message: Any  # (D,)
    common: Any  # (D,)
    line: Any  # (3 D,)
    other: Any  # (2 D,)
    mixed: Any  # (W, 3 D)
    across: Any  # (D, W) keys
    score: Any  # (max(W, K),)
    inner: Any  # (K, D)
    turned: Any  # (D, K)
    steps: Any  # (K, K)
    walk: Any  # (2, K)
    features: Any  # (1 + T, (terms + 1) · D) of the present state, then of the past
    gram: Any  # (1 + T, 1 + T) float64
    factor: Any  # (T, T) float64
    half: Any  # (T,) float64
    pull: Any  # (K, T) float64
    variance: Any  # (K,) float64
    states: Any  # (T,) ints
    logits: Any  # (A,)
    mask: Any  # (A,) bools


@part
def encode_row(w: EncoderWeights, told: Any, line: Any, out: Any) -> None:
    """Embed what is told of a job or a machine."""
    dense(told, w.first, w.first_bias, line)
    cut(line)
    dense(line, w.second, w.second_bias, out)
    bend(out)


@part
def same(one: Any, other: Any) -> bool:
    """Whether two rows are equal."""
    for i in range(one.size):
        if one[i] != other[i]:
            return False
    return True


@part
def see_machine(a: Agents, s: AgentScratch, t: int, k: int, told: Any) -> None:
    """Embed the machine at place k of state t, unless it looks as it did there, or as the last."""
    if same(s.raw[t, k], told):
        return
    copy(told, s.raw[t, k])
    if k > 0 and same(s.raw[t, k - 1], told):
        copy(s.machines[t, k - 1], s.machines[t, k])
        copy(s.paired[t, k - 1], s.paired[t, k])
        return
    encode_row(a.machine, told, s.line[: s.common.size], s.machines[t, k])
    dense(s.machines[t, k], a.place.pair_machine, a.place.pair_bias, s.paired[t, k])


@part
def mean_machine(s: AgentScratch, t: int, count: int, out: Any) -> None:
    """The mean embedding of the machines of a state."""
    out[:] = ZERO
    for k in range(count):
        add(s.machines[t, k], out)
    for o in range(out.size):
        out[o] /= np.float32(max(1, count))


@part
def send_message(a: Agents, s: AgentScratch, t: int, count: int) -> None:
    """Write down what the machines of a state tell all jobs: message, and its part of the gate."""
    D, w = s.common.size, a.hear
    pooled = s.pooled[: w.message.shape[0]]
    mean_machine(s, t, count, pooled[:D])
    if pooled.size > D:
        top = pooled[D:]
        top[:] = ZERO
        for k in range(count):
            for o in range(D):
                top[o] = max(top[o], s.machines[t, k, o]) if k else s.machines[t, k, o]
    dense(pooled, w.message, w.message_bias, s.message)
    bend(s.message)
    dense(s.message, w.gate_message, w.gate_bias, s.common)


@part
def hear(a: Agents, s: AgentScratch, job: Any, out: Any) -> None:
    """Mix a job's embedding with the message."""
    if a.hear.message.shape[0] == 0:
        copy(job, out)
        return
    gate = s.line[: s.common.size]
    copy(s.common, gate)
    add_product(job, a.hear.gate_job, gate)
    for o in range(out.size):
        part_of = HALF + HALF * tanh_of(HALF * gate[o])
        out[o] = part_of * s.message[o] + (ONE - part_of) * job[o]
