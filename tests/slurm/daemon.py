"""`rota run --backend slurm` beside a private Slurm, and jobs that keep account of their runs."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from children import child, eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lab import Lab

SLEEP = "#!/bin/sh\nexec sleep {seconds}\n"
COUNTING = """\
#!/bin/sh
# Does STEPS steps of a tenth of a second, on n nodes n at a time; begins where it was stopped.
# Each run notes its beginning, its nodes and its end.
book="$SLURM_JOB_ID"
note() {{ echo "$1 $(date +%s.%N) $SLURM_JOB_NODELIST" >> "$book.ledger"; }}
trap 'note stopped; exit 0' TERM
done=$(cat "$book.steps" 2>/dev/null || echo 0)
note began
while [ "$done" -lt {steps} ]; do
   sleep .1 & wait $!
   done=$((done + SLURM_JOB_NUM_NODES))
   echo "$done" > "$book.part"; mv "$book.part" "$book.steps"
done
note ended
"""

SAVES = """\
#!/bin/sh
# Trains for ever in a step of its own, to which notice is given; says then that it has saved.
book="$SLURM_JOB_ID"
trap 'echo "stopped $(date +%s.%N) $SLURM_JOB_NODELIST" >> "$book.ledger"; exit 0' TERM
srun -N1 -n1 sh -c '
   note() { echo "$1 $(date +%s.%N) $SLURM_JOB_NODELIST" >> "$SLURM_JOB_ID.ledger"; }
   save() { note noticed; echo "{\\"samples\\": 1, \\"saved\\": $(date +%s.%N)}" > part
            mv part "rota-heartbeat-$SLURM_JOB_ID.json"; }
   trap save USR1
   note began
   while :; do sleep .2; done' &
while :; do wait $!; done
"""


class Daemon:
    """A running `rota run`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, state: Path) -> None:
        self.process, self.state, self._log = process, state, log

    @property
    def said(self) -> str:
        """What it has said so far."""
        return self._log.read_text(errors="replace")

    @property
    def journal(self) -> Path:
        """Its journal."""
        return self.state / "journal.db"

    def kill(self) -> None:
        """SIGKILL, whatever it is doing."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it in good order; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=600)


def rota_command(
    lab: Lab, policy: str, *, state: Path, interval: str = "1s", partition: str = "rota"
) -> list[str]:
    """How a daemon is started."""
    return [
        sys.executable, "-m", "rota", "run", "--backend", "slurm", "--partition", partition,
        "--policy", policy, "--interval", interval, "--state", str(state),
        "--heartbeat", str(lab.heartbeat),
    ]  # fmt: skip


@contextmanager
def daemon(
    lab: Lab,
    policy: str,
    *words: str,
    name: str = "rota",
    interval: str = "1s",
    partition: str = "rota",
    env: Mapping[str, str] | None = None,
) -> Iterator[Daemon]:
    """A daemon that manages a partition; it is killed at the end, if it runs still.

    Daemons with the same `name` have the same state directory.
    """
    state = lab.state / name
    log = lab.state / "log" / f"{name}.log"
    command = [
        *rota_command(lab, policy, state=state, interval=interval, partition=partition), *words
    ]  # fmt: skip
    before = log.stat().st_size if log.exists() else 0
    with (
        log.open("ab") as out,
        child(command, stdout=out, stderr=out, env=env or lab.env) as process,
    ):
        made = Daemon(process, log, state)

        def is_ready() -> bool:
            assert process.poll() is None, made.said
            return " of Slurm: " in log.read_text(errors="replace")[before:]

        eventually(is_ready, lambda: made.said)
        yield made


def ledger(lab: Lab, job: int | str) -> list[tuple[str, float, str]]:
    """What the runs of a job have noted: what, when, on which nodes."""
    path = lab.work / f"{job}.ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(what, float(when), nodes) for what, when, nodes in map(str.split, lines)]


def runs(lab: Lab, job: int | str) -> list[str]:
    """The nodes of each run of a job."""
    return [nodes for what, _, nodes in ledger(lab, job) if what == "began"]


def state_of(lab: Lab, job: int) -> str:
    """The state of a job."""
    return str(lab.jobs()[job]["job_state"])


def all_over(lab: Lab, *jobs: int) -> bool:
    """Whether these jobs have ended; one that fails is an error at once."""
    found = lab.jobs()
    states = {job: found[job]["job_state"] for job in jobs}
    assert not {"FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED"} & set(states.values()), states
    return set(states.values()) == {"COMPLETED"}
