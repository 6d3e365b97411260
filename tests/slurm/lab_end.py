"""Ends what a private Slurm has started, even if whoever started it was killed.

Run as a program it waits until its standard input is closed, which happens when its parent ends in
whatever way. Then it ends all processes of the Slurm in the folder it was given, and removes that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

DAEMONS_END_WITHIN_S = 5.0
"""Slurm's daemons save their state on SIGTERM; a node without its controller takes too long."""
STEPS_END_WITHIN_S = 30.0


def stat_fields(pid: int) -> list[str]:
    """What `/proc/PID/stat` says after the program's name; nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def born(pid: int) -> str:
    """When a process was started, which tells it from later ones; nothing if it is over."""
    fields = stat_fields(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


def note_pid(path: Path, pid: int) -> None:
    """Write down a process."""
    path.write_text(f"{pid} {born(pid)}")


def noted_pid(path: Path) -> int:
    """The process that was written down, if it is still running; else 0."""
    try:
        pid, when = path.read_text().split()
    except (OSError, ValueError):
        return 0
    return int(pid) if born(int(pid)) == when else 0


def send(pid: int, number: int) -> None:
    """Send a signal; a process that is over needs none."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def end(pids: list[int], patience_s: float) -> None:
    """SIGTERM to all; after a deadline that they share, SIGKILL to those that are left."""
    for pid in pids:
        send(pid, signal.SIGTERM)
    until_s = monotonic() + patience_s
    while any(born(pid) for pid in pids):
        if monotonic() > until_s:
            for pid in pids:
                if born(pid):
                    send(pid, signal.SIGKILL)
        sleep(0.01)


def job_processes(state: Path, node: str = "") -> list[int]:
    """All processes that belong to jobs of this Slurm, or to those on one node.

    Steps outlive the daemon of their node. They overwrite their own environment and command line,
    so their sockets tell who they are. Tasks are known by their environment, and as descendants.
    """
    sockets = _sockets_below(f"{state}/spool/{node}/" if node else f"{state}/spool/")
    marks = [f"SLURM_CONF={state}/etc/slurm.conf".encode()]
    if node:
        marks.append(f"SLURMD_NODENAME={node}".encode())
    children: dict[int, list[int]] = {}
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        fields = stat_fields(pid)
        if not fields or fields[0] in "ZX":
            continue
        children.setdefault(int(fields[1]), []).append(pid)
        with suppress(OSError):
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if all(mark in words for mark in marks) or _is_step(pid, sockets):
                found.append(pid)
    family: set[int] = set()
    while found:
        pid = found.pop()
        if pid not in family:
            family.add(pid)
            found += children.get(pid, [])
    return sorted(family - _ancestors())


def _sockets_below(prefix: str) -> set[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    parts = [line.split(maxsplit=7) for line in lines]
    return {part[6] for part in parts if len(part) == 8 and part[7].startswith(prefix)}


def _is_step(pid: int, sockets: set[str]) -> bool:
    if not sockets or b"slurmstepd" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        return False
    held = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return any(name.startswith("socket:[") and name[8:-1] in sockets for name in held)


def _ancestors() -> set[int]:
    """This process, its parent, and so on."""
    line, pid = {0, 1}, os.getpid()
    while pid not in line:
        line.add(pid)
        fields = stat_fields(pid)
        pid = int(fields[1]) if fields else 0
    return line


def kill_jobs(state: Path, node: str = "") -> None:
    """SIGKILL all processes of jobs, until none is left."""
    until_s = monotonic() + STEPS_END_WITHIN_S
    while (pids := job_processes(state, node)) and monotonic() < until_s:
        for pid in pids:
            send(pid, signal.SIGKILL)
        sleep(0.01)


def unmount(state: Path) -> None:
    """Unmount the disks that a test has mounted in the folder of a private Slurm."""
    for line in Path("/proc/mounts").read_text().splitlines():
        place = line.split()[1]
        if place.startswith(f"{state}/"):
            subprocess.run(["umount", "--lazy", place], check=False)


def end_all(state: Path) -> None:
    """End every process of a private Slurm: daemons, steps, and at last the one that signs."""
    notes = sorted((state / "run").glob("*.started"))
    daemons = [path for path in notes if path.stem != "munged"]
    end([pid for path in daemons if (pid := noted_pid(path))], DAEMONS_END_WITHIN_S)
    end([pid for path in notes if (pid := noted_pid(path))], DAEMONS_END_WITHIN_S)
    kill_jobs(state)


if __name__ == "__main__":
    # Ctrl-C reaches the whole group; this process must outlive the one that it cleans up after.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = Path(sys.argv[1])
    sys.stdin.buffer.read()
    end_all(folder)
    unmount(folder)
    shutil.rmtree(folder, ignore_errors=True)
