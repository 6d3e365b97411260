"""How the processes of one job know each other before they listen to a word.

Whoever connects sends one message of fixed length:

    16 bytes   drawn at random
    N bytes    what it comes for; N is known to both sides, and may be 0
    32 bytes   HMAC-SHA256, by the job's token, of the address it connects to and all before it

and is answered 32 bytes, an HMAC of the message. So both sides know that the other one has the
token, which itself is never sent; whoever listens where a member has been learns nothing that
would open another door. Nothing is parsed before that. A stranger gets `HELLO_S` seconds from its
arrival, however it spends them; more than `MOST_STRANGERS` at a time drive out the oldest; and
only so many are looked at per second. What follows a greeting is not encrypted: a key of its own
for every connection, or TLS, would be put in here.
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

HELLO_S: Final = 5.0
"""For a stranger to say that it is none, from its arrival on."""
MOST_STRANGERS: Final = 64
"""That may be waited for at a time; one more, and the first of them has to go."""
BACKLOG: Final = 1024
_RATE: Final = 3200.0
"""Arrivals per second that are looked at, so that strangers cost some percent of a core at most."""
_BURST: Final = 64
_PAUSE_S: Final = 0.05
"""Before the next attempt to accept when no more files can be opened."""
_TRIES: Final = 7
_NONCE: Final = 16
_PROOF: Final = 32


def new_token() -> str:
    """A word that only the processes of one job will know."""
    return secrets.token_hex(32)


def call_on(
    where: tuple[str, int],
    token: str,
    limit_s: float,
    what: bytes = b"",
    began: Callable[[socket.socket], None] = lambda _: None,
) -> socket.socket:
    """Connect with another process of the job; `began` sees every attempt.

    Who is busy with strangers may drop a friend: then it comes again, some times, within `limit_s`.
    """
    until_s = monotonic() + limit_s
    for attempt in count():
        left_s = max(until_s - monotonic(), 0.001)
        try:
            link = socket.create_connection(where, left_s)
            try:
                began(link)
                _introduce(link, token, what, min(until_s, monotonic() + HELLO_S))
            except BaseException:
                link.close()
                raise
        except ConnectionRefusedError:
            raise  # nobody listens there any more
        except OSError:
            pause_s = 0.02 * 2**attempt
            if attempt >= _TRIES or monotonic() + pause_s >= until_s:
                raise
            sleep(pause_s)
        else:
            return link
    raise AssertionError("unreachable")


def _introduce(link: socket.socket, token: str, what: bytes, until_s: float) -> None:
    said = secrets.token_bytes(_NONCE) + what
    said += _sign(token, link.getpeername(), said)
    link.sendall(said)
    answer = b""
    while len(answer) < _PROOF:
        left_s = until_s - monotonic()
        if left_s <= 0:
            raise TimeoutError("no answer to the greeting")
        link.settimeout(left_s)
        data = link.recv(_PROOF - len(answer))
        if not data:
            raise ConnectionResetError("it hung up after the greeting; is the token right?")
        answer += data
    if not hmac.compare_digest(answer, _answer(token, said)):
        raise JobError(f"Whoever listens at {link.getpeername()[:2]} is not of this job.")


def _sign(token: str, address: tuple[str, int], said: bytes) -> bytes:
    return hmac.digest(token.encode(), f"{address[0]} {address[1]} ".encode() + said, "sha256")


def _answer(token: str, said: bytes) -> bytes:
    return hmac.digest(token.encode(), b"answer " + said, "sha256")


class _Stranger:
    """Somebody who has not yet said the word."""

    def __init__(self, link: socket.socket, now_s: float) -> None:
        self.link, self.said, self.until_s = link, b"", now_s + HELLO_S


class Entrance:
    """Lets in, through a listening socket, whoever knows the token.

    `welcome` gets its connection, which does not block, and what it comes for. Whoever drives the
    selector calls the data of its keys, and `tick` at least every `wait_s` seconds.
    """

    def __init__(
        self,
        door: socket.socket,
        token: str,
        selector: selectors.BaseSelector,
        welcome: Callable[[socket.socket, bytes], None],
        length: int = 0,
    ) -> None:
        self._door, self._token, self._selector = door, token, selector
        self._welcome, self._length = welcome, _NONCE + length + _PROOF
        self.eager = False
        """Somebody is expected: look at everybody at once, whatever it costs."""
        self.turned_away = 0
        """Connections that were closed without having said the word."""
        self.trouble = ""
        """Why the last attempt to accept failed; nothing if it did not."""
        self._strangers: dict[int, _Stranger] = {}  # by file, in the order of their arrival
        self._credit, self._counted_s = float(_BURST), monotonic()
        self._closed_until_s: float | None = None
        door.setblocking(False)
        selector.register(door, selectors.EVENT_READ, self._accept)

    def wait_s(self, most_s: float | None = None) -> float | None:
        """Seconds until `tick` has something to do; None if it has nothing."""
        due = [] if most_s is None else [monotonic() + most_s]
        if self._closed_until_s is not None:
            due.append(self._closed_until_s)
        if self._strangers:
            due.append(next(iter(self._strangers.values())).until_s)
        return max(min(due) - monotonic(), 0.0) if due else None

    def tick(self) -> None:
        """Send those away whose time is over; look out again after a pause."""
        now_s = monotonic()
        while self._strangers:
            oldest = next(iter(self._strangers.values()))
            if oldest.until_s > now_s:
                break
            self._turn_away(oldest)
        if self._closed_until_s is not None and (self.eager or self._closed_until_s <= now_s):
            self._closed_until_s = None
            with suppress(OSError, ValueError):  # it may have been closed meanwhile
                self._selector.register(self._door, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Send everybody away; the listening socket is its owner's."""
        for stranger in list(self._strangers.values()):
            self._turn_away(stranger)

    def _accept(self) -> None:
        for _ in range(_BURST):
            if not self._may():
                return
            try:
                link, _ = self._door.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # No files or no memory left, for the moment: those who wait here hold some.
                self.trouble = error.strerror or str(error)
                if self._strangers:
                    self._turn_away(next(iter(self._strangers.values())))
                self._pause(_PAUSE_S)
                return
            self.trouble = ""
            try:
                self._look_at(link)
            except (OSError, ValueError):
                link.close()

    def _may(self) -> bool:
        """Whether one more arrival may be looked at now."""
        now_s = monotonic()
        self._credit = min(self._credit + (now_s - self._counted_s) * _RATE, float(_BURST))
        self._counted_s = now_s
        if self._credit < 1.0 and not self.eager:
            self._pause(_BURST / 2 / _RATE)
            return False
        self._credit = max(self._credit - 1.0, 0.0)
        return True

    def _pause(self, pause_s: float) -> None:
        self._selector.unregister(self._door)
        self._closed_until_s = monotonic() + pause_s

    def _look_at(self, link: socket.socket) -> None:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Wake up for the whole of it, not for every byte.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._length)
        stranger = _Stranger(link, monotonic())
        self._strangers[link.fileno()] = stranger
        self._selector.register(link, selectors.EVENT_READ, lambda: self._listen(stranger))
        self._listen(stranger)  # friends have said it all by now, as a rule
        if len(self._strangers) > MOST_STRANGERS:
            oldest = next(iter(self._strangers.values()))
            self._listen(oldest)
            if self._strangers.get(oldest.link.fileno()) is oldest:
                self._turn_away(oldest)

    def _listen(self, stranger: _Stranger) -> None:
        link = stranger.link
        if self._strangers.get(link.fileno()) is not stranger:
            return  # sent away while its event waited
        try:
            data = link.recv(self._length - len(stranger.said))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        stranger.said += data
        if not data:
            self._turn_away(stranger)
        elif len(stranger.said) == self._length:
            self._judge(stranger)

    def _judge(self, stranger: _Stranger) -> None:
        link, said = stranger.link, stranger.said
        try:
            proof = _sign(self._token, link.getsockname(), said[:-_PROOF])
            if not hmac.compare_digest(proof, said[-_PROOF:]):
                raise ConnectionError("a stranger")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            link.send(_answer(self._token, said))
        except OSError:
            self._turn_away(stranger)
            return
        self._forget(stranger)
        self._credit = min(self._credit + 1.0, float(_BURST))
        self._welcome(link, said[_NONCE:-_PROOF])

    def _forget(self, stranger: _Stranger) -> None:
        del self._strangers[stranger.link.fileno()]
        self._selector.unregister(stranger.link)

    def _turn_away(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        stranger.link.close()
        self.turned_away += 1
