"""The agent that comes with rota, trained by `make results-adapt`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rota.adapt.growth_agent import GrowthAgent

PATH: Final = Path(__file__).parent / "weights" / "agent.ckpt"


def shipped_agent() -> GrowthAgent:
    """The agent that decides where nobody names another one."""
    return GrowthAgent.load(PATH)
