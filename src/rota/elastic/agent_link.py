"""A member's connection to its agent: one thread that listens and sends heartbeats.

The training thread waits for it only at the end of a step after which something has to be done.
Every wait has a limit.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from rota.elastic.handshake import open_connection
from rota.elastic.inbox import Inbox
from rota.elastic.protocol import (
    ENV_AGENT,
    ENV_HOST,
    ENV_KIND,
    ENV_MEMBER,
    ENV_TOKEN,
    MOST_LINE,
    PROTOCOL,
    TimeLimits,
    decode_line,
    encode_line,
)
from rota.errors import ConfigError, JobError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rota.elastic.inbox import Event
    from rota.elastic.outline import Outline
    from rota.elastic.protocol import (
        Kind,
        Mode,
    )

BEAT_S: Final = 0.5
"""Seconds between two heartbeats, or less if `silent_s` is short."""
_EXIT_S: Final = 10.0
"""Seconds that the script has to end when its agent is gone, or the job has failed."""
_CONNECT_S: Final = 20.0
_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # The loss of the agent's host is noticed within half a minute.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


@dataclass(frozen=True)
class MemberIdentity:
    """Which member a process is, from its environment."""

    agent: tuple[str, int]
    token: str = field(repr=False)
    name: str
    kind: Kind
    host: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> MemberIdentity | None:
        """Read the identity; None for a process without an agent, which trains alone."""
        where = environ.get(ENV_AGENT)
        if where is None:
            return None
        host, _, port = where.rpartition(":")
        kind = environ.get(ENV_KIND, "worker")
        if not host or not port.isdecimal():
            raise ConfigError(f"{ENV_AGENT}={where!r} is not host:port.")
        if kind not in ("worker", "server"):
            raise ConfigError(f"{ENV_KIND}={kind!r} is neither worker nor server.")
        if ENV_MEMBER not in environ:
            raise ConfigError(f"{ENV_MEMBER} is not set, but {ENV_AGENT} is.")
        return cls(
            (host, int(port)),
            environ.get(ENV_TOKEN, ""),
            environ[ENV_MEMBER],
            "server" if kind == "server" else "worker",
            environ.get(ENV_HOST, "127.0.0.1"),
        )


class AgentLink:
    """Exchanges messages with the agent; `phase` tells what the training thread does."""

    def __init__(self, identity: MemberIdentity, card: Mapping[str, Any], outline: Outline) -> None:
        self.identity, self.phase = identity, "wait"
        self.on_prepare: Callable[[dict[str, Any]], None] = _ignore
        self.on_drop: Callable[[int], None] = _ignore
        self.on_cancel: Callable[[], None] = _nothing
        self.on_cut: Callable[[], None] = _nothing
        self.progress: Callable[[], dict[str, Any]] = dict
        self._inbox, self._rest, self._error, self._closed = Inbox(), b"", "", False
        self._changed, self._sending = threading.Condition(), threading.Lock()
        try:
            self._socket = open_connection(identity.agent, identity.token, _CONNECT_S)
            self._socket.settimeout(_CONNECT_S)
            for level, option, value in _OPTIONS:
                self._socket.setsockopt(level, option, value)
            hello = {"protocol": PROTOCOL, "name": identity.name}
            self.say("hello", **hello, card=dict(card), outline=asdict(outline))
            welcome = self._lines()[0]
        except OSError as error:
            host, port = identity.agent
            raise JobError(f"The agent at {host}:{port} does not answer: {error}.") from None
        if not welcome.get("ok"):
            raise JobError(f"The agent refuses {identity.name}: {welcome.get('error')}")
        self.mode: Mode = welcome["mode"]
        self.limits = TimeLimits(**welcome["limits"])
        self.park_every_s: float = welcome["park_every_s"]
        self._beat_s = min(BEAT_S, self.limits.silent_s / 4)

    def start(self) -> None:
        """Start the thread that listens."""
        threading.Thread(target=self._listen, name="rota-link", daemon=True).start()

    # For the training thread.

    def done(self, step: int) -> bool:
        """Report that `step` steps are done; True if something has to be done before the next."""
        with self._changed:
            self._inbox.step = step
            return self._inbox.due()

    def next(self) -> Event:
        """Wait for what to do now; "go" means to train on.

        The wait ends when the agent sends an order, or is gone: the listening thread sees both.
        """
        self.phase = "wait"
        with self._changed:
            while True:
                if self._error:
                    raise JobError(self._error)
                if event := self._inbox.event():
                    return event
                self._changed.wait()

    def park(self) -> None:
        """Do not train before the next order of the agent."""
        with self._changed:
            self._inbox.parked = True

    def say(self, op: str, **facts: Any) -> None:
        """Send a message to the agent; if it is gone, the next wait will raise."""
        try:
            with self._sending:
                self._socket.sendall(encode_line({"op": op, **facts}))
        except OSError:
            pass

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._socket.close()

    # For the listening thread.

    def _listen(self) -> None:
        due_s, heard = monotonic(), select.poll()
        heard.register(self._socket, select.POLLIN)
        try:
            while not self._closed:
                if monotonic() >= due_s:
                    due_s = monotonic() + self._beat_s
                    self.say("alive", phase=self.phase, **self.progress())
                # A timeout of the socket itself would apply to other threads that send, too.
                if heard.poll(max(due_s - monotonic(), 0.0) * 1000 + 1):
                    for message in self._lines():
                        self._take(message)
        except (OSError, ValueError, ConfigError):
            if not (self._closed or self._inbox.released):
                self._end("The job's agent is gone; a member cannot go on without it.")

    def _lines(self) -> list[dict[str, Any]]:
        while True:
            data = self._socket.recv(1 << 16)
            if not data:
                raise OSError("it closed the connection")
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > MOST_LINE:
                raise OSError(f"it sent a line of more than {MOST_LINE} bytes")
            if lines:
                return [decode_line(line) for line in lines]

    def _take(self, message: dict[str, Any]) -> None:
        op = message.get("op")
        if op is None:
            self._end(f"The agent rejects a message of this member: {message.get('error')}")
        elif op == "prepare":
            threading.Thread(target=self.on_prepare, args=(message,), daemon=True).start()
        elif op == "drop":
            self.on_drop(message["number"])
        elif op == "fail":
            self._end(message["error"])
        elif op == "break":
            # Before the training thread learns of it and resets its listener.
            self.on_cancel()
        with self._changed:
            self._inbox.take(message)
            if op == "hold":
                self.say("held", number=message["number"], step=self._inbox.step)
            self._changed.notify_all()
        if op == "break":
            # After it, so that a group which it adopts meanwhile is also cut.
            self.on_cut()

    def _end(self, error: str) -> None:
        """Let the training thread raise; if it does not within `_EXIT_S`, end the process."""
        with self._changed:
            self._error, self._inbox.parked = error, True
            self._changed.notify_all()
        self.on_cancel()
        self.on_cut()
        threading.Event().wait(_EXIT_S)
        os._exit(1)


def _ignore(_: Any) -> None:
    pass


def _nothing() -> None:
    pass
