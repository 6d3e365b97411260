"""The two seams: a policy decides, a backend carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rota.core.decision import Decision
    from rota.core.plan import Plan
    from rota.core.snapshot import Snapshot


@runtime_checkable
class Policy(Protocol):
    """Decides what each job holds; it never touches a backend."""

    def decide(self, snapshot: Snapshot) -> Decision:
        """The allocation wanted from now on, given all that may be known now."""
        ...


class Backend(Protocol):
    """A cluster, simulated or real."""

    def observe(self) -> Snapshot:
        """What is the case now."""
        ...

    def apply(self, plan: Plan) -> None:
        """Carry out a plan."""
        ...

    def wait(self, wake_s: float) -> bool:
        """Until something happens that calls for a decision, or `wake_s`; False when it is over."""
        ...
