"""The event loop of an agent: its connections and processes, in one thread with one selector."""

from __future__ import annotations

import os
import selectors
import socket
import traceback
from contextlib import suppress
from dataclasses import asdict, replace
from time import monotonic, strftime
from typing import TYPE_CHECKING, Any, Final

from rota.elastic.coordinator import Coordinator
from rota.elastic.handshake import Authenticator
from rota.elastic.messages import check_message, read_hello
from rota.elastic.peer import Peer
from rota.elastic.plain_controller import PlainController
from rota.elastic.processes import Processes
from rota.elastic.protocol import (
    AGENT_LOG,
    ENV_AGENT,
    ENV_HOST,
    ENV_TOKEN,
    PROTOCOL,
    RESULT_FILE,
    decode_line,
    decode_members,
)
from rota.errors import ConfigError, RotaError
from rota.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from rota.elastic.controller import Controller
    from rota.elastic.protocol import JobSpec

TICK_S: Final = 0.1
_HUNG_UP_S: Final = 2.0
"""Seconds for a process that has closed its connection to end."""
_BACKLOG: Final = 1 << 24
"""Bytes that wait for a peer that does not read; with more, its connection is closed."""
_REPORT_S: Final = 60.0
"""Seconds between two log lines about rejected connections."""


class Agent:
    """Sockets and processes of one job; its controller decides what they do."""

    def __init__(self, folder: Path, spec: JobSpec, listener: socket.socket, token: str) -> None:
        self.folder = folder
        self.log = (folder / AGENT_LOG).open("a", buffering=1, errors="backslashreplace")
        host, port = listener.getsockname()[:2]
        self.spec, self.selector = spec, selectors.DefaultSelector()
        env = {ENV_AGENT: f"{host}:{port}", ENV_TOKEN: token, ENV_HOST: spec.bind}
        self.processes = Processes(folder, spec, env, self.selector, self._began, self._ended)
        self.authenticator = Authenticator(listener, token, self.selector, self._accepted)
        self._reported_s, self._reported = -_REPORT_S, 0
        self.peers: dict[str, Peer] = {}
        """Connections of members, by name."""
        control = PlainController if spec.mode == "plain" else Coordinator
        self.controller: Controller = control(spec, monotonic())

    def run(self) -> None:
        """Serve until the job is over, and write its result."""
        while self.controller.result is None:
            self._carry_out()
            for key, _ in self.selector.select(self.authenticator.wait_s(TICK_S)):
                key.data()
            self.authenticator.tick()
            self._report_rejected()
            self.controller.tick(monotonic())
            self.processes.reap()
            for name in self.processes.signal_overdue():
                self._say(f"killed {name}")
        self._carry_out()
        self._say(f"over: {self.controller.result}")
        replace_file(self.folder / RESULT_FILE, asdict(self.controller.result))

    def close(self) -> None:
        """Leave no process and no connection behind."""
        self.processes.kill_all()
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()
        self.log.close()

    def _carry_out(self) -> None:
        """Carry out the orders of the controller."""
        orders = self.controller.table.orders
        while orders:
            order = orders.popleft()
            if order.do == "send":
                if peer := self.peers.get(order.name):
                    self._write(peer, order.message)
            elif order.do == "start":
                self.processes.start(self.controller.table[order.name].member)
            elif order.do == "end":
                self.processes.end(order.name, order.after_s)
            elif not self.processes.set_deadline(order.name, order.after_s):
                self._disconnect(order.name, order.after_s)
            if order.message.get("op") not in (None, "welcome"):
                self._say(f"{order.name} ← {order.message}")

    def _disconnect(self, name: str, after_s: float) -> None:
        """Close the connection of a member on another host, which cannot be killed from here."""
        peer = self.peers.get(name)
        if peer and after_s == 0:
            self._hang_up(peer)

    def _began(self, name: str, pid: int) -> None:
        self._say(f"started {name} as process {pid} ({self.processes.failures.command()})")
        if not self.controller.table[name].alive:  # not wanted any more
            self.processes.set_deadline(name, 0.0)

    def _ended(self, name: str, why: str) -> None:
        entry = self.controller.table[name]
        if self.spec.mode != "plain" and entry.alive and not entry.card:
            why = why or "its script ended before the training did, and without `with Elastic(…)`"
            why += f" (command: {self.processes.failures.command()})"
        self._say(f"{name} ended: {why or 'all went well'}")
        if peer := self.peers.get(name):
            # Its last messages may tell more than its exit code.
            self._serve(peer)
        self.controller.lose(name, why, monotonic())

    def _accepted(self, link: socket.socket, _: bytes) -> None:
        """Serve a connection that knows the token."""
        peer = Peer(link)
        self.selector.register(link, selectors.EVENT_READ, lambda: self._serve(peer))

    def _report_rejected(self) -> None:
        """Log rejected connections and failures to accept, once a minute."""
        rejected, now_s = self.authenticator.rejected, monotonic()
        more = rejected - self._reported
        if now_s - self._reported_s < _REPORT_S or not (more or self.authenticator.trouble):
            return
        if more:
            self._say(f"rejected {more} connections that did not know the token")
        if self.authenticator.trouble:
            self._say(f"cannot accept connections: {self.authenticator.trouble}")
        self._reported_s, self._reported = now_s, rejected

    def _serve(self, peer: Peer) -> None:
        if peer.link.fileno() < 0:
            return  # closed while its event waited
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
        """Answer one line; an error, even of our own code, never ends the agent."""
        try:
            return self._take(peer, decode_line(line))
        except RotaError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            if not isinstance(error, KeyError | TypeError | ValueError):
                self._say(traceback.format_exc())
            return {"ok": False, "error": f"{line[:80]!r} is not understood: {error!r:.200}."}

    def _write(self, peer: Peer, message: dict[str, Any] | None = None) -> None:
        """Send a message, or what is left of earlier ones; wait for the peer if it is slow."""
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
        if self.peers.get(peer.member) is peer:
            del self.peers[peer.member]
            if not self.processes.runs(peer.member):
                self.controller.lose(peer.member, "its connection ended", monotonic())
            elif self.controller.table[peer.member].alive:
                # Its end, with the reason, will be reported by its watch.
                self.processes.set_deadline(peer.member, _HUNG_UP_S)

    def _take(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any] | None:
        """Handle one message; returns the answer, None if there is none."""
        now_s, op = monotonic(), message.get("op")
        if not peer.known:
            return self._greet(peer, message, now_s)
        if peer.member:
            check_message(message)
            if op != "alive":
                self._say(f"{peer.member} → {message}")
            self.controller.receive(peer.member, message, now_s)
            return None
        if op == "observe":
            status = replace(self.controller.status(now_s), pids=self.processes.pids())
            return {"ok": True, "status": asdict(status)}
        if op == "resize":
            return {"ok": True, "target": self._resize(message["members"], now_s)}
        if op == "join":
            return {"ok": True, "target": self._resize([*self._kept(), message["member"]], now_s)}
        if op == "leave":
            kept = self._kept(message["name"])
            return {"ok": True, "target": self._resize(kept, now_s)}
        if op == "stop":
            grace_s = float(message["grace_s"])
            if not 0.0 <= grace_s < 1e7:
                raise ConfigError(f"grace_s={grace_s!r} is not a number of seconds.")
            self._say("asked to stop")
            self.controller.stop(grace_s, now_s)
            return {"ok": True}
        raise ConfigError(f"There is no request {op!r}; known: observe, resize, join, leave, stop.")

    def _greet(self, peer: Peer, message: dict[str, Any], now_s: float) -> dict[str, Any]:
        if message.get("op") != "hello" or message.get("protocol") != PROTOCOL:
            raise ConfigError(f'Say {{"op": "hello", "protocol": {PROTOCOL}}} first.')
        if "name" in message:
            name, card, outline = read_hello(message)
            self.controller.hello(name, card, outline, now_s)
            peer.known, peer.member, self.peers[name] = True, name, peer
            facts = {"limits": asdict(self.spec.limits), "park_every_s": self.spec.park_every_s}
            return {"ok": True, "op": "welcome", "mode": self.spec.mode, **facts}
        peer.known = True
        return {"ok": True, "protocol": PROTOCOL, "pid": os.getpid()}

    def _resize(self, facts: Any, now_s: float) -> int:
        members = decode_members(facts)
        self._say(f"asked for {', '.join(member.name for member in members)}")
        return self.controller.resize(members, now_s)

    def _kept(self, leaves: str = "") -> list[dict[str, Any]]:
        """The members that are wanted and were not lost, but for one that leaves."""
        if not isinstance(self.controller, Coordinator):
            raise ConfigError("A plain job cannot be resized.")
        entries = self.controller.table.entries
        return [
            asdict(member)
            for member in self.controller.wanted
            if member.name != leaves and (member.name not in entries or entries[member.name].alive)
        ]

    def _say(self, text: str) -> None:
        with suppress(OSError):  # a full disk must not end a job that trains
            print(strftime("%H:%M:%S"), text, file=self.log)
