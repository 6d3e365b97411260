"""Layers as words: the vocabulary of the published agent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
_FIELDS: Final = re.compile(r"\s*(?:(\w+)=)?(\([^)]*\)|[^,()]+)")
_SHAPE: Final = ("in_features", "out_features", "kernel_size", "stride", "padding", "output_size")


@dataclass(frozen=True)
class Vocabulary:
    """A number for every word that is known, and one for all others unless words are printed."""

    words: Mapping[str, int]
    printed: bool
    """Whether a layer's word is how it prints itself, to the last letter."""

    def __post_init__(self) -> None:
        if not self.words:
            raise ConfigError("A vocabulary needs the layers of at least one network.")
        if min(self.words.values()) < 0:
            raise ConfigError("The numbers of words are counted from 0.")

    @classmethod
    def of(
        cls, networks: Sequence[Sequence[str]], *, printed: bool = False, shared: bool = False
    ) -> Vocabulary:
        """Number the words of networks, in order.

        With `shared`, those of every network but the first are numbered as in the published
        `fix_vocab.py`: from how many words that network has itself, where the first of them may
        have been given to other words before (its defect B7).
        """
        words: dict[str, int] = {}
        for index, tokens in enumerate(networks):
            own = list(dict.fromkeys(word_of(token, printed=printed) for token in tokens))
            first = len(own) if shared and index else len(words)
            for number, word in enumerate(w for w in own if w not in words):
                words[word] = first + number
        return cls(words, printed)

    @property
    def size(self) -> int:
        """How many vectors are needed."""
        return max(self.words.values()) + 1 + (not self.printed)

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """The number of every layer."""
        if not tokens:
            raise ConfigError("The network has no layers that the published agent could read.")
        return [self._id(token) for token in tokens]

    def _id(self, token: str) -> int:
        number = self.words.get(word_of(token, printed=self.printed))
        if number is None and self.printed:
            raise ConfigError(
                f"The published agent does not know the layer {token!r}. It knows layers by how "
                "torch prints them, which changes from version to version; mend printed_tokens, "
                "or make its vocabulary of the networks it shall see."
            )
        return self.size - 1 if number is None else number


def word_of(token: str, *, printed: bool) -> str:
    """The word for a layer that prints itself like that.

    Mended, it is the kind and the numbers that give the shape. What else torch prints, and in which
    order, is left out: switches such as bias=True, ε, momentum.
    """
    if printed:
        return token
    kind, _, inside = token.partition("(")
    fields = _FIELDS.findall(inside)
    shape = [
        "×".join(_NUMBERS.findall(value))
        for name, value in fields
        if (name in _SHAPE or not name) and _NUMBERS.search(value)
    ]
    return " ".join([kind.strip(), *shape])
