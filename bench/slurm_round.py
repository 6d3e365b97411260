"""How long a round takes beside a large Slurm: 5,000 waiting jobs, 1,000 nodes, 1,000 running jobs.

Slurm's answers are recorded ones of the tests, copied so many times; its own time is not counted.
Prints the seconds of each part, at the median of some rounds, and the peak of memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from rota.backends.cluster_backend import ClusterBackend
from rota.backends.job_book import JobBook
from rota.backends.slurm.slurm_driver import SlurmDriver
from rota.backends.slurm.tools import Said, SlurmTools
from rota.policies.catalogue import make_policy
from rota.run.last_round import Deciders, LastRoundFile
from rota.run.loop import Round
from rota.run.speeds import Speeds
from rota.run.why import why_waiting

NOW_S = int(time.time())
REPLIES = Path(__file__).parent.parent / "tests" / "fixtures" / "slurm"


def nodes_text(count: int) -> str:
    """An answer of sinfo for so many nodes."""
    row = json.loads((REPLIES / "sinfo-22.05.json").read_text())["nodes"][0]
    return json.dumps({"nodes": [{**row, "name": f"n{k}"} for k in range(count)]})


def jobs_text(waiting: int, running: int, changed: int = 0) -> str:
    """An answer of squeue for so many jobs; `changed` makes another one."""
    row = json.loads((REPLIES / "squeue-22.05.json").read_text())["jobs"][0]
    rows: list[dict[str, Any]] = []
    for k in range(waiting + running):
        runs = k < running
        rows.append({
            **row, "job_id": k + 1, "array_job_id": 0, "array_task_id": None, "partition": "rota",
            "array_task_string": "", "name": f"job {k} {changed}",
            "comment": f"rota:model=m{k % 40}",
            "user_id": 1000 + k % 60, "user_name": f"user{k % 60}", "submit_time": NOW_S - 9000 + k,
            "time_limit": 60 + k % 600, "job_state": "RUNNING" if runs else "PENDING",
            "priority": 1000 if runs else 0, "nodes": f"n{k % 1000}" if runs else "",
            "admin_comment": "rota:held", "node_count": 1 + k % 2 * (not runs), "max_nodes": 2,
            "tres_per_node": f"gres:gpu:{1 + k % 4}", "start_time": NOW_S - 600 if runs else 0,
            "dependency": "", "required_nodes": "",
        })  # fmt: skip
    return json.dumps({"jobs": rows})


class RecordedTools(SlurmTools):
    """Answers from memory."""

    def __init__(self, jobs: str, nodes: str) -> None:
        super().__init__()
        self.jobs, self.nodes = jobs, nodes

    def ask(self, *words: str) -> str:
        return self.jobs if words[0] == "squeue" else self.nodes

    def run(self, *_words: str) -> Said:
        return Said(0, "", "")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--waiting", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--running", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    told = parser.parse_args()
    tools = RecordedTools(jobs_text(told.waiting, told.running), nodes_text(told.nodes))
    driver = SlurmDriver(tools, frozenset({"rota"}))
    policy = make_policy(told.policy)
    spans: dict[str, list[float]] = {}

    def timed(name: str, call: Any, *words: Any) -> Any:
        began_s = time.perf_counter()
        answer = call(*words)
        spans.setdefault(name, []).append(time.perf_counter() - began_s)
        return answer

    with tempfile.TemporaryDirectory() as folder:
        book = JobBook(Path(folder) / "journal.db", time.time() - 20_000)
        speeds = Speeds(Path(folder) / "speeds.npz")
        backend = ClusterBackend(driver, book, speeds, passive=True, root=Path(folder))
        last = LastRoundFile(Path(folder), Deciders(told.policy))
        backend.passive = False
        backend._order = lambda: None  # type: ignore[method-assign]  # commands are not measured
        backend.observe()
        for turn in range(told.rounds + 1):
            tools.jobs = jobs_text(told.waiting, told.running, turn)
            sight = timed("read the answers", driver.observe)
            timed("take them in", backend._see, backend._mind.begin_look(), sight)
            snapshot = timed("snapshot", backend.observe)
            decision = timed(f"decide ({told.policy})", policy.decide, snapshot)
            plan = timed("plan", decision.diff, snapshot)
            timed("write intents down", backend.apply, plan)
            why = timed("why jobs wait", why_waiting, snapshot, decision, told.policy)
            timed("write that down", backend.note_waits, why)
            timed("keep the round", last.write, Round(turn, snapshot, plan, 0.0, 0.0, ""))
            if turn == 0:
                spans.clear()  # the first round compiles
        total = sum(median(own) for own in spans.values())
        for name, own in spans.items():
            print(f"{name:24} {median(own):7.3f} s")
        print(f"{'together':24} {total:7.3f} s")
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"peak memory {peak_mb:.0f} MB; {threading.active_count()} threads")
        backend.close()


if __name__ == "__main__":
    main()
