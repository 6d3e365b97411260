"""`rota run`: the daemon that schedules a real cluster."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import foreign
from rota.cli.jobs import STATE, State, seconds  # noqa: TC001
from rota.cli.loading import named_policies, note
from rota.cli.table import shown
from rota.errors import ConfigError, JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.backends.local import LocalBackend, Store
    from rota.core import Cluster, Policy
    from rota.run.guard import Guard
    from rota.run.loop import Round
    from rota.run.record import Recorder


def run(
    policy: Annotated[
        str, typer.Option("--policy", "-p", metavar="NAME", help="`rota policies` lists them.")
    ] = "fifo-skip",
    fallback: Annotated[
        str, typer.Option(metavar="NAME", help="Decides when the policy does not; or `none`.")
    ] = "fifo-skip",
    shadow: Annotated[
        bool, typer.Option("--shadow", help="The policy only speaks; the fallback is obeyed.")
    ] = False,
    backend: Annotated[
        str, typer.Option(metavar="NAME", help="What cluster: local, or a plug-in's NAME[:a=1,…].")
    ] = "local",
    nodes: Annotated[int, typer.Option(min=1, help="Virtual nodes of this machine.")] = 1,
    gpus: Annotated[
        int, typer.Option(min=0, help="GPUs of each; 0: all there are, or one slot per CPU.")
    ] = 0,
    every: Annotated[
        float, typer.Option(min=0.1, help="Seconds between rounds if nothing happens.")
    ] = 10.0,
    min_run: Annotated[
        str, typer.Option(metavar="10m", help="Nobody is stopped or moved sooner after a start.")
    ] = "",
    deadline: Annotated[
        float, typer.Option(min=0.05, help="Seconds that a policy may take per round.")
    ] = 30.0,
    history: Annotated[
        str | None, typer.Option(help="Past jobs for policies that learn from them.")
    ] = None,
    keep: Annotated[
        str,
        typer.Option(metavar="30d", help="Keep jobs that are over, and their logs, for so long."),
    ] = "30d",
    keep_jobs: Annotated[
        int, typer.Option(min=0, help="And no more than so many of them.")
    ] = 100_000,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when no job waits or runs any more.")
    ] = False,
    warm: Annotated[
        list[str] | None,
        typer.Option(help="Import this once, for all jobs that preload it; repeat for more."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what went wrong.")] = False,
    state: State = STATE,
) -> None:
    """Schedule the jobs that `rota submit` puts in line, until Ctrl-C; jobs outlive the daemon.

    Whatever happens to it, the next `rota run` finds the jobs again. What happened is in
    STATE/journal.db.
    """
    from rota.backends.local.backend import LocalBackend
    from rota.backends.local.machine import machine
    from rota.backends.local.store import Store
    from rota.elastic.cradle import Cradle
    from rota.run.guard import Guard
    from rota.run.rehearsal import rehearse

    chosen = _policy(policy, history)
    spare = None if fallback == "none" else _policy(fallback, history)
    if backend != "local":
        names = [policy] if spare is None else [policy, fallback]
        foreign.run_on(
            backend, names, lambda name: _policy(name, history),
            Guard(fallback=spare, deadline_s=deadline, shadow=shadow),
            lambda turn: _tell(turn, _Speaker(quiet)),
        )  # fmt: skip
        return
    if shadow and spare is None:
        note("--shadow without a fallback: nothing is ever started.")
    cluster, real = machine(nodes, gpus)
    store = Store(state)
    for name in {policy, fallback} - {"none"}:
        rehearse(_policy(name, history), cluster)
    with ExitStack() as stack:
        stack.enter_context(store.locked(policy=policy, gpus=cluster.total_gpus))
        say = _Speaker(quiet)
        cradle = stack.enter_context(closing(Cradle(warm))) if warm else None
        local = LocalBackend(
            store, cluster, real_gpus=real, every_s=every, drain=drain, cradle=cradle, say=say,
            min_run_s=seconds("--min-run", min_run) if min_run else 0.0,
            keep_s=seconds("--keep", keep), keep_jobs=keep_jobs,
        )  # fmt: skip
        stack.callback(local.close)
        stack.enter_context(_stopped_by_signals(local))
        recorder = stack.enter_context(_recorder(store, local, cluster, policy, say))
        say(f"{policy} schedules {store.root} on {cluster.describe()}"
            f"{'' if real else ' (CPU slots)'}, process {os.getpid()}")  # fmt: skip
        guard = Guard(fallback=spare, deadline_s=deadline, shadow=shadow)
        _drive(chosen, local, guard, recorder, say)
        left = len(local.jobs)
        if left:
            say(f"leaves {left} jobs to themselves; the next `rota run` finds them again")


def _drive(
    policy: Policy, backend: LocalBackend, guard: Guard, recorder: Recorder, say: _Speaker
) -> None:
    """Round after round, each written down."""
    from rota.run.loop import rounds

    broken = False
    for turn in rounds(policy, backend, guard=guard):
        _tell(turn, say)
        backend.remark(turn.plan, turn.by)
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


def _tell(turn: Round, say: _Speaker) -> None:
    if turn.trouble:
        say(f"round {turn.number}: {turn.trouble}", trouble=True)
    for action in turn.plan:
        where = " ".join(
            f"{workers + servers}@{node}" for node, workers, servers in getattr(action, "share", ())
        )
        say(f"job {action.uid}: {type(action).__name__.lower()} {where}".rstrip())


def _policy(name: str, history: str | None) -> Policy:
    from rota.cli.loading import learners, loaded
    from rota.sim.simulate import informed

    policies = named_policies([name])
    if history is not None:
        return informed(policies[name], loaded(history))
    if learners(policies):
        raise ConfigError(f"Policy {name!r} draws on past jobs; name them with --history.")
    return policies[name]


@contextmanager
def _recorder(
    store: Store, backend: LocalBackend, cluster: Cluster, policy: str, say: _Speaker
) -> Iterator[Recorder]:
    """The journal's keeper; the journal of an earlier daemon is continued."""
    from rota.backends.local.private import keep_private, put_aside
    from rota.backends.local.store import JOURNAL
    from rota.run.journal import Journal
    from rota.run.record import Recorder

    path = store.root / JOURNAL
    columns = {"names": list(cluster.names), "gpus": cluster.gpus.tolist()}
    meta = {"policy": policy, "total_gpus": cluster.total_gpus, "backend": "local",
            "cluster": columns, "began_at": store.origin}  # fmt: skip
    journal = None
    if path.exists():
        keep_private(path)
        try:
            journal = Journal.reopen(path, meta={"cluster": columns})
            recorder = Recorder(journal, backend)
        except JournalError as error:
            # The jobs come first: what is wrong with it can be looked into later.
            if journal is not None:
                journal.close()
            aside = put_aside(path)
            say(f"{path.name} cannot be gone on with: {error} It is {aside} now", trouble=True)
            journal = None
    if journal is None:
        journal = Journal.create(path, meta=meta)
        recorder = Recorder(journal, backend)
    with journal:
        keep_private(path)
        yield recorder


@contextmanager
def _stopped_by_signals(backend: LocalBackend) -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP end the daemon between two rounds; a second one, at once."""

    def stop(*_: object) -> None:
        if backend.stopped:
            raise KeyboardInterrupt
        backend.stopped = True

    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` has it
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Speaker:
    """One line per event on stderr, with the time."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, text: str, *, trouble: bool = False) -> None:
        if trouble or not self._quiet:
            # A closed terminal or a full disk is no reason to leave the jobs alone.
            with suppress(OSError, ValueError):
                typer.echo(f"{time.strftime('%H:%M:%S')} {shown(text)}", err=True)
