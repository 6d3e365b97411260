"""A teacher whose decisions are carried out by a lens's actions: the most that cloning can reach.

A network that always chooses as its teacher does is still limited by its lens: jobs outside of
the window, decisions that no action expresses, tasks that are packed by other rules. That loss
is not a fault of the training.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rota.core.decision import Decision
from rota.envs.lens_policy import LensPolicy
from rota.envs.wanted import Wanted
from rota.errors import PolicyError

if TYPE_CHECKING:
    from rota.core.seams import Policy
    from rota.core.snapshot import Snapshot
    from rota.core.types import Ints
    from rota.envs.book import Book
    from rota.envs.lens import Lens
    from rota.envs.view import View


@dataclass(frozen=True)
class PerfectCopy:
    """Does what its teacher decides, where the lens has actions for it."""

    lens: Lens
    teacher: Policy
    compiles: bool = field(default=True, init=False)
    """Its first round may wait for the compiler."""
    _script: _Script = field(init=False, repr=False, compare=False)
    _policy: LensPolicy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        script = _Script(self.lens)
        object.__setattr__(self, "_script", script)
        policy = LensPolicy(self.lens, script.action, self.name, script.play)
        object.__setattr__(self, "_policy", policy)

    @property
    def name(self) -> str:
        """The teacher's name, marked as a copy."""
        return f"copy of {getattr(self.teacher, 'name', type(self.teacher).__name__)}"

    @property
    def oracle(self) -> bool:
        """Whether the teacher is shown what the scenario hides from other policies."""
        return bool(getattr(self.teacher, "oracle", False))

    def decide(self, snapshot: Snapshot) -> Decision:
        """Ask the teacher, then write the nearest round that the lens can express."""
        self._script.read(asked(self.teacher, snapshot))
        return self._policy.decide(snapshot)


def asked(teacher: Policy, snapshot: Snapshot) -> Decision:
    """What a teacher decides; if it fails, the error says that it was the teacher."""
    try:
        decision = teacher.decide(snapshot)
        if not isinstance(decision, Decision):
            raise TypeError(f"decide() returned {type(decision).__name__}, not a Decision")
        decision.check(snapshot)
    except Exception as error:
        raise failed(teacher, snapshot.time_s, len(snapshot.jobs), error) from error
    return decision


def failed(teacher: Policy, time_s: float, live: int, error: Exception) -> PolicyError:
    """The error to raise when a teacher fails in a round with `live` jobs."""
    name = getattr(teacher, "name", type(teacher).__name__)
    return PolicyError(
        f"The teacher {name!r} failed at {time_s:.0f} s with {live} job{'s' * (live != 1)}: "
        f"{type(error).__name__}: {str(error).rstrip('.')}."
    )


class _Script:
    """Chooses the actions by which the lens expresses a decision."""

    def __init__(self, lens: Lens) -> None:
        self._lens = lens
        self._action = np.zeros((1, *(lens.action_space.shape or ())), np.int64)
        self._ended = np.zeros(1, np.bool_)

    def read(self, decision: Decision) -> None:
        """Take the decision to carry out next."""
        self._wanted = Wanted.of(decision)

    def action(self, obs: Any, mask: Any, view: View, book: Book) -> Ints:
        """The next action; see `rota.envs.lens_policy.Actor`. It does not look at observations."""
        del obs, mask
        self._lens.script(view, book, self._wanted, self._action)
        return self._action

    def play(self, view: View, book: Book, most_edits: int) -> bool:
        """Write the whole round without encoding any observation."""
        self._ended[:] = False
        while not self._ended[0] and book.edits[0] < most_edits:
            self._lens.act(view, book, self.action(None, None, view, book), self._ended)
        return bool(self._ended[0])
