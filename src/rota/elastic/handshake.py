"""How the processes of one job authenticate each other before anything else is read.

The side that connects sends one message of fixed length:

    16 bytes   drawn at random
    N bytes    what the connection is for; N is known to both sides, and may be 0
    32 bytes   HMAC-SHA256, by the job's token, of the address it connects to and all before it

and is answered 32 bytes, an HMAC of the message. So each side knows that the other one has the
token. The token itself is never sent, and a message recorded at one address is not valid at
another. Nothing is parsed before that. A connection has `HANDSHAKE_S` seconds from its arrival;
when more than `MOST_PENDING` wait, the oldest is closed; and arrivals are limited per second. What
follows a handshake is not encrypted: a key per connection, or TLS, would be added here.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
from contextlib import suppress
from itertools import count
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from rota.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Callable

HANDSHAKE_S: Final = 5.0
"""Seconds from the arrival of a connection to the end of its handshake."""
MOST_PENDING: Final = 64
"""Connections in the middle of a handshake; one more, and the oldest is closed."""
BACKLOG: Final = 1024
_RATE: Final = 3200.0
"""Arrivals accepted per second, so that a flood of them costs a few percent of a core at most."""
_BURST: Final = 64
_PAUSE_S: Final = 0.05
"""Before the next attempt to accept when no more files can be opened."""
_TRIES: Final = 7
_NONCE: Final = 16
_PROOF: Final = 32


def new_token() -> str:
    """A secret for the processes of one job."""
    return secrets.token_hex(32)


def open_connection(
    where: tuple[str, int],
    token: str,
    limit_s: float,
    what: bytes = b"",
    began: Callable[[socket.socket], None] = lambda _: None,
) -> socket.socket:
    """Connect to another process of the job; `began` is called with the socket of every attempt.

    A listener with too many pending connections may drop this one: it is tried again, a few times,
    within `limit_s`.
    """
    until_s = monotonic() + limit_s
    for attempt in count():
        left_s = max(until_s - monotonic(), 0.001)
        try:
            link = socket.create_connection(where, left_s)
            try:
                began(link)
                _prove(link, token, what, min(until_s, monotonic() + HANDSHAKE_S))
            except BaseException:
                link.close()
                raise
        except ConnectionRefusedError:
            raise  # no process listens there any more
        except OSError:
            pause_s = 0.02 * 2**attempt
            if attempt >= _TRIES or monotonic() + pause_s >= until_s:
                raise
            sleep(pause_s)
        else:
            return link
    raise AssertionError("unreachable")


def _prove(link: socket.socket, token: str, what: bytes, until_s: float) -> None:
    """Do the connecting side's part of a handshake."""
    said = secrets.token_bytes(_NONCE) + what
    said += _sign(token, link.getpeername(), said)
    link.sendall(said)
    answer = b""
    while len(answer) < _PROOF:
        left_s = until_s - monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer to the handshake")
        link.settimeout(left_s)
        data = link.recv(_PROOF - len(answer))
        if not data:
            raise ConnectionResetError("it hung up during the handshake; is the token right?")
        answer += data
    if not hmac.compare_digest(answer, _answer(token, said)):
        host, port = link.getpeername()[:2]
        raise JobError(f"The process that listens at {host}:{port} does not belong to this job.")


def _sign(token: str, address: tuple[str, int], said: bytes) -> bytes:
    return hmac.digest(token.encode(), f"{address[0]} {address[1]} ".encode() + said, "sha256")


def _answer(token: str, said: bytes) -> bytes:
    return hmac.digest(token.encode(), b"answer " + said, "sha256")


class _Pending:
    """A connection that has not yet proved that it knows the token."""

    def __init__(self, link: socket.socket, now_s: float) -> None:
        self.link, self.said, self.until_s = link, b"", now_s + HANDSHAKE_S


