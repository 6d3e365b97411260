"""What a policy is given before a run: tables from past jobs, conditions as it sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rota.policies.classic.heuristic import Heuristic

if TYPE_CHECKING:
    from rota.core.seams import Policy
    from rota.perf.physics import Physics
    from rota.sim.setup import Conditions
    from rota.traces.trace import Trace


def briefed(
    policy: Policy, when: Conditions, physics: Physics, past: Trace
) -> tuple[Policy, Conditions, Physics]:
    """The policy with its tables from past jobs, and a world's conditions and laws as it sees them.

    Every way to let a policy decide in a simulated world begins with this call; without it, the
    policy would be another one.
    """
    policy = informed(policy, past)
    if isinstance(policy, Heuristic) and policy.error > 0:
        when = replace(when, estimate_error=policy.error)
    if getattr(policy, "oracle", False):
        when = replace(when, hide_durations=False, estimate_error=0.0, trust_trace=False)
        physics = replace(physics, sight="true")
    return policy, when, physics


def informed(policy: Policy, past: Trace) -> Policy:
    """The policy with its tables drawn from past jobs, if it uses any."""
    if isinstance(policy, Heuristic) and policy.learns:
        return policy.learned(past.duration_s, past.num_gpus)
    return policy
