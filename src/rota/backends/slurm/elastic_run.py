"""`rota elastic-run`: an elastic training as a job of Slurm that grows and shrinks while it runs.

It is the command of the batch script. On the first node it starts the job's agent, by srun the
members on the job's own nodes, and it submits the satellites by which the job may grow. All files
are in the working directory, which the nodes must share.

    rota-elastic-JOB/run-K/        the K-th run: see rota.elastic.protocol
    rota-elastic-JOB/parked-K/     the state that it saved
    rota-elastic-JOB/satellites.json
    rota-heartbeat-JOB.json        how it gets on
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import count
from math import nan
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Final

from rota.backends.slurm.elastic_member import gpus_here, names_of
from rota.backends.slurm.heartbeat import heartbeat_name
from rota.backends.slurm.node_lists import expanded
from rota.backends.slurm.replies import read_jobs
from rota.backends.slurm.satellite_jobs import SatelliteJobs, folder_name
from rota.elastic.job import AGENT_KILLED, ElasticJob
from rota.elastic.member_forkserver import die_with_parent
from rota.elastic.parking import ENV_PARK, ENV_RESUME, MANIFEST, parked
from rota.elastic.protocol import AGENT_FILE, ENDED, JOB_FILE, JobSpec, Member
from rota.errors import BackendError, ConfigError, JobError, RotaError
from rota.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rota.backends.slurm.replies import SlurmJob
    from rota.backends.slurm.tools import SlurmTools
    from rota.elastic.protocol import Result, Status

LOOK_S: Final = 0.2
BEAT_S: Final = 1.0
"""Between two times that it tells how it gets on."""
RENEW_S: Final = 30.0
"""Between two looks whether satellites are over and have to be submitted anew."""
AGENT_S: Final = 60.0
"""Seconds in which the agent must answer."""
GRACE_S: Final = 20.0
"""For a training that is stopped to save its state; Slurm kills after its KillWait anyway."""


class ElasticRun:
    """One run of an elastic job."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        tools: SlurmTools,
        say: Callable[[str], None],
    ) -> None:
        self._environ, self._tools, self._say = environ, tools, say
        self._job = own_job(environ, tools)
        root = own_folder(Path(folder_name(self._job.job_id)).absolute())
        run = _next_run(root, int(environ.get("SLURM_RESTART_COUNT", "0")))
        self._folder, self._park = root / f"run-{run}", root / f"parked-{run}"
        self._satellites = SatelliteJobs(tools, root / "satellites.json")
        self._elastic = ElasticJob(self._folder)
        found = [root / f"parked-{k}" for k in reversed(range(run)) if parked(root / f"parked-{k}")]
        self._spec = self._specified(tuple(command), found[0] if found else None)
        self._terminated = self._stopping = False
        self._told: Status | None = None

    def _specified(self, command: tuple[str, ...], resume: Path | None) -> JobSpec:
        nodes = expanded(self._environ["SLURM_JOB_NODELIST"])
        each = max(1, len(gpus_here(self._environ)))
        env = {} if resume is None else {ENV_RESUME: str(resume)}
        members = [
            Member(name, env=env, outside=True)
            for node in nodes
            for name in names_of(self._environ, node, each)
        ]
        return JobSpec(
            command=command, members=tuple(members), env={ENV_PARK: str(self._park)},
            bind=own_address(self._environ["SLURMD_NODENAME"], self._tools),
        )  # fmt: skip

    def run(self) -> Result:
        """Train until it is over, or until SIGTERM: then its state is saved for the next run."""
        signal.signal(signal.SIGTERM, self._note_signal)
        self._folder.mkdir(parents=True, mode=0o700)
        replace_file(self._folder / JOB_FILE, asdict(self._spec))
        agent = self._child(sys.executable, "-m", "rota.elastic.agent", str(self._folder))
        nodes = str(len(expanded(self._environ["SLURM_JOB_NODELIST"])))
        module = "rota.backends.slurm.elastic_member"
        try:
            self._await_agent(agent)
            members = self._child(
                "srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--mem=0",
                "--kill-on-bad-exit=0", sys.executable, "-m", module, str(self._folder),
            )  # fmt: skip
            self._submit()
            return self._watch(members, agent)
        finally:
            agent.kill()
            agent.wait()
            self._end_satellites()

    def _note_signal(self, *_: object) -> None:
        self._terminated = True

    def _child(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a process that ends with this one; Slurm's SIGTERM to all is not for it."""
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, preexec_fn=_before_exec)  # noqa: PLW1509

    def _await_agent(self, agent: subprocess.Popen[bytes]) -> None:
        until_s = monotonic() + AGENT_S
        while not (self._folder / AGENT_FILE).exists():  # written once it listens
            if agent.poll() is not None or monotonic() > until_s:
                raise JobError("The job's agent did not start; see above what it has printed.")
            sleep(LOOK_S)

    def _submit(self) -> None:
        """Submit satellites; a job that may not do that trains on its own nodes."""
        try:
            self._satellites.cancel()
            count = self._satellites.submit(self._job, self._folder, self._environ)
        except (RotaError, OSError) as error:
            self._say(f"the job cannot grow: {error}")
        else:
            self._say(f"the job may grow by {count} nodes")

    def _end_satellites(self) -> None:
        """Cancel them; that it fails says nothing about the training."""
        try:
            self._satellites.cancel()
        except (RotaError, OSError) as error:
            self._say(f"satellites are not cancelled: {error}")

    def _renew(self) -> None:
        """Submit satellites anew that have failed, have reached their time limit, or the like."""
        try:
            count = self._satellites.replace_lost(self._job, self._folder, self._environ)
        except (RotaError, OSError) as error:
            self._say(f"satellites that are over are not replaced: {error}")
        else:
            if count:
                self._say(f"{count} satellites are over; as many were submitted anew")

    def _watch(
        self, members: subprocess.Popen[bytes], agent: subprocess.Popen[bytes]
    ) -> Result:  # fmt: skip
        due_s, renew_s = 0.0, monotonic() + RENEW_S
        while (result := self._elastic.result) is None:
            if self._terminated and not self._stopping:
                self._stop()
            if monotonic() >= renew_s and not self._terminated:
                self._renew()
                renew_s = monotonic() + RENEW_S
            if monotonic() >= due_s:
                due_s = monotonic() + BEAT_S
                status = self._beat()
                if members.poll() is not None and self._is_alone(status):
                    raise JobError("No member could start; see above what they have printed.")
            sleep(LOOK_S)
        self._beat()
        if result.error == AGENT_KILLED:
            agent.kill()  # if its folder was removed it lives, but nobody would hear how it ends
        # What scripts do after the training, such as saving the network, belongs to the job.
        with suppress(subprocess.TimeoutExpired):  # they end with this process
            members.wait(GRACE_S if self._stopping else None)
        return result

    def _is_alone(self, status: Status | None) -> bool:
        """Whether there is no member but those on the job's own nodes, and none has trained yet."""
        if status is None or status.state != "starting":
            return False
        return not set(status.waiting) - {member.name for member in self._spec.members}

    def _stop(self) -> None:
        self._stopping = True
        try:
            self._elastic.stop(GRACE_S)
        except JobError as error:
            self._say(f"it cannot be stopped at a step: {error}")

    def _beat(self) -> Status | None:
        """Tell how the training gets on; what cannot be told now is told the next time."""
        try:
            status = self._elastic.observe()
            if status.state in ENDED and self._told is not None:  # its end tells less than it did
                status = replace(self._told, state=status.state, samples=status.samples)
            self._told = status
            facts = beat_of(status, len(gpus_here(self._environ)), time(), saved_s(self._park))
            # rota runs under an account of its own, and has to read it.
            replace_file(Path(heartbeat_name(self._job.call)).absolute(), facts, 0o644)
        except (JobError, OSError):
            return None
        return status


