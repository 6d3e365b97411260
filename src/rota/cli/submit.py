"""`rota submit`: put a job in line."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.job_verbs import STATE, State, environment, note_no_daemon  # noqa: TC001
from rota.cli.options import AsJson, command, duration  # noqa: TC001
from rota.cli.table import print_json
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.backends.local.request import Request


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """What `rota submit` is told."""

    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...", help="What to run, behind --, such as -- python train.py."
        ),
    ]
    name: Annotated[str, typer.Option(help="Its name in tables.")] = ""
    workers: Annotated[int, typer.Option("--workers", "-w", min=1, help="Processes.")] = 1
    min_workers: Annotated[int, typer.Option(min=0, help="Fewest; 0: as --workers.")] = 0
    max_workers: Annotated[int, typer.Option(min=0, help="Most; 0: as --workers.")] = 0
    servers: Annotated[int, typer.Option(min=0, help="Parameter servers, with --elastic.")] = 0
    max_servers: Annotated[int, typer.Option(min=0, help="Most; 0: as --servers.")] = 0
    gpus_per_worker: Annotated[
        int, typer.Option(min=0, help="GPUs, or CPU slots, of each worker.")
    ] = 1
    elastic: Annotated[
        bool, typer.Option("--elastic", help="The script uses rota.elastic: resize it as it runs.")
    ] = False
    estimate: Annotated[float | None, duration("Its run time, if you know it.")] = None
    model: Annotated[str, typer.Option(help="Jobs of one model speed up alike.")] = ""
    preemptible: Annotated[
        bool,
        typer.Option(
            "--preemptible",
            help="It writes a checkpoint on SIGTERM, and may be stopped for other jobs.",
        ),
    ] = False
    preload: Annotated[
        list[str] | None, typer.Option(help="Import this once for all workers; repeat for more.")
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="OMP_NUM_THREADS of each worker; default: yours, or 1."),
    ] = None
    retries: Annotated[int, typer.Option(min=0, help="Times to start it again if it fails.")] = 0
    grace: Annotated[float, duration("From SIGTERM to SIGKILL.")] = 30.0
    park_every: Annotated[
        float, duration("How often an elastic job saves its state; 0: never.")
    ] = 300.0
    state: State = STATE
    as_json: AsJson = False

    def request(self) -> Request:
        """The job that is asked for, to run here and with this environment."""
        from rota.backends.local.request import Request

        return Request(
            command=tuple(self.command),
            cwd=os.getcwd(),
            env=environment(),
            kind="servers" if self.servers else "elastic" if self.elastic else "plain",
            name=self.name,
            user=os.environ.get("USER") or str(os.getuid()),
            model=self.model,
            submitted_at=time.time(),
            workers=self.workers,
            min_workers=self.min_workers,
            max_workers=self.max_workers,
            servers=self.servers,
            max_servers=self.max_servers,
            min_servers=1 if self.servers else 0,
            gpus_per_worker=self.gpus_per_worker,
            estimate_s=self.estimate,
            preload=tuple(self.preload or ()),
            preemptible=self.preemptible,
            threads=self.threads or 0,
            retries=self.retries,
            grace_s=self.grace,
            park_every_s=self.park_every,
        )


@command(SubmitOptions)
def submit(options: SubmitOptions) -> None:
    """Put a job in line, to run here and with this environment; prints its number.

    A job without --elastic is one process per worker, with RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT set. It is left alone until it ends, unless it is --preemptible: then, to stop,
    move or resize it, it gets SIGTERM and is started again later, to go on from its checkpoint.
    """
    from rota.backends.local.state_dir import StateDir

    request = options.request()
    if options.servers and not options.elastic:
        raise ConfigError("--servers needs a script that uses rota.elastic; say --elastic, too.")
    request.check_here()
    store = StateDir(options.state)
    uid = store.submit(request)
    if options.as_json:
        print_json({"job": uid})
    else:
        typer.echo(uid)
    note_no_daemon(store, "it waits until `rota run` starts one")
