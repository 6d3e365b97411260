"""A group of workers that reduce gradients together: built beside the old one, cut at once.

A process group of torch that is not the default one, so that two can exist at a time. The code is
the same for gloo (CPU) and NCCL (CUDA).
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed

from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence


dist: Any = torch.distributed
"""Its type stubs know only half of it."""


_QUIET_S: Final = 1.0
"""Between the end of a group's work and its end."""


class Meeting:
    """Where others find this member to form a group: a store that lives as long as it does."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
        self.port = self._store.port

    def store(self, host: str, port: int, limit_s: float) -> Any:
        """The store of whoever leads a group."""
        if (host, port) == (self.host, self.port):
            return self._store
        limit = timedelta(seconds=limit_s)
        return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)


class Circle:
    """Workers that have connected with one another."""

    def __init__(
        self,
        meeting: Meeting,
        leader: tuple[str, int],
        number: int,
        rank: int,
        size: int,
        *,
        device: torch.device,
        connect_s: float,
        step_s: float,
    ) -> None:
        self.number, self.rank, self.size = number, rank, size
        self.group: Any = None
        self._ports: set[int] = set()
        self._own_port = 0
        if size == 1:
            return
        store = dist.PrefixStore(f"g{number}", meeting.store(*leader, connect_s))
        store.set_timeout(timedelta(seconds=connect_s))
        try:
            if device.type == "cuda":
                self._connect_nccl(store, step_s)
            else:
                self._connect_gloo(store, meeting.host, connect_s, step_s)
        except RuntimeError as error:
            raise JobError(first_line(error)) from None

    def _connect_gloo(self, store: Any, host: str, connect_s: float, step_s: float) -> None:
        before = _listening()
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        options._timeout, options._threads = timedelta(seconds=connect_s), 2
        opened = _listening() - before
        backend = dist.ProcessGroupGloo(store, self.rank, self.size, options)
        backend._set_default_timeout(timedelta(seconds=step_s))
        if len(opened) == 1:
            self._own_port = opened.pop()
            store.set(f"port{self.rank}", str(self._own_port))
            keys = [f"port{rank}" for rank in range(self.size)]
            self._ports = {int(store.get(key)) for key in keys}
        self._register(store, backend, "gloo", torch.device("cpu"))

    def _connect_nccl(self, store: Any, step_s: float) -> None:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=step_s)
        backend = dist.ProcessGroupNCCL(store, self.rank, self.size, options)
        self._register(store, backend, "nccl", torch.device("cuda"))

    def _register(self, store: Any, backend: Any, name: str, device: torch.device) -> None:
        kind = getattr(dist.ProcessGroup.BackendType, name.upper())
        self.group = dist.ProcessGroup(store, self.rank, self.size)
        self.group._set_default_backend(kind)
        self.group._register_backend(device, kind, backend)

    def cut(self) -> None:
        """Let every call that waits in this group fail at once, here and at the others.

        gloo cannot be interrupted, but its connections can: they are those of the port that
        it listens at and those to the ports that the others listen at.
        """
        if self.group is None:
            return
        with suppress(RuntimeError):
            self.group.abort()
        for number in _sockets():
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as link:
                mine, theirs = link.getsockname(), link.getpeername()
                if mine[1] == self._own_port or theirs[1] in self._ports:
                    link.shutdown(socket.SHUT_RDWR)

    def close(self, *, lost: bool = False) -> None:
        """Leave the group: behind the caller's back, since it takes some milliseconds."""
        if lost:
            self.cut()
        group, self.group = self.group, None
        if group is not None:
            dispose(group)


def dispose(group: Any) -> None:
    """Close a group behind the caller's back; the caller must drop it, too."""
    # Not a daemon: torch aborts a process that ends while one of its groups is closing.
    threading.Thread(target=_dispose, args=([group],)).start()


def _dispose(held: list[Any]) -> None:
    with suppress(RuntimeError):
        held[0].shutdown()
    # To drop a group is to wait, with Python's lock in hand, for its threads; and these may want
    # the lock to drop their last tensors. Here they have time to.
    sleep(_QUIET_S)
    held.clear()


def is_loss(error: BaseException) -> bool:
    """Whether an error says that the others do not answer, and not that the script is wrong."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in text or "nccl" in text


def _sockets() -> Sequence[int]:
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):
                found.append(int(entry))
    return found


def _listening() -> set[int]:
    """Ports at which this process listens."""
    ports = set()
    for number in _sockets():
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as link:
            if link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(link.getsockname()[1])
    return ports


def first_line(error: BaseException) -> str:
    """What an error says, without the trace of the library that raised it."""
    return str(error).strip().splitlines()[0][:200]
