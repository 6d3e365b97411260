"""`rota run`: the daemon that schedules a real cluster."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli import foreign
from rota.cli.job_verbs import STATE, State  # noqa: TC001
from rota.cli.loading import named_policies, note
from rota.cli.options import command, duration
from rota.cli.signals import on_signals
from rota.cli.table import shown
from rota.errors import ConfigError, JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.backends.local import LocalBackend, StateDir
    from rota.core import Cluster, Policy
    from rota.perf.job_laws import JobLaws
    from rota.run.guard import Guard
    from rota.run.loop import Round
    from rota.run.recorder import Recorder


@dataclass(frozen=True, kw_only=True)
class DaemonOptions:
    """What `rota run` is told."""

    policy: Annotated[
        str, typer.Option("--policy", "-p", metavar="NAME", help="`rota policies` lists them.")
    ] = "fifo-skip"
    fallback: Annotated[
        str, typer.Option(metavar="NAME", help="Decides when the policy does not; or `none`.")
    ] = "fifo-skip"
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Only record what the policy decides; the fallback is used."),
    ] = False
    backend: Annotated[
        str, typer.Option(metavar="NAME", help="What cluster: local, or a plug-in's NAME[:a=1,…].")
    ] = "local"
    nodes: Annotated[int, typer.Option(min=1, help="Virtual nodes of this machine.")] = 1
    gpus: Annotated[
        int, typer.Option(min=0, help="GPUs of each; 0: all there are, or one slot per CPU.")
    ] = 0
    every: Annotated[float, duration("Between rounds, at most.")] = 10.0
    min_run: Annotated[float, duration("A job is not stopped or moved sooner after its start.")] = (
        0.0
    )
    deadline: Annotated[float, duration("For a policy, in each round.")] = 30.0
    history: Annotated[
        str | None, typer.Option(help="Past jobs for policies that learn from them.")
    ] = None
    keep: Annotated[float, duration("Keep jobs that are over, and their logs.")] = 30 * 86400.0
    keep_jobs: Annotated[
        int, typer.Option(min=0, help="Keep at most this number of jobs that are over.")
    ] = 100_000
    drain: Annotated[
        bool, typer.Option("--drain", help="End when no job waits or runs any more.")
    ] = False
    warm: Annotated[
        list[str] | None,
        typer.Option(help="Import this once, for all jobs that preload it; repeat for more."),
    ] = None
    profile: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="How jobs slow each other down: a `rota profile`."),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what went wrong.")] = False
    state: State = STATE

    def __post_init__(self) -> None:
        for name, least in (("every", 0.1), ("deadline", 0.05)):
            if not (given := getattr(self, name)) >= least:
                raise ConfigError(f"--{name} {given:g} is too short; give {least:g}s or more.")


@command(DaemonOptions)
def run(options: DaemonOptions) -> None:
    """Schedule the jobs that `rota submit` puts in line, until Ctrl-C; jobs outlive the daemon.

    Whatever happens to it, the next `rota run` finds the jobs again. What happened is in
    STATE/journal.db.
    """
    from rota.backends.local.machine import machine
    from rota.backends.local.state_dir import StateDir
    from rota.perf.job_laws import read_laws
    from rota.run.guard import Guard
    from rota.run.rehearsal import rehearse

    chosen = _policy(options.policy, options.history)
    spare = None if options.fallback == "none" else _policy(options.fallback, options.history)
    guard = Guard(fallback=spare, deadline_s=options.deadline, shadow=options.shadow)
    if options.backend != "local":
        names = [options.policy] if spare is None else [options.policy, options.fallback]
        foreign.run_on(
            options.backend, names, lambda name: _policy(name, options.history), guard,
            lambda turn: _tell(turn, _Speaker(options.quiet)),
        )  # fmt: skip
        return
    if options.shadow and spare is None:
        note("--shadow without a fallback: no job is ever started.")
    laws = None if options.profile is None else read_laws(options.profile)
    cluster, real = machine(options.nodes, options.gpus)
    store = StateDir(options.state)
    say = _Speaker(options.quiet)
    for name in dict.fromkeys([options.policy] + [options.fallback] * (spare is not None)):
        say(f"tries out {name} on made-up jobs")
        rehearse(_policy(name, options.history), cluster, options.deadline)
    with ExitStack() as stack:
        stack.enter_context(store.locked(policy=options.policy, gpus=cluster.total_gpus))
        local = stack.enter_context(
            _backend(options, store, cluster, laws, real_gpus=real, say=say)
        )
        stack.enter_context(_stopped_by_signals(local))
        recorder = stack.enter_context(_recorder(store, local, cluster, options.policy, say))
        say(f"{options.policy} schedules {store.root} on {cluster.describe()}"
            f"{'' if real else ' (CPU slots)'}, process {os.getpid()}")  # fmt: skip
        _drive(chosen, local, guard, recorder, say)
        left = len(local.jobs)
        if left:
            say(f"leaves {left} jobs to themselves; the next `rota run` finds them again")


@contextmanager
def _backend(
    options: DaemonOptions,
    store: StateDir,
    cluster: Cluster,
    laws: JobLaws | None,
    *,
    real_gpus: bool,
    say: _Speaker,
) -> Iterator[LocalBackend]:
    """The backend, and what it starts agents with."""
    from rota.backends.local.local_backend import LocalBackend
    from rota.elastic.agent_forkserver import AgentForkServer

    with ExitStack() as stack:
        warm = options.warm
        fork_server = stack.enter_context(closing(AgentForkServer(warm))) if warm else None
        local = LocalBackend(
            store, cluster, real_gpus=real_gpus, every_s=options.every, drain=options.drain,
            min_run_s=options.min_run, keep_s=options.keep, keep_jobs=options.keep_jobs,
            fork_server=fork_server, say=say,
            laws=laws,
        )  # fmt: skip
        stack.callback(local.close)
        yield local


def _drive(
    policy: Policy, backend: LocalBackend, guard: Guard, recorder: Recorder, say: _Speaker
) -> None:
    """Round after round, each written down."""
    from rota.run.ask import name_of
    from rota.run.loop import rounds
    from rota.run.why import why_waiting

    broken = False
    in_order = {name_of(p) for p in (policy, guard.fallback) if p and _first_come(p)}
    for turn in rounds(policy, backend, guard=guard):
        _tell(turn, say)
        backend.remark(turn.plan, turn.by)
        decision, by = turn.plan.decision, turn.by
        backend.note_waits(why_waiting(turn.snapshot, decision, by, first_come=by in in_order))
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
    from rota.sim.briefing import informed

    policies = named_policies([name])
    if history is not None:
        return informed(policies[name], loaded(history))
    if learners(policies):
        raise ConfigError(f"Policy {name!r} draws on past jobs; name them with --history.")
    return policies[name]


@contextmanager
def _recorder(
    store: StateDir, backend: LocalBackend, cluster: Cluster, policy: str, say: _Speaker
) -> Iterator[Recorder]:
    """What writes the journal; that of an earlier daemon is continued."""
    from rota.backends.local.private import keep_private, put_aside
    from rota.backends.local.state_dir import JOURNAL
    from rota.run.journal import Journal
    from rota.run.recorder import Recorder

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

    with on_signals(stop, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        yield


class _Speaker:
    """One line per event on stderr, with the time."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, text: str, *, trouble: bool = False) -> None:
        if trouble or not self._quiet:
            # A closed terminal or a full disk is no reason to leave the jobs alone.
            with suppress(OSError, ValueError):
                typer.echo(f"{time.strftime('%H:%M:%S')} {shown(text)}", err=True)
