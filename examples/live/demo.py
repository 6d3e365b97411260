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
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rota.backends.local import Request, Store
from rota.backends.local.backend import TICK_S
from rota.backends.local.live import LOOK_S
from rota.backends.local.store import STEADY_S
from rota.core import Cluster, JobTable
from rota.core.speed import Curves
from rota.dash.gantt import Course, gantt
from rota.dash.page import page, table
from rota.elastic import Job, JobSpec, Member
from rota.elastic.cradle import Cradle
from rota.elastic.parking import ENV_PARK, ENV_RESUME
from rota.perf.physics import Physics
from rota.policies import make_policy
from rota.run.journal import Journal
from rota.run.reader import read_journal
from rota.run.stints import stints
from rota.sim import simulate
from rota.traces import Trace

if TYPE_CHECKING:
    from rota.core import Decision, Policy, Snapshot

SCRIPT = Path(__file__).with_name("train.py")
NODES, GPUS, ASKED, MOST = 2, 2, 2, 4
PRELOAD = ("torch", "torch._dynamo", "rota.elastic.trainer")
KINDS = {"image": (4.0, 5.0), "words": (3.0, 40.0), "table": (2.0, 15.0)}
"""Milliseconds that the absent GPU takes: per sample, and per step."""
JOBS = (
    (0.0, "image", 60), (2.0, "words", 60), (4.0, "table", 60), (8.0, "image", 25),
    (12.0, "table", 90), (16.0, "words", 30),
)  # fmt: skip
"""When each is submitted, what it is, and for how many epochs it trains."""
READ = "A row per job: the taller its bar, the more workers; along the thin line it waits."
SAMPLES, BATCH = 320, 64
MEASURE_S, EVERY_S = 3.0, 5.0
NOTICE_S = (LOOK_S + TICK_S) / 2
"""How long it takes a daemon on average to see that a job is over."""
FILLER = "table"


@dataclass(frozen=True)
class Kind:
    """What was measured of one kind of training."""

    speed: dict[int, float]
    """Samples per second, by workers."""
    start_s: float
    """From its launch to its first step."""
    end_s: float
    """From its last step until its processes are gone."""
    restart_s: float
    """The same of a stop and the next start: what both hold GPUs for without a step."""
    resize_s: float
    """What a resize costs from the request on, in seconds at its new speed."""
    pause_s: float
    """How long of that nobody trains."""


@dataclass(frozen=True)
class AsLive:
    """A policy that is asked as often, and told as much, as a daemon does."""

    policy: Policy

    def decide(self, snapshot: Snapshot) -> Decision:
        rows = snapshot.jobs.rows.copy()
        new = rows["progress_s"] < STEADY_S  # nobody knows yet how long these take
        rows["estimate_s"][new] = rows["remaining_s"][new] = np.nan
        decision = self.policy.decide(replace(snapshot, jobs=JobTable(rows)))
        return replace(decision, wake_s=min(decision.wake_s, snapshot.time_s + EVERY_S))


def command(kind: str, epochs: int) -> tuple[str, ...]:
    device_ms, fixed_ms = KINDS[kind]
    words = {"epochs": epochs, "samples": SAMPLES, "batch": BATCH, "device-ms": device_ms,
             "fixed-ms": fixed_ms}  # fmt: skip
    options = [word for key, value in words.items() for word in (f"--{key}", str(value))]
    return (sys.executable, str(SCRIPT), kind, *options)


def started(
    kind: str, folder: Path, cradle: Cradle, names: list[str], **env: Path
) -> tuple[Job, float]:
    """A training that goes on for long, and how long it took from its launch to its first step."""
    spec = JobSpec(
        command=command(kind, 100_000), members=tuple(Member(name) for name in names),
        preload=PRELOAD, env={key: str(value) for key, value in env.items()},
    )  # fmt: skip
    began_s = time.monotonic()
    job = Job.launch(folder, spec, cradle)
    while job.observe().busy_s == 0:
        time.sleep(0.02)
    return job, time.monotonic() - began_s


def stopped(job: Job) -> float:
    """How long it takes until nothing is left of a training that is to end."""
    asked_s = time.monotonic()
    job.stop()
    job.wait(60)
    return time.monotonic() - asked_s


def resized(job: Job, names: list[str]) -> tuple[float, float, float]:
    """Samples per second at the new size; seconds at that speed that the change cost; its pause."""
    before, asked_s = job.observe(), time.monotonic()
    job.resize(names)
    status = job.settle()
    begun, begun_s = job.observe(), time.monotonic()
    time.sleep(MEASURE_S)
    after, after_s = job.observe(), time.monotonic()
    speed = (after.samples - begun.samples) / (after_s - begun_s)
    lost_s = begun_s - asked_s - (begun.samples - before.samples) / speed
    return speed, lost_s, status.last.pause_s if status.last else 0.0


