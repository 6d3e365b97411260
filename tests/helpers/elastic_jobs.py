"""Real jobs for the tests of rota.elastic: launched on loopback, ended when the test is over."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from children import PATIENCE_S, eventually

import rota
from rota.elastic import ElasticJob, JobSpec, Member, TimeLimits
from rota.elastic.agent_forkserver import AgentForkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rota.elastic import Status

SCRIPT = Path(__file__).with_name("elastic_script.py")
LIMIT_S = 180.0
PATIENT = TimeLimits(
    start_s=PATIENCE_S, connect_s=LIMIT_S, transfer_s=LIMIT_S, silent_s=LIMIT_S, leave_s=LIMIT_S,
    stall_s=PATIENCE_S,
)  # fmt: skip
PRELOAD = ("torch", "torch._dynamo", "rota.elastic.training")
SOURCE = str(Path(rota.__file__).parents[1])
os.environ["PYTHONPATH"] = SOURCE  # for whatever the tests start


@cache
def fork_server() -> AgentForkServer:
    """Forks most jobs of the tests; importing torch for each of them would take minutes."""
    made = AgentForkServer(PRELOAD)
    atexit.register(made.close)
    return made


@dataclass(frozen=True)
class Trial:
    """A job, and what its members have written."""

    job: ElasticJob
    out: Path

    def lines(self) -> list[dict[str, Any]]:
        """The lines that count: of a repeated step, the last attempt."""
        found = []
        for path in sorted(self.out.glob("*.jsonl")):
            for text in path.read_text().splitlines():
                with suppress(ValueError):  # cut off by a kill
                    found.append(json.loads(text))
        last: dict[int, int] = {}
        for line in found:
            if "step" in line:
                last[line["step"]] = max(last.get(line["step"], 0), line["generation"])
        return [x for x in found if "step" not in x or x["generation"] == last[x["step"]]]

    def losses(self) -> dict[int, float]:
        """Mean loss of every step, over all workers."""
        total: Counter[int] = Counter()
        for line in self.lines():
            if "loss" in line:
                total[line["step"]] += line["loss"]
        return dict(sorted(total.items()))

    def taken(self) -> Counter[tuple[int, int]]:
        """How often each (epoch, sample) was trained on."""
        return Counter(
            (line["epoch"], sample) for line in self.lines() for sample in line.get("took", ())
        )

    def ends(self) -> list[float]:
        """Sum of the parameters at the end, of every member of the last group."""
        return [line["end"] for line in self.lines() if "end" in line]

    def pid(self, name: str) -> int:
        """The process id of a member, from the agent's log."""
        return int(self.text().split(f"started {name} as process ")[1].split()[0])

    def text(self, name: str = "agent.log") -> str:
        """What the agent, or a member, has written."""
        return (self.job.folder / name).read_text()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(name), number)

    def change_at(self, step: int, members: Sequence[Member | str]) -> Status:
        """Ask for members while all wait at a gate, and open it when the agent sends switch."""
        self.until(step)
        told = self.text().count("'op': 'switch'")
        self.job.resize(members)
        self.see(lambda _: self.text().count("'op': 'switch'") > told)
        self.open(step)
        return self.job.settle(PATIENCE_S)

    def open(self, step: int) -> None:
        """Let members that wait at a step go on."""
        (self.out / f"gate{step}").touch()

    def see(self, what: Callable[[Status], bool], timeout_s: float = PATIENCE_S) -> Status:
        """Wait until the job is in some state."""
        until_s = monotonic() + timeout_s
        while not what(status := self.job.observe()):
            assert status.state != "failed", status
            assert monotonic() < until_s, status
            sleep(0.01)
        return status

    def members(self, names: Sequence[str]) -> None:
        """Wait until exactly these train."""
        self.see(lambda status: status.state == "running" and set(status.active) == set(names))

    def until(self, step: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the job has come to a step."""
        self.see(lambda status: status.step >= step, timeout_s)


def script(out: Path, **config: Any) -> tuple[str, ...]:
    out.mkdir(exist_ok=True)
    return (sys.executable, str(SCRIPT), json.dumps({"out": str(out), **config}))


@contextmanager
def trial(
    folder: Path,
    members: Sequence[str | Member] = ("w0",),
    *,
    limits: TimeLimits | None = None,
    mode: Any = "allreduce",
    command: tuple[str, ...] | None = None,
    env: Mapping[str, str] | None = None,
    out: Path | None = None,
    park_every_s: float = 300.0,
    threads: int = 0,
    **config: Any,
) -> Iterator[Trial]:
    """A job that is over, with all its processes, when the block is."""
    out = out or folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    spec = JobSpec(
        command=command or script(out, **config),
        members=tuple(Member(m) if isinstance(m, str) else m for m in members),
        mode=mode,
        env={"PYTHONPATH": SOURCE, **(env or {})},
        preload=() if command else PRELOAD,
        limits=limits or PATIENT,
        park_every_s=park_every_s,
        threads=threads,
    )
    with ending(folder / "job"):
        yield Trial(ElasticJob.launch(folder / "job", spec, fork_server()), out)


@contextmanager
def ending(job: Path) -> Iterator[None]:
    """The job that is launched in this folder is over, with all its processes, after the block."""
    try:
        yield
    finally:
        found = job / "agent.json"
        agent = json.loads(found.read_text())["pid"] if found.exists() else None
        if agent is not None:
            with suppress(ProcessLookupError):
                os.kill(agent, signal.SIGTERM)
            processes = (agent, *_started(job))
            eventually(
                lambda: not any(map(runs, processes)),
                lambda: f"of {processes} some outlived their job",
            )


def _started(job: Path) -> list[int]:
    log = job / "agent.log"
    text = log.read_text() if log.is_file() else ""
    return [int(part.split()[0]) for part in text.split(" as process ")[1:]]


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False