class Authenticator:
    """Accepts connections at a listening socket and passes on those that know the token.

    `accepted` gets each such connection, which does not block, and what it is for. The owner of
    the selector calls the data of its keys, and `tick` at least every `wait_s` seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        selector: selectors.BaseSelector,
        accepted: Callable[[socket.socket, bytes], None],
        length: int = 0,
    ) -> None:
        self._listener, self._token, self._selector = listener, token, selector
        self._accepted, self._length = accepted, _NONCE + length + _PROOF
        self.eager = False
        """A member is expected: accept without the limit per second."""
        self.rejected = 0
        """Connections that were closed before their handshake was complete."""
        self.trouble = ""
        """Why the last attempt to accept failed; empty if it did not."""
        self._pending: dict[int, _Pending] = {}  # by file number, in the order of arrival
        self._credit, self._counted_s = float(_BURST), monotonic()
        self._paused_until_s: float | None = None
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def wait_s(self, most_s: float | None = None) -> float | None:
        """Seconds until `tick` has something to do; None if it has nothing."""
        due = [] if most_s is None else [monotonic() + most_s]
        if self._paused_until_s is not None:
            due.append(self._paused_until_s)
        if self._pending:
            due.append(next(iter(self._pending.values())).until_s)
        return max(min(due) - monotonic(), 0.0) if due else None

    def tick(self) -> None:
        """Close connections whose time is over, and accept again after a pause."""
        now_s = monotonic()
        while self._pending:
            oldest = next(iter(self._pending.values()))
            if oldest.until_s > now_s:
                break
            self._reject(oldest)
        if self._paused_until_s is not None and (self.eager or self._paused_until_s <= now_s):
            self._paused_until_s = None
            with suppress(OSError, ValueError):  # it may have been closed meanwhile
                self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Close all pending connections; the listening socket belongs to the caller."""
        for pending in list(self._pending.values()):
            self._reject(pending)

    def _accept(self) -> None:
        for _ in range(_BURST):
            if not self._within_rate():
                return
            try:
                link, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # No files or no memory left for the moment; pending connections hold some.
                self.trouble = error.strerror or str(error)
                if self._pending:
                    self._reject(next(iter(self._pending.values())))
                self._pause(_PAUSE_S)
                return
            self.trouble = ""
            try:
                self._begin(link)
            except (OSError, ValueError):
                link.close()

    def _within_rate(self) -> bool:
        """Whether one more connection may be accepted now (a token bucket)."""
        now_s = monotonic()
        self._credit = min(self._credit + (now_s - self._counted_s) * _RATE, float(_BURST))
        self._counted_s = now_s
        if self._credit < 1.0 and not self.eager:
            self._pause(_BURST / 2 / _RATE)
            return False
        self._credit = max(self._credit - 1.0, 0.0)
        return True

    def _pause(self, pause_s: float) -> None:
        self._selector.unregister(self._listener)
        self._paused_until_s = monotonic() + pause_s

    def _begin(self, link: socket.socket) -> None:
        """Begin a handshake."""
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Wake up for the whole message, not for every byte.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._length)
        pending = _Pending(link, monotonic())
        self._pending[link.fileno()] = pending
        self._selector.register(link, selectors.EVENT_READ, lambda: self._read(pending))
        self._read(pending)  # processes of the job have sent it all by now, as a rule
        if len(self._pending) > MOST_PENDING:
            oldest = next(iter(self._pending.values()))
            self._read(oldest)
            if self._pending.get(oldest.link.fileno()) is oldest:
                self._reject(oldest)

    def _read(self, pending: _Pending) -> None:
        link = pending.link
        if self._pending.get(link.fileno()) is not pending:
            return  # closed while its event waited
        try:
            data = link.recv(self._length - len(pending.said))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        pending.said += data
        if not data:
            self._reject(pending)
        elif len(pending.said) == self._length:
            self._verify(pending)

    def _verify(self, pending: _Pending) -> None:
        link, said = pending.link, pending.said
        try:
            proof = _sign(self._token, link.getsockname(), said[:-_PROOF])
            if not hmac.compare_digest(proof, said[-_PROOF:]):
                raise ConnectionError("it does not know the token")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            link.send(_answer(self._token, said))
        except OSError:
            self._reject(pending)
            return
        self._forget(pending)
        self._credit = min(self._credit + 1.0, float(_BURST))
        self._accepted(link, said[_NONCE:-_PROOF])

    def _forget(self, pending: _Pending) -> None:
        del self._pending[pending.link.fileno()]
        self._selector.unregister(pending.link)

    def _reject(self, pending: _Pending) -> None:
        self._forget(pending)
        pending.link.close()
        self.rejected += 1
