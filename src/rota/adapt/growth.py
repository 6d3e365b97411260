"""A growth: one change of a network, as data that can be written down and sent to all workers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

Operation = Literal["deepen", "widen"]
OPERATIONS: Final = get_args(Operation)
Form = Literal["", "identity", "residual"]
FORMS: Final = get_args(Form)
MOST_FACTOR: Final = 64.0
"""No layer is made wider by more than this at once."""


@dataclass(frozen=True)
class Growth:
    """One change of a network: which layer, and what happens to it."""

    operation: Operation
    layer: str
    """Qualified name of a linear or convolutional layer, such as `features.3`."""
    factor: float = 2.0
    """How many times as wide the layer becomes; nothing to a layer that is deepened."""
    form: Form = ""
    """How a new layer begins: as the identity, or beside a connection around it with factor zero;
    empty: whichever keeps the function for every batch. Nothing to a layer that is widened."""

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            known = " or ".join(OPERATIONS)
            raise ConfigError(f"A growth is to {known} a layer, not to {self.operation!r} it.")
        if not (isinstance(self.layer, str) and self.layer):
            raise ConfigError(f"A growth names a layer; {self.layer!r} is none.")
        number = isinstance(self.factor, (int, float)) and not isinstance(self.factor, bool)
        if not (number and 1.0 < self.factor <= MOST_FACTOR):
            raise ConfigError(
                f"factor={self.factor!r:.40} must be above 1 and at most {MOST_FACTOR:g}: it says "
                "how many times as wide the layer becomes."
            )
        if self.form not in FORMS:
            raise ConfigError(
                f"form={self.form!r} must be 'identity', 'residual' or empty: it says how the new "
                "layer of a network that is deepened begins."
            )

    def facts(self) -> dict[str, Any]:
        """What `of` reads, as JSON can keep it."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Growth:
        """Read what `facts` gave."""
        try:
            return cls(**facts)
        except TypeError:
            raise ConfigError(f"{dict(facts)!r} does not describe a growth.") from None

    def __str__(self) -> str:
        times = f" ×{self.factor:g}" if self.operation == "widen" else ""
        form = f" ({self.form})" if self.form and self.operation == "deepen" else ""
        return f"{self.operation} {self.layer}{times}{form}"
