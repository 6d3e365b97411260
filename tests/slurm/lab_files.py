"""The files of a private Slurm: its configuration, its nodes and their pretended GPUs."""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS = ("dev", "etc", "log", "munge", "run", "spool", "state", "work")
LONGEST_PATH = 70
"""The socket of a job step, `spool/n1/n1_JOB.4294967291`, must fit into 107 bytes."""


@dataclass(frozen=True, kw_only=True)
class LabSetup:
    """What a private Slurm consists of."""

    nodes: int = 8
    gpus_per_node: int = 4
    cpus_per_node: int = 32
    memory_mb: int = 64000
    gpu_type: str = "a100"
    kill_wait_s: int = 5
    """From SIGTERM to SIGKILL when a job is stopped."""
    node_timeout_s: int = 10
    """A node that is silent for so long is down."""
    message_timeout_s: int = 5
    hook_timeout_s: int = 300
    """The hold hook leaves jobs alone when the heartbeat is older than this."""
    operators: tuple[int, ...] = ()
    """Users whom the hold hook obeys as it obeys root."""
    extra_settings: str = ""
    """More lines for `slurm.conf`."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """`n1`, `n2`, and so on."""
        return tuple(f"n{i + 1}" for i in range(self.nodes))


# Nothing here needs cgroups, systemd, /etc or a database. cred_expire is short because a job that
# is requeued may not begin before that time has passed.
SLURM_CONF = """\
ClusterName=rotalab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={state}/munge/munge.sock,cred_expire=5
StateSaveLocation={state}/state
SlurmdSpoolDir={state}/spool/%n
SlurmctldPidFile={state}/run/slurmctld.pid
SlurmdPidFile={state}/run/slurmd-%n.pid
SlurmctldLogFile={state}/log/slurmctld.log
SlurmdLogFile={state}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
TopologyPlugin=topology/tree
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
JobSubmitPlugins=lua
SchedulerType=sched/backfill
PriorityType=priority/basic
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0,\
sched_max_job_start=0,bf_interval=2,bf_continue
JobRequeue=1
ReturnToService=2
KillWait={setup.kill_wait_s}
SlurmdTimeout={setup.node_timeout_s}
SlurmctldTimeout=10
MessageTimeout={setup.message_timeout_s}
InactiveLimit=0
MinJobAge=300
CompleteWait=0
MaxJobCount=20000
JobCompType=jobcomp/filetxt
JobCompLoc={state}/log/jobcomp.txt
{setup.extra_settings}
{nodes}
PartitionName=rota Nodes=ALL State=UP MaxTime=INFINITE Default=YES OverSubscribe=NO
PartitionName=free Nodes=ALL State=UP MaxTime=INFINITE OverSubscribe=NO
"""


def write_files(state: Path, setup: LabSetup, ports: range, hook: str) -> None:
    """Write all that the daemons read; the first port is the controller's, then come the nodes."""
    if len(str(state)) > LONGEST_PATH:
        raise ValueError(
            f"The folder of a private Slurm has {len(str(state))} characters, {state}: sockets of "
            f"job steps need {LONGEST_PATH} at most. Set TMPDIR to a short path."
        )
    for name in FOLDERS:
        (state / name).mkdir()
    # Other users submit jobs, too.
    for name in (".", "munge"):
        (state / name).chmod(0o755)
    (state / "work").chmod(0o1777)
    host = socket.gethostname().split(".")[0]
    nodes, gpus = [], []
    for name, port in zip(setup.node_names, ports[1:], strict=False):
        (state / "spool" / name).mkdir()
        nodes.append(_node_line(name, host, port, setup))
        gpus.append(_gpu_line(state, name, setup))
    conf = SLURM_CONF.format(
        host=host, port=ports[0], user=getpass.getuser(), state=state, setup=setup,
        nodes="\n".join(nodes),
    )  # fmt: skip
    (state / "etc" / "slurm.conf").write_text(conf)
    (state / "etc" / "gres.conf").write_text("\n".join(gpus) + "\n")
    (state / "etc" / "topology.conf").write_text(_two_racks(setup.node_names))
    (state / "etc" / "job_submit.lua").write_text(hook)


def _two_racks(nodes: tuple[str, ...]) -> str:
    half = (len(nodes) + 1) // 2
    racks = [nodes[:half], nodes[half:]]
    lines = [f"SwitchName=rack{k} Nodes={','.join(own)}" for k, own in enumerate(racks) if own]
    return "\n".join([*lines, "SwitchName=root Switches=rack[0-1]" if racks[1] else ""]) + "\n"


def _node_line(name: str, host: str, port: int, setup: LabSetup) -> str:
    cpus = setup.cpus_per_node
    gpus = f"Gres=gpu:{setup.gpu_type}:{setup.gpus_per_node} " if setup.gpus_per_node else ""
    return (
        f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname={host} Port={port} "
        f"CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 "
        f"RealMemory={setup.memory_mb} {gpus}Feature={setup.gpu_type} State=UNKNOWN"
    )


def _gpu_line(state: Path, node: str, setup: LabSetup) -> str:
    """Declare a node's GPUs: Slurm wants character devices, so they are links to /dev/null."""
    devices = [state / "dev" / f"{node}-gpu{i}" for i in range(setup.gpus_per_node)]
    for device in devices:
        device.symlink_to("/dev/null")
    last = len(devices) - 1
    span = f"[0-{last}]" if last > 0 else "0"
    if not devices:
        return f"# {node} has no GPUs"
    return f"NodeName={node} Name=gpu Type={setup.gpu_type} File={state}/dev/{node}-gpu{span}"
