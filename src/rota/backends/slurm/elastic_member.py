"""The members of an elastic job on one of its nodes on Slurm, one for each GPU.

    python -m rota.backends.slurm.elastic_member FOLDER

It runs as a task of srun on the job's own nodes, whose members its agent expects, and as the batch
script of a satellite, whose members ask to join. SIGTERM takes a satellite away from the job: its
members leave after a step. On the job's own nodes SIGTERM means that the whole job is to stop,
which `rota elastic-run` sees to.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final

from rota.elastic.job import ElasticJob
from rota.elastic.member_forkserver import die_with_parent
from rota.elastic.protocol import (
    AGENT_FILE,
    ENV_AGENT,
    ENV_HOST,
    ENV_KIND,
    ENV_MEMBER,
    ENV_TOKEN,
    JOB_FILE,
    Address,
    JobSpec,
    Member,
)
from rota.errors import ConfigError, RotaError
from rota.files import decode_as, read_file

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOK_S: Final = 0.1
"""Between two looks whether members have ended, or have to leave."""


def names_of(environ: Mapping[str, str], node: str, count: int) -> list[str]:
    """The names of a node's members; no other run of any job gives them."""
    job, run = environ["SLURM_JOB_ID"], environ.get("SLURM_RESTART_COUNT", "0")
    return [f"{node[:40]}-{job}-{run}-{k}" for k in range(count)]


def gpus_here(environ: Mapping[str, str]) -> list[str]:
    """The GPUs that Slurm has given to this node's part of the job."""
    return [gpu for gpu in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]


class NodeMembers:
    """The members on this node: processes of the user's script."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        """`folder` is that of the job's present run, in which its agent has written its address."""
        facts, where = read_file(folder / JOB_FILE), read_file(folder / AGENT_FILE)
        if facts is None or where is None:
            raise ConfigError(f"{folder} holds no job that runs; is it on a shared file system?")
        self._job, self._spec = ElasticJob(folder), JobSpec.decode(facts)
        self._agent = decode_as(Address, where, folder / AGENT_FILE)
        self._environ, gpus = environ, gpus_here(environ)
        names = names_of(environ, environ["SLURMD_NODENAME"], max(1, len(gpus)))
        first = {member.name: member for member in self._spec.members}
        self.members = [first.get(name) or Member(name, outside=True) for name in names]
        self.joins = not first.keys() & set(names)
        """Whether this is a satellite."""
        self._gpus = gpus if len(gpus) == len(names) else []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Ask to join, and start the script."""
        for k, member in enumerate(self.members):
            if self.joins:
                self._job.join(member)
            env = self._env(member) | (
                {"CUDA_VISIBLE_DEVICES": self._gpus[k]} if self._gpus else {}
            )
            self._processes[member.name] = subprocess.Popen(
                self._spec.command, env=env, stdin=subprocess.DEVNULL,
                preexec_fn=_before_exec,  # noqa: PLW1509
            )  # fmt: skip

    def leave(self) -> None:
        """Ask that the members be let go; a job that ends anyway does so by itself."""
        for member in self.members:
            with suppress(RotaError):
                self._job.leave(member.name)

    def codes(self) -> list[int | None]:
        """The exit codes of the members; None of one that runs."""
        return [process.poll() for process in self._processes.values()]

    def _env(self, member: Member) -> dict[str, str]:
        agent = self._agent
        return {
            "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **self._environ, **self._spec.env,
            **member.env, ENV_AGENT: f"{agent.host}:{agent.port}", ENV_TOKEN: agent.token,
            ENV_MEMBER: member.name, ENV_KIND: member.kind,
            ENV_HOST: address_towards(agent.host, agent.port),
        }  # fmt: skip


def address_towards(host: str, port: int) -> str:
    """The address of this host from which it reaches another one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.connect((host, port))
        return str(link.getsockname()[0])


def run_members(folder: Path, environ: Mapping[str, str]) -> int:
    """Run this node's members until they have ended; the exit code."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    members, left = NodeMembers(folder, environ), False
    members.start()
    while None in (codes := members.codes()):
        if asked and members.joins and not left:
            members.leave()
            left = True
        sleep(LOOK_S)
    if any(codes) and not left:
        members.leave()  # the agent need not wait for one that has not even said hello
    return 0 if left else max(map(abs, filter(None, codes)), default=0)


def _before_exec() -> None:
    """Slurm's SIGTERM goes to every process of a job; members are told by their agent to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python -m rota.backends.slurm.elastic_member FOLDER")
    try:
        code = run_members(Path(sys.argv[1]), os.environ)
    except (RotaError, OSError) as error:
        sys.exit(f"error: {error}")
    sys.exit(min(code, 255))


if __name__ == "__main__":
    main()
