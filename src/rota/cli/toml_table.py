"""A table of a TOML file that a user wrote: values with checks, complaints with their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.errors import ConfigError
from rota.traces.clusterfile import unknown_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class TomlTable:
    """A table of the file; every complaint names the file, the table and the key."""

    def __init__(self, where: str, content: Mapping[str, Any], known: Iterable[str]) -> None:
        self.where, self._content = where, content
        for key in content:
            if key not in known:
                raise unknown_key(where, key, known)

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def refuse(self, key: str, wants: str) -> ConfigError:
        """The error for a value that is not what it must be."""
        if key not in self._content:
            return ConfigError(f"{self.where}: {key!r} is missing; it must be {wants}.")
        return ConfigError(f"{self.where}: {key} = {self._content[key]!r} must be {wants}.")

    def raw(self, key: str) -> Any:
        """The value as it stands in the file, None if it does not."""
        return self._content.get(key)

    def table(self, key: str, known: Iterable[str]) -> TomlTable:
        """A table below this one; empty if it is not there."""
        value = self._content.get(key, {})
        if not isinstance(value, dict):
            raise self.refuse(key, f"a table, written [{key}]")
        return TomlTable(f"{self.where}: [{key}]", value, known)

    def tables(self, key: str, known: Iterable[str], one: str, wants: str) -> list[TomlTable]:
        """The tables written [[key]], none if there are none; a complaint calls each `one`."""
        value = self._content.get(key)
        if key not in self._content:
            return []
        if not isinstance(value, list) or not value or not all(isinstance(e, dict) for e in value):
            raise self.refuse(key, wants)
        known = tuple(known)
        return [
            TomlTable(f"{self.where}: {one} {n}", item, known) for n, item in enumerate(value, 1)
        ]

    def text(self, key: str, usual: str | None = None) -> str:
        """A text that is not empty."""
        value = self._content.get(key, usual)
        if not isinstance(value, str) or (key in self._content and not value.strip()):
            raise self.refuse(key, "a text")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of at least one text, each once."""
        value = self._content.get(key)
        if not isinstance(value, list) or not value:
            raise self.refuse(key, "a list of texts")
        if not all(isinstance(item, str) and item.strip() for item in value):
            raise self.refuse(key, "a list of texts")
        return list(dict.fromkeys(value))

    def whole(self, key: str, usual: int | None, least: int) -> Any:
        """A whole number."""
        value = self._content.get(key, usual)
        fine = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if key in self._content and not fine:
            raise self.refuse(key, f"a whole number of {least} or more")
        return value

    def number(self, key: str, usual: float) -> float:
        """A number above 0."""
        value = self._content.get(key, usual)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.refuse(key, "a number above 0")
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; false if it is not there."""
        value = self._content.get(key, False)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value
