"""What may stand in a scenario file: every key, its kind, its range and its default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rota.core.cluster import MAX_GPUS_PER_NODE
from rota.policies.classic.placing import PLACEMENTS
from rota.scenarios.speed_laws import FITTED, SPEED_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_JOBS: Final = 1_000_000
YEAR_S: Final = 365 * 86400.0
NEVER_S: Final = 1e10


@dataclass(frozen=True)
class Key:
    """A setting."""

    kind: type[str] | type[int] | type[float] | type[bool]
    default: Any = None
    """Where the file says nothing; None: left out."""
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    more: Callable[[], list[str]] | None = None
    """Further choices, those of plug-ins."""
    of: tuple[str, ...] = ()
    """Kinds of its table to which it means something; none: to all."""
    required: bool = False

    @property
    def wants(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return f"one of {', '.join(map(repr, self._allowed))}"
        if self.kind is str:
            return "a text that is not empty"
        if self.kind is bool:
            return "true or false"
        number = "a whole number" if self.kind is int else "a number"
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"{number} from {self.low:g} to {self.high:g}"
        return f"{number} of {self.low:g} or more" if math.isfinite(self.low) else number

    @property
    def _allowed(self) -> tuple[str, ...]:
        return (*self.choices, *(self.more() if self.more else ()))

    def accepts(self, value: Any) -> bool:
        """Whether a value is of the kind and in the range."""
        if self.kind is bool:
            return isinstance(value, bool)
        if self.kind is str:
            if not isinstance(value, str) or not value.strip():
                return False
            return not self.choices or value in self.choices or value in self._allowed
        kinds = (int,) if self.kind is int else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool):
            return False
        return math.isfinite(value) and self.low <= value <= self.high


def _whole(default: int | None = None, low: int = 1, high: float = 1e6, **rest: Any) -> Key:
    return Key(int, default, low, high, **rest)


def _number(default: float | None = None, low: float = 0.0, high: float = 1e9, **rest: Any) -> Key:
    return Key(float, default, low, high, **rest)


def _one_of(*choices: str, default: str | None = None, **rest: Any) -> Key:
    return Key(str, default, choices=choices, **rest)


PRESET_NAMES: Final = ("philly", "venus", "pai", "poisson", "bursty", "diurnal")
FAMILIES: Final = ("trace", *FITTED)
PLUGGED: Final = "one of a plug-in"
"""What stands for every speed model of a plug-in where keys say what they go with."""
PS: Final = ("ps", "dl2-measured", "dl2-clean")
"""Families by servers and workers; the others depend on the number of nodes a job spans."""
_CURVED: Final = (*FITTED, PLUGGED)


def _plugged_families() -> list[str]:
    return [plugin.name for plugin in SPEED_MODELS.plugins()]


def kind_of(table: str, chosen: str) -> str:
    """What keys call a chosen kind: its name, unless it is a plug-in's."""
    return PLUGGED if table == "speed" and chosen not in FAMILIES else chosen


TOP: Final = {
    "version": _whole(1, 1, 1_000_000, required=True),
    "about": Key(str, required=True),
    "base": Key(str),
}

