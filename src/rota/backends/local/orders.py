"""What a job was last told to hold, which may be behind what is written down of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.backends.local.seating import share_of

if TYPE_CHECKING:
    from rota.backends.local.held import Held
    from rota.backends.local.seating import Seat, Seats
    from rota.backends.reconciler import Phase
    from rota.core.plan import Share


class Orders:
    """The seats that a job was told to fill, and how far it is with that."""

    def __init__(self, held: Held) -> None:
        """What was written down when the last daemon was killed counts as ordered."""
        self._held = held
        # While orders are up to date this is the same object as `held.seats`.
        self.told: Seats = held.seats if held.open else {}
        self._had: Seats = {**held.leaving, **held.seats}  # before it was told to stop
        self._began = held.open  # a run, since it was told to

    def obey(self) -> None:
        """Bring about what is written down."""
        self.told = self._held.seats

    def catch_up(self) -> None:
        """Obey what needs no order: other seats on the same nodes, and a start not yet begun."""
        seats = self._held.seats
        if share_of(self.told) == share_of(seats) or (self.phase == "starting" and seats):
            self.obey()

    def halt(self) -> None:
        """Hold nothing any more."""
        self._had = self.told or self._had
        self.told, self._began = {}, False

    def begin(self) -> None:
        """A run begins."""
        self._began = True

    @property
    def may_run(self) -> frozenset[str]:
        """Members that may have a process; those that it was never told to have do not."""
        return frozenset({*self.told, *self._had})

    @property
    def fresh(self) -> bool:
        """Whether it was told all that is written down."""
        return self.told is self._held.seats

    @property
    def phase(self) -> Phase:
        """Where it is with what it was told; a run that is followed by another one goes on."""
        if self._held.open:
            return "running" if self.told else "stopping"
        if not self.told:
            return "waiting"
        return "running" if self._began else "starting"

    @property
    def share(self) -> Share:
        """What it was told to hold or, while it stops, has held."""
        return share_of(self._had if self.phase == "stopping" else self.told)

    @property
    def occupied(self) -> list[Seat]:
        """Seats on which processes of it may be."""
        return [*self._held.leaving.values(), *self.told.values()] if self._held.open else []

    @property
    def awaited(self) -> list[Seat]:
        """Seats on which it starts as soon as they are free."""
        return list(self.told.values()) if self.phase == "starting" else []
