"""Strangers at the doors of a job: they say anything, or nothing, slowly, thousands of times."""

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

from rota.elastic import Member, greeting
from rota.elastic.greeting import MOST_STRANGERS, Entrance, call_on, new_token
from rota.elastic.transfer import Door
from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = new_token()
SLEEPER = (sys.executable, "-c", "import time; time.sleep(3600)")


class House:
    """An entrance with a thread that minds it."""

    def __init__(self, length: int = 0) -> None:
        self.door = socket.create_server(("127.0.0.1", 0), backlog=greeting.BACKLOG)
        self.where = self.door.getsockname()
        self.selector = selectors.DefaultSelector()
        self.guests: list[tuple[socket.socket, bytes]] = []
        self.entrance = Entrance(self.door, TOKEN, self.selector, self.welcome, length)
        self.over = False
        self.thread = threading.Thread(target=self.mind)
        self.thread.start()

    def welcome(self, link: socket.socket, what: bytes) -> None:
        self.guests.append((link, what))

    def mind(self) -> None:
        while not self.over:
            for key, _ in self.selector.select(self.entrance.wait_s(0.01)):
                key.data()
            self.entrance.tick()

    def close(self) -> None:
        self.over = True
        self.thread.join()
        self.entrance.close()
        for link, _ in self.guests:
            link.close()
        self.door.close()


@contextmanager
def house(length: int = 0) -> Iterator[House]:
    made = House(length)
    try:
        yield made
    finally:
        made.close()


def stranger(where: tuple[str, int], said: bytes = b"") -> socket.socket:
    link = socket.create_connection(where, PATIENCE_S)
    with suppress(OSError):
        link.sendall(said)
    return link


def is_closed(link: socket.socket) -> bool:
    """Whether the other side has hung up; waits for it."""
    link.settimeout(PATIENCE_S)
    with suppress(ConnectionError):
        return link.recv(1) == b""
    return True


def test_who_knows_the_token_comes_in_with_what_it_wants() -> None:
    with house(length=5) as home, call_on(home.where, TOKEN, PATIENCE_S, b"state") as link:
        eventually(lambda: home.guests)
        inside, what = home.guests[0]
        assert what == b"state"
        link.sendall(b"more")
        inside.setblocking(True)
        assert inside.recv(9) == b"more"


@pytest.mark.parametrize("said", [b"[" * 100_000, b"\0" * 48, b"GET / HTTP/1.1\r\n\r\n" * 9])
def test_who_does_not_know_it_is_sent_away_unheard(said: bytes) -> None:
    with house() as home:
        with stranger(home.where, said) as link:
            assert is_closed(link)
        with pytest.raises(OSError, match="is the token right"):
            call_on(home.where, new_token(), PATIENCE_S)
        assert home.guests == []


def test_a_greeting_opens_no_other_door_and_not_without_what_was_said() -> None:
    with house(length=5) as home, house(length=5) as other:
        with socket.create_server(("127.0.0.1", 0)) as fake:
            caller = threading.Thread(target=lambda: knock(fake.getsockname()))
            caller.start()
            with fake.accept()[0] as link:
                heard = link.recv(1000)
            caller.join()
        for where, said in (
            (home.where, heard),
            (other.where, heard),
            (other.where, heard[:16] + b"other" + heard[21:]),
        ):
            with stranger(where, said) as link:
                assert is_closed(link)
        assert TOKEN.encode() not in heard
        assert (home.guests, other.guests) == ([], [])


def knock(where: tuple[str, int]) -> None:
    with suppress(OSError):
        call_on(where, TOKEN, 0.5, b"state").close()


def test_who_listens_without_the_token_is_found_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as fake:

        def answer() -> None:
            with fake.accept()[0] as link:
                link.recv(1000)
                link.sendall(secrets.token_bytes(32))
                link.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(JobError, match="is not of this job"):
            call_on(fake.getsockname(), TOKEN, PATIENCE_S)
        thread.join()


def test_a_stranger_has_one_deadline_however_it_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "HELLO_S", 0.6)
    with house() as home, stranger(home.where) as link:
        began_s, sent = monotonic(), 0
        with suppress(OSError):
            while sent < 47 and monotonic() - began_s < PATIENCE_S:
                link.send(b"x")
                sent += 1
                sleep(0.05)
        assert is_closed(link)
        assert sent < 47
        call_on(home.where, TOKEN, PATIENCE_S).close()


