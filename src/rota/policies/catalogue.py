"""Policies by name: `ordering[:setting=value,…][+placement][+elastic][@oracle]`.

Names exist at the edge only; inside the program a policy is an object.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rota.core.seams import Policy
from rota.errors import ConfigError, InputError, RotaError, UnknownNameError
from rota.policies.aware import AWARE
from rota.policies.classic.heuristic import Heuristic
from rota.policies.classic.orderings import ORDERINGS, SETTINGS
from rota.policies.classic.placing import PLACEMENTS, placement_code
from rota.policies.classic.rule import ELASTIC, Rule
from rota.policies.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

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
        fields["sizing"] = ELASTIC
    if len(tail) > 1:
        raise ConfigError(
            f"Policy {name!r} names {len(tail)} placements ({', '.join(tail)}); give one."
        )
    fields["place"] = placement_code(tail[0] if tail else ordering.placement)
    return Heuristic(name, Rule(**fields), oracle=bool(view), **own)


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
