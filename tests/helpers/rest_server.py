"""A slurmrestd of a test's own: it answers with the very bytes that it is told to."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer, ThreadingUnixStreamServer
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPLIES = Path(__file__).parent.parent / "fixtures" / "slurm"
JOBS = (REPLIES / "squeue-22.05.json").read_text()
NODES = (REPLIES / "sinfo-22.05.json").read_text()


def document(body: str, status: int = 200) -> bytes:
    """A whole answer."""
    data = body.encode()
    return b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n%b" % (status, len(data), data)


def offering(*versions: str) -> str:
    """What a slurmrestd with these versions says that it offers."""
    paths = [f"/slurm/{version}/{what}" for version in versions for what in ("jobs", "nodes")]
    return json.dumps({"paths": dict.fromkeys([*paths, "/slurm/v9.9.9/job/{job_id}", "/x"])})


class RestServer:
    """What it answers by path, and what it was asked."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.answers: dict[str, bytes | Callable[[Any], None]] = {
            "/openapi/v3": document(offering("v0.0.38")),
            "/slurm/v0.0.38/jobs": document(JOBS),
            "/slurm/v0.0.38/nodes": document(NODES),
        }
        """Whole answers, or what to do with the open connection."""

    def serve(self, request: Any) -> None:
        """Answer once and hang up."""
        head = request.rfile.readline().decode().split()
        lines = iter(lambda: request.rfile.readline().decode().strip(), "")
        self.headers = {key.lower(): value for key, _, value in (x.partition(": ") for x in lines)}
        self.asked.append(head[1])
        assert head[0] == "GET"
        answer = self.answers.get(head[1], document("nothing is here", 404))
        if callable(answer):
            answer(request)
        else:
            request.wfile.write(answer)


@contextmanager
def rest_server(*, tcp: bool = False) -> Iterator[RestServer]:
    """A server at a unix socket in a folder of its own, or on loopback."""
    made = RestServer()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            made.serve(self)

    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        if tcp:
            server: Any = ThreadingTCPServer(("127.0.0.1", 0), Handler)
            made.address = f"http://127.0.0.1:{server.server_address[1]}"
        else:
            server = ThreadingUnixStreamServer(f"{folder}/rest.sock", Handler)
            made.address = f"unix:{folder}/rest.sock"
        with server:
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield made
            finally:
                server.shutdown()
                thread.join()
