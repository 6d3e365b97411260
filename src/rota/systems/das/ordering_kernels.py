"""The ordering agent in compiled code: logits of the jobs that are shown, and of the round's end.

It computes what `OrderingHead` does, without padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rota.jit import part
from rota.systems.das.agent_kernels import hear, mean_machine, send_message
from rota.systems.das.dense_kernels import (
    ONE,
    ZERO,
    add,
    add_product,
    cut,
    dense,
    dot,
    normalise,
    soften,
)

if TYPE_CHECKING:
    from rota.systems.das.agent_kernels import Agents, AgentScratch


@part
def score_jobs(a: Agents, s: AgentScratch, jobs: int, machines: int) -> None:
    """Write the logits of the first `jobs` rows, and of the end, before so many machines."""
    D, w = s.common.size, a.order
    mean_machine(s, 0, machines, s.common)
    s.logits[w.position.shape[0]] = dot(s.common, w.end) + w.end_bias[0]
    if a.hear.message.shape[0] > 0:
        send_message(a, s, 0, machines)
    for i in range(jobs):
        hear(a, s, s.jobs[i], s.heard[i])
        add(w.position[i], s.heard[i])
    for layer in range(w.mix.shape[0]):
        attend(a, s, layer, jobs)
        for i in range(jobs):
            think(a, s, layer, s.heard[i])
    line = s.line[:D]
    for i in range(jobs):
        normalise(s.heard[i], w.norm_scale, w.norm_shift, line)
        s.logits[i] = dot(line, w.logit) + w.logit_bias[0]


@part
def attend(a: Agents, s: AgentScratch, layer: int, jobs: int) -> None:
    """Let every job hear of all jobs."""
    D, w = s.common.size, a.order
    line, each = s.line[:D], D // w.heads
    for i in range(jobs):
        normalise(s.heard[i], w.before_scale[layer], w.before_shift[layer], line)
        dense(line, w.mix[layer], w.mix_bias[layer], s.mixed[i])
        for o in range(D):
            s.across[o, i] = s.mixed[i, D + o]
    score, shrink = s.score[:jobs], ONE / np.sqrt(np.float32(each))
    for i in range(jobs):
        line[:] = ZERO
        for h in range(w.heads):
            at, end = h * each, (h + 1) * each
            score[:] = ZERO
            for o in range(at, end):
                add_scaled(shrink * s.mixed[i, o], s.across[o], score)
            soften(score)
            for other in range(jobs):
                value = s.mixed[other, 2 * D : 3 * D]
                add_scaled(score[other], value[at:end], line[at:end])
        add(w.unite_bias[layer], s.heard[i])
        add_product(line, w.unite[layer], s.heard[i])


@part
def add_scaled(much: Any, source: Any, out: Any) -> None:
    """out += much · source."""
    for o in range(out.size):
        out[o] += much * source[o]


@part
def think(a: Agents, s: AgentScratch, layer: int, job: Any) -> None:
    """The two linear layers that follow attention."""
    w, line = a.order, s.line[: s.common.size]
    normalise(job, w.think_scale[layer], w.think_shift[layer], line)
    dense(line, w.wide[layer], w.wide_bias[layer], s.other)
    cut(s.other)
    add(w.back_bias[layer], job)
    add_product(s.other, w.back[layer], job)
