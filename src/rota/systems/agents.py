"""Agents: who decides in a learned system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rota.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LearnedAgent:
    """One of those who decide, each judged by what follows until its own next decision.

    Where a system has several, its lens writes the number of the one that acts as the observation
    "agent" (B,). Their networks are parts of one network, which scores what that agent may do.
    """

    name: str
    follows: str = "steps"
    """"steps": one decision per step, judged by the steps that follow it. "jobs": one for every job
    in the window; each job is followed over rounds, in the window or not."""
    credit: str = ""
    """What its decisions are judged by: "own", what their job brings, or "team", what all jobs
    bring; empty: as the learner's settings say. PPO judges steps by their own only if `shaped`."""
    entropy: float = 1.0
    """Its entropy has this times the weight that the learner's settings give."""

    def __post_init__(self) -> None:
        if self.follows not in ("steps", "jobs") or self.credit not in ("", "own", "team"):
            raise ConfigError(
                f"Agent {self.name!r}: follows = {self.follows!r} must be 'steps' or 'jobs', and "
                f"credit = {self.credit!r} 'own', 'team' or empty."
            )


EDITOR: Final = (LearnedAgent(name="editor"),)
"""The agents of a system that writes a round step by step."""


def follow_jobs(agents: tuple[LearnedAgent, ...]) -> bool:
    """Whether the decisions of these agents are about jobs, and not steps."""
    kinds = {agent.follows for agent in agents}
    if len(kinds) != 1:
        raise ConfigError(
            f"The agents {', '.join(agent.name for agent in agents)} of one system must all follow "
            "steps, or all follow jobs."
        )
    return kinds == {"jobs"}