def measure(kind: str, folder: Path, cradle: Cradle) -> Kind:
    """Run one training with 1, 2 and 4 workers, then fewer again, and stop it and start it again.

    Another training holds the rest of the cluster, as others will: they share the machine.
    """
    other, _ = started(FILLER, folder / "other", cradle, ["f0", "f1", "f2"])
    parked = folder / "parked"
    job, start_s = started(kind, folder / "first", cradle, ["w0"], **{ENV_PARK: parked})
    alone, _, _ = resized(job, ["w0"])
    other.resize(["f0", "f1"])
    other.settle()
    two = resized(job, ["w0", "w1"])
    stopped(other)
    four = resized(job, ["w0", "w1", "w2", "w3"])
    speed = {1: alone, 2: two[0], 3: (two[0] + four[0]) / 2, 4: four[0]}
    changes = [two, four, resized(job, ["w0", "w1"]), resized(job, ["w0"])]
    end_s = stopped(job)
    job, again_s = started(kind, folder / "second", cradle, ["w0"], **{ENV_RESUME: parked})
    stopped(job)
    lost_s, pause_s = np.mean([change[1:] for change in changes], axis=0)
    return Kind(speed, start_s, end_s, end_s + again_s, max(0.0, float(lost_s)), float(pause_s))


def predict(kinds: dict[str, Kind], policy: str, journal: Path) -> None:
    """What the simulator says; starting and ending count as work, since they hold GPUs too.

    Its policy is asked as often as by the daemon, and as little is known of curves and lengths.
    """
    names = tuple(kinds)
    speed = np.zeros((len(names), 1, NODES + 1, MOST + 1))
    for row, kind in zip(speed, kinds.values(), strict=True):
        for size, rate in kind.speed.items():
            row[0, 1 : min(size, NODES) + 1, size] = rate
    curves = Curves(names, ("cpu",), speed, True, np.full((len(names), 2), (NODES, MOST)))
    asked = np.array([kinds[name].speed[ASKED] for _, name, _ in JOBS])
    own = [kinds[name] for _, name, _ in JOBS]
    around_s = np.array([kind.start_s + kind.end_s + NOTICE_S for kind in own])
    work = np.array([SAMPLES * epochs for _, _, epochs in JOBS]) + around_s * asked
    trace = Trace.build(
        "live", submit_s=np.array([at for at, _, _ in JOBS]), duration_s=work / asked,
        num_gpus=np.full(len(JOBS), ASKED), min_workers=np.ones(len(JOBS), int),
        max_workers=np.full(len(JOBS), MOST), samples=work, models=names,
        model=np.array([names.index(name) for _, name, _ in JOBS]),
        restart_s=[kind.restart_s for kind in own], resize_s=[kind.resize_s for kind in own],
    )  # fmt: skip
    cluster = Cluster.uniform(NODES, GPUS, gpu_type="cpu")
    meta = {"policy": policy, "total_gpus": cluster.total_gpus}
    with Journal.create(journal, meta=meta, force=True) as kept:
        physics = Physics(curves=curves, sight="observed")
        simulate(cluster, trace, AsLive(make_policy(policy)), physics=physics, journal=kept)


def live(policy: str, state: Path, tell: Progress) -> Path:
    """The same for real: a daemon, and users who submit."""
    store = Store(state)
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
            began_s = time.monotonic()
            uids = []
            for at_s, kind, epochs in JOBS:
                time.sleep(max(0.0, began_s + at_s - time.monotonic()))
                uids.append(store.submit(Request(
                    command=command(kind, epochs), cwd=str(state), env=dict(os.environ),
                    kind="elastic", name=f"{kind} {epochs}", user="demo", model=kind,
                    submitted_at=time.time(), workers=ASKED, min_workers=1, max_workers=MOST,
                    preload=PRELOAD,
                )))  # fmt: skip
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


def courses(journal: Path) -> tuple[list[Course], float]:
    """The course of every job, and their mean JCT; times from the first submission on."""
    with read_journal(journal) as view:
        outcome, (events, shares, offsets) = view.outcome(), view.events()
    began_s, end_s = float(outcome.submit_s.min()), float(outcome.done_s.max())
    held = stints(events, shares, offsets, end_s)
    rows = []
    for number, (_, kind, epochs) in enumerate(JOBS):
        own = [
            type(s)(s.begin_s - began_s, s.end_s - began_s, s.share) for s in held.get(number, [])
        ]
        rows.append(Course(
            f"{kind} {epochs}", list(KINDS).index(kind), float(outcome.submit_s[number]) - began_s,
            float(outcome.done_s[number]) - began_s, MOST, own,
        ))  # fmt: skip
    return rows, float((outcome.done_s - outcome.submit_s).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/live"))
    parser.add_argument("--static", default="fifo")
    parser.add_argument("--elastic", default="hull-greedy")
    options = parser.parse_args()
    out = options.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    (out / "measure").mkdir(parents=True)
    kinds, found = {}, {}
    console = Console()
    with Progress(console=console, transient=True) as tell:
        bar = tell.add_task("measuring each kind", total=len(KINDS))
        cradle = Cradle(PRELOAD)
        measure("table", out / "measure" / "first", cradle)  # it waits until all is imported
        for name in KINDS:
            kinds[name] = measure(name, out / "measure" / name, cradle)
            tell.advance(bar)
        cradle.close()
        for role in ("static", "elastic"):
            policy = getattr(options, role)
            predict(kinds, policy, out / f"{role}-simulated.db")
            (out / role).mkdir()
            real = live(policy, out / role, tell)
            found[role] = (policy, courses(out / f"{role}-simulated.db"), courses(real))
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
            pictures.append(f"<figure>{gantt(name, title, READ, rows, end_s)}</figure>")
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
