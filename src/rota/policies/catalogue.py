"""Policies by name: `ordering[:setting=value,…][+placement][+elastic][@oracle]`.

Names exist at the edge only; inside the program a policy is an object. A name is looked up among
the orderings, the families, the trained policies that ship and the plug-ins; or it says where a
policy of one's own is, or a checkpoint.
"""

from __future__ import annotations

import re
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final

from rota.errors import ConfigError, InputError, UnknownNameError
from rota.plugins import Registry, resolve
from rota.policies.classic.heuristic import Heuristic
from rota.policies.classic.orderings import ORDERINGS, SETTINGS, Ordering
from rota.policies.classic.placing import PLACEMENTS, placement_code
from rota.policies.classic.rule import ELASTIC, Rule
from rota.policies.own import entry_of, load_own, made, parse_own
from rota.policies.settings import PolicyEntry, read_settings

if TYPE_CHECKING:
    from rota.core.seams import Policy

FAMILIES: Final = ("elastic", "published", "gpu_types", "contention", "growing")
"""Folders of policies with classes of their own. Every module there may list some as POLICIES."""
CHECKPOINT: Final = re.compile(r"(?P<file>.+\.ckpt)(?::(?P<settings>.*))?", re.DOTALL)
"""The name of a policy in a file, with or without settings."""
LOAD_CHECKPOINT: Final = "rota.learn.deploy:load_policy"
AT_USE: Final = "rota.learn.deploy:settings_at_use"
SHIPPED: Final = "rota.systems.registry:trained"
SUMMARY: Final = "rota.systems.registry:about_preset"
SHIPPED_AT_USE: Final = "rota.systems.registry:settings_at_use"
"""What further rooms know of trained policies; imported when such a policy is asked for."""


def make_policy(name: str) -> Policy:
    """The policy called `name`, made with the settings that the name carries.

    It may also be a checkpoint, `PATH.ckpt`, or a policy of your own, `FILE.py:Name` or
    `module:Name`, with settings too: `PATH.ckpt:setting=value`, `FILE.py:Name:setting=value`.
    """
    if (kept := CHECKPOINT.fullmatch(name)) is not None:
        return _load_checkpoint(Path(kept["file"]), name, kept["settings"] or "")
    own = parse_own(name)
    if own is not None and (own.where not in CATALOGUE or find_spec(own.where) is not None):
        entry = entry_of(load_own(own), name)
        return made(entry, name, own.what, own.settings, oracle=own.oracle)
    plain, _, view = name.partition("@")
    if view not in ("", "oracle"):
        raise UnknownNameError("view of a policy", view, ["oracle"])
    head, *tail = plain.split("+")
    base, _, wanted = head.partition(":")
    found = CATALOGUE.get(base)
    if isinstance(found, Ordering):
        return _combined(name, found, base, wanted, tail, oracle=bool(view))
    if tail:
        raise ConfigError(f"Policy {base!r} places jobs itself; leave {'+'.join(tail)!r} out.")
    return made(found, name, base, wanted, oracle=bool(view))


def _combined(
    name: str, ordering: Ordering, base: str, wanted: str, tail: list[str], *, oracle: bool
) -> Policy:
    """An ordering with a placement and a sizing."""
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
    return Heuristic(name, Rule(**fields), oracle=oracle, **own)


@cache
def family(name: str) -> dict[str, PolicyEntry]:
    """What the modules of a family list; they are imported when the first of it is asked for."""
    package = import_module(f"rota.policies.{name}")
    entries: dict[str, PolicyEntry] = {}
    for found in iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        entries |= getattr(module, "POLICIES", {})
    return entries


def speed_aware() -> dict[str, PolicyEntry]:
    """The policies of all families."""
    return {name: entry for one in FAMILIES for name, entry in family(one).items()}


@cache
def _trained() -> dict[str, PolicyEntry]:
    """The trained policies that rota ships."""
    summary, takes = resolve(SUMMARY), resolve(SHIPPED_AT_USE)
    return {
        name: PolicyEntry(
            summary(name),
            "rota train",
            partial(_load_checkpoint, path),
            takes(name),
            kind="trained",
        )
        for name, path in resolve(SHIPPED)().items()
    }


def _load_checkpoint(path: Path, name: str, wanted: str = "", **settings: Any) -> Policy:
    """The policy of a checkpoint, with settings as a text or as they are."""
    try:
        load, takes = resolve(LOAD_CHECKPOINT), resolve(AT_USE)
    except ModuleNotFoundError as error:
        raise InputError(
            f"Policy {name!r} is a trained network and needs {error.name}, which is not "
            "installed: pip install 'rota[train]'."
        ) from None
    if wanted:
        settings |= read_settings(str(path), wanted, takes(path))
    policy: Policy = load(path, name, settings)
    return policy


CATALOGUE: Final[Registry[Ordering | PolicyEntry]] = Registry(
    "rota.policies",
    "policy",
    [lambda: ORDERINGS, *(partial(family, one) for one in FAMILIES), _trained],
    lambda thing, plugin: entry_of(thing, plugin.package),
)
"""Every policy that has a name."""


def listing() -> list[dict[str, Any]]:
    """Everything that can be named, for people and machines."""
    orderings = [
        {"kind": "ordering", "name": name, "summary": o.summary, "source": o.source,
         "preemptive": o.preemptive, "default_placement": o.placement,
         "settings": {key: SETTINGS[key].help for key in o.settings}}
        for name, o in ORDERINGS.items()
    ]  # fmt: skip
    placements = [
        {"kind": "placement", "name": name, "summary": text}
        for name, (_, text) in PLACEMENTS.items()
    ]
    elastic = (
        "Jobs with min < max workers start smaller where they must and grow into what is free."
    )
    sizing = {"kind": "sizing", "name": "elastic", "summary": elastic}
    trained = [
        {"kind": "trained", "name": name, "summary": entry.summary,
         "settings": {key: setting.help for key, setting in entry.settings.items()}}
        for name, entry in _trained().items()
    ]  # fmt: skip
    aware = [_facts(name, entry) for name, entry in speed_aware().items()]
    plugged = [
        {**_facts(name, entry), "kind": "plug-in", "package": CATALOGUE.package(name)}
        for name, entry in CATALOGUE.plugged()[0].items()
        if isinstance(entry, PolicyEntry)
    ]
    return [*orderings, *aware, *placements, sizing, *trained, *plugged]


def _facts(name: str, entry: PolicyEntry) -> dict[str, Any]:
    return {"kind": entry.kind, "name": name, "summary": entry.summary, "source": entry.source,
            "settings": {key: setting.help for key, setting in entry.settings.items()}}  # fmt: skip
