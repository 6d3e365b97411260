"""Learned systems by name: how to build their lens and their network from settings."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rota.plugins import Registry
from rota.policies.catalogue import CHECKPOINT
from rota.systems.agents import EDITOR, LearnedAgent, follow_jobs
from rota.systems.das import das_settings as das
from rota.systems.deepshare import candidate_settings as candidate
from rota.systems.deepshare import paper_settings as paper
from rota.systems.dl2 import dl2_settings as dl2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.plugins import Plugin
    from rota.policies.settings import Setting

PRESETS: Final = Path(__file__).parent / "presets"
"""Recipes of training, by system."""
WEIGHTS: Final = Path(__file__).parent / "weights"
"""Checkpoints that rota ships: NAME.ckpt is the policy NAME."""

TRAININGS: Final = (0, 1, 2)
"""Seeds of the trainings of a recipe whose weights ship: that with the lowest validation does."""


@dataclass(frozen=True)
class System:
    """One learned system."""

    name: str
    summary: str
    lens_settings: type[Any]
    network_settings: type[Any]
    make_lens: Callable[[Any], Any]
    make_network: Callable[[Any, Any], Any]
    """What plays, from settings and lens."""
    make_critic: Callable[[Any, Any], Any]
    """What values states while it learns, from the same; no policy needs it."""
    agents: tuple[LearnedAgent, ...] = EDITOR
    """Who decides."""
    version: int = 1
    """Raised when what it sees or does comes to mean something else in the same form: networks
    that were trained before are then refused."""
    make_explorer: Callable[..., Any] | None = None
    """What may overrule its actions in training, from settings, lens, batch and generator."""
    check_rules: Callable[[tuple[str, ...]], None] | None = None
    """Refuses names of policies that cannot play on for it."""
    at_use: Callable[[Any], Mapping[str, Setting]] = lambda _network: {}
    """Settings of its lens that the name of a trained policy may carry, as in `NAME:fee=200`; from
    the settings of its network."""
    make_foresight: Callable[..., Any] | None = None
    """What gives the cost of every action, from environment, jobs to come and names of
    policies that may play on; for the learner "look-ahead"."""

    @property
    def follows_jobs(self) -> bool:
        """Whether it takes one decision per job and step, instead of one after the other."""
        return follow_jobs(self.agents)


SYSTEMS: Final = {
    system.name: system
    for system in (
        System(
            "dl2-onepass", "One choice of (servers, workers) per job and round.",
            dl2.OnePassLensConfig, dl2.OnePassNetworkConfig, dl2.one_pass_lens,
            dl2.one_pass_network, dl2.one_pass_critic,
            (LearnedAgent(name="sizing", follows="jobs"),),
        ),
        System(
            "dl2", "DL2 (Peng et al., TPDS 2021): worker, server or both, job by job.",
            dl2.StepLensConfig, dl2.StepNetworkConfig, dl2.step_lens, dl2.step_network,
            dl2.step_critic, make_explorer=dl2.step_explorer,
        ),
        System(
            "deepshare", "Placements that slow others down least, chosen among candidates.",
            candidate.CandidateLensConfig, candidate.CandidateNetworkConfig,
            candidate.candidate_lens, candidate.candidate_network, candidate.candidate_critic,
            check_rules=candidate.check_rules, make_foresight=candidate.candidate_foresight,
        ),
        System(
            "deepshare-paper", "DeepShare (Ryu and Eo, ICPADS 2023) as published: pairs of nodes.",
            paper.PaperLensConfig, paper.PaperNetworkConfig, paper.paper_lens, paper.paper_network,
            paper.paper_critic,
        ),
        System(
            "das-paper", "DAS (KDD 2023): one agent orders jobs, one places them; none is stopped.",
            das.OrderPlaceLensConfig, das.TwoAgentsConfig, das.order_place_lens, das.two_agents,
            das.both_seen, (LearnedAgent(name="ordering"), LearnedAgent(name="placing")),
            at_use=das.at_use,
        ),
    )
}  # fmt: skip


def _plugged(thing: Any, plugin: Plugin) -> System:
    if not isinstance(thing, System) or thing.name != plugin.name:
        raise TypeError(f"{thing!r} is no rota.systems.registry.System called {plugin.name!r}")
    return thing


LEARNED: Final = Registry("rota.systems", "learned system", [lambda: SYSTEMS], _plugged)
"""Ours and those of plug-ins."""


def system(name: str) -> System:
    """The system called so."""
    return LEARNED.get(name)


def presets() -> dict[str, Path]:
    """The recipes that rota ships, by name."""
    return {path.stem: path for path in sorted(PRESETS.rglob("*.toml"))}


def about_preset(name: str) -> str:
    """What a recipe says of itself."""
    about: str = tomllib.loads(presets()[name].read_text())["about"]
    return about


def settings_at_use(name: str) -> Mapping[str, Setting]:
    """What may be set of the policy that a recipe trains."""
    network: dict[str, Any] = {}
    while True:
        found = tomllib.loads(presets()[name].read_text())
        network = {**found.get("network", {}), **network}
        if "system" in found:
            kind = system(found["system"])
            return kind.at_use(kind.network_settings(**network))
        name = found["base"]


def trained() -> dict[str, Path]:
    """The checkpoints that rota ships, by the name of the policy."""
    return {path.stem: path for path in sorted(WEIGHTS.glob("*.ckpt"))}


def checkpoint_named(name: str) -> tuple[Path, str] | None:
    """The file and the settings of a policy that is a checkpoint; None if it is none."""
    if (kept := CHECKPOINT.fullmatch(name)) is not None:
        return Path(kept["file"]), kept["settings"] or ""
    base, _, settings = name.partition(":")
    return (trained()[base], settings) if base in trained() else None
