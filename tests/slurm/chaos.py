"""Chaos: kill whatever there is, at random, over a running workload; then look for lost jobs.

    PYTHONPATH=tests/helpers python tests/slurm/chaos.py --seed 0 --events 50

It kills rota, nodes with their jobs, and Slurm's controller with SIGKILL, and fills the disk on
which rota keeps its state. Everything comes back after a while. What happens when follows from the
seed. Needs root, to mount a small disk.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any, Final

from chaos_job import SCRIPT, faults, idle_runs, read_book
from chaos_story import WEIGHTS, told_by
from children import child
from daemon import rota_command
from lab import Lab
from lab_files import LabSetup

import rota.backends.slurm
from rota.backends.book_reader import read_book as read_commands_of
from rota.backends.slurm.replies import gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos_story import Event, Story, Work

TIMEOUT_S: Final = 15
"""Of the watchdog and of the hook."""
DISK_MB: Final = 16
QUIET_S: Final = 330.0
"""Jobs to none of which anything happens for so long are stuck; rota gives a start 300 s."""
ASTRAY_S: Final = 30.0
"""Nothing has happened for so long: an administrator looks after Slurm."""
SETTINGS: Final = "RequeueExit=143"
ALONE: Final = "twice by Slurm alone"
WATCHDOG: Final = Path(rota.backends.slurm.__file__).with_name("failopen.sh")


@dataclass
class Chaos:
    """A story that is played on a private Slurm."""

    lab: Lab
    story: Story
    policy: str
    counts: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)
    _rota: subprocess.Popen[bytes] | None = None
    _shall_run: bool = False
    _submitted_s: float = 0.0
    _late: list[Work] | None = None
    _began_s: float = 0.0

    @property
    def disk(self) -> Path:
        """Where rota keeps its state."""
        return self.lab.state / "disk"

    def say(self, text: str) -> None:
        """Tell what happens, with the time in the story."""
        print(f"{monotonic() - self._began_s:7.1f} {text}", flush=True)

    def play(self) -> None:
        """Everything in its order; then wait for the jobs."""
        self._began_s = monotonic()
        self._start_rota()
        agenda: list[tuple[float, int, Callable[[], None]]] = []
        for work in self.story.works:
            self._plan(agenda, work.at_s, lambda work=work: self._submit(work))
        for event in self.story.events:
            self._plan(agenda, event.at_s, lambda event=event: self._begin(event))
            self._plan(agenda, event.at_s + event.away_s, lambda event=event: self._end(event))
        if self.story.dies:
            last_s = max((at_s for at_s, *_ in agenda), default=0.0)
            self._plan(agenda, last_s + 2.0, self._die)
        while agenda:
            at_s, _, happens = heapq.heappop(agenda)
            while (left_s := at_s - (monotonic() - self._began_s)) > 0:
                self._watch_rota()
                sleep(min(0.2, left_s))
            happens()
        self._wait()

    @staticmethod
    def _plan(agenda: list, at_s: float, happens: Callable[[], None]) -> None:
        heapq.heappush(agenda, (at_s, len(agenda), happens))

    # -- what happens -----------------------------------------------------------------------------

    def _submit(self, work: Work) -> None:
        if self._late is not None:  # there is no controller: it is submitted as soon as there is
            self._late.append(work)
            return
        hints = f"rota:checkpointable=yes,estimate={0.25 * work.steps / work.nodes:.0f}s"
        if work.most_nodes > work.nodes:
            hints += f",min_nodes=1,max_nodes={work.most_nodes}"
        script = SCRIPT.format(steps=work.steps, step_s=0.25)
        job = self.lab.submit(script, "-J", work.name, f"-N{work.nodes}",
                              f"--gres=gpu:{work.gpus}", f"--comment={hints}")  # fmt: skip
        self._submitted_s = time()
        self.say(f"{work.name} is submitted as job {job}")

    def _begin(self, event: Event) -> None:
        self.counts[event.kind] += 1
        self.say(f"{event.kind} {event.node} goes for {event.away_s:.1f} s")
        if event.kind == "rota":
            self._kill_rota()
        elif event.kind == "node":
            self.lab.kill_node(event.node)
        elif event.kind == "disk":
            self._fill()
        else:
            # What was submitted in the last seconds Slurm itself would lose.
            saved = self.lab.state / "state" / "job_state"
            self.lab.until(lambda: saved.stat().st_mtime > self._submitted_s + 1.0, "it is saved")
            self.lab.kill_ctld()
            self._late = []

    def _end(self, event: Event) -> None:
        self.say(f"{event.kind} {event.node} is back")
        if event.kind == "rota":
            self._start_rota()
        elif event.kind == "node":
            self.lab.start_node(event.node, wait=False)
        elif event.kind == "disk":
            (self.disk / "filler").unlink()
        else:
            self.lab.start_ctld()
            late, self._late = self._late or [], None
            for work in late:
                self._submit(work)

    def _die(self) -> None:
        self.say("rota is killed for good")
        self._kill_rota()

    def _fill(self) -> None:
        with suppress(OSError), (self.disk / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while filler.write(bytes(size)):
                        pass

    # -- rota -------------------------------------------------------------------------------------

    def _start_rota(self) -> None:
        with (self.lab.state / "log" / "rota.log").open("ab") as log:
            command = rota_command(self.lab, self.policy, state=self.disk / "rota", interval="1s")
            self._rota = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.lab.env,
                start_new_session=True,
            )  # fmt: skip
        self._shall_run = True

    def _kill_rota(self) -> None:
        self._shall_run = False
        if self._rota is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._rota.pid, signal.SIGKILL)
            self._rota.wait()

    def _watch_rota(self) -> None:
        """A daemon that ends by itself is a fault; it is started again, as systemd does."""
        if self._shall_run and self._rota is not None and self._rota.poll() is not None:
            self.troubles.append(f"rota ended by itself with {self._rota.returncode}")
            self.say(self.troubles[-1])
            self._start_rota()

    # -- what came of it --------------------------------------------------------------------------

    def _wait(self) -> None:
        """Until all jobs have ended, or nothing happens any more."""
        names = {work.name for work in self.story.works}
        since_s, before = monotonic(), -1
        while monotonic() - since_s < QUIET_S:
            self._watch_rota()
            books = {name: read_book(self.lab.work, name) for name in names}
            names -= {n for n, book in books.items() if any(x.what == "ended" for x in book)}
            if not names:
                return
            if (size := sum(map(len, books.values()))) != before:
                since_s, before = monotonic(), size
            elif monotonic() - since_s > ASTRAY_S and self._is_astray():
                self._mend()
            sleep(0.5)

    def _is_astray(self) -> bool:
        """Whether Slurm counts GPUs of idle nodes as used; only an administrator can mend that."""
        shown = self.lab.attempt(
            "sinfo", "-h", "-p", "rota", "-t", "idle", "-N", "-O", "GresUsed:60"
        )
        return any(sum(gpus(line.strip()).values()) for line in shown.stdout.splitlines())

    def _mend(self) -> None:
        self.counts["mended"] += 1
        self.say("Slurm counts GPUs of idle nodes as used: scontrol reconfigure")
        self.lab.attempt("scontrol", "reconfigure")

    def close(self) -> None:
        """End rota."""
        self._kill_rota()

    def tell(self, seed: int, found: dict[str, list[str]], freed: int) -> None:
        """One line about it all."""
        kills = ", ".join(f"{kind} {self.counts[kind]}" for kind in WEIGHTS)
        wrong = ", ".join(f"{what} {len(every)}" for what, every in found.items())
        print(
            f"seed {seed}: {len(self.story.works)} jobs, {self.counts['runs']} runs, of which "
            f"{self.counts['idle']} found all done; {kills}; "
            f"watchdog {freed} times, reconfigured {self.counts['mended']} times; "
            f"{monotonic() - self._began_s:.0f} s; {wrong}",
            flush=True,
        )

    def judge(self) -> dict[str, list[str]]:
        """Jobs that are lost, that ran twice, and that are stuck, each with what is wrong.

        One that Slurm started and forgot, with neither rota nor the watchdog in it, is named apart.
        """
        sleep(2.0)  # the last script ends a little after its last line
        states = {job["name"]: job for job in self.lab.jobs().values()}
        found: dict[str, list[str]] = {"lost": [], "twice": [], "stuck": [], ALONE: []}
        for work in self.story.works:
            book = read_book(self.lab.work, work.name)
            self.counts["runs"] += sum(line.what == "began" for line in book)
            self.counts["idle"] += idle_runs(book)
            wrong = [f"{work.name}: {one}" for one in faults(book)]
            found[ALONE if wrong and self._is_none_of_ours(states.get(work.name)) else "twice"] += (
                wrong
            )
            if any(line.what == "ended" for line in book):
                continue
            job = states.get(work.name, {})
            state = job.get("job_state", "unknown to Slurm")
            waits = state in ("PENDING", "RUNNING", "COMPLETING", "REQUEUED", "CONFIGURING")
            said = (f"{work.name}: {state} {job.get('state_reason')}, priority "
                    f"{job.get('priority')}, mark {job.get('admin_comment')!r}, "
                    f"{job.get('state_description')}")  # fmt: skip
            found["stuck" if waits else "lost"].append(said)
        return found

    def _is_none_of_ours(self, job: dict[str, Any] | None) -> bool:
        """Whether rota has never given a command for a job, nor marked it, nor the watchdog."""
        if job is None or job.get("admin_comment"):
            return False
        journal = read_commands_of(self.disk / "rota" / "journal.db")
        if journal is None:
            return False
        known = journal.called(str(job["job_id"]))
        return not any(journal.commands(one.uid) for one in known)


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A disk of its own, small enough to be filled."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "none", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=False)


def unleash(seed: int, events: int, policy: str, keep: Path | None = None) -> list[str]:
    """Play the story of a seed; all that went wrong. Logs are copied to `keep`."""
    setup = LabSetup(hook_timeout_s=TIMEOUT_S, extra_settings=SETTINGS)
    with Lab(setup) as lab, small_disk(lab.state / "disk"):
        story = told_by(seed, events, lab.node_names)
        chaos, log = Chaos(lab, story, policy), lab.state / "log" / "watchdog.log"
        print(f"chaos: seed {seed}, {len(story.events)} events, {len(story.works)} jobs, {policy}"
              f"{', rota dies for good' * story.dies}", flush=True)  # fmt: skip
        watchdog = ["sh", str(WATCHDOG), "--loop", "2", str(lab.heartbeat), str(TIMEOUT_S), "rota"]
        with log.open("ab") as out, child(watchdog, stdout=out, stderr=out, env=lab.env):
            try:
                chaos.play()
                found = chaos.judge()
            finally:
                chaos.close()
                if keep is not None:
                    for name in ("log", "work", "disk"):
                        shutil.copytree(lab.state / name, keep / name, dirs_exist_ok=True)
        chaos.tell(seed, found, log.read_text().count("jobs go back"))
    for one in found.pop(ALONE):
        print(f"{ALONE}: {one}")
    return chaos.troubles + [f"{what}: {one}" for what, every in found.items() for one in every]


def main() -> int:
    """Play one seed; 1 if something went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--events", type=int, default=50)
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--keep", type=Path, default=None, help="Copy all logs to this folder.")
    told = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if told.seed is None else told.seed
    wrong = unleash(seed, told.events, told.policy, told.keep)
    for one in wrong:
        print(one)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
