"""GET over a unix socket or TCP, for no longer than it may take and no more bytes than it may."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from rota.errors import BackendError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPResponse

PIECE_BYTES: Final = 1 << 20
LONGEST_PATH: Final = 107
"""Bytes in the name of a unix socket."""


class HttpGet:
    """Asks one server, each time over a connection of its own."""

    def __init__(self, address: str, patience_s: float, most_bytes: int) -> None:
        """`unix:/PATH` or `http://HOST:PORT`."""
        self.address = address
        self._target = _target(address)
        self._patience_s, self._most_bytes = patience_s, most_bytes

    @property
    def is_local(self) -> bool:
        """Whether it is asked over a unix socket."""
        return isinstance(self._target, str)

    def get(self, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """The status and the text of the answer; BackendError if there is none."""
        until_s = monotonic() + self._patience_s
        try:
            with closing(self._connected(until_s)) as connection:
                connection.request("GET", path, headers=dict(headers))
                with connection.getresponse() as response:
                    return response.status, self._body(response).decode(errors="replace")
        except TimeoutError:
            raise BackendError(
                f"{self.address}: GET {path} was not answered in {self._patience_s:g} s."
            ) from None
        except HTTPException as error:
            raise BackendError(f"{self.address}: GET {path} broke off ({error!r}).") from error
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise BackendError(f"{self.address}: {why}; is it running there?") from error

    def _connected(self, until_s: float) -> HTTPConnection:
        if isinstance(self._target, str):
            host, port = "localhost", 80  # nothing but the header `Host`
            made = _TimedSocket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            host, port = self._target
            plain = socket.create_connection(self._target, self._patience_s)
            made = _TimedSocket(fileno=plain.detach())
        connection = HTTPConnection(host, port)
        connection.sock, made.until_s = made, until_s
        made.settimeout(self._patience_s)
        if isinstance(self._target, str):
            try:
                made.connect(self._target)
            except OSError:
                made.close()
                raise
        return connection

    def _body(self, response: HTTPResponse) -> bytes:
        pieces, most = [], self._most_bytes
        size = response.length or 0  # as it is announced
        if size <= most:
            size = 0
            while size <= most and (piece := response.read(PIECE_BYTES)):
                size += len(piece)
                pieces.append(piece)
        if size > most:
            raise BackendError(f"{self.address}: an answer has more than {most} bytes.")
        if response.length:
            raise HTTPException(f"{response.length} bytes are missing")
        return b"".join(pieces)


class _TimedSocket(socket.socket):
    """Reads until a given time; the limit of a plain socket begins anew with every byte."""

    until_s = 0.0

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        left_s = self.until_s - monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.settimeout(left_s)
        return super().recv_into(buffer, nbytes, flags)


def _target(address: str) -> str | tuple[str, int]:
    """The path of a unix socket, or host and port."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            raise _wrong(address, "has no path from the root")
        if len(os.fsencode(path)) > LONGEST_PATH:
            raise _wrong(address, f"is too long: a socket's path has at most {LONGEST_PATH} bytes")
        return path
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _wrong(address, f"is no address ({error})") from None
    if parts.scheme == "https":
        raise _wrong(address, "begins with https, which is not supported")
    if parts.scheme != "http":
        raise _wrong(address, "begins with neither unix: nor http://")
    if not host or not port:
        raise _wrong(address, f"names no {'port' if host else 'host'}")
    if address.removesuffix("/") != f"http://{parts.netloc}" or "@" in parts.netloc:
        raise _wrong(address, "has more than a host and a port")
    return host, port


def _wrong(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"The address {address!r} of slurmrestd {why}; give unix:/PATH of its socket, or "
        "http://HOST:PORT (usual: 6820)."
    )
