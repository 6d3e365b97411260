"""Measure what a change of members costs a training: elastic, torchrun, checkpoint and restart.

A gap is the time from the end of the last step before a change to the end of the first step
after it, at the member that waits longest; a pause, as elastic members report it, is the part of it
that is neither the step before nor the one after. Restarts pay for processes, imports and files,
the more so on a busy machine. The steps they lose since the last checkpoint are not counted.
`--quick` leaves the restarts out. Results are printed and go to bench/elastic.json; all of it
takes eight minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import rota
from elastic_job import SIZES
from rota.elastic import ElasticJob, JobSpec, Member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCRIPT = Path(__file__).with_name("elastic_job.py")
ENV = {"PYTHONPATH": f"{Path(rota.__file__).parents[1]}:{Path(__file__).parent}"}
PACE_S = 0.01
REPEATS = {"26 k": 5, "2.5 M": 5, "25 M": 3}
LIMIT_S = 600.0
COSTS = (("26 k", 256, 200), ("2.5 M", 24, 20))
"""Models, batches and blocks of steps that are compared: steps of 2 ms and more."""

Line = tuple[float, str, int]
Gaps = dict[str, float]
"""Seconds by the change they belong to."""
err = Console(stderr=True)


def say(text: str) -> None:
    err.print(f"{monotonic() - BEGAN_S:4.0f} s  {text}", style="dim", highlight=False)


BEGAN_S = monotonic()


def lines(out: Path) -> dict[str, list[Line]]:
    """What each process has written: time, group, step."""
    found = {}
    for path in out.iterdir():
        if path.suffix:
            continue
        rows = [row.split() for row in path.read_text().splitlines()]
        found[path.name] = [(float(t), g, int(s)) for t, g, s in (r for r in rows if len(r) == 3)]
    return found


def groups(out: Path) -> set[str]:
    return {group for rows in lines(out).values() for _, group, _ in rows}


def wait(what: Callable[[], bool]) -> None:
    until_s = monotonic() + LIMIT_S
    while not what():
        if monotonic() > until_s:
            raise TimeoutError(f"nothing happened for {LIMIT_S:g} s")
        sleep(0.05)


def steps(out: Path, since_s: float = 0.0) -> int:
    return max((sum(t > since_s for t, _, _ in rows) for rows in lines(out).values()), default=0)


# Elastic.


@contextmanager
def job(
    out: Path, way: str, size: str, members: list[Member], **config: Any
) -> Iterator[ElasticJob]:
    facts = {"way": way, "out": str(out), "size": size, "pace_s": PACE_S, **config}
    spec = JobSpec(
        command=(sys.executable, str(SCRIPT), json.dumps(facts)),
        members=tuple(members),
        mode="servers" if any(member.kind == "server" for member in members) else "allreduce",
        env=ENV,
        preload=("torch", "torch._dynamo", "rota.elastic.training"),
    )
    run = ElasticJob.launch(out.parent / "job", spec)
    try:
        yield run
    except TimeoutError as error:
        error.add_note((run.folder / "agent.log").read_text()[-4000:])
        raise
    finally:
        if run.result is None:
            run.stop(10)
            run.wait(60)


def survivors(out: Path, since_s: float) -> float:
    """Gap of the last change, at the member that waited longest."""
    gaps = []
    for rows in lines(out).values():
        groups = [group for _, group, _ in rows]
        if not rows or rows[-1][0] <= since_s or groups[0] == groups[-1]:
            continue
        first = groups.index(groups[-1])
        stays = len(rows) > first + 1  # a leaver ends with the change
        if first and stays and rows[first][0] > since_s:
            gaps.append(rows[first][0] - rows[first - 1][0])
    return max(gaps)


def elastic(size: str, mode: str) -> tuple[Gaps, Gaps]:
    """Median gap and pause of joining, leaving and losing a worker, or a server."""
    kind = "server" if mode == "servers" else "worker"
    gaps: dict[str, list[float]] = {}
    pauses: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        out.mkdir()
        base = [Member("w0")] + ([Member("s0", "server")] if mode == "servers" else [])
        with job(out, "elastic", size, base) as run:
            run.settle()
            for k in range(REPEATS[size]):
                first, second = Member(f"x{k}", kind), Member(f"y{k}")
                for label, members in (
                    (f"{kind} joins", [*base, first]),
                    ("worker joins", [*base, first, second]),
                    ("worker is killed", None),
                    (f"{kind} leaves", base),
                ):
                    since_s = monotonic()
                    more_steps(out, 3)
                    change(run, members, f"y{k}")
                    more_steps(out, 3)
                    last = run.observe().last
                    assert last is not None
                    gaps.setdefault(label, []).append(survivors(out, since_s))
                    pauses.setdefault(label, []).append(last.pause_s)
                say(f"{size}, {mode}: {k + 1} of {REPEATS[size]} rounds")
    return medians(gaps), medians(pauses)


def more_steps(out: Path, many: int) -> None:
    count = steps(out)
    wait(lambda: steps(out) > count + many)


def change(run: ElasticJob, members: list[Member] | None, victim: str) -> None:
    """Ask for other members, or kill one; until that is done."""
    if members is not None:
        run.resize(members)
        run.settle()
        return
    status = run.observe()
    os.kill(status.pids[victim], signal.SIGKILL)
    wait(lambda: run.observe().generation > status.generation)


def medians(rows: dict[str, list[float]]) -> Gaps:
    return {label: median(row) for label, row in rows.items()}


# Restarts.


def all_of(out: Path, since_s: float) -> float:
    """Gap of a change that no process survives: from the last step before to the first after."""
    rows = sorted(row for found in lines(out).values() for row in found)
    after = [row for row in rows if row[1] == rows[-1][1]]
    before = [row for row in rows if row[1] != rows[-1][1] or row[0] <= since_s]
    return after[0][0] - before[-1][0]


def plain(out: Path, size: str, rank: int, n: int, port: int) -> subprocess.Popen[bytes]:
    env = {"RANK": str(rank), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), settings(out, size)],
        env={**os.environ, **ENV, **env, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,  # processes that lose the others print errors
    )


def settings(out: Path, size: str) -> str:
    facts = {"way": "restarted", "out": str(out), "size": size, "pace_s": PACE_S, "save_every": 20}
    return json.dumps(facts)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def by_hand(size: str) -> Gaps:
    """A checkpoint, all processes end, all start again: one worker more; then one is killed."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        running = [plain(out, size, 0, 1, free_port())]
        try:
            wait(lambda: steps(out) > 20)
            for label in ("worker joins", "worker is killed"):
                since_s, known = monotonic(), groups(out)
                if label == "worker joins":
                    (out / "stop").touch()
                else:
                    running[1].kill()
                for process in running:
                    process.wait(LIMIT_S)
                (out / "stop").unlink(missing_ok=True)
                port = free_port()
                running = [plain(out, size, rank, 2, port) for rank in range(2)]
                wait(lambda known=known: bool(groups(out) - known))
                found[label] = all_of(out, since_s)
                say(f"{size}, checkpoint and restart: {label}")
                more_steps(out, 20)
        finally:
            for process in running:
                process.kill()
                process.wait()
    return found


