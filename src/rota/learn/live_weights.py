"""A trained policy of a daemon, whose weights are replaced between rounds by ones learned since.

In the daemon's folder, `rota learn` puts a checkpoint at OFFERED. The daemon takes it by renaming
it to TAKEN, so that nobody else writes to it, and looks at it there. It becomes RUNNING, from which
a restarted daemon goes on, or REFUSED. Every step is one rename: after a kill, the old weights
or the new ones decide, and what was taken is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from rota.errors import RotaError
from rota.learn import checkpoint
from rota.learn.verdict import origin_of, refusal, short
from rota.policies import make_policy

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.decision import Decision
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot

OFFERED: Final = "learned.ckpt"
TAKEN: Final = "taken.ckpt"
RUNNING: Final = "running.ckpt"
REFUSED: Final = "refused.ckpt"


class Teller(Protocol):
    """Where a daemon says what happens."""

    def __call__(self, text: str, *, trouble: bool = False) -> None:
        """Say it."""
        ...


class LiveWeights:
    """A policy that is one checkpoint after another."""

    compiles = True

    def __init__(self, name: str, file: Path, settings: str, folder: Path, say: Teller) -> None:
        """Begin with the weights of `file`, or with those that were learned from them since."""
        self.name, self._settings, self._folder, self._say = name, settings, folder, say
        self._file = running_file(file, folder, say)
        self._now = checkpoint.load(self._file)
        self._policy = self._made(self._file)
        self._told = ""
        if self._file != file:
            say(f"{name} goes on with the weights {self.weights} that it learned ({self._file})")

    @property
    def weights(self) -> str:
        """The weights that decide: the first digits of their hash."""
        return short(self._now.digest)

    def decide(self, snapshot: Snapshot) -> Decision:
        """What the network says."""
        return self._policy.decide(snapshot)

    def refresh(self) -> None:
        """Take what is offered, if it may take the place of what runs; called between rounds."""
        taken = self._folder / TAKEN
        try:
            if not taken.exists():
                (self._folder / OFFERED).rename(taken)
        except FileNotFoundError:
            return
        except OSError as error:
            self._tell(f"{self._folder / OFFERED} cannot be taken: {error.strerror}")
            return
        try:
            self._swap(taken)
        # A daemon goes on whatever a file of this name is.
        except Exception as error:
            self._refuse(taken, str(error) or type(error).__name__)

    def _swap(self, taken: Path) -> None:
        found = checkpoint.load(taken)
        if why := refusal(found, self._now):
            self._refuse(taken, why)
            return
        policy = self._made(taken)
        taken.replace(self._folder / RUNNING)
        before, told = self.weights, found.about.verdict
        self._now, self._policy = found, policy
        self._say(
            f"{self.name} learned: weights {self.weights} in place of {before}; mean JCT "
            f"{told['change']:+.1%} on {told['stretches']} held-out stretches of its journal"
        )

    def _refuse(self, taken: Path, why: str) -> None:
        refused = self._folder / REFUSED
        where = f"({refused})"
        try:
            taken.replace(refused)
        except OSError as error:
            where = f"({taken} cannot be put aside: {error.strerror}; remove it)"
        self._tell(f"{OFFERED} is not taken: {why}; {self.weights} goes on deciding {where}")

    def _tell(self, words: str) -> None:
        """Say what is wrong, once."""
        if words != self._told:
            self._say(words, trouble=True)
        self._told = words

    def _made(self, file: Path) -> Policy:
        return make_policy(f"{file}:{self._settings}" if self._settings else str(file))


def running_file(file: Path, folder: Path, say: Teller) -> Path:
    """The checkpoint that runs in a daemon's folder: `file`, or what was learned from it since."""
    running = folder / RUNNING
    if not running.exists() or running.resolve() == file.resolve():
        return file
    try:
        found, own = checkpoint.load(running), checkpoint.load(file)
        told = found.about.verdict
        if not told or origin_of(found) != own.digest or told.get("digest") != found.digest:
            say(f"{running} was not learned from {file}, so it is left aside", trouble=True)
            return file
    except RotaError as error:
        say(f"{error} It is left aside", trouble=True)
        return file
    return running
