"""Measure what a change of members costs a training: elastic, torchrun, checkpoint and restart.

A gap is the time from the end of the last step before a change to the end of the first step
after it, at the member that waits longest; a pause is that without the step itself. Restarts pay
for processes, imports and files; the more others use the machine, the longer. `--quick` leaves
the restarts out. Results are printed and go to bench/elastic.json.
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
from rota.elastic import Job, JobSpec, Member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCRIPT = Path(__file__).with_name("elastic_job.py")
ENV = {"PYTHONPATH": f"{Path(rota.__file__).parents[1]}:{Path(__file__).parent}"}
PACE_S = 0.01
REPEATS = 5
LIMIT_S = 600.0

Line = tuple[float, str, int]


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
def job(out: Path, way: str, size: str, members: list[Member], **config: Any) -> Iterator[Job]:
    facts = {"way": way, "out": str(out), "size": size, "pace_s": PACE_S, **config}
    spec = JobSpec(
        command=(sys.executable, str(SCRIPT), json.dumps(facts)),
        members=tuple(members),
        mode="servers" if any(member.kind == "server" for member in members) else "allreduce",
        env=ENV,
        preload=("torch", "torch._dynamo", "rota.elastic.trainer"),
    )
    run = Job.launch(out.parent / "job", spec)
    try:
        yield run
    except TimeoutError as error:
        error.add_note((run.folder / "agent.log").read_text()[-4000:])
        raise
    finally:
        if run.result is None:
            run.stop(10)
            run.wait(60)


def survivors(out: Path, since_s: float) -> tuple[float, float]:
    """Gap and pause of the last change, at the member that waited longest."""
    gaps = []
    for rows in lines(out).values():
        late = [row for row in rows if row[0] > since_s]
        groups = [g for _, g, _ in rows]
        if not late or groups[0] == groups[-1]:
            continue
        first = groups.index(groups[-1])
        stays = len(rows) > first + 1  # a leaver ends with the change
        if first and stays and rows[first][0] > since_s:
            after = [b[0] - a[0] for a, b in zip(rows[first:], rows[first + 1 :], strict=False)]
            gap = rows[first][0] - rows[first - 1][0]
            gaps.append((gap, gap - median(after)))
    return max(gaps)


def elastic(size: str, mode: str) -> dict[str, tuple[float, float]]:
    """Median gap and pause of joining, leaving and losing a worker, or a server."""
    kind = "server" if mode == "servers" else "worker"
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        out.mkdir()
        base = [Member("w0")] + ([Member("s0", "server")] if mode == "servers" else [])
        with job(out, "elastic", size, base) as run:
            run.settle()
            for k in range(REPEATS):
                first, second = Member(f"x{k}", kind), Member(f"y{k}")
                for label, members in (
                    (f"{kind} joins", [*base, first]),
                    ("worker joins", [*base, first, second]),
                    ("worker is killed", None),
                    (f"{kind} leaves", base),
                ):
                    since_s = monotonic()
                    count = steps(out)
                    wait(lambda count=count: steps(out) > count + 5)
                    if members is None:
                        before = run.observe().generation
                        text = (run.folder / "agent.log").read_text()
                        pid = int(text.split(f"started y{k} as process ")[1].split()[0])
                        os.kill(pid, signal.SIGKILL)
                        wait(lambda before=before: run.observe().generation > before)
                    else:
                        run.resize(members)
                        run.settle()
                    count = steps(out)
                    wait(lambda count=count: steps(out) > count + 5)
                    found.setdefault(label, []).append(survivors(out, since_s))
    return {
        label: (median(gap for gap, _ in rows), median(pause for _, pause in rows))
        for label, rows in found.items()
    }


# Restarts.


def all_of(out: Path, since_s: float) -> tuple[float, float]:
    """Gap and pause of a change in which nobody stays: from the last step to the first."""
    rows = sorted(row for found in lines(out).values() for row in found)
    before = [row for row in rows if row[0] <= since_s]
    last_group = rows[-1][1]
    after = [row for row in rows if row[1] == last_group]
    old = [row for row in rows if row[1] != last_group]
    gap = after[0][0] - max(old[-1][0], before[-1][0])
    times = [t for t, _, _ in after]
    pace = (times[-1] - times[0]) / max(1, after[-1][2] - after[0][2])
    return gap, gap - pace


def plain(out: Path, size: str, rank: int, n: int, port: int) -> subprocess.Popen[bytes]:
    env = {"RANK": str(rank), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), settings(out, size)],
        env={**os.environ, **ENV, **env, "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
    )


def settings(out: Path, size: str) -> str:
    facts = {"way": "restarted", "out": str(out), "size": size, "pace_s": PACE_S, "save_every": 20}
    return json.dumps(facts)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def by_hand(size: str) -> dict[str, tuple[float, float]]:
    """A checkpoint, all processes end, all start again: one worker more."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        running = [plain(out, size, 0, 1, free_port())]
        wait(lambda: steps(out) > 20)
        since_s, port = monotonic(), free_port()
        (out / "stop").touch()
        for process in running:
            process.wait(LIMIT_S)
        (out / "stop").unlink()
        running = [plain(out, size, rank, 2, port) for rank in range(2)]
        wait(lambda: steps(out, since_s) > 0 and len(lines(out)) >= 3)
        sleep(3)
        (out / "stop").touch()
        for process in running:
            process.wait(LIMIT_S)
        return {"worker joins": all_of(out, since_s)}


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