def agent(out: Path, size: str, store: int) -> subprocess.Popen[bytes]:
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1:4", "--nproc-per-node=1"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{store}", "--rdzv-id=j"),
            *("--max-restarts=20", "--rdzv-conf", "is_host=0,last_call_timeout=1"),
            *(str(SCRIPT), settings(out, size)),
        ],
        env={**os.environ, **ENV, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def torchrun(size: str) -> Gaps:
    """A second agent joins; then a worker is killed."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    agents: list[subprocess.Popen[bytes]] = []
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        try:
            agents.append(agent(out, size, store.port))
            wait(lambda: steps(out) > 20)
            for label in ("worker joins", "worker is killed"):
                since_s, known = monotonic(), groups(out)
                if label == "worker joins":
                    agents.append(agent(out, size, store.port))
                else:
                    written = [path for path in out.iterdir() if not path.suffix]
                    newest = max(written, key=lambda path: path.stat().st_ctime)
                    os.kill(int(newest.name), signal.SIGKILL)
                wait(lambda known=known: any(g.startswith("2.") for g in groups(out) - known))
                found[label] = all_of(out, since_s)
                say(f"{size}, torchrun: {label}")
                more_steps(out, 20)
        finally:
            for process in agents:
                process.terminate()
            for process in agents:
                process.wait(60)
    return found


# The cost of a step.


def cost(size: str, workers: int, batch: int, blocks: int) -> dict[str, float]:
    """A step of an elastic training without changes, against a plain one."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        out.mkdir()
        members = [Member(f"w{k}") for k in range(workers)]
        facts = {"workers": workers, "batch": batch, "blocks": blocks}
        with job(out, "compared", size, members, **facts) as run:
            run.wait(LIMIT_S)
        say(f"{size}, {workers} workers: cost of a step")
        return dict(json.loads((out / "cost.json").read_text()))


def ms(gap_s: float | None) -> str:
    return "" if gap_s is None else f"{1e3 * gap_s:,.0f} ms"


def changes(sizes: list[str], quick: bool) -> tuple[Table, dict[str, Any]]:
    """Gaps of all ways to change the members, by size and change."""
    names = ("elastic", "pause", "torchrun", "checkpoint", "torchrun / elastic")
    table = Table("parameters", "change", *names, title="Changes: gaps, and elastic pauses")
    results: dict[str, Any] = {}
    for size in sizes:
        gaps, pauses = elastic(size, "allreduce")
        served, served_pauses = elastic(size, "servers")
        run, hand = ({}, {}) if quick else (torchrun(size), by_hand(size))
        results[size] = {
            "elastic": gaps,
            "pauses": pauses,
            "servers": served,
            "servers' pauses": served_pauses,
            "torchrun": run,
            "checkpoint": hand,
        }
        for way, own, paused in (("", gaps, pauses), (", servers", served, served_pauses)):
            for label, gap in own.items():
                ratio = f"{run[label] / gap:.0f}" if label in run else ""
                restarts = ms(run.get(label)), ms(hand.get(label)), ratio
                table.add_row(size, label + way, ms(gap), ms(paused[label]), *restarts)
    return table, results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the restarts out")
    parser.add_argument("--size", action="append", choices=SIZES, help="only these models")
    options = parser.parse_args()
    table, results = changes(options.size or ["26 k", "25 M"], options.quick)
    costs = Table("parameters", "workers", "plain step", "elastic / plain", title="Cost of a step")
    for size, batch, blocks in COSTS:
        for workers in (1, 2):
            found = cost(size, workers, batch, blocks)
            results.setdefault(size, {})[f"cost {workers}"] = found
            step = f"{found['plain_ms']:.2f} ms"
            costs.add_row(size, str(workers), step, f"{found['ratio']:.3f}")
    console = Console()
    console.print(table)
    console.print(costs)
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
