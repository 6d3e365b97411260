"""Six real trainings on this machine, under a static and under an elastic policy.

    python examples/live/demo.py --out out/live

First every kind of training is measured with 1 to 4 workers, beside another that fills the cluster,
and so is what a start, a resize, and a stop with the next start cost it. From that the simulator
predicts both runs; then both are run for real by `rota run`, and the four are put side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from measure import (
    KINDS,
    MOST,
    NOTICE_S,
    PRELOAD,
    SAMPLES,
    command,
    measure,
    started,
    stopped,
)
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rota.backends.local import Request, StateDir
from rota.backends.local.held import STEADY_S
from rota.core import Cluster, JobTable
from rota.core.speed import Curves
from rota.dash.axes import time_axis
from rota.dash.gantt import Bar, Course, gantt
from rota.dash.page import page, table
from rota.elastic.agent_forkserver import AgentForkServer
from rota.perf.physics import Physics
from rota.policies import make_policy
from rota.run.journal import Journal
from rota.run.reader import read_journal
from rota.run.stints import Stints
from rota.sim import simulate
from rota.traces import Trace

if TYPE_CHECKING:
    from measure import (
        Kind,
    )

    from rota.core import Decision, Policy, Snapshot

NODES, GPUS, ASKED = 2, 2, 2
JOBS = (
    (0.0, "image", 60), (2.0, "words", 60), (4.0, "table", 60), (8.0, "image", 25),
    (12.0, "table", 90), (16.0, "words", 30),
)  # fmt: skip
"""When each is submitted, what it is, and for how many epochs it trains."""
READ = "A row per job: the taller its bar, the more workers; along the thin line it waits."
EVERY_S = 5.0
LATE_S = 0.1
"""A job is submitted at most so much later than it should be."""
WORLDS, SPREAD = 20, 0.03
"""Simulations of one run, and the standard deviation of what a speed is if measured again."""


@dataclass(frozen=True)
class AsLive:
    """A policy that is asked as often, and told as much, as a daemon does."""

    policy: Policy

    def decide(self, snapshot: Snapshot) -> Decision:
        rows = snapshot.jobs.rows.copy()
        new = rows["progress_s"] < STEADY_S  # it is not known yet how long these take
        rows["estimate_s"][new] = rows["remaining_s"][new] = np.nan
        decision = self.policy.decide(replace(snapshot, jobs=JobTable(rows)))
        return replace(decision, wake_s=min(decision.wake_s, snapshot.time_s + EVERY_S))


def predict(kinds: dict[str, Kind], policy: str, folder: Path) -> tuple[Path, float]:
    """What the simulator says: the first of many journals, and the mean JCT of all.

    A policy that learns curves reacts to small differences: a tenth of a second may decide which
    job is stopped. So arrivals and speeds differ a little from simulation to simulation.
    """
    rng, found = np.random.default_rng(0), []
    for number in range(WORLDS):
        path = folder / f"{policy}-{number}.db"
        _simulate(kinds, policy, path, rng)
        found.append(courses(path)[1])
    return folder / f"{policy}-0.db", float(np.mean(found))


def _simulate(kinds: dict[str, Kind], policy: str, journal: Path, rng: np.random.Generator) -> None:
    """One simulation; starting and ending count as work, since they hold GPUs too.

    Its policy is asked as often as by the daemon, and as little is known of curves and lengths.
    """
    names, own = tuple(kinds), [kinds[name] for _, name, _ in JOBS]
    speed = np.zeros((len(names), 1, NODES + 1, MOST + 1))
    for row, kind in zip(speed, kinds.values(), strict=True):
        for size, rate in kind.speed.items():
            row[0, 1 : min(size, NODES) + 1, size] = rate * np.exp(SPREAD * rng.standard_normal())
    curves = Curves(names, ("cpu",), speed, True, np.full((len(names), 2), (NODES, MOST)))
    model = np.array([names.index(name) for _, name, _ in JOBS])
    asked = speed[model, 0, 1, ASKED]
    around_s = np.array([kind.start_s + kind.end_s + NOTICE_S for kind in own])
    work = np.array([SAMPLES * epochs for _, _, epochs in JOBS]) + around_s * asked
    came_s = np.array([at_s for at_s, _, _ in JOBS]) + rng.uniform(0.0, LATE_S, len(JOBS))
    trace = Trace.build(
        "live", submit_s=came_s, duration_s=work / asked, num_gpus=np.full(len(JOBS), ASKED),
        min_workers=np.ones(len(JOBS), int), max_workers=np.full(len(JOBS), MOST), samples=work,
        models=names, model=model, restart_s=[kind.restart_s for kind in own],
        resize_s=[kind.resize_s for kind in own],
    )  # fmt: skip
    cluster = Cluster.uniform(NODES, GPUS, gpu_type="cpu")
    meta = {"policy": policy, "total_gpus": cluster.total_gpus}
    with Journal.create(journal, meta=meta, force=True) as kept:
        physics = Physics(curves=curves, sight="observed")
        simulate(cluster, trace, AsLive(make_policy(policy)), physics=physics, journal=kept)


def live(policy: str, state: Path, tell: Progress) -> Path:
    """The same for real: a daemon, and users that submit."""
    store = StateDir(state)
    words = [sys.executable, "-m", "rota", "run", "--policy", policy, "--nodes", str(NODES),
             "--gpus", str(GPUS), "--every", f"{EVERY_S:g}", "--state", str(state)]  # fmt: skip
    words += [word for name in PRELOAD for word in ("--warm", name)]
    bar = tell.add_task(f"{policy}, real", total=len(JOBS))
    with (state / "daemon.log").open("w") as log:
        daemon = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            while store.daemon() is None:
                if daemon.poll() is not None:
                    sys.exit(f"The daemon did not start; see {state / 'daemon.log'}.")
                time.sleep(0.05)
            first = store.submit(_request("table", 1, state))
            while store.ended(first) is None:  # all is imported then, as when it was measured
                time.sleep(0.05)
            began_s = time.monotonic()
            uids = []
            for at_s, kind, epochs in JOBS:
                time.sleep(max(0.0, began_s + at_s - time.monotonic()))
                uids.append(store.submit(_request(kind, epochs, state)))
            while left := [uid for uid in uids if store.ended(uid) is None]:
                tell.update(bar, completed=len(JOBS) - len(left))
                if daemon.poll() is not None:
                    sys.exit(f"The daemon has ended; see {state / 'daemon.log'}.")
                time.sleep(0.2)
            tell.update(bar, completed=len(JOBS))
            time.sleep(1.0)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)
    failed = [(uid, ended) for uid in uids if (ended := store.ended(uid)).state != "done"]
    if failed:
        sys.exit(f"Job {failed[0][0]} {failed[0][1].state}: {failed[0][1].error}")
    return state / "journal.db"


def _request(kind: str, epochs: int, state: Path) -> Request:
    return Request(
        command=command(kind, epochs), cwd=str(state), env=dict(os.environ), kind="elastic",
        name=f"{kind} {epochs}", user="demo", model=kind, submitted_at=time.time(),
        workers=ASKED, min_workers=1, max_workers=MOST, preload=PRELOAD,
    )  # fmt: skip


def courses(journal: Path) -> tuple[list[Course], float]:
    """The course of every job, and their mean JCT; times from the first submission on."""
    with read_journal(journal) as view:
        outcome, found = view.outcome(), view.events()
    first = len(outcome.submit_s) - len(JOBS)  # before them a real run has one to warm up
    submit_s, done_s = outcome.submit_s[first:], outcome.done_s[first:]
    began_s, end_s = float(submit_s.min()), float(done_s.max())
    held = Stints.of(found, end_s)
    rows = []
    for number, (_, kind, epochs) in enumerate(JOBS):
        at = held.of_job(first + number)
        own = [
            Bar(begin_s - began_s, end_s - began_s, workers)
            for begin_s, end_s, workers in zip(
                *(column[at].tolist() for column in (held.begin_s, held.end_s, held.workers)),
                strict=True,
            )
        ]
        rows.append(Course(
            f"{kind} {epochs}", list(KINDS).index(kind), float(submit_s[number]) - began_s,
            float(done_s[number]) - began_s, MOST, own,
        ))  # fmt: skip
    return rows, float((done_s - submit_s).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/live"))
    parser.add_argument("--static", default="fifo")
    parser.add_argument("--elastic", default="hull-greedy")
    options = parser.parse_args()
    out = options.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    for name in ("measure", "simulated"):
        (out / name).mkdir(parents=True)
    kinds, found = {}, {}
    console = Console()
    with Progress(console=console, transient=True) as tell:
        bar = tell.add_task("measuring each kind", total=len(KINDS))
        fork_server = AgentForkServer(PRELOAD)
        first, _ = started("table", out / "measure" / "first", fork_server, ["w0"])
        stopped(first)  # by then all is imported
        for name in KINDS:
            kinds[name] = measure(name, out / "measure" / name, fork_server)
            tell.advance(bar)
        fork_server.close()
        for role in ("static", "elastic"):
            policy = getattr(options, role)
            drawn, told_s = predict(kinds, policy, out / "simulated")
            (out / role).mkdir()
            real = live(policy, out / role, tell)
            found[role] = (policy, (courses(drawn)[0], told_s), courses(real))
    report(out, kinds, found, console)


def report(out: Path, kinds: dict[str, Kind], found: dict, console: Console) -> None:
    """The table, on the screen, as JSON and as a page with Gantt charts."""
    end_s = max(row.end_s for _, *pair in found.values() for rows, _ in pair for row in rows)
    sheet = Table("policy", "simulated", "real", "off", title="mean JCT of six trainings, seconds")
    lines, pictures, facts = [], [], {}
    for role, (policy, (told, told_s), (seen, seen_s)) in found.items():
        cells = (
            f"{role}: {policy}",
            f"{told_s:.1f}",
            f"{seen_s:.1f}",
            f"{told_s / seen_s - 1:+.1%}",
        )
        sheet.add_row(*cells)
        lines.append(("", cells))
        facts[role] = {"policy": policy, "simulated_s": told_s, "real_s": seen_s}
        for where, rows in (("what really happened", seen), ("what the simulator said", told)):
            title = f"{policy}: {where}"
            name = f"{role}-{'real' if rows is seen else 'sim'}"
            pictures.append(gantt(name, title, READ, rows, time_axis("time", end_s)))
    console.print(sheet)
    static, elastic = facts["static"], facts["elastic"]
    gains = {key: elastic[key] / static[key] - 1 for key in ("simulated_s", "real_s")}
    words = (f"elastic against static: {gains['real_s']:+.1%} really, "
             f"{gains['simulated_s']:+.1%} in the simulator")  # fmt: skip
    console.print(words)
    measured = [
        ("", (name, *(f"{kind.speed[n]:.0f}" for n in (1, 2, 4)), f"{kind.start_s:.1f}",
              f"{kind.end_s:.1f}", f"{kind.restart_s:.1f}", f"{kind.resize_s:.2f}",
              f"{1000 * kind.pause_s:.0f}"))
        for name, kind in kinds.items()
    ]  # fmt: skip
    heads = ("kind", "1 worker", "2", "4 (samples/s)", "start (s)", "end (s)",
             "stop and start (s)", "resize (s)", "its pause (ms)")  # fmt: skip
    body = [
        "<h1>Six trainings, live</h1>", f'<p class="lead">{words}</p>',
        table(("policy", "simulated", "real", "off"), lines, "mean JCT, seconds"), f"<p>{READ}</p>",
        *pictures,
        "<h2>Measured before</h2>", table(heads, measured),
    ]  # fmt: skip
    (out / "report.html").write_text(page("Six trainings, live", body))
    facts["measured"] = {name: asdict(kind) for name, kind in kinds.items()}
    (out / "result.json").write_text(json.dumps(facts, indent=1) + "\n")
    console.print(f"Written to {out / 'report.html'}.")


if __name__ == "__main__":
    main()
