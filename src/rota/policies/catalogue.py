"""Policies by name: `ordering[:setting=value,…][+placement][+elastic][@oracle]`.

Names exist at the edge only; inside the program a policy is an object.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rota.core.seams import Policy
from rota.errors import ConfigError, InputError, RotaError, UnknownNameError
from rota.policies import rule as r
from rota.policies.aware import AWARE
from rota.policies.heuristic import Heuristic
from rota.policies.placing import PLACEMENTS, placement_code
from rota.policies.settings import Setting, limits, number, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

_HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class Ordering:
    """A way to say who comes first."""

    summary: str
    source: str
    rule: Mapping[str, Any]
    settings: tuple[str, ...] = ()
    """Which of SETTINGS it takes, beside `error` where it uses estimates."""
    placement: str = "best-fit"

    @property
    def preemptive(self) -> bool:
        """Whether running jobs may be stopped for others."""
        return bool(self.rule.get("preempt", False))


_ESTIMATE = ("error",)
ORDERINGS: Final[dict[str, Ordering]] = {
    "fifo": Ordering("First come, first served; the head blocks.", "textbook",
                     {"passing": r.STRICT}),
    "fifo-skip": Ordering("In order of arrival; who does not fit is passed over.", "textbook", {}),
    "fifo-easy": Ordering(
        "Later jobs may start if they do not delay the head.", "EASY: Lifka, JSSPP 1995",
        {"passing": r.EASY}, _ESTIMATE),
    "fifo-conservative": Ordering(
        "Later jobs may start if they delay nobody before them.",
        "Mu'alem and Feitelson, TPDS 2001",
        {"passing": r.CONSERVATIVE}, (*_ESTIMATE, "depth")),
    "sjf": Ordering("Shortest job first; the head blocks.", "textbook",
                    {"order": r.SHORTEST, "passing": r.STRICT}, _ESTIMATE),
    "sjf-skip": Ordering("Shortest job first; who does not fit is passed over.", "textbook",
                         {"order": r.SHORTEST}, _ESTIMATE),
    "srtf": Ordering("Shortest remaining time first, preemptive.", "Schrage, Oper. Res. 1968",
                     {"order": r.REMAINING, "preempt": True}, (*_ESTIMATE, "b")),
    "srsf": Ordering("Smallest remaining time × GPUs^b first (b = 1), preemptive.",
                     "Tiresias, NSDI 2019",
                     {"order": r.REMAINING, "preempt": True, "exponent": 1.0}, (*_ESTIMATE, "b")),
    "las": Ordering("Least attained service (GPU-seconds) first, preemptive.",
                    "Nuyens and Wierman, 2008",
                    {"order": r.ATTAINED, "preempt": True, "quantum_s": 900.0}, ("quantum",)),
    "tiresias": Ordering("2D-LAS: queues by attained GPU-time, first come first served within.",
                         "Tiresias, NSDI 2019",
                         {"order": r.QUEUES, "preempt": True,
                          "limits": np.array([_HOUR_S, 10 * _HOUR_S])},
                         ("limits",)),
    "gittins": Ordering("Highest Gittins index of attained GPU-time, from past durations.",
                        "Gittins, 1979; Tiresias, NSDI 2019",
                        {"order": r.GITTINS, "preempt": True}, ("classes",)),
    "max-min": Ordering("Max-min fair GPUs over users, least served job first; leases.",
                        "Gavel's baseline, OSDI 2020",
                        {"order": r.MAX_MIN, "preempt": True, "quantum_s": 900.0}, ("quantum",)),
    "drf": Ordering("Dominant resource fairness over users, by progressive filling.",
                    "Ghodsi et al., NSDI 2011", {"order": r.DOMINANT}),
    "tetris": Ordering("Demand along what is free, plus shortness.", "Grandl et al., SIGCOMM 2014",
                       {"order": r.PACKING}, _ESTIMATE),
    "themis": Ordering("Worst finish-time fairness first, preemptive; leases.", "Themis, NSDI 2020",
                       {"order": r.FINISH_FAIR, "preempt": True, "quantum_s": 900.0},
                       (*_ESTIMATE, "quantum")),
}  # fmt: skip
"""By name. Policies that need speed curves: `rota.policies.aware`."""


SETTINGS: Final[dict[str, Setting]] = {
    "b": Setting("exponent of the GPU count", lambda t: number(t, -10.0), "a number", "exponent"),
    "quantum": Setting("seconds until leases are reconsidered", lambda t: number(t, 1.0),
                       "seconds, 1 or more", "quantum_s"),
    "limits": Setting("GPU-seconds at which a job falls to the next queue", limits,
                      "rising numbers joined by /", "limits"),
    "depth": Setting("how many waiting jobs get a reservation", lambda t: int(number(t, 1)),
                     "a whole number, 1 or more", "depth"),
    "classes": Setting("how finely attained service is told apart", lambda t: int(number(t, 2)),
                       "a whole number, 2 or more"),
    "error": Setting("sd of the log error of duration estimates", lambda t: number(t, 0.0),
                     "a number, 0 or more"),
}  # fmt: skip


LOADERS: Final[list[Callable[[str], Policy | None]]] = []
"""Asked first for a policy by its name; None: not theirs. So rooms further left add kinds."""


def make_policy(name: str) -> Policy:
    """The policy called `name`: a combination, or your own `FILE.py:Name` or `module:Name`."""
    for load in LOADERS:
        found = load(name)
        if found is not None:
            return found
    if ":" in name and "=" not in name:
        return _load(name)
    plain, _, view = name.partition("@")
    if view not in ("", "oracle"):
        raise UnknownNameError("view of a policy", view, ["oracle"])
    head, *tail = plain.split("+")
    base, _, wanted = head.partition(":")
    if base in AWARE:
        return _aware(name, base, wanted, tail, oracle=bool(view))
    if base not in ORDERINGS:
        raise UnknownNameError("policy", base, [*ORDERINGS, *AWARE])
    ordering = ORDERINGS[base]
    fields: dict[str, Any] = dict(ordering.rule)
    own: dict[str, Any] = {}
    takes = {key: SETTINGS[key] for key in ordering.settings}
    for key, value in read_settings(base, wanted, takes).items():
        (fields if SETTINGS[key].rule else own)[SETTINGS[key].rule or key] = value
    if "elastic" in tail:
        tail.remove("elastic")
        fields["sizing"] = r.ELASTIC
    if len(tail) > 1:
        raise ConfigError(
            f"Policy {name!r} names {len(tail)} placements ({', '.join(tail)}); give one."
        )
    fields["place"] = placement_code(tail[0] if tail else ordering.placement)
    return Heuristic(name, r.Rule(**fields), oracle=bool(view), **own)


def _aware(name: str, base: str, wanted: str, tail: list[str], *, oracle: bool) -> Policy:
    """A policy that knows about speed: its class, made with the settings of its name."""
    if tail:
        raise ConfigError(f"Policy {base!r} places jobs itself; leave {'+'.join(tail)!r} out.")
    known = AWARE[base]
    module, _, attribute = known.make.partition(":")
    policy: Policy = getattr(importlib.import_module(module), attribute)(
        name=name, oracle=oracle, **known.preset, **read_settings(base, wanted, known.settings)
    )
    return policy


def _load(name: str) -> Policy:
    """A user's own policy; the class is made without arguments, an object is taken as it is."""
    where, _, attribute = name.rpartition(":")
    module = _module(where)
    if not hasattr(module, attribute):
        found = [key for key, value in vars(module).items() if hasattr(value, "decide")]
        raise UnknownNameError(f"policy in {where}", attribute, found or ["(none found)"])
    thing = getattr(module, attribute)
    try:
        policy = thing() if inspect.isclass(thing) else thing
    except RotaError:
        raise
    except Exception as error:
        raise InputError(
            f"Cannot make policy {name!r}: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(policy, Policy):
        raise InputError(f"{name!r} is no policy: it has no method decide(snapshot).")
    return policy


def _module(where: str) -> ModuleType:
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        path = Path(where)
        if not path.is_file():
            raise InputError(f"There is no file {where!r} to load a policy from.")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"Cannot load a policy from {where!r}: {type(error).__name__}: {error}."
        ) from error


def listing() -> list[dict[str, Any]]:
    """Everything that can be named, for people and machines."""
    orderings = [
        {"kind": "ordering", "name": name, "summary": o.summary, "source": o.source,
         "preemptive": o.preemptive, "default_placement": o.placement,
         "settings": {key: SETTINGS[key].help for key in o.settings}}
        for name, o in ORDERINGS.items()
    ]  # fmt: skip
    aware = [
        {"kind": "speed-aware", "name": name, "summary": a.summary, "source": a.source,
         "settings": {key: setting.help for key, setting in a.settings.items()}}
        for name, a in AWARE.items()
    ]  # fmt: skip
    placements = [
        {"kind": "placement", "name": name, "summary": text}
        for name, (_, text) in PLACEMENTS.items()
    ]
    elastic = (
        "Jobs with min < max workers start smaller where they must and grow into what is free."
    )
    sizing = {"kind": "sizing", "name": "elastic", "summary": elastic}
    return [*orderings, *aware, *placements, sizing]
