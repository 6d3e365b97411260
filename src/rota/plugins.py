"""Things by name: what rota ships, and what other installed packages add by entry points.

A package adds a policy by an entry point in the group `rota.policies`, and so on for each kind
(docs/extending.md). Nothing of a package is imported before one of its names is used or listed, so
a broken package breaks no command that does without it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from rota.errors import InputError, RotaError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

OURS: Final = "rota"
"""The package of what rota ships."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""No name may hold what separates names from settings, or looks like a path."""


def resolve(target: str) -> Any:
    """What `module:attribute` names; so a room can use one that it must not import."""
    module, _, attribute = target.partition(":")
    found = import_module(module)
    for part in filter(None, attribute.split(".")):
        found = getattr(found, part)
    return found


@dataclass(frozen=True)
class Plugin:
    """One entry point of an installed package."""

    group: str
    name: str
    target: str
    """`module:attribute`; imported when it is used."""
    package: str


def _found() -> tuple[tuple[Plugin, ...], tuple[str, ...]]:
    return _scan(tuple(map(str, sys.path)))


@lru_cache(maxsize=8)
def _scan(_path: tuple[str, ...]) -> tuple[tuple[Plugin, ...], tuple[str, ...]]:
    """All entry points in groups of rota's, and what could not be read; again if sys.path changes.

    Distributions are read one by one: a damaged one must not hide the others.
    """
    from importlib import metadata  # a tenth of what importing the policies takes

    found: dict[str, list[Plugin]] = {}
    damaged = []
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt")
            if not text or "[rota." not in text:
                continue
            package = distribution.metadata["Name"] or "(a package without a name)"
            # Of a package that is installed twice, Python imports the first.
            found.setdefault(canonical(package), [
                Plugin(point.group, point.name, point.value.partition("[")[0].strip(), package)
                for point in distribution.entry_points
                if point.group.startswith("rota.")
            ])  # fmt: skip
        except Exception as error:
            where = getattr(distribution, "_path", "a package")
            damaged.append(
                f"The entry points of {where} cannot be read: {type(error).__name__}: {error}."
            )
    return tuple(one for many in found.values() for one in many), tuple(damaged)


def canonical(package: str) -> str:
    """A package's name as an index spells it: `My_Package` and `my-package` are the same."""
    return re.sub(r"[-_.]+", "-", package).lower()


class Registry(Generic[T]):
    """All things of one kind by name: ours, asked for in turn, and those of plug-ins.

    A name that two packages claim is refused when it is used, because neither choice would be
    what everybody meant.
    """

    def __init__(
        self, group: str, kind: str, ours: Sequence[Callable[[], Mapping[str, T]]],
        read: Callable[[Any, Plugin], T],
    ) -> None:  # fmt: skip
        self.group, self.kind = group, kind
        self._ours, self._read = ours, read
        self._loaded: dict[Plugin, T] = {}

    def names(self) -> list[str]:
        """Every name, ours first; no plug-in is imported."""
        ours = [name for source in self._ours for name in source()]
        return list(dict.fromkeys([*ours, *(plugin.name for plugin in self.plugins())]))

    def plugins(self) -> list[Plugin]:
        """The plug-ins of this kind, in order of their names."""
        mine = (plugin for plugin in _found()[0] if plugin.group == self.group)
        return sorted(mine, key=lambda plugin: (plugin.name, plugin.package))

    def __contains__(self, name: str) -> bool:
        own, others = self._claims(name)
        return own is not None or bool(others)

    def get(self, name: str) -> T:
        """The thing called so, or an error that says why not."""
        own, others = self._claims(name)
        packages = [OURS] * (own is not None) + [plugin.package for plugin in others]
        if len(packages) > 1:
            raise InputError(
                f"The {self.kind} {name!r} is registered by {' and by '.join(map(repr, packages))}"
                "; uninstall one of them, or let its author choose another name."
            )
        if own is not None:
            return own
        if not others:
            raise UnknownNameError(self.kind, name, self.names())
        return self._load(others[0])

    def package(self, name: str) -> str:
        """Which package a name comes from."""
        own, others = self._claims(name)
        return OURS if own is not None or not others else others[0].package

    def plugged(self) -> tuple[dict[str, T], list[str]]:
        """The plug-ins that can be used, and in sentences what is wrong with the others."""
        found: dict[str, T] = {}
        troubles = list(_found()[1])
        for name in dict.fromkeys(plugin.name for plugin in self.plugins()):
            try:
                found[name] = self.get(name)
            except RotaError as error:
                troubles.append(str(error))
        return found, troubles

    def _claims(self, name: str) -> tuple[T | None, list[Plugin]]:
        own = next((known[name] for source in self._ours if name in (known := source())), None)
        return own, [plugin for plugin in self.plugins() if plugin.name == name]

    def _load(self, plugin: Plugin) -> T:
        if plugin not in self._loaded:
            try:
                if not _NAME.fullmatch(plugin.name):
                    raise ValueError("a name may hold only letters, digits, - and _")
                self._loaded[plugin] = self._read(resolve(plugin.target), plugin)
            except (Exception, SystemExit) as error:
                kind = "" if isinstance(error, RotaError) else f"{type(error).__name__}: "
                said = f"{kind}{error}".rstrip(": .")
                raise InputError(
                    f"The {self.kind} {plugin.name!r} of package {plugin.package!r} "
                    f"({plugin.target}) cannot be used: {said}. Update or uninstall the package."
                ) from error
        return self._loaded[plugin]