def beat_of(status: Status, gpus: int, now_s: float, saved: float) -> dict[str, float]:
    """What a heartbeat file says of a training, whose nodes have so many GPUs each."""
    facts: dict[str, float] = {
        "time": now_s - (status.ago_s if status.state not in ENDED else 0.0),
        "samples": status.samples, "nodes": len(status.active) // max(1, gpus),
    }  # fmt: skip
    if status.total:
        facts["total"] = status.total
    if status.samples_per_s > 0:
        facts["samples_per_s"] = status.samples_per_s
    if status.changes:
        facts["pause_s"] = status.paused_s / status.changes
    if saved == saved:
        facts["saved"] = saved
    return facts


def own_folder(path: Path) -> Path:
    """Make a folder into which nobody else can put anything, or JobError.

    In a working directory that others may write to, such as /tmp, somebody else might have made it
    before: whoever owns it could have the job's secret, and the state of its training, written to
    files of his.
    """
    path.mkdir(mode=0o755, exist_ok=True)
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        facts = os.fstat(number)
        if facts.st_uid != os.geteuid():
            raise JobError(
                f"{path} belongs to somebody else (user {facts.st_uid}); submit the job from a "
                "folder in which only you may write."
            )
        os.fchmod(number, stat.S_IMODE(facts.st_mode) & ~0o022)
    finally:
        os.close(number)
    return path


def _next_run(root: Path, restarts: int) -> int:
    """The number of this run: a controller that was killed may count one twice."""
    return next(run for run in count(restarts) if not (root / f"run-{run}").exists())


def saved_s(park: Path) -> float:
    """When a state was saved last, as Unix time; NaN: never."""
    try:
        return (park / MANIFEST).stat().st_mtime
    except OSError:
        return nan


def own_job(environ: Mapping[str, str], tools: SlurmTools) -> SlurmJob:
    """The job that this process belongs to."""
    number = environ.get("SLURM_JOB_ID", "")
    if not number.isdecimal() or "SLURMD_NODENAME" not in environ:
        raise ConfigError(
            "`rota elastic-run` is for batch scripts of Slurm: submit a script with it by sbatch."
        )
    for job in read_jobs(tools.ask("squeue", "--json")):
        if job.job_id == int(number):
            return job
    raise BackendError(f"squeue does not list job {number}, from which it was asked.")


def own_address(node: str, tools: SlurmTools) -> str:
    """The address at which other nodes reach this one."""
    said = tools.ask("scontrol", "show", "node", node, "-o")
    found = re.search(r"\bNodeAddr=(\S+)", said)
    name = found[1] if found else node
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise BackendError(f"Node {node} has no address: {name} is {error.strerror}.") from None


def _before_exec() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    die_with_parent()


def run_elastic(command: Sequence[str], tools: SlurmTools, say: Callable[[str], None]) -> int:
    """Run an elastic training in the present job of Slurm; the exit code."""
    result = ElasticRun(command, os.environ, tools, say).run()
    if result.state == "failed":
        raise JobError(f"The training has failed: {result.error}")
    return 0
