"""The processes of a run: marked when they start, so that they can be found and ended later.

A member leads a session of its own, and writes it to FOLDER/members/NAME before its script begins.
What the member starts has at least one of these marks, so that neither a lost parent nor `setsid`,
`nohup` or a double fork hides it:

- it descends from the agent, which adopts orphans, or from another process of the run;
- its environment says ROTA_RUN=FOLDER;
- it belongs to the session of a member;
- it maps FOLDER/members/NAME into memory, as forked members do, whose /proc environment is that
  of the fork server;
- its standard output or error is a file in FOLDER.

A process is identified by its number and its start time, since numbers are reused.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from rota.elastic.protocol import AGENT_FILE, ENV_MEMBER, JOB_FILE, LOCK_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable

ENV_RUN: Final = "ROTA_RUN"
"""Environment variable: folder of the run that a process belongs to."""
MEMBERS: Final = "members"
END_S: Final = 5.0
"""Seconds for killed processes to end; one that waits for a device may take longer."""
_LEAVE_S: Final = 1.0
"""Seconds for an agent to end by itself."""
_LOOK_S: Final = 0.1
_mapped: list[mmap.mmap] = []  # kept until this process ends


@dataclass(frozen=True)
class Process:
    """A process, told from later ones of the same number by its start time."""

    pid: int
    parent: int
    session: int
    started: int
    """When it started, in clock ticks since the machine booted."""

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this number now; None if it has ended, reaped or not."""
        try:
            facts = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        if len(facts) < 20 or facts[0] in (b"Z", b"X"):
            return None
        return cls(pid, int(facts[1]), int(facts[3]), int(facts[19]))

    def kill(self) -> int | None:
        """Kill it; a file descriptor that is readable once it has ended, None if it has."""
        try:
            watch = os.pidfd_open(self.pid)
        except OSError:
            return None
        now = Process.of(self.pid)  # from here on the descriptor refers to this process alone
        if now is None or now.started != self.started:
            os.close(watch)
            return None
        with suppress(OSError):
            signal.pidfd_send_signal(watch, signal.SIGKILL)
        return watch


def register_member(folder: Path, name: str, *, forked: bool = False) -> None:
    """Record that this process leads the session of a member.

    A `forked` process has the /proc environment of the fork server; it maps its record into memory
    as a mark, which processes that it forks inherit.
    """
    path, own = folder / MEMBERS / name, Process.of(os.getpid())
    how = "forked" if forked else "spawned"
    with suppress(OSError, ValueError):  # on a full disk the other marks will do
        path.write_text(f"{os.getpid()} {own.started if own else 0} {_boot()} {how}\n")
        if forked:
            with path.open("rb") as file:
                _mapped.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


def unregister_member(folder: Path, name: str) -> None:
    """Remove the record of a member that has ended, with all processes of its session."""
    with suppress(OSError):
        (folder / MEMBERS / name).unlink(missing_ok=True)


def end_processes(*folders: Path, patience_s: float = END_S) -> list[int]:
    """Kill all processes of these runs; returns those that still run, normally none."""
    for folder in folders:
        if not (folder / AGENT_FILE).exists():
            # An agent that starts late must find no job.
            with suppress(OSError):
                (folder / JOB_FILE).unlink(missing_ok=True)
    leave_s, until_s = monotonic() + _LEAVE_S, monotonic() + patience_s
    while (left := processes_of(*folders)) and monotonic() < until_s:
        waits = monotonic() < leave_s and any(map(agent_of, folders))
        _wait_for(watch for one in left if not waits and (watch := one.kill()) is not None)
        if waits:
            select.select([], [], [], _LOOK_S / 5)
    return sorted(one.pid for one in left)


def processes_of(*folders: Path) -> list[Process]:
    """All processes of these runs, except this process."""
    there, found = _processes(), set[int]()
    for folder in (folder.resolve() for folder in folders):  # as the kernel names it
        found |= there.keys() & {agent_of(folder)}
        sessions, forked = _sessions(folder)
        found |= {pid for pid, one in there.items() if one.session in sessions}
        found |= {pid for pid in there.keys() - found if _is_marked(pid, folder, forked)}
    return [there[pid] for pid in sorted(_with_descendants(found, there))]


