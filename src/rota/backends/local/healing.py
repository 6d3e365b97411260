"""Workers of an elastic job that are lost, and replaced while the others train on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rota.elastic.protocol import Status

MOST_HEALS: Final = 3
"""Times in a row that a lost worker is replaced without a step in between; then the job fails."""


class Healing:
    """How often members of one run were replaced since it last made a step."""

    def __init__(self) -> None:
        self._count, self._step = 0, 0
        self.gave_up = False
        """They were lost too often."""

    def may_replace(self, status: Status) -> bool:
        """Whether members that are lost are to be replaced once more."""
        if status.step > self._step:
            self._count, self._step = 0, status.step
        self.gave_up = self._count >= MOST_HEALS
        return not self.gave_up

    def note(self) -> None:
        """They were replaced."""
        self._count += 1

    def forget(self) -> None:
        """Another run begins."""
        self._count, self.gave_up = 0, False