def torchrun(size: str) -> dict[str, tuple[float, float]]:
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
            since_s = monotonic()
            agents.append(agent(out, size, store.port))
            wait(
                lambda: any(row[1].startswith("2.") for rows in lines(out).values() for row in rows)
            )
            sleep(3)
            found["worker joins"] = all_of(out, since_s)
            since_s = monotonic()
            newest = max(
                (p for p in out.iterdir() if not p.suffix), key=lambda p: p.stat().st_ctime
            )
            os.kill(int(newest.name), signal.SIGKILL)
            known = groups(out)
            wait(lambda: bool(groups(out) - known))
            sleep(3)
            found["worker is killed"] = all_of(out, since_s)
        finally:
            for process in agents:
                process.terminate()
            for process in agents:
                process.wait(60)
    return found


def cost(size: str, workers: int, blocks: int) -> dict[str, float]:
    """A step of an elastic training that nobody changes, against a plain one."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        out.mkdir()
        members = [Member(f"w{k}") for k in range(workers)]
        with job(out, "compared", size, members, workers=workers, blocks=blocks) as run:
            run.wait(LIMIT_S)
        return dict(json.loads((out / "cost.json").read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="leave the restarts out")
    parser.add_argument("--size", action="append", choices=SIZES, help="only these models")
    options = parser.parse_args()
    console, results = Console(), {}
    table = Table(
        "parameters", "way", "change", "gap", "pause", "restart / elastic", title="Changes"
    )
    for size in options.size or SIZES:
        console.print(f"{size} parameters …", style="dim")
        ways: dict[str, dict[str, tuple[float, float]]] = {
            "elastic": elastic(size, "allreduce"),
            "elastic, servers": elastic(size, "servers"),
        }
        if not options.quick:
            ways |= {"torchrun": torchrun(size), "checkpoint": by_hand(size)}
        results[size] = ways
        for way, changes in ways.items():
            for change, (gap, pause) in changes.items():
                base = ways["elastic"].get(change)
                ratio = f"{gap / base[0]:.0f}" if base and not way.startswith("elastic") else ""
                row = f"{1e3 * gap:,.0f} ms", f"{1e3 * pause:,.1f} ms", ratio
                table.add_row(size, way, change, *row)
    console.print(table)
    costs = Table("parameters", "workers", "plain step", "elastic / plain", title="Cost of a step")
    for size in options.size or SIZES:
        for workers in (1, 2):
            found = cost(size, workers, 4 if size == "25 M" else 40)
            results.setdefault(size, {})[f"cost {workers}"] = found
            costs.add_row(
                size, str(workers), f"{found['plain_ms']:.2f} ms", f"{found['ratio']:.3f}"
            )
    console.print(costs)
    Path(__file__).with_suffix(".json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