TABLES: Final[dict[str, dict[str, Key]]] = {
    "workload": {
        "kind": _one_of("dl2", "busy", "deepshare", "preset", "daily", required=True),
        "jobs": _whole(None, 1, MOST_JOBS, required=True),
        # dl2: jobs come at the beginnings of slots, as in the original
        "arrivals": _one_of("ali", "uniform", "poisson", "google", default="ali", of=("dl2",)),
        "per_slot": _whole(3, 1, 10_000, of=("dl2",)),
        "slot_s": _number(1200.0, 1.0, YEAR_S, of=("dl2",)),
        "max_epochs": _whole(30_000, 1, 10_000_000, of=("dl2",)),
        "vary_lengths": Key(bool, False, of=("dl2",)),
        "epoch_error": _number(0.0, 0.0, 0.99, of=("dl2",)),
        "units": _one_of("samples", "batches", default="samples", of=("dl2",)),
        # dl2 and busy: elastic jobs of the same eight kinds
        "lengths": _one_of("ali", "normal", "lognormal", "one", default="ali", of=("dl2", "busy")),
        "max_each": _whole(16, 2, 1000, of=("dl2", "busy")),
        "types": _one_of("ali", "uniform", default="ali", of=("busy",)),
        "per_hour": _number(14.0, 1e-6, 1e6, of=("busy",)),
        "median_min": _number(30.0, 1e-3, 1e6, of=("busy", "daily")),
        "sigma": _number(1.8, 0.0, 10.0, of=("busy", "daily")),
        "longest_min": _number(2880.0, 1e-3, 1e7, of=("busy", "daily")),
        # daily: elastic jobs with deadlines, many by day and few by night
        "night": _number(0.15, 1e-3, 1.0, of=("daily",)),
        "least_slack": _number(1.2, 1e-3, 1e3, of=("daily",)),
        "most_slack": _number(6.0, 1e-3, 1e3, of=("daily",)),
        "max_workers": _whole(4, 2, 10_000, of=("daily",)),
        # deepshare: rigid gangs of six models
        "mix": _one_of("random", "equal", "heavy", "medium", "low", default="random",
                       of=("deepshare",)),
        # preset: the calibrated generators of `rota traces`
        "preset": _one_of(*PRESET_NAMES, of=("preset",)),
        "largest_gang": _whole(None, 1, 100_000, of=("deepshare", "preset")),
        "users": _whole(None, 1, 100_000, of=("preset",)),
        "load": _number(None, 1e-3, 100.0, of=("deepshare", "preset", "daily")),
    },
    "cluster": {
        "nodes": _whole(None, 1, 1_000_000),
        "gpus": _whole(None, 1, MAX_GPUS_PER_NODE),
        "gpu_type": Key(str),
        "cpus": _number(None, 0.0, 1e6),
        "memory_gb": _number(None, 0.0, 1e9),
        "per_rack": _whole(None, 1, 1_000_000),
        "link_gbps": _number(None, 1e-3, 1e6),
        "price_per_gpu_h": _number(None, 0.0, 1e6),
    },
    "speed": {
        "family": _one_of(*FAMILIES, default="trace", more=_plugged_families),
        "sight": _one_of("true", "noisy", "observed", "hidden", default="true", of=_CURVED),
        "sight_error": _number(0.0, 0.0, 9.0, of=_CURVED),
        "scaling": _number(1.0, 0.0, 9.0),
        "max_tasks": _whole(None, 2, 10_000, of=PS),
        "single_node": Key(bool, False, of=("deepshare",)),
        "profile": Key(str, of=("profile",)),  # a file or folder of `rota profile`
    },
    "contention": {
        "model": _one_of("none", "pairs", "ranks", "links", "machines", default="none"),
        "floor": _number(None, 0.0, 1.0, of=("pairs", "ranks", "machines")),
        "strength": _number(1.0, 0.0, 1.0, of=("machines",)),
        "uplink_gbps": _number(400.0, 1e-3, 1e9, of=("links",)),
        "spine_gbps": _number(1600.0, 1e-3, 1e9, of=("links",)),
    },
    "drift": {
        "sd": _number(0.0, 0.0, 2.0),
        "step_s": _number(300.0, 1.0, YEAR_S),
        "correlation": _number(0.9, 0.0, 0.999999),
    },
    "learning": {
        "curves": _one_of("none", "shipped", default="none"),
        "pause_s": _number(2.0, 0.0, 86400.0, of=("shipped",)),
    },
    "billing": {
        "whole_nodes": Key(bool, False),
        "grain_s": _number(1.0, 0.0, 86400.0),
    },
    "when": {
        "slot_s": _number(0.0, 0.0, YEAR_S),
        "restart_s": _number(0.0, 0.0, YEAR_S),
        "resize_s": _number(None, 0.0, YEAR_S),
        "min_run_s": _number(0.0, 0.0, NEVER_S),
        "checkpoint_s": _number(1800.0, 0.0, YEAR_S),
        "estimate_error": _number(0.0, 0.0, 10.0),
        "trust_trace": Key(bool, False),
        "hide_durations": Key(bool, False),
        "whole_slots": Key(bool, False),
    },
    "policies": {
        # for orderings that are named without one: not everywhere do jobs run on one node
        "placement": _one_of(*PLACEMENTS),
    },
}  # fmt: skip
CHOOSER: Final = {
    "workload": "kind",
    "speed": "family",
    "contention": "model",
    "learning": "curves",
}
"""The key of a table that says which of its other keys mean something."""
