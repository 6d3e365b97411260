"""The processes of a run: marked when they start, found again whatever they did, and ended.

A member leads a session of its own, and says so in FOLDER/members/NAME before its script begins.
What it starts is known by any of these marks, so that neither a lost parent nor `setsid`, `nohup`
or a double fork hides it:

- it descends from the agent, which adopts orphans, or from another process of the run;
- its environment says ROTA_RUN=FOLDER;
- it belongs to the session of a member;
- it maps FOLDER/members/NAME, as those do that were forked and have no environment of their own;
- it prints into FOLDER.

A process is known by its number and the time of its start: numbers are given again.
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
"""Folder of the run that a process belongs to."""
MEMBERS: Final = "members"
END_S: Final = 5.0
"""For killed processes to be gone; one that waits for a device may take longer."""
_LEAVE_S: Final = 1.0
"""For an agent to leave by itself."""
_LOOK_S: Final = 0.1
_mapped: list[mmap.mmap] = []  # as long as this process lives


@dataclass(frozen=True)
class Process:
    """A process, and never another one that got its number later."""

    pid: int
    parent: int
    session: int
    born: int
    """When it started, in clock ticks since the machine did."""

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this number now; None if it has ended, waited for or not."""
        try:
            facts = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        if len(facts) < 20 or facts[0] in (b"Z", b"X"):
            return None
        return cls(pid, int(facts[1]), int(facts[3]), int(facts[19]))

    def kill(self) -> int | None:
        """End it; a file descriptor that becomes readable when it has, or None if it has."""
        try:
            watch = os.pidfd_open(self.pid)
        except OSError:
            return None
        now = Process.of(self.pid)  # the descriptor holds on to whoever this is
        if now is None or now.born != self.born:
            os.close(watch)
            return None
        with suppress(OSError):
            signal.pidfd_send_signal(watch, signal.SIGKILL)
        return watch


def enlist(folder: Path, name: str, *, forked: bool = False) -> None:
    """Write down that this process leads the session of a member.

    A process that was `forked` has the environment of somebody else: it gets a mark in its memory,
    which all that it forks will have, too.
    """
    path, own = folder / MEMBERS / name, Process.of(os.getpid())
    how = "forked" if forked else "spawned"
    with suppress(OSError, ValueError):  # on a full disk the other marks will do
        path.write_text(f"{os.getpid()} {own.born if own else 0} {_boot()} {how}\n")
        if forked:
            with path.open("rb") as file:
                _mapped.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


def strike(folder: Path, name: str) -> None:
    """A member has ended, and its session with it."""
    with suppress(OSError):
        (folder / MEMBERS / name).unlink(missing_ok=True)


def end_remains(*folders: Path, patience_s: float = END_S) -> list[int]:
    """End whatever runs for these runs; the processes that are there still, as a rule none."""
    for folder in folders:
        if not (folder / AGENT_FILE).exists():
            # An agent that is late shall find nothing to do.
            with suppress(OSError):
                (folder / JOB_FILE).unlink(missing_ok=True)
    leave_s, until_s = monotonic() + _LEAVE_S, monotonic() + patience_s
    while (left := remains(*folders)) and monotonic() < until_s:
        waits = monotonic() < leave_s and any(map(agent_of, folders))
        _wait_for(watch for one in left if not waits and (watch := one.kill()) is not None)
        if waits:
            select.select([], [], [], _LOOK_S / 5)
    return sorted(one.pid for one in left)


def remains(*folders: Path) -> list[Process]:
    """All processes of these runs but this one."""
    there, found = _processes(), set[int]()
    for folder in (folder.resolve() for folder in folders):  # as the kernel calls it
        found |= there.keys() & {agent_of(folder)}
        sessions, forked = _sessions(folder)
        found |= {pid for pid, one in there.items() if one.session in sessions}
        found |= {pid for pid in there.keys() - found if _is_marked(pid, folder, forked)}
    return [there[pid] for pid in sorted(_with_offspring(found, there))]


def agent_of(folder: Path) -> int:
    """The process that holds the lock of a run's agent; 0 if nobody does."""
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
    """Children of this process that it has not started itself."""
    own = os.getpid()
    try:
        told = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        children = {int(word) for word in told}
    except OSError:  # a kernel without
        children = {pid for pid, one in _processes().items() if one.parent == own}
    return sorted(children - set(known))


def member_of(pid: int, folder: Path) -> str:
    """The name of the member that a process comes from, as far as it tells."""
    about = _environ(pid)
    folder = folder.resolve()
    if _names(folder) in about:
        lead = f"\0{ENV_MEMBER}=".encode()
        return about.partition(lead)[2].partition(b"\0")[0].decode(errors="replace")
    return _mapped_by(pid, folder)


def with_offspring(pids: Iterable[int]) -> list[Process]:
    """These processes and all that descend from them, as far as they are there."""
    if not (named := set(pids)):
        return []  # a look at all processes takes milliseconds
    there = _processes()
    found = named & there.keys()
    return [there[pid] for pid in sorted(_with_offspring(found, there))]


def kill_all(processes: Iterable[Process]) -> None:
    """End processes, and wait for a moment until they have."""
    _wait_for(watch for one in processes if (watch := one.kill()) is not None)


def _wait_for(watches: Iterable[int]) -> None:
    """Until all of these have ended, or a moment has passed."""
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
    """All processes of this user but this one."""
    own, user, found = os.getpid(), os.getuid(), {}
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdecimal() or int(entry.name) == own:
                continue
            with suppress(OSError):
                if entry.stat().st_uid == user and (one := Process.of(int(entry.name))):
                    found[one.pid] = one
    return found


def _with_offspring(found: set[int], there: dict[int, Process]) -> set[int]:
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
    """Sessions of members that nobody has seen end, and whether some were forked."""
    found, any_forked, boot = set(), False, _boot()
    for path in (folder / MEMBERS).glob("*"):
        with suppress(OSError, ValueError):
            session, born, since, how = path.read_text().split()
            leader = Process.of(int(session))
            any_forked |= how == "forked"
            if since == boot and (leader is None or leader.born == int(born)):
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
    """The name of the member whose mark is in the memory of a process, or nothing."""
    lead = f" {folder / MEMBERS}/".encode(errors="surrogateescape")
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_bytes().splitlines():
            if lead in line:
                name = line.partition(lead)[2].removesuffix(b" (deleted)")
                return name.decode(errors="replace")
    return ""


def _boot() -> str:
    """Tells one start of the machine from another: then all processes are others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"
