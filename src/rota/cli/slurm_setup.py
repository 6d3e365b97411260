"""`rota setup`: the files with which rota is installed beside a Slurm controller."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from rota.cli.loading import named_policies
from rota.cli.options import AsJson, command, duration  # noqa: TC001
from rota.cli.table import print_json
from rota.errors import ConfigError

STEPS = """\
Next, on the host of slurmctld (docs/slurm.md has the whole story):
  1. useradd --system {user}; make it an operator of Slurm:
     sacctmgr add user {user} account=root adminlevel=operator
  2. cp {out}/job_submit.lua beside slurm.conf; set JobSubmitPlugins=lua there;
     scontrol reconfigure
  3. install -D {out}/failopen.sh {watchdog}
     cp {out}/*.service {out}/*.timer /etc/systemd/system; systemctl daemon-reload
  4. systemctl enable --now rota-failopen.timer rota-slurm.service
  5. as {user}: rota doctor --backend slurm{partitions}{where}"""


@dataclass(frozen=True, kw_only=True)
class SetupOptions:
    """What `rota setup` is told."""

    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Whose jobs rota is to start; repeat for more."),
    ] = None
    policy: Annotated[
        str, typer.Option("--policy", "-p", metavar="NAME", help="`rota policies` lists them.")
    ] = "srtf"
    fallback: Annotated[
        str, typer.Option(metavar="NAME", help="Decides when the policy does not.")
    ] = "fifo-skip"
    user: Annotated[
        str, typer.Option(metavar="NAME", help="The account that rota is to run as.")
    ] = "rota"
    operator: Annotated[
        list[int] | None,
        typer.Option(metavar="UID", min=0, help="SlurmUser and rota's account; repeat for more."),
    ] = None
    state: Annotated[
        Path, typer.Option(metavar="DIR", help="Where rota keeps its journal; only its own.")
    ] = Path("/var/lib/rota/state")
    heartbeat: Annotated[
        Path, typer.Option(metavar="PATH", help="A sign of life that slurmctld can read.")
    ] = Path("/var/lib/rota/heartbeat")
    timeout: Annotated[
        float, duration("After so long without a sign of life, jobs go back to Slurm.")
    ] = 300.0
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files are written.")] = Path(
        "rota-slurm"
    )
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False
    as_json: AsJson = False


@command(SetupOptions)
def setup(options: SetupOptions) -> None:
    """Write the files that a Slurm cluster needs for rota: hold hook, watchdog, systemd units.

    Nothing is installed: look at them, then follow the steps that are printed.
    """
    from rota.backends.slurm.setup_files import WATCHDOG, SlurmSetup, setup_files

    partitions = options.partition or []
    if not partitions:
        raise ConfigError("Say which jobs rota is to start: --partition NAME; `sinfo -s` has them.")
    named_policies([name for name in (options.policy, options.fallback) if name != "none"])
    made = setup_files(SlurmSetup(
        partitions=partitions, policy=options.policy, fallback=options.fallback, rota=_rota(),
        user=options.user, operators=options.operator or _uid(options.user),
        state=PurePosixPath(options.state), heartbeat=PurePosixPath(options.heartbeat),
        timeout_s=round(options.timeout),
    ))  # fmt: skip
    there = [name for name in made if (options.out / name).exists()]
    if there and not options.force:
        raise ConfigError(f"{options.out / there[0]} exists; say --force, or another --out.")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (options.out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {options.out} cannot be written: {error.strerror}.") from None
    if options.as_json:
        print_json({"files": [str(options.out / name) for name in made]})
        return
    for name in made:
        typer.echo(options.out / name)
    named = "".join(f" --partition {name}" for name in partitions)
    where = f" --state {options.state} --heartbeat {options.heartbeat}"
    typer.echo(STEPS.format(user=options.user, out=options.out, watchdog=WATCHDOG,
                            partitions=named, where=where), err=True)  # fmt: skip


def _rota() -> list[str]:
    """The command that runs this rota."""
    found = shutil.which("rota", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    return [found] if found else [sys.executable, "-m", "rota"]


def _uid(user: str) -> list[int]:
    """The number of an account, if it is known here."""
    import pwd

    with suppress(KeyError):
        return [pwd.getpwnam(user).pw_uid]
    return []
