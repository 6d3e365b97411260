"""Connections without the token: they send anything, or nothing, slowly, thousands of times."""

from __future__ import annotations

import json
import os
import resource
import secrets
import selectors
import socket
import sys
import threading
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest
from children import PATIENCE_S, eventually
from elastic_jobs import trial

from rota.elastic import Member, handshake
from rota.elastic.handshake import MOST_PENDING, Authenticator, new_token, open_connection
from rota.elastic.listener import MemberListener
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = new_token()
SLEEPER = (sys.executable, "-c", "import time; time.sleep(3600)")


class Server:
    """An authenticator with a thread that drives it."""

    def __init__(self, length: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=handshake.BACKLOG)
        self.where = self.listener.getsockname()
        self.selector = selectors.DefaultSelector()
        self.passed: list[tuple[socket.socket, bytes]] = []
        self.authenticator = Authenticator(
            self.listener, TOKEN, self.selector, self.accepted, length
        )
        self.over = False
        self.thread = threading.Thread(target=self.drive)
        self.thread.start()

    def accepted(self, link: socket.socket, what: bytes) -> None:
        self.passed.append((link, what))

    def drive(self) -> None:
        while not self.over:
            for key, _ in self.selector.select(self.authenticator.wait_s(0.01)):
                key.data()
            self.authenticator.tick()

    def close(self) -> None:
        self.over = True
        self.thread.join()
        self.authenticator.close()
        for link, _ in self.passed:
            link.close()
        self.listener.close()


@contextmanager
def server(length: int = 0) -> Iterator[Server]:
    made = Server(length)
    try:
        yield made
    finally:
        made.close()


def intruder(where: tuple[str, int], said: bytes = b"") -> socket.socket:
    link = socket.create_connection(where, PATIENCE_S)
    with suppress(OSError):
        link.sendall(said)
    return link


def is_closed(link: socket.socket) -> bool:
    """Wait until the other side has closed the connection; False if it sent something."""
    link.settimeout(PATIENCE_S)
    with suppress(ConnectionError):
        return link.recv(1) == b""
    return True


def test_a_connection_with_the_token_is_accepted_with_its_purpose() -> None:
    with (
        server(length=5) as served,
        open_connection(served.where, TOKEN, PATIENCE_S, b"state") as link,
    ):
        eventually(lambda: served.passed)
        inside, what = served.passed[0]
        assert what == b"state"
        link.sendall(b"more")
        inside.setblocking(True)
        assert inside.recv(9) == b"more"


@pytest.mark.parametrize("said", [b"[" * 100_000, b"\0" * 48, b"GET / HTTP/1.1\r\n\r\n" * 9])
def test_a_connection_without_the_token_is_closed_unread(said: bytes) -> None:
    with server() as served:
        with intruder(served.where, said) as link:
            assert is_closed(link)
        with pytest.raises(OSError, match="is the token right"):
            open_connection(served.where, new_token(), PATIENCE_S)
        assert served.passed == []


def test_a_recorded_handshake_is_not_valid_elsewhere_or_for_another_purpose() -> None:
    with server(length=5) as served, server(length=5) as other:
        with socket.create_server(("127.0.0.1", 0)) as fake:
            caller = threading.Thread(target=lambda: attempt(fake.getsockname()))
            caller.start()
            with fake.accept()[0] as link:
                heard = link.recv(1000)
            caller.join()
        for where, said in (
            (served.where, heard),
            (other.where, heard),
            (other.where, heard[:16] + b"other" + heard[21:]),
        ):
            with intruder(where, said) as link:
                assert is_closed(link)
        assert TOKEN.encode() not in heard
        assert (served.passed, other.passed) == ([], [])


def attempt(where: tuple[str, int]) -> None:
    with suppress(OSError):
        open_connection(where, TOKEN, 0.5, b"state").close()


def test_a_listener_without_the_token_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as fake:

        def answer() -> None:
            with fake.accept()[0] as link:
                link.recv(1000)
                link.sendall(secrets.token_bytes(32))
                link.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(JobError, match="does not belong to this job"):
            open_connection(fake.getsockname(), TOKEN, PATIENCE_S)
        thread.join()


def test_a_connection_has_one_deadline_however_slowly_it_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.6)
    with server() as served, intruder(served.where) as link:
        began_s, sent = monotonic(), 0
        with suppress(OSError):
            while sent < 47 and monotonic() - began_s < PATIENCE_S:
                link.send(b"x")
                sent += 1
                sleep(0.05)
        assert is_closed(link)
        assert sent < 47
        open_connection(served.where, TOKEN, PATIENCE_S).close()


def test_few_silent_connections_are_kept_and_those_with_the_token_are_accepted() -> None:
    with server() as served, ExitStack() as opened:
        links = [opened.enter_context(intruder(served.where)) for _ in range(300)]
        open_connection(served.where, TOKEN, PATIENCE_S).close()
        eventually(lambda: served.authenticator.rejected >= len(links) - MOST_PENDING)
        assert is_closed(links[0])
        open_connection(served.where, TOKEN, PATIENCE_S).close()