def test_silent_strangers_are_few_at_a_time_and_friends_come_in() -> None:
    with house() as home, ExitStack() as crowd:
        links = [crowd.enter_context(stranger(home.where)) for _ in range(300)]
        call_on(home.where, TOKEN, PATIENCE_S).close()
        eventually(lambda: home.entrance.turned_away >= len(links) - MOST_STRANGERS)
        assert is_closed(links[0])
        call_on(home.where, TOKEN, PATIENCE_S).close()


def test_when_no_more_files_can_be_opened_it_accepts_later() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with house() as home, ExitStack() as held:
        call_on(home.where, TOKEN, PATIENCE_S).close()
        eventually(lambda: home.guests)
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
            waiting.connect(home.where)  # into the backlog; nobody can accept it
            eventually(lambda: home.entrance.trouble)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in fill:
                os.close(number)
        call_on(home.where, TOKEN, PATIENCE_S).close()
        eventually(lambda: not home.entrance.trouble)


# The same at the doors of real jobs.


def test_a_member_is_let_in_among_strangers() -> None:
    doors = [Door("127.0.0.1", TOKEN) for _ in range(2)]
    where = ("127.0.0.1", doors[0].port)
    with ExitStack() as crowd:
        for said in (b"[" * 100_000, b"x", b"{" * 1000 + b"\n", b""):
            for _ in range(100):
                crowd.enter_context(stranger(where, said))
        link = doors[1].visit("state", 7, "b", where, PATIENCE_S)
        guest = doors[0].guest("state", 7, "b", PATIENCE_S)
        guest.sendall(b"here")
        assert link.recv(9) == b"here"
        link.close()
        guest.close()
    for door in doors:
        door.close()


def test_a_visit_ends_when_the_door_is_shut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        door = Door("127.0.0.1", TOKEN)
        threading.Timer(0.2, door.shut).start()
        with pytest.raises(JobError, match="called off"):
            door.visit("state", 1, "b", silent.getsockname(), PATIENCE_S)
        door.close()


def test_strangers_cannot_end_an_agent(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], command=SLEEPER) as run, ExitStack() as crowd:
        address = json.loads(run.text("agent.json"))
        where = (address["host"], address["port"])
        for said in (b"[" * 100_000 + b"\n", b"[" * 1000 + b"\n", b'{"op": "observe"}\n'):
            with stranger(where, said) as link:
                assert is_closed(link)
        for _ in range(1100):
            link = stranger(where)
            link.close() if len(os.listdir("/proc/self/fd")) > 700 else crowd.enter_context(link)
        assert run.job.observe().state == "starting"
        files = len(os.listdir(f"/proc/{address['pid']}/fd"))
        assert files < MOST_STRANGERS + 40
        assert address["token"] not in run.text()
        for pid in (address["pid"], run.pid("a")):
            with open(f"/proc/{pid}/cmdline") as words:
                assert address["token"] not in words.read()


def doors_of(pid: int) -> set[tuple[str, int]]:
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
def test_strangers_at_every_port_neither_stop_nor_spoil_a_training(
    tmp_path: Path, mode: str
) -> None:
    team = [Member("s", "server")] if mode == "servers" else []
    first = [Member("a"), Member("b"), *team]
    with (
        trial(tmp_path, first, mode=mode, epochs=10**6, pace_s=0.005) as run,
        ExitStack() as crowd,
    ):
        run.members([member.name for member in first])
        processes = [json.loads(run.text("agent.json"))["pid"]]
        processes += [run.pid(member.name) for member in first]
        doors = {door for pid in processes for door in doors_of(pid)}
        assert {host for host, _ in doors} == {"0100007F"}  # 127.0.0.1, and nowhere else
        for _, port in sorted(doors):
            for said in (b"[" * 100_000, b"x", b""):
                for _ in range(1100 if said == b"" else 30):
                    link = socket.socket()
                    link.setblocking(False)
                    link.connect_ex(("127.0.0.1", port))
                    with suppress(OSError):
                        link.send(said)
                    full = len(os.listdir("/proc/self/fd")) > 700
                    link.close() if full else crowd.enter_context(link)
        run.until(run.job.observe().step + 20)
        run.job.resize([*first, Member("c")])
        assert len(run.job.settle(PATIENCE_S).active) == len(first) + 1
        run.job.resize([*team, Member("c")])
        assert set(run.job.settle(PATIENCE_S).active) == {"c", *(m.name for m in team)}
        run.until(run.job.observe().step + 20)
        assert run.job.observe().refused == {}
