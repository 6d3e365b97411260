"""The placement agent in compiled code: logits of the machines that are shown.

It computes what `WalkHead` and `AttentionHead` do, without padding: of the past only states in
which something was observed, as others change nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.jit import part
from rota.systems.das.agent_kernels import hear, send_message
from rota.systems.das.dense_kernels import (
    ZERO,
    add,
    add_product,
    bend,
    copy,
    cut,
    dense,
    dot,
    soften,
)
from rota.systems.das.machine_kernels import FREE
from rota.systems.das.posterior_kernels import regress

if TYPE_CHECKING:
    from rota.systems.das.agent_kernels import Agents, AgentScratch

SUB: Final = 0
"""These are the places of the forms in FORMS."""
SYMMETRIC: Final = 1
STOCHASTIC: Final = 2
ATTENTION: Final = 3
"""Instead of a form: there is no walk."""
NOW: Final = 1
"""The present among the states that are kept of machines."""
PAST: Final = 2
"""Where the past begins."""
FORBIDDEN: Final = np.float32(-1e9)
LEAST_VARIANCE: Final = 1e-6
"""Added to a variance before it divides a mean."""


@part
def score_machines(a: Agents, s: AgentScratch, job: int, count: int) -> None:
    """Write the logits of the first `count` machines for the job in row `job` of those shown."""
    heard, w = s.heard[0], a.place
    if a.hear.message.shape[0] > 0:
        send_message(a, s, NOW, count)
    hear(a, s, s.jobs[job], heard)
    centre(s, count)
    if w.form == ATTENTION:
        attend_machines(a, s, heard, count)
    else:
        s.common[:] = ZERO
        add_product(heard, w.pair_job, s.common)
        walk_states(a, s, count)
        regress(s, w.noise, count)
        for k in range(count):
            mean = 0.0
            for t in range(s.known.shape[0]):
                if s.known[t, k]:
                    mean += s.pull[k, t] * s.observed[t, k]
            s.logits[k] = mean / np.sqrt(s.variance[k] + LEAST_VARIANCE)
    add_fit(a, s, heard, count)


@part
def centre(s: AgentScratch, count: int) -> None:
    """Take the mean of all observations off them, and flag states that have any."""
    total, many = ZERO, 0
    for t in range(s.known.shape[0]):
        s.useful[t] = False
        for k in range(count):
            if s.known[t, k]:
                s.useful[t] = True
                total += s.observed[t, k]
                many += 1
    mean = total / np.float32(max(1, many))
    for t in range(s.known.shape[0]):
        for k in range(count):
            s.observed[t, k] -= mean


@part
def add_fit(a: Agents, s: AgentScratch, heard: Any, count: int) -> None:
    """Add what machines are to the job by themselves, and forbid those without room."""
    w, line = a.place, s.line[: s.common.size]
    dense(heard, w.fit_job, w.fit_bias, s.common)
    for k in range(count):
        if s.pair[k, 0] > ZERO:
            copy(s.common, line)
            add_product(s.pair[k], w.fit_pair, line)
            add_product(s.raw[NOW, k], w.fit_machine, line)
            cut(line)
            s.logits[k] += dot(line, w.fit_last) + w.fit_last_bias[0]
        else:
            s.logits[k] = FORBIDDEN


@part
def embed_pairs(a: Agents, s: AgentScratch, t: int, count: int) -> None:
    """Embed the machines of state t as the job sees them, whose part is in `common`."""
    line = s.line[: s.common.size]
    for k in range(count):
        copy(s.paired[t, k], line)
        add(s.common, line)
        cut(line)
        dense(line, a.place.out, a.place.out_bias, s.inner[k])
        bend(s.inner[k])


@part
def attend_machines(a: Agents, s: AgentScratch, heard: Any, count: int) -> None:
    """Scores by attention to machines and to the record of each, which joins its embedding."""
    w, query = a.place, s.other[: s.common.size]
    dense(heard, w.query, w.query_bias, query)
    s.common[:] = ZERO
    add_product(heard, w.pair_job, s.common)
    line, record = s.line[: s.common.size], s.pooled[:2]
    for k in range(count):
        often, total = 0, ZERO
        for t in range(s.known.shape[0]):
            if s.known[t, k]:
                often += 1
                total += s.observed[t, k]
        record[0], record[1] = total / np.float32(max(1, often)), np.log1p(np.float32(often))
        copy(s.paired[NOW, k], line)
        add(s.common, line)
        add_product(record, w.pair_record, line)
        cut(line)
        dense(line, w.out, w.out_bias, s.inner[k])
        bend(s.inner[k])
        s.logits[k] = dot(s.inner[k], query)


@part
def walk_states(a: Agents, s: AgentScratch, count: int) -> None:
    """Features of the present state, and of past ones that are useful."""
    for t in range(1 + s.known.shape[0]):
        if t > 0 and not s.useful[t - 1]:
            continue
        embed_pairs(a, s, NOW + t, count)
        find_steps(a, s, NOW + t, count)
        start, D = s.walk[0, :count], s.common.size
        for k in range(count):
            start[k] = dot(s.inner[k], a.place.start)
        soften(start)
        s.features[t, :] = ZERO
        for length in range(a.place.fade.size):
            here, there = s.walk[length % 2, :count], s.walk[(length + 1) % 2, :count]
            much, term = a.place.fade[length], s.features[t, length * D : (length + 1) * D]
            add_product(here, s.inner, term)
            for o in range(D):
                term[o] *= much
            there[:] = ZERO
            add_product(here, s.steps, there)


@part
def find_steps(a: Agents, s: AgentScratch, t: int, count: int) -> None:
    """How likely the job's walk steps from machine to machine, into `steps`."""
    form, line = a.place.form, s.line[: s.common.size]
    for k in range(count):
        for o in range(line.size):
            s.turned[o, k] = s.inner[k, o]
    for k in range(count):
        line[:] = ZERO
        add_product(s.inner[k], a.place.step, line)
        score = s.steps[k, :count]
        score[:] = ZERO
        add_product(line, s.turned, score)
        if form != SYMMETRIC:
            soften(score)
    if form == SYMMETRIC:
        make_symmetric(s.steps, s.score, count)
    if form == SUB:
        for to in range(count):
            room = s.pair[to, 0] if t == NOW else s.raw[t, to, FREE]
            if not room > ZERO:
                s.steps[:count, to] = ZERO


@part
def make_symmetric(steps: Any, degree: Any, count: int) -> None:
    """D^-1/2 W D^-1/2 for W = exp(steps) + exp(steps)ᵀ, in logarithms."""
    for k in range(count):
        for other in range(k + 1):
            one, two = steps[k, other], steps[other, k]
            both = max(one, two) + np.log1p(np.exp(-abs(one - two)))
            steps[k, other], steps[other, k] = both, both
    for k in range(count):
        most, total = steps[k, 0], ZERO
        for other in range(count):
            most = max(most, steps[k, other])
        for other in range(count):
            total += np.exp(steps[k, other] - most)
        degree[k] = (most + np.log(total)) / np.float32(2.0)
    for k in range(count):
        for other in range(count):
            steps[k, other] = np.exp(steps[k, other] - degree[k] - degree[other])
