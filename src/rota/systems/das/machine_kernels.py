"""What is seen of machines: their state, how fast jobs were seen to run there, and of late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rota.core.types import Bools, Floats, Ints
from rota.jit import part
from rota.policies.contention.spread_kernels import kind_of

if TYPE_CHECKING:
    from rota.envs.view import View

FREE: Final = 0
"""Where a machine's description says how much of it is free."""
TYPES: Final = 4
"""GPU types that are told apart; further ones look alike."""
MACHINE: Final = 7 + TYPES
"""Numbers that describe a machine."""


class MachineMemory(NamedTuple):
    """What is known of machines; every array has B in front."""

    jobs: Ints  # (N,) jobs there
    pace: Floats  # (N,) the sum of their paces, as far as they have one
    paced: Ints  # (N,) the number of those that have one
    harm: Floats  # (N,) how much they slow others down, by the part of the machine that they hold
    past: Any  # (T, N, MACHINE) float32: the last states, in any order
    observed: Any  # (T, N) float32: the mean pace of the jobs there, or the part given away
    known: Any  # (T, N) bool: whether there was one; of what was given away always
    at: Ints  # (2,) how many states are remembered, and where the next one goes
    since_s: Floats  # (1,) the time of the last state
    acts: Bools  # (1,) whether what was given away is remembered, instead of paces


@part
def note_resident(view: View, m: MachineMemory, b: int, n: int, kind: int, held: int) -> None:
    """Count a job of this kind on machine n."""
    m.jobs[n] += 1
    if 0 <= kind < view.laws.law.harm.size:
        m.harm[n] += view.laws.law.harm[kind] * held / max(1, view.nodes[b, n]["gpus"])


@part
def look_at_machines(view: View, shares: Any, m: MachineMemory, b: int) -> None:
    """Count who runs where, and how fast."""
    m.jobs[:], m.pace[:], m.paced[:], m.harm[:] = 0, 0.0, 0, 0.0
    for i in range(view.live[b]):
        job = view.jobs[b, view.order[b, i]]
        kind = kind_of(view.laws, job["curve"], job["share_len"], job["held_workers"])
        for s in range(job["share_at"], job["share_at"] + job["share_len"]):
            share = shares[s]
            n = share["node"]
            note_resident(view, m, b, n, kind, share["workers"] * job["gpus_per_worker"])
            if job["pace"] > 0.0 and job["resume_s"] <= view.now_s[b]:
                m.pace[n] += job["pace"]
                m.paced[n] += 1


@part
def describe(nodes: Any, m: MachineMemory, n: int, out: Any) -> None:
    """Fill out (MACHINE,) with the state of machine n."""
    node = nodes[n]
    out[FREE] = node["free"] / max(1, node["gpus"])
    out[1] = node["gpus"] / 8.0
    out[2] = m.jobs[n] / 4.0
    out[3] = m.harm[n]
    out[4] = m.pace[n] / m.paced[n] if m.paced[n] else 0.0
    out[5] = 1.0 if m.paced[n] else 0.0
    out[6] = min(node["price_per_gpu_h"], 100.0) / 4.0
    for t in range(TYPES):
        out[7 + t] = 1.0 if node["type"] == t else 0.0


@part
def remember(view: View, m: MachineMemory, b: int) -> None:
    """Keep the state of all machines in place of the oldest one, or of one of the same time.

    Time that goes back is another episode: what was remembered is forgotten.
    """
    T, now_s = m.known.shape[0], view.now_s[b]
    if now_s < m.since_s[0]:
        m.at[:] = 0
    again = now_s == m.since_s[0] and m.at[0] > 0
    m.since_s[0] = now_s
    if T == 0:
        return
    t = (m.at[1] - 1) % T if again else m.at[1]
    for n in range(m.jobs.size):
        describe(view.nodes[b], m, n, m.past[t, n])
        m.known[t, n] = m.acts[0] or m.paced[n] > 0
        m.observed[t, n] = m.pace[n] / m.paced[n] if m.paced[n] and not m.acts[0] else 0.0
    if not again:
        m.at[0], m.at[1] = min(T, m.at[0] + 1), (t + 1) % T


@part
def note_action(view: View, m: MachineMemory, b: int, n: int, gpus: int) -> None:
    """Remember that GPUs of machine n are given away in this round, if that is remembered."""
    T = m.known.shape[0]
    if m.acts[0] and T > 0:
        m.observed[(m.at[1] - 1) % T, n] += gpus / max(1, view.nodes[b, n]["gpus"])
