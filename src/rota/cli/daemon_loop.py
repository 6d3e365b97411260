"""What all daemons of `rota run` do: rounds, each written down, until a signal comes."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import typer

from rota.cli.loading import named_policies
from rota.cli.signals import on_signals
from rota.cli.table import shown
from rota.errors import ConfigError, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from rota.core import Decision, Plan, Policy, Snapshot
    from rota.core.plan import Action, Share
    from rota.run.guard import Guard
    from rota.run.journal import Journal
    from rota.run.last_round import Deciders
    from rota.run.loop import Round
    from rota.run.recorder import Recorder
    from rota.run.wait_reason import WaitReason

T = TypeVar("T")


class LiveBackend(Protocol):
    """What a daemon asks of its backend, beside the rounds."""

    stopped: bool

    @property
    def now_s(self) -> float:
        """Seconds since the state directory was made."""
        ...

    def observe(self) -> Snapshot:
        """What is the case now."""
        ...

    def apply(self, plan: Plan) -> None:
        """Carry out a plan."""
        ...

    def wait(self, wake_s: float) -> bool:
        """Until something calls for a decision; False when it is over."""
        ...

    def stop(self) -> None:
        """End `wait`; called from a signal handler."""
        ...

    def call(self, uid: int) -> str:
        """The name by which users know a job."""
        ...

    def remark(self, plan: Plan, by: str) -> None:
        """Note which policy stopped which jobs."""
        ...

    def note_waits(self, reasons: Mapping[int, WaitReason]) -> None:
        """Note why jobs wait."""
        ...


@runtime_checkable
class FittingBackend(Protocol):
    """A backend that may give jobs other nodes than were decided."""

    def fitted(self, plan: Plan) -> Decision:
        """The decision of the plan that was applied last, as it would be carried out."""
        ...


def drive(
    policy: Policy, backend: LiveBackend, guard: Guard, recorder: Recorder, say: Speaker,
    deciders: Deciders,
) -> None:  # fmt: skip
    """Round after round, each written down."""
    from rota.run.ask import name_of
    from rota.run.last_round import LastRoundFile
    from rota.run.loop import rounds, unheeded
    from rota.run.why import why_waiting

    broken, last = False, LastRoundFile(recorder.path.parent, deciders)
    wishes: frozenset[str] = frozenset()
    in_order = {name_of(p) for p in (policy, guard.fallback) if p and _first_come(p)}
    for turn in rounds(policy, backend, guard=guard):
        backend.remark(turn.plan, turn.by)
        backend.note_waits(why_waiting(
            turn.snapshot, turn.plan.decision, turn.by, first_come=turn.by in in_order,
            call=backend.call,
        ))  # fmt: skip
        with suppress(OSError):  # nothing depends on it but what `rota explain` expects
            last.write(turn)
        if deciders.watches:
            fits = backend.fitted(turn.plan) if isinstance(backend, FittingBackend) else None
            turn = unheeded(turn, fits)
        wishes = tell(turn, say, backend.call, recorder.given, wishes)
        try:
            recorder.write(turn)
            broken = False
        except JournalError as error:
            # What is missing is written down as soon as it can be: the jobs come first.
            if not broken:
                say(f"{error}", trouble=True)
            broken = True
    try:
        recorder.close(backend.now_s)
    except JournalError as error:
        say(f"{error}", trouble=True)


def _first_come(policy: Policy) -> bool:
    """Whether a policy is known to serve jobs in order of submission."""
    from rota.policies.classic.orderings import FIFO

    return getattr(getattr(policy, "rule", None), "order", None) == FIFO


def tell(
    turn: Round, say: Speaker, call: Callable[[int], str] = str,
    given: Callable[[int], Share | None] = lambda _uid: None,
    wishes: frozenset[str] = frozenset(),
) -> frozenset[str]:  # fmt: skip
    """Say what a round does; `call` gives the name by which users know a job.

    A backend may have `given` a job other nodes than were decided, or none. Of what a policy in
    shadow mode would have done, only what is not among the last round's `wishes` is said. Returns
    those of this round.
    """
    if turn.trouble:
        say(f"round {turn.number}: {turn.trouble}", trouble=True)
    for line in _lines(turn.plan, turn.snapshot, call, given):
        say(f"job {line}")
    now = dict.fromkeys(_lines(turn.shadow or (), turn.snapshot, call, lambda _uid: None))
    for line in now:
        if line not in wishes:
            say(f"in shadow, job {line}")
    return frozenset(now)


def _lines(
    plan: Iterable[Action], snapshot: Snapshot, call: Callable[[int], str],
    given: Callable[[int], Share | None],
) -> Iterator[str]:  # fmt: skip
    """What each action of a plan has come to, but for those that have come to nothing."""
    names = snapshot.cluster.names
    row = {uid: k for k, uid in enumerate(snapshot.jobs.uid.tolist())}
    for action in plan:
        share, real = getattr(action, "share", ()), given(action.uid)
        if real is not None and share:
            if list(real) == snapshot.share(row[action.uid]):
                continue
            share = real
        where = " ".join(f"{workers + servers}@{names[n]}" for n, workers, servers in share)
        yield f"{call(action.uid)}: {type(action).__name__.lower()} {where}".rstrip()


def policy_named(name: str, history: str | None) -> Policy:
    from rota.cli.loading import learners, loaded
    from rota.sim.briefing import informed

    policies = named_policies([name])
    if history is not None:
        return informed(policies[name], loaded(history))
    if learners(policies):
        raise ConfigError(f"Policy {name!r} draws on past jobs; name them with --history.")
    return policies[name]


def learning(policy: Policy, name: str, root: Path, say: Speaker) -> Policy:
    """The policy; if it is a checkpoint, with the weights that are learned as it runs."""
    from rota.systems.registry import checkpoint_named

    if (named := checkpoint_named(name)) is None:
        return policy
    from rota.learn.live_weights import LiveWeights

    return LiveWeights(name, *named, root, say)


@contextmanager
def journal_of(
    path: Path, meta: Mapping[str, Any], make: Callable[[Journal], T], say: Speaker
) -> Iterator[T]:
    """What `make` makes of the journal; that of an earlier daemon is continued.

    One that cannot be gone on with is put aside: the jobs come first, and what is wrong with it can
    be looked into later. But nothing is wrong with one that only lacks room on the disk.
    """
    from rota.backends.local.private import keep_private, put_aside
    from rota.run.journal import Journal
    from rota.run.journal_file import lacks_room

    journal = None
    if path.exists():
        keep_private(path)
        try:
            journal = Journal.reopen(path, meta={key: meta[key] for key in ("cluster", "policy")})
            made = make(journal)
        except JournalError as error:
            if journal is not None:
                journal.close()
            if lacks_room(error):
                raise
            aside = put_aside(path)
            say(f"{path.name} cannot be gone on with: {error} It is {aside} now", trouble=True)
            journal = None
    if journal is None:
        journal = Journal.create(path, meta=meta)
        made = make(journal)
    with journal:
        keep_private(path)
        yield made


@contextmanager
def stopped_by_signals(backend: LiveBackend) -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP end the daemon between two rounds; a second one, at once."""

    def stop(*_: object) -> None:
        if backend.stopped:
            raise KeyboardInterrupt
        backend.stop()

    with on_signals(stop, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        yield


class Speaker:
    """One line per event on stderr, with the time."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, text: str, *, trouble: bool = False) -> None:
        if trouble or not self._quiet:
            # A closed terminal or a full disk is no reason to leave the jobs alone.
            with suppress(OSError, ValueError):
                typer.echo(f"{time.strftime('%H:%M:%S')} {shown(text)}", err=True)
