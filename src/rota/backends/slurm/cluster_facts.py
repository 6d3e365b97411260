"""Everything that checks of a Slurm cluster look at, asked once; nothing is changed."""

from __future__ import annotations

import getpass
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import mktime, strptime, time
from typing import TYPE_CHECKING, Final

from rota.backends.slurm.replies import read_jobs, read_nodes
from rota.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.backends.slurm.replies import SlurmJob, SlurmNode
    from rota.backends.slurm.tools import SlurmTools

NEEDED: Final = ("squeue", "sinfo", "scontrol", "scancel", "sacct")
NO_SUCH: Final = "rota-doctor-no-such-reservation"
_AS_OF: Final = re.compile(r"Configuration data as of (\S+)")
_UNIT: Final = re.compile(r"(\d+)(?: \w+)?")


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """What Slurm and this host say."""

    partitions_wanted: Sequence[str]
    missing: Sequence[str] = ()
    """Commands that are not here."""
    trouble: str = ""
    """Why Slurm could not be asked; then nothing else is known."""
    config: Mapping[str, str] = field(default_factory=dict)
    """`scontrol show config`; what is not set is ""."""
    ahead_s: float = 0.0
    """By how much Slurm's clock is ahead of ours."""
    partitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`scontrol show partition`, by name."""
    nodes: Sequence[SlurmNode] = ()
    jobs: Sequence[SlurmJob] = ()
    unreadable: str = ""
    """Why the JSON answers could not be read."""
    account: str = ""
    uid: int = 0
    is_operator: bool | None = None
    """Whether this account may change others' jobs; None: that could not be told."""
    may_why: str = ""
    """By what that is known."""
    hook: str | None = None
    """The text of job_submit.lua; None: it cannot be read here."""
    timer: str = ""
    """What was seen of the watchdog; "" if nothing."""

    @property
    def ours(self) -> list[SlurmNode]:
        """The nodes of the partitions that are to be managed."""
        wanted = set(self.partitions_wanted)
        return [node for node in self.nodes if wanted & node.partitions]

    def seconds(self, key: str) -> float | None:
        """A setting that is a number of seconds; None if it is none."""
        match = _UNIT.fullmatch(self.config.get(key, ""))
        return float(match[1]) if match else None


def gather(tools: SlurmTools, partitions: Sequence[str], uid: int) -> ClusterFacts:
    """Ask Slurm and this host."""
    known: dict[str, object] = {"partitions_wanted": tuple(partitions), "uid": uid,
                                "account": _account()}  # fmt: skip
    known["missing"] = tuple(name for name in NEEDED if shutil.which(name) is None)
    if {"scontrol", "squeue", "sinfo"} & set(known["missing"]):  # type: ignore[call-overload]
        return ClusterFacts(**known)  # type: ignore[arg-type]
    try:
        config, ahead_s = _config(tools)
        listed = tools.ask("scontrol", "show", "partition", "-o")
    except BackendError as error:
        return ClusterFacts(**known, trouble=str(error))  # type: ignore[arg-type]
    known |= {"config": config, "ahead_s": ahead_s, "partitions": read_partitions(listed)}
    try:
        known["nodes"] = read_nodes(tools.ask("sinfo", "--json"))
        known["jobs"] = read_jobs(tools.ask("squeue", "--json"))
    except BackendError as error:
        known["unreadable"] = str(error)
    known["is_operator"], known["may_why"] = _rights(tools, config, uid)
    known["hook"], known["timer"] = _hook(config), _timer(tools)
    return ClusterFacts(**known)  # type: ignore[arg-type]


def read_config(text: str) -> dict[str, str]:
    """The settings in an answer of `scontrol show config`."""
    pairs = (line.partition("=") for line in text.splitlines())
    found = {key.strip(): value.strip() for key, mark, value in pairs if mark}
    return {key: "" if value == "(null)" else value for key, value in found.items()}


def read_partitions(text: str) -> dict[str, dict[str, str]]:
    """The partitions in an answer of `scontrol show partition -o`."""
    found = {}
    for line in text.splitlines():
        pairs = (word.partition("=") for word in line.split())
        facts = {key: value for key, mark, value in pairs if mark}
        if "PartitionName" in facts:
            found[facts["PartitionName"]] = facts
    return found


def _config(tools: SlurmTools) -> tuple[dict[str, str], float]:
    """The settings, and by how much Slurm's clock is ahead."""
    said = tools.ask("scontrol", "show", "config")
    ours_s, ahead_s = time(), 0.0
    with suppress(ValueError):
        if as_of := _AS_OF.search(said):
            ahead_s = mktime(strptime(as_of[1], "%Y-%m-%dT%H:%M:%S")) + 0.5 - ours_s
    return read_config(said), ahead_s


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return ""


def _rights(tools: SlurmTools, config: Mapping[str, str], uid: int) -> tuple[bool | None, str]:
    """Whether this account is an operator, and by what that is known."""
    if uid == 0:
        return True, "it is root"
    if config.get("SlurmUser", "").endswith(f"({uid})"):
        return True, "it is SlurmUser"
    # Only operators are told whether a reservation is there that they want to remove.
    said = tools.run("scontrol", "delete", f"reservationname={NO_SUCH}").line
    if "reservation" in said.lower() and "invalid" in said.split(":")[-1]:
        return True, "Slurm lets it change reservations"
    if "user id" in said or "denied" in said.lower():
        return False, "Slurm does not let it change reservations"
    return None, said


def _hook(config: Mapping[str, str]) -> str | None:
    """The script beside slurm.conf; it may be on another host."""
    folder = Path(config.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
    try:
        return (folder / "job_submit.lua").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _timer(tools: SlurmTools) -> str:
    """What is seen of the watchdog: its timer, or a process of its loop."""
    with suppress(BackendError):
        if tools.run("systemctl", "is-active", "rota-failopen.timer").out.strip() == "active":
            return "rota-failopen.timer is active"
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().split(b"\0")
            if any(word.endswith(b"failopen.sh") for word in words) and b"--loop" in words:
                return f"failopen.sh runs as process {file.parent.name}"
    return ""
