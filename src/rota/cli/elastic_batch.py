"""`rota elastic-run`: what a batch script of Slurm calls to train elastically."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rota.cli.options import command


@dataclass(frozen=True, kw_only=True)
class ElasticRunOptions:
    """What `rota elastic-run` is told."""

    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...",
            help="What each member runs, behind --, such as -- python train.py.",
        ),
    ]


@command(ElasticRunOptions)
def elastic_run(options: ElasticRunOptions) -> None:
    """Train elastically in a batch script of Slurm: the job gains and loses nodes as it runs.

    The script uses rota.elastic, and runs once for each GPU of the job, on all of its nodes. Say in
    the job's comment how many nodes it may have: --comment=rota:elastic=yes,max_nodes=4.
    """
    from rota.backends.slurm.elastic_run import run_elastic
    from rota.backends.slurm.tools import SlurmTools

    run_elastic(options.command, SlurmTools(), lambda text: typer.echo(f"rota: {text}", err=True))
