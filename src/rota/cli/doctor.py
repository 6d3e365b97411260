"""`rota doctor`: checks a cluster that rota is to schedule, and says what to put right."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.job_verbs import STATE, State  # noqa: TC001
from rota.cli.options import AsJson, command  # noqa: TC001
from rota.cli.slurm_rest import RestAddress, slurmrestd  # noqa: TC001
from rota.cli.table import print_json, print_table
from rota.dash.units import plural
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.backends.check_result import CheckResult


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """What `rota doctor` is told."""

    backend: Annotated[str, typer.Option(metavar="NAME", help="Only slurm so far.")] = "slurm"
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Whose jobs rota is to start; repeat for more."),
    ] = None
    slurmrestd: RestAddress = None
    heartbeat: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="As for `rota run`; STATE/heartbeat."),
    ] = None
    state: State = STATE
    as_json: AsJson = False


@command(DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Check a cluster that rota is to schedule, and say what to put right.

    Run it with the account that rota runs as. It changes nothing. The exit code is 1 if anything
    is bad, else 0.
    """
    from rota.backends.slurm.checkup import checkup
    from rota.backends.slurm.hook import check_partitions
    from rota.backends.slurm.tools import SlurmTools

    if options.backend != "slurm":
        raise ConfigError(f"There is no check for backend {options.backend!r}; known: slurm.")
    check_partitions(options.partition or [])
    root = options.state.expanduser().absolute()
    heartbeat = (options.heartbeat or root / "heartbeat").expanduser().absolute()
    rest = slurmrestd(options.slurmrestd)
    found = list(checkup(SlurmTools(), options.partition or [], root, heartbeat, rest))
    count = {level: sum(one.level == level for one in found) for level in ("ok", "warn", "bad")}
    if options.as_json:
        print_json({"findings": [asdict(one) for one in found], **count})
    else:
        _print(found)
        typer.echo(f"{plural(count['bad'], 'thing')} bad, {plural(count['warn'], 'warning')}.")
    raise typer.Exit(1 if count["bad"] else 0)


def _print(found: list[CheckResult]) -> None:
    rows: list[tuple[str, str, str]] = []
    for one in found:
        rows.append((one.level, one.check, one.found))
        if one.fix:
            rows.append(("", "", f"→ {one.fix}"))
    columns = [list(column) for column in zip(*rows, strict=True)]
    print_table(list(zip(("", "check", "found"), columns, strict=True)), left=3)
