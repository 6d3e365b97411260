"""Workers of an elastic job that are lost, and replaced while the others train on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rota.backends.local.held import Held
    from rota.elastic.protocol import Status

MOST_HEALS: Final = 3
"""Times in a row that a lost worker is replaced without a step in between; then the job fails."""


class Healing:
    """How often members of one run were replaced since it last made a step."""

    def __init__(self, held: Held) -> None:
        self._held, self._count, self._step = held, 0, 0

    @property
    def gave_up(self) -> bool:
        """Whether they were lost too often."""
        return self._count > MOST_HEALS

    def lost(self, status: Status) -> str:
        """A member that is lost, and why; "": none is. It counts."""
        names = [name for name in self._held.seats if name in status.refused]
        if not names:
            return ""
        if status.step > self._step:
            self._count, self._step = 0, status.step
        self._count += 1
        return f"{names[0]} was lost: {status.refused[names[0]]}"

    def replace(self, status: Status) -> None:
        """Have others in the seats of those that are lost; the seats are the job's anyway."""
        self._held.rename([name for name in self._held.seats if name in status.refused])

    def forget(self) -> None:
        """Another run begins."""
        self._count = 0
