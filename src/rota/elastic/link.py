"""A member's connection with its agent: one thread that listens and gives signs of life.

The training thread never waits for it, but at the end of a step after which something is to
happen. All that waits has a limit.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from rota.elastic.greeting import call_on
from rota.elastic.inbox import Inbox
from rota.elastic.protocol import (
    ENV_AGENT,
    ENV_HOST,
    ENV_KIND,
    ENV_MEMBER,
    ENV_TOKEN,
    MOST_LINE,
    PROTOCOL,
    Limits,
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
"""Between two signs of life, unless the agent is less patient."""
_EXIT_S: Final = 10.0
"""What is left to the script when its agent is gone, or the job has failed."""
_CONNECT_S: Final = 20.0
_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # An agent whose host is gone is noticed within half a minute.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


@dataclass(frozen=True)
class Seating:
    """Which member a process is, as its environment tells."""

    agent: tuple[str, int]
    token: str = field(repr=False)
    name: str
    kind: Kind
    host: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Seating | None:
        """None for a process without an agent, which trains alone."""
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


class Link:
    """Speaks with the agent; `step` and `phase` are what it tells of the training thread."""

    def __init__(self, seating: Seating, card: Mapping[str, Any], outline: Outline) -> None:
        self.seating, self.phase = seating, "wait"
        self.on_prepare: Callable[[dict[str, Any]], None] = _ignore
        self.on_drop: Callable[[int], None] = _ignore
        self.on_shut: Callable[[], None] = _nothing
        self.on_cut: Callable[[], None] = _nothing
        self.progress: Callable[[], dict[str, Any]] = dict
        self._inbox, self._rest, self._error, self._closed = Inbox(), b"", "", False
        self._changed, self._sending = threading.Condition(), threading.Lock()
        try:
            self._socket = call_on(seating.agent, seating.token, _CONNECT_S)
            self._socket.settimeout(_CONNECT_S)
            for level, option, value in _OPTIONS:
                self._socket.setsockopt(level, option, value)
            hello = {"protocol": PROTOCOL, "name": seating.name}
            self.say("hello", **hello, card=dict(card), outline=asdict(outline))
            welcome = self._lines()[0]
        except OSError as error:
            host, port = seating.agent
            raise JobError(f"The agent at {host}:{port} does not answer: {error}.") from None
        if not welcome.get("ok"):
            raise JobError(f"The agent sends {seating.name} away: {welcome.get('error')}")
        self.mode: Mode = welcome["mode"]
        self.limits = Limits(**welcome["limits"])
        self.park_every_s: float = welcome["park_every_s"]
        self._beat_s = min(BEAT_S, self.limits.silent_s / 4)

    def start(self) -> None:
        """Listen from now on."""
        threading.Thread(target=self._listen, name="rota-link", daemon=True).start()

    # For the training thread.

    def done(self, step: int) -> bool:
        """So many steps are done; True if something is to happen before the next."""
        with self._changed:
            self._inbox.step = step
            return self._inbox.due()

    def next(self) -> Event:
        """Wait for what is to happen now; "go" if nothing is.

        It ends when the agent speaks, or is gone: the listening thread sees both.
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
        """Do not go on before the agent has spoken."""
        with self._changed:
            self._inbox.parked = True

    def say(self, op: str, **facts: Any) -> None:
        """Tell the agent; if it is gone, the next wait will say so."""
        try:
            with self._sending:
                self._socket.sendall(encode_line({"op": op, **facts}))
        except OSError:
            pass

    def close(self) -> None:
        """Hang up."""
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
                # A time limit on the socket itself would hold for what others send, too.
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
                raise OSError("it hung up")
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > MOST_LINE:
                raise OSError("it sends too long a line")
            if lines:
                return [decode_line(line) for line in lines]

    def _take(self, message: dict[str, Any]) -> None:
        op = message.get("op")
        if op is None:
            self._end(f"The agent does not understand this member: {message.get('error')}")
        elif op == "prepare":
            threading.Thread(target=self.on_prepare, args=(message,), daemon=True).start()
        elif op == "drop":
            self.on_drop(message["number"])
        elif op == "fail":
            self._end(message["error"])
        elif op == "break":
            # Before the training thread learns of it and opens its door again.
            self.on_shut()
        with self._changed:
            self._inbox.take(message)
            if op == "hold":
                self.say("held", number=message["number"], step=self._inbox.step)
            self._changed.notify_all()
        if op == "break":
            # After it, so that a group which it adopts meanwhile is cut as well.
            self.on_cut()

    def _end(self, error: str) -> None:
        """Let the training thread raise; if it does not come round, end the process."""
        with self._changed:
            self._error, self._inbox.parked = error, True
            self._changed.notify_all()
        self.on_shut()
        self.on_cut()
        threading.Event().wait(_EXIT_S)
        os._exit(1)


def _ignore(_: Any) -> None:
    pass


def _nothing() -> None:
    pass