def test_when_no_more_files_can_be_opened_it_accepts_later() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with server() as served, ExitStack() as held:
        open_connection(served.where, TOKEN, PATIENCE_S).close()
        eventually(lambda: served.passed)
        waiting = socket.socket()
        held.enter_context(waiting)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), hard))
            held.enter_context(ExitStack())
            fill: list[int] = []
            with suppress(OSError):
                while True:
                    fill.append(os.dup(0))
            waiting.settimeout(PATIENCE_S)
            waiting.connect(served.where)  # into the backlog; it cannot be accepted
            eventually(lambda: served.authenticator.trouble)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in fill:
                os.close(number)
        open_connection(served.where, TOKEN, PATIENCE_S).close()
        eventually(lambda: not served.authenticator.trouble)


# The same with real jobs.


def test_a_member_is_accepted_among_many_without_the_token() -> None:
    listeners = [MemberListener("127.0.0.1", TOKEN) for _ in range(2)]
    where = ("127.0.0.1", listeners[0].port)
    with ExitStack() as opened:
        for said in (b"[" * 100_000, b"x", b"{" * 1000 + b"\n", b""):
            for _ in range(100):
                opened.enter_context(intruder(where, said))
        link = listeners[1].connect("state", 7, "b", where, PATIENCE_S)
        accepted = listeners[0].accept("state", 7, "b", PATIENCE_S)
        accepted.sendall(b"here")
        assert link.recv(9) == b"here"
        link.close()
        accepted.close()
    for listener in listeners:
        listener.close()


def test_an_attempt_to_connect_ends_when_it_is_cancelled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listener = MemberListener("127.0.0.1", TOKEN)
        threading.Timer(0.2, listener.cancel).start()
        with pytest.raises(JobError, match="cancelled"):
            listener.connect("state", 1, "b", silent.getsockname(), PATIENCE_S)
        listener.close()


def test_connections_without_the_token_cannot_end_an_agent(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], command=SLEEPER) as run, ExitStack() as opened:
        address = json.loads(run.text("agent.json"))
        where = (address["host"], address["port"])
        for said in (b"[" * 100_000 + b"\n", b"[" * 1000 + b"\n", b'{"op": "observe"}\n'):
            with intruder(where, said) as link:
                assert is_closed(link)
        for _ in range(1100):
            link = intruder(where)
            link.close() if len(os.listdir("/proc/self/fd")) > 700 else opened.enter_context(link)
        assert run.job.observe().state == "starting"
        files = len(os.listdir(f"/proc/{address['pid']}/fd"))
        assert files < MOST_PENDING + 40
        assert address["token"] not in run.text()
        for pid in (address["pid"], run.pid("a")):
            with open(f"/proc/{pid}/cmdline") as words:
                assert address["token"] not in words.read()


def listeners_of(pid: int) -> set[tuple[str, int]]:
    """Addresses, as the kernel writes them, and ports at which a process listens."""
    inodes = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{entry}"))
    found: set[tuple[str, int]] = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}") as rows:
            for row in list(rows)[1:]:
                parts = row.split()
                if parts[3] == "0A" and f"socket:[{parts[9]}]" in inodes:
                    host, _, port = parts[1].rpartition(":")
                    found.add((host, int(port, 16)))
    return found


@pytest.mark.parametrize("mode", ["allreduce", "servers"])
def test_floods_at_every_port_neither_stop_nor_spoil_a_training(tmp_path: Path, mode: str) -> None:
    team = [Member("s", "server")] if mode == "servers" else []
    first = [Member("a"), Member("b"), *team]
    with (
        trial(tmp_path, first, mode=mode, epochs=10**6, pace_s=0.005) as run,
        ExitStack() as opened,
    ):
        run.members([member.name for member in first])
        processes = [json.loads(run.text("agent.json"))["pid"]]
        processes += [run.pid(member.name) for member in first]
        listeners = {listener for pid in processes for listener in listeners_of(pid)}
        assert {host for host, _ in listeners} == {"0100007F"}  # 127.0.0.1, and nowhere else
        for _, port in sorted(listeners):
            for said in (b"[" * 100_000, b"x", b""):
                for _ in range(1100 if said == b"" else 30):
                    link = socket.socket()
                    link.setblocking(False)
                    link.connect_ex(("127.0.0.1", port))
                    with suppress(OSError):
                        link.send(said)
                    full = len(os.listdir("/proc/self/fd")) > 700
                    link.close() if full else opened.enter_context(link)
        run.until(run.job.observe().step + 20)
        run.job.resize([*first, Member("c")])
        assert len(run.job.settle(PATIENCE_S).active) == len(first) + 1
        run.job.resize([*team, Member("c")])
        assert set(run.job.settle(PATIENCE_S).active) == {"c", *(m.name for m in team)}
        run.until(run.job.observe().step + 20)
        assert run.job.observe().refused == {}
