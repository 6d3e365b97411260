"""`rota run`: the daemon that schedules a real cluster."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rota.cli import foreign, slurm_daemon
from rota.cli.daemon_loop import (
    Speaker,
    drive,
    journal_of,
    learning,
    policy_named,
    stopped_by_signals,
    tell,
)
from rota.cli.job_verbs import STATE, State  # noqa: TC001
from rota.cli.loading import note
from rota.cli.options import command, duration
from rota.cli.slurm_rest import RestAddress  # noqa: TC001
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.backends.local import LocalBackend, StateDir
    from rota.core import Cluster
    from rota.perf.job_laws import JobLaws
    from rota.run.last_round import Deciders


LONGEST_DEADLINE_S: Final = 86400.0
_OF_SLURM: Final = ("partition", "slurmrestd", "heartbeat", "preempt_rate", "preempt_budget")
_OF_LOCAL: Final = ("nodes", "gpus", "keep", "keep_jobs", "warm", "profile")
"""Options that another backend would pass over in silence."""


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
        typer.Option(
            "--shadow",
            help="Only record what it decides: the fallback rules, and Slurm is left alone.",
        ),
    ] = False
    backend: Annotated[
        str, typer.Option(metavar="NAME", help="local, slurm, or a plug-in's NAME[:a=1,…].")
    ] = "local"
    nodes: Annotated[int, typer.Option(min=1, help="Virtual nodes of this machine.")] = 1
    gpus: Annotated[
        int, typer.Option(min=0, help="GPUs of each; 0: all there are, or one slot per CPU.")
    ] = 0
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Of Slurm, whose jobs rota starts; repeat for more."),
    ] = None
    slurmrestd: RestAddress = None
    every: Annotated[float, duration("Between rounds, at most.", "--interval", "--every")] = 10.0
    min_run: Annotated[
        float, duration("A job is not stopped or moved sooner after its start or last change.")
    ] = 0.0
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
    preempt_rate: Annotated[
        int, typer.Option(min=0, help="Running jobs that may be stopped or moved per hour; Slurm.")
    ] = 120
    preempt_budget: Annotated[
        int, typer.Option(min=0, help="Times that one job may be stopped or moved; Slurm.")
    ] = 20
    heartbeat: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A sign of life for the watchdog; STATE/heartbeat."),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what went wrong.")] = False
    state: State = STATE

    def __post_init__(self) -> None:
        for name, given, least in (
            ("--interval", self.every, 0.1), ("--deadline", self.deadline, 0.05),
        ):  # fmt: skip
            if not given >= least:
                raise ConfigError(f"{name} {given:g} is too short; give {least:g}s or more.")
        if self.deadline > LONGEST_DEADLINE_S:  # later, no alarm could be set for it
            raise ConfigError(f"--deadline {self.deadline:g} is too long; give 1d or less.")
        self._check_backend()

    def _check_backend(self) -> None:
        """Refuse options that mean nothing to the backend, such as a partition to this machine."""
        kind, _, settings = self.backend.partition(":")
        if kind == "slurm" and settings:
            raise ConfigError(
                f"--backend slurm takes no settings, so not {settings!r}: see --help."
            )
        wrong, takes = (_OF_LOCAL, "local") if kind == "slurm" else (_OF_SLURM, "slurm")
        for field in fields(self):
            if field.name in wrong and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"--{field.name.replace('_', '-')} is for --backend {takes}, but the backend "
                    f"is {kind}; say --backend {takes}, or leave it out."
                )

    @property
    def deciders(self) -> Deciders:
        """The policies by which `rota explain` plays on."""
        from rota.run.last_round import Deciders

        fallback = "" if self.fallback == "none" else self.fallback
        watches = self.shadow and self.backend.partition(":")[0] == "slurm"
        if self.shadow and fallback and not watches:
            return Deciders(fallback, history=self.history)
        return Deciders(self.policy, fallback, self.history, watches)


@command(DaemonOptions)
def run(options: DaemonOptions) -> None:
    """Schedule the jobs that `rota submit` puts in line, until Ctrl-C; jobs outlive the daemon.

    Whatever happens to it, the next `rota run` finds the jobs again. What happened is in
    STATE/journal.db.
    """
    from rota.backends.local.machine import machine
    from rota.backends.local.state_dir import JOURNAL, StateDir
    from rota.perf.job_laws import read_laws
    from rota.run.guard import Guard
    from rota.run.recorder import Recorder
    from rota.run.rehearsal import rehearse

    chosen = policy_named(options.policy, options.history)
    spare = None if options.fallback == "none" else policy_named(options.fallback, options.history)
    guard = Guard(fallback=spare, deadline_s=options.deadline, shadow=options.shadow)
    if options.backend.partition(":")[0] == "slurm":
        slurm_daemon.run_on_slurm(options, chosen, guard, Speaker(options.quiet))
        return
    if options.backend != "local":
        names = [options.policy] if spare is None else [options.policy, options.fallback]
        foreign.run_on(
            options.backend, names, lambda name: policy_named(name, options.history), guard,
            lambda turn: tell(turn, Speaker(options.quiet)),
        )  # fmt: skip
        return
    if options.shadow and spare is None:
        note("--shadow without a fallback: no job is ever started.")
    laws = None if options.profile is None else read_laws(options.profile)
    cluster, real = machine(options.nodes, options.gpus)
    store = StateDir(options.state)
    say = Speaker(options.quiet)
    for name in dict.fromkeys([options.policy] + [options.fallback] * (spare is not None)):
        say(f"tries out {name} on made-up jobs")
        rehearse(policy_named(name, options.history), cluster, options.deadline)
    with ExitStack() as stack:
        stack.enter_context(store.locked(policy=options.policy, gpus=cluster.total_gpus))
        local = stack.enter_context(
            _backend(options, store, cluster, laws, real_gpus=real, say=say)
        )
        stack.enter_context(stopped_by_signals(local))
        columns = {"names": list(cluster.names), "gpus": cluster.gpus.tolist()}
        meta = {"policy": options.policy, "total_gpus": cluster.total_gpus, "backend": "local",
                "cluster": columns, "began_at": store.origin}  # fmt: skip
        recorder = stack.enter_context(
            journal_of(store.root / JOURNAL, meta, lambda one: Recorder(one, local), say)
        )
        say(f"{options.policy} schedules {store.root} on {cluster.describe()}"
            f"{'' if real else ' (CPU slots)'}, process {os.getpid()}")  # fmt: skip
        drive(
            learning(chosen, options.policy, store.root, say), local, guard, recorder, say,
            options.deciders,
        )  # fmt: skip
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
    say: Speaker,
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
