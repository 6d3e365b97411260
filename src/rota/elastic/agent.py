"""The agent of one job: a process that starts its members, listens to them and to the scheduler.

    python -m rota.elastic.agent FOLDER             stays in the foreground
    python -m rota.elastic.agent --detach FOLDER    returns when the agent listens

One thread, one selector; it imports no torch, so it is small and starts at once.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import selectors
import signal
import socket
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic, strftime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rota.elastic.coordinator import Coordinator
from rota.elastic.files import read_file, replace_file, reserve_file
from rota.elastic.greeting import BACKLOG, Entrance, new_token
from rota.elastic.messages import check_message, read_hello
from rota.elastic.nursery import close_others
from rota.elastic.peer import Peer
from rota.elastic.plain import Plain
from rota.elastic.processes import Processes
from rota.elastic.protocol import (
    AGENT_FILE,
    AGENT_LOG,
    ENV_AGENT,
    ENV_HOST,
    ENV_TOKEN,
    JOB_FILE,
    LOCK_FILE,
    PROTOCOL,
    RESULT_FILE,
    Address,
    JobSpec,
    decode_line,
    decode_members,
)
from rota.errors import ConfigError, JobError, RotaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.elastic.desk import Mind

TICK_S: Final = 0.1
_HUNG_UP_S: Final = 2.0
"""For a process that has hung up to end."""
_BACKLOG: Final = 1 << 24
"""Bytes that wait for a peer which does not read; then it is cut off."""
_TELL_S: Final = 60.0
"""Between two lines in the log about strangers."""


class Agent:
    """Carries out what its head orders."""

    def __init__(self, folder: Path, spec: JobSpec, door: socket.socket, token: str) -> None:
        self.folder = folder
        self.log = (folder / AGENT_LOG).open("a", buffering=1, errors="backslashreplace")
        host, port = door.getsockname()[:2]
        self.spec, self.selector = spec, selectors.DefaultSelector()
        env = {ENV_AGENT: f"{host}:{port}", ENV_TOKEN: token, ENV_HOST: spec.bind}
        self.processes = Processes(folder, spec, env, self.selector, self._began, self._ended)
        self.entrance = Entrance(door, token, self.selector, self._welcome)
        self._told_s, self._told = -_TELL_S, 0
        self.members: dict[str, Peer] = {}
        self.mind: Mind = (Plain if spec.mode == "plain" else Coordinator)(spec, monotonic())

    def run(self) -> None:
        """Until the job is over."""
        while self.mind.result is None:
            self._obey()
            for key, _ in self.selector.select(self.entrance.wait_s(TICK_S)):
                key.data()
            self.entrance.tick()
            self._tell_of_strangers()
            self.mind.tick(monotonic())
            self.processes.bury()
            for name in self.processes.kill_due():
                self._say(f"killed {name}")
        self._obey()
        self._say(f"over: {self.mind.result}")
        replace_file(self.folder / RESULT_FILE, asdict(self.mind.result))

    def close(self) -> None:
        """Leave no process and no connection behind."""
        self.processes.kill_all()
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()
        self.log.close()

    def _obey(self) -> None:
        orders = self.mind.desk.orders
        while orders:
            order = orders.popleft()
            if order.do == "send":
                if peer := self.members.get(order.name):
                    self._write(peer, order.message)
            elif order.do == "start":
                self.processes.start(self.mind.desk.roster[order.name].member)
            elif order.do == "end":
                self.processes.end(order.name, order.after_s)
            elif not self.processes.doom(order.name, order.after_s):
                self._cut_off(order.name, order.after_s)
            if order.message.get("op") not in (None, "welcome"):
                self._say(f"{order.name} ← {order.message}")

    def _cut_off(self, name: str, after_s: float) -> None:
        """All that can be done to a member of another host."""
        peer = self.members.get(name)
        if peer and after_s == 0:
            self._hang_up(peer)

    def _began(self, name: str, pid: int) -> None:
        self._say(f"started {name} as process {pid}")
        if not self.mind.desk.roster[name].living:  # not wanted any more
            self.processes.doom(name, 0.0)

    def _ended(self, name: str, why: str) -> None:
        self._say(f"{name} ended: {why or 'all went well'}")
        if peer := self.members.get(name):
            # Its last words may tell more than its exit code.
            self._serve(peer)
        self.mind.lose(name, why, monotonic())

    def _welcome(self, link: socket.socket, _: bytes) -> None:
        """Listen to somebody who knows the token."""
        peer = Peer(link)
        self.selector.register(link, selectors.EVENT_READ, lambda: self._serve(peer))

    def _tell_of_strangers(self) -> None:
        """Now and then, whether somebody knocks who should not."""
        away, now_s = self.entrance.turned_away, monotonic()
        if now_s - self._told_s < _TELL_S or (away == self._told and not self.entrance.trouble):
            return
        if away > self._told:
            self._say(f"closed {away - self._told} connections that did not prove to be ours")
        if self.entrance.trouble:
            self._say(f"cannot accept connections: {self.entrance.trouble}")
        self._told_s, self._told = now_s, away

    def _serve(self, peer: Peer) -> None:
        if peer.link.fileno() < 0:
            return  # hung up while its event waited
        if peer.outbox:
            self._write(peer)
        lines = peer.read()
        for line in lines or ():
            answer = self._answer(peer, line)
            if answer is not None:
                self._write(peer, answer)
                if not peer.known:
                    lines = None
        if lines is None:
            self._hang_up(peer)

    def _answer(self, peer: Peer, line: bytes) -> dict[str, Any] | None:
        """Whatever somebody says, it is not the end of the agent."""
        try:
            return self._take(peer, decode_line(line))
        except RotaError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            if not isinstance(error, KeyError | TypeError | ValueError):
                self._say(traceback.format_exc())
            return {"ok": False, "error": f"{line[:80]!r} is not understood: {error!r:.200}."}

    def _write(self, peer: Peer, message: dict[str, Any] | None = None) -> None:
        """Send, and come back when the peer takes more."""
        peer.write(message) if message else peer.flush()
        if len(peer.outbox) > _BACKLOG:
            self._hang_up(peer)
        elif peer.link.fileno() >= 0:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.outbox else 0)
            self.selector.modify(peer.link, events, lambda: self._serve(peer))

    def _hang_up(self, peer: Peer) -> None:
        if peer.link.fileno() < 0:
            return
        self.selector.unregister(peer.link)
        peer.link.close()
        if self.members.get(peer.member) is peer:
            del self.members[peer.member]
            if not self.processes.runs(peer.member):
                self.mind.lose(peer.member, "its connection ended", monotonic())
            elif self.mind.desk.roster[peer.member].living:
                # The kernel will tell of its end, and the reason.
                self.processes.doom(peer.member, _HUNG_UP_S)

    def _take(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any] | None:
        """One message; the answer, if there is to be one."""
        now_s, op = monotonic(), message.get("op")
        if not peer.known:
            return self._greet(peer, message, now_s)
        if peer.member:
            check_message(message)
            if op != "alive":
                self._say(f"{peer.member} → {message}")
            self.mind.hear(peer.member, message, now_s)
            return None
        if op == "observe":
            status = replace(self.mind.status(now_s), pids=self.processes.pids())
            return {"ok": True, "status": asdict(status)}
        if op == "resize":
            return {"ok": True, "target": self._resize(message["members"], now_s)}
        if op == "stop":
            grace_s = float(message["grace_s"])
            if not 0.0 <= grace_s < 1e7:
                raise ConfigError(f"grace_s={grace_s!r} is not a number of seconds.")
            self._say("asked to stop")
            self.mind.stop(grace_s, now_s)
            return {"ok": True}
        raise ConfigError(f"There is no request {op!r}; there are observe, resize and stop.")

    def _greet(self, peer: Peer, message: dict[str, Any], now_s: float) -> dict[str, Any]:
        if message.get("op") != "hello" or message.get("protocol") != PROTOCOL:
            raise ConfigError(f'Say {{"op": "hello", "protocol": {PROTOCOL}}} first.')
        if "name" in message:
            name, card, outline = read_hello(message)
            self.mind.meet(name, card, outline, now_s)
            peer.known, peer.member, self.members[name] = True, name, peer
            facts = {"limits": asdict(self.spec.limits), "park_every_s": self.spec.park_every_s}
            return {"ok": True, "op": "welcome", "mode": self.spec.mode, **facts}
        peer.known = True
        return {"ok": True, "protocol": PROTOCOL, "pid": os.getpid()}

    def _resize(self, facts: Any, now_s: float) -> int:
        members = decode_members(facts)
        self._say(f"asked for {', '.join(member.name for member in members)}")
        return self.mind.resize(members, now_s)

    def _say(self, text: str) -> None:
        with suppress(OSError):  # a full disk must not end a job that trains
            print(strftime("%H:%M:%S"), text, file=self.log)


def serve(folder: Path, told: Callable[[], None]) -> None:
    """Be the agent of the job in `folder`; `told` is called when it listens."""
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(f"{folder}: the job has an agent already.") from None
        facts = read_file(folder / JOB_FILE)
        if facts is None:
            raise ConfigError(f"{folder} holds no job: {JOB_FILE} is missing.")
        spec, token = JobSpec.decode(facts), new_token()
        try:
            door = socket.create_server((spec.bind, spec.port), backlog=BACKLOG)
        except OSError as error:
            raise JobError(
                f"The agent cannot listen at {spec.bind}:{spec.port}: {error.strerror}; choose "
                "another job.port, or 0 for any."
            ) from None
        agent = Agent(folder, spec, door, token)
        try:
            reserve_file(folder / RESULT_FILE)
            host, port = door.getsockname()[:2]
            replace_file(folder / AGENT_FILE, asdict(Address(host, port, token, os.getpid())))
            told()
            agent.run()
        finally:
            agent.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="rota.elastic.agent", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detach", action="store_true", help="return when the agent listens")
    options = parser.parse_args()
    if options.detach:
        sys.exit(detach(options.folder) or 0)
    _heed_signals()
    try:
        serve(options.folder, lambda: None)
    except RotaError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {options.folder}: {error.strerror or error}")


def _heed_signals() -> None:
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _leave(*_: object) -> NoReturn:
    raise SystemExit(143)


def detach(folder: Path) -> str:
    """Serve in a process of its own; when it has begun, return what went wrong, if anything."""
    heard, said = os.pipe()
    if child := os.fork():
        os.close(said)
        with os.fdopen(heard) as answer:
            error = answer.read()
        if error:
            os.waitpid(child, 0)
        return error
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    close_others(said)
    _heed_signals()
    code = 0
    try:
        serve(folder, lambda: _settle(folder, said))
    except RotaError as error:
        code = _admit(said, f"error: {error}")
    except OSError as error:
        code = _admit(said, f"error: {folder}: {error.strerror or error}")
    except Exception:
        # A defect of ours: whoever looks into the log shall find it.
        code = _admit(said, traceback.format_exc())
    finally:
        os._exit(code)


def _settle(folder: Path, said: int) -> None:
    """Let the launcher go, and write to the log from now on."""
    log = os.open(folder / AGENT_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    os.close(said)


def _admit(said: int, error: str) -> int:
    try:
        os.write(said, error.encode())
    except OSError:  # the launcher is gone already
        print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
