"""Measure how much a flood of connections without the token slows a training down.

Another process sees every listening port, connects, and sends nothing, rubbish, or a byte now and
then. It takes a part of this machine, wherever it connects to; so windows in which it connects to
the training's ports are compared with windows in which it connects to a port without a listener.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from elastic import job, lines, more_steps, say
from rota.elastic import Member

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_S, WINDOWS, MOST = 2.0, 6, 900
LISTENS = "0A"


def listening() -> set[int]:
    """All ports with a listener on this machine, which every user can see."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == LISTENS}


def connect(port: int) -> socket.socket | None:
    link = socket.socket()
    link.settimeout(0.05)
    try:
        link.connect(("127.0.0.1", port))
    except OSError:
        link.close()
        return None
    return link


def answers(port: int) -> bool:
    link = connect(port)
    if link:
        link.close()
    return link is not None


def churn(ports: list[int], _held: list[socket.socket]) -> None:
    for port in ports:
        if link := connect(port):
            link.close()


def rubbish(ports: list[int], _held: list[socket.socket]) -> None:
    for port in ports:
        if link := connect(port):
            with suppress(OSError):
                link.sendall(b"[" * 4096)
            link.close()


def silence(ports: list[int], held: list[socket.socket]) -> None:
    held += filter(None, map(connect, ports))
    while len(held) > MOST:
        held.pop(0).close()


def drip(ports: list[int], held: list[socket.socket]) -> None:
    if len(held) < 60:
        silence(ports, held)
    for link in list(held):
        try:
            link.send(b"[")
        except OSError:
            held.remove(link)
            link.close()
    sleep(0.01)


MANNERS: dict[str, Callable[[list[int], list[socket.socket]], None]] = {
    "connect and hang up": churn,
    "connect and send rubbish": rubbish,
    "connect and keep silent": silence,
    "send a byte now and then": drip,
}


def flood(manner: str, ports: Any, chosen: Any) -> None:
    """Connect to the ports that are chosen; to none if that is −1."""
    held: list[socket.socket] = []
    before = -1
    while True:
        if chosen.value != before:
            before = chosen.value
            for link in held:
                link.close()
            held.clear()
        if before < 0:
            sleep(0.01)
        else:
            MANNERS[manner](ports[before], held)


def steps_since(out: Path, since_s: float) -> int:
    return sum(t > since_s for t, _, _ in lines(out)["w0"])


def slowdown(manner: str) -> float:
    """Steps of a training under the flood, relative to those without it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        unused, before = listener.getsockname()[1], listening()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        out.mkdir()
        with job(out, "elastic", "26 k", [Member("w0"), Member("w1")]) as run:
            run.settle()
            more_steps(out, 20)
            ports = [port for port in sorted(listening() - before) if answers(port)]
            chosen = mp.Value("i", -1)
            other = mp.Process(target=flood, args=(manner, [[unused], ports], chosen), daemon=True)
            other.start()
            ratios = []
            for _ in range(WINDOWS):
                done = []
                for choice in (0, 1):
                    chosen.value = choice
                    sleep(0.3)
                    began_s = monotonic()
                    sleep(WINDOW_S)
                    done.append(steps_since(out, began_s))
                ratios.append(done[1] / done[0])
            other.kill()
            say(f"{manner}: at {len(ports)} ports")
            assert run.observe().state == "running"
    return median(ratios)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    table = Table("flood", "steps, relative to those without it")
    for manner in MANNERS:
        table.add_row(manner, f"{slowdown(manner):.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
