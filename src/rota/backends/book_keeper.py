"""Brings what holds in memory onto the disk before anything is done about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rota.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rota.backends.job_book import JobBook
    from rota.backends.job_roll import JobRoll
    from rota.backends.reconciler import Intent, JobOrder


@dataclass
class BookKeeper:
    """Remembers what the book does not say yet; while it cannot be written, nothing is ordered.

    So memory may be ahead of the disk, but the cluster never is: after a crash, the book says of
    every job what was last acted on.
    """

    book: JobBook
    roll: JobRoll
    say: Callable[[str], None]
    failed: bool = False
    """It could not be written the last time."""
    _nodes: list[str] = field(default_factory=list)
    _intents: dict[int, Intent] = field(default_factory=dict)
    _answers: list[tuple[int, str, str, float]] = field(default_factory=list)

    def note_nodes(self, names: Iterable[str]) -> None:
        """Nodes have got the next numbers."""
        self._nodes += names

    def note_intent(self, intent: Intent) -> None:
        """A job shall hold something else."""
        self._intents[intent.uid] = intent

    def note_answer(self, number: int, outcome: str, said: str, took_s: float) -> None:
        """A command was answered."""
        self._answers.append((number, outcome, said, took_s))

    def forget(self, uid: int) -> None:
        """A job is over: what it shall hold does not matter any more."""
        self._intents.pop(uid, None)

    def write(self) -> bool:
        """Write down what is not yet, jobs before what they shall hold; False if it fails."""
        try:
            if self.failed:
                self.book.try_out()
            if self._nodes:
                self.book.keep_nodes(self._nodes)
                self._nodes = []
            self.roll.write()
            if self._intents:
                self.book.keep_intents(self._intents.values())
                self._intents = {}
            while self._answers:
                self.book.end_command(*self._answers[0])
                del self._answers[0]
        except JournalError as error:
            self._fail(error)
            return False
        if self.failed:
            self.failed = False
            self.say("the journal can be written again")
        return True

    def begin(self, order: JobOrder, now_s: float) -> int | None:
        """Note that an order is about to be carried out; its number, or None if that fails."""
        try:
            return self.book.begin_command(order, now_s) if self.write() else None
        except JournalError as error:
            self._fail(error)
            return None

    def _fail(self, error: JournalError) -> None:
        if not self.failed:
            self.failed = True
            self.say(f"{error} Until it can be written, no job is started or stopped")