def agent_of(folder: Path) -> int:
    """Process id of a run's agent, which holds its lock; 0 if there is none."""
    try:
        facts = (folder / LOCK_FILE).stat()
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return 0
    place = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    for line in locks:
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[3] == "WRITE" and words[5] == place:
            return max(0, int(words[4]))
    return 0


def orphans(known: Iterable[int]) -> list[int]:
    """Children of this process except the `known` ones."""
    own = os.getpid()
    try:
        told = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        children = {int(word) for word in told}
    except OSError:  # this kernel does not list children
        children = {pid for pid, one in _processes().items() if one.parent == own}
    return sorted(children - set(known))


def member_of(pid: int, folder: Path) -> str:
    """The name of the member that started a process; empty if it has no mark."""
    about = _environ(pid)
    folder = folder.resolve()
    if _names(folder) in about:
        lead = f"\0{ENV_MEMBER}=".encode()
        return about.partition(lead)[2].partition(b"\0")[0].decode(errors="replace")
    return _mapped_by(pid, folder)


def with_descendants(pids: Iterable[int]) -> list[Process]:
    """Those of these processes that still run, and all their descendants."""
    if not (named := set(pids)):
        return []  # listing all processes takes milliseconds
    there = _processes()
    found = named & there.keys()
    return [there[pid] for pid in sorted(_with_descendants(found, there))]


def kill_all(processes: Iterable[Process]) -> None:
    """Kill processes, and wait up to `_LOOK_S` for their end."""
    _wait_for(watch for one in processes if (watch := one.kill()) is not None)


def _wait_for(watches: Iterable[int]) -> None:
    """Wait until all these have ended, `_LOOK_S` at most."""
    left, until_s = set(watches), monotonic() + _LOOK_S
    poll = select.poll()
    for watch in left:
        poll.register(watch, select.POLLIN)
    while left and (rest_s := until_s - monotonic()) > 0:
        for watch, _ in poll.poll(rest_s * 1000):
            poll.unregister(watch)
            os.close(watch)
            left.discard(watch)
    for watch in left:
        os.close(watch)


def _processes() -> dict[int, Process]:
    """All processes of this user, except this process."""
    own, user, found = os.getpid(), os.getuid(), {}
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdecimal() or int(entry.name) == own:
                continue
            with suppress(OSError):
                if entry.stat().st_uid == user and (one := Process.of(int(entry.name))):
                    found[one.pid] = one
    return found


def _with_descendants(found: set[int], there: dict[int, Process]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, one in there.items():
        children.setdefault(one.parent, []).append(pid)
    found, todo = set(found), list(found)
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(new)
        todo.extend(new)
    return found


def _sessions(folder: Path) -> tuple[set[int], bool]:
    """Sessions of members whose records remain, and whether any of them was forked."""
    found, any_forked, boot = set(), False, _boot()
    for path in (folder / MEMBERS).glob("*"):
        with suppress(OSError, ValueError):
            session, started, since, how = path.read_text().split()
            leader = Process.of(int(session))
            any_forked |= how == "forked"
            if since == boot and (leader is None or leader.started == int(started)):
                found.add(int(session))
    return found, any_forked


def _is_marked(pid: int, folder: Path, forked: bool) -> bool:
    if _names(folder) in _environ(pid) or (forked and _mapped_by(pid, folder)):
        return True
    lead = f"{folder}/"
    for number in (1, 2):
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{number}").startswith(lead):
                return True
    return False


def _names(folder: Path) -> bytes:
    return f"\0{ENV_RUN}={folder}\0".encode(errors="surrogateescape")


def _environ(pid: int) -> bytes:
    try:
        return b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return b""


def _mapped_by(pid: int, folder: Path) -> str:
    """The name of the member whose record a process maps into memory; empty if none."""
    lead = f" {folder / MEMBERS}/".encode(errors="surrogateescape")
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_bytes().splitlines():
            if lead in line:
                name = line.partition(lead)[2].removesuffix(b" (deleted)")
                return name.decode(errors="replace")
    return ""


def _boot() -> str:
    """Id of the present boot of the machine; records of another boot are out of date."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"
