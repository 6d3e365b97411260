"""A summary of what a member trains, by which the agent checks that all train the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rota.elastic.growths import begins
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Outline:
    """The form of a model and its data, without their contents."""

    sizes: tuple[int, ...]
    """Elements of each parameter."""
    form: str
    """A digest of names, shapes and types of all tensors."""
    plan: Mapping[str, Any]
    """Samples, batch, epochs, …: see `rota.elastic.batches.Batches`."""
    growths: tuple[Mapping[str, Any], ...] = ()
    """Growths that the network has had since the script built it, in a training that is resumed."""

    @classmethod
    def decode(cls, facts: Mapping[str, Any]) -> Outline:
        """Read what `asdict` wrote."""
        grown = tuple(facts.get("growths", ()))
        return cls(tuple(facts["sizes"]), facts["form"], facts["plan"], grown)

    @property
    def total(self) -> int:
        """Samples of the whole training."""
        return int(self.plan["samples"] * self.plan["epochs"])

    def check_growths(self, name: str, growths: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a member whose network cannot become that of a job with these growths."""
        if not begins(growths, self.growths):
            raise ConfigError(
                f"Member {name} resumes a network with {len(self.growths)} growths, which the "
                f"other members' {len(growths)} do not begin with; give ROTA_RESUME to all first "
                "members of a job or to none, and not to those that join later."
            )

    def check(self, name: str, other: Outline, other_name: str) -> None:
        """Refuse a member that does not train the same as another one."""
        if self.plan != other.plan:
            key = next(key for key in self.plan if self.plan[key] != other.plan.get(key))
            raise ConfigError(
                f"Member {name} has {key}={self.plan[key]!r}, but {other_name} has "
                f"{key}={other.plan.get(key)!r}; all members must run the same script."
            )
        if (self.sizes, self.form) != (other.sizes, other.form):
            raise ConfigError(
                f"Member {name} trains another model than {other_name}: {self._model()} against "
                f"{other._model()}; all members must run the same script."
            )

    def _model(self) -> str:
        return f"{len(self.sizes)} parameters of {sum(self.sizes):,} elements ({self.form})"
