"""A private Slurm on this machine: eight nodes with four pretended GPUs each, on loopback.

It needs Debian's slurm-wlm, slurmrestd and munge (`scripts/install_slurm.sh`), root or not, and
nothing below /etc. Several may run at once. Whatever it starts is gone when it ends, however that
comes: a process of its own, `lab_end.py`, sees to that.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any, Self

import lab_end
from lab_files import LabSetup, write_files

from rota.backends.slurm.hook import render_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PATIENCE_S = 300.0
"""Only a hang reaches it."""
FIRST_PORT, LAST_PORT = 17000, 31000
"""Below the ports that systems hand out, so that a daemon which is away finds its own again."""
NOBODY = 65534
"""An ordinary user."""


class LabError(Exception):
    """The private Slurm does not do what it should."""


class Lab:
    """A private Slurm; use it with `with`, or call `start` and `stop`.

    Partition `rota`, the default one, is managed: our hook holds jobs there. Partition `free` is
    not. Both have all nodes.
    """

    def __init__(self, setup: LabSetup | None = None) -> None:
        self.setup = setup or LabSetup()
        self.state = Path()
        self.env: dict[str, str] = {}
        """The environment with which Slurm's commands speak to this Slurm."""
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._guard: subprocess.Popen[bytes] | None = None
        self._claim: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def node_names(self) -> tuple[str, ...]:
        """The nodes, `n1` first."""
        return self.setup.node_names

    @property
    def heartbeat(self) -> Path:
        """The file in which a scheduler says that it is alive."""
        return self.state / "etc" / "heartbeat"

    @property
    def work(self) -> Path:
        """The folder in which jobs run; everybody may write there."""
        return self.state / "work"

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Start all daemons and wait until all nodes are idle."""
        if shutil.which("slurmctld", path=_PATH) is None:
            raise LabError("There is no slurmctld here; run scripts/install_slurm.sh first.")
        try:
            self._claim, ports = _claim_ports(1 + self.setup.nodes)
            self.state = Path(tempfile.mkdtemp(prefix="rota-")).resolve()
            command = [sys.executable, "-S", "-E", lab_end.__file__, str(self.state)]
            self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            self.env = {**os.environ, "SLURM_CONF": str(self.state / "etc" / "slurm.conf")}
            self.env["PATH"] = _PATH
            write_files(self.state, self.setup, ports, self._hook())
            self.beat()
            self._start_munge()
            self.start_ctld(wait=False)
            for name in self.node_names:
                self.start_node(name, wait=False)
            self.until(self._is_whole, "all nodes are up", PATIENCE_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process and remove all files; no-op if that is done."""
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait(PATIENCE_S)
        elif self.state.name:
            shutil.rmtree(self.state, ignore_errors=True)
        for daemon in self._daemons.values():
            daemon.wait(PATIENCE_S)
        if self._claim is not None:
            self._claim.close()
        self._daemons, self._guard, self._claim = {}, None, None

    def _hook(self) -> str:
        operators = (os.getuid(), *self.setup.operators)
        return render_hook(["rota"], self.heartbeat, self.setup.hook_timeout_s, operators)

    def _spawn(self, name: str, *command: str) -> None:
        """Start a daemon in a session of its own, and write its number down."""
        with (self.state / "log" / f"{name}.out").open("ab") as out:
            daemon = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env,
                start_new_session=True, cwd=self.state,
            )  # fmt: skip
        lab_end.note_pid(self.state / "run" / f"{name}.started", daemon.pid)
        self._daemons[name] = daemon

    def _kill(self, name: str) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait(PATIENCE_S)
        (self.state / "run" / f"{name}.started").unlink(missing_ok=True)

    def _start_munge(self) -> None:
        folder = self.state / "munge"
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        self._spawn(
            "munged", "munged", "--foreground", "--force", f"--socket={folder}/munge.sock",
            f"--key-file={key}", f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed",
            "--num-threads=4",
        )  # fmt: skip
        self.until((folder / "munge.sock").exists, "munged is up", PATIENCE_S)

    def _is_whole(self) -> bool:
        lines = self.run("sinfo", "-h", "-N", "-p", "rota", "-o", "%N %T").splitlines()
        states = dict(line.split() for line in lines)
        up = ("idle", "mixed", "allocated")
        return all(states.get(name, "") in up for name in self.node_names)

    # -- failures --------------------------------------------------------------------------------

    def kill_node(self, name: str) -> None:
        """Let a node die: its daemon and all that jobs run there, with SIGKILL."""
        self._kill(f"slurmd-{name}")
        lab_end.kill_jobs(self.state, name)

    def start_node(self, name: str, *, wait: bool = True) -> None:
        """Start the daemon of a node; wait until the node can be used."""
        self._spawn(f"slurmd-{name}", "slurmd", "-D", "-N", name, "-f", self.env["SLURM_CONF"])
        if wait:
            up = ("idle", "mixed", "allocated")
            self.until(lambda: self.node_state(name) in up, f"node {name} is up", PATIENCE_S)

    def kill_ctld(self) -> None:
        """Let the controller die; what has changed in the last 5 seconds may be lost."""
        self._kill("slurmctld")

    def pause_ctld(self, *, pause: bool = True) -> None:
        """Let the controller hang, or go on: it accepts connections, and answers nobody."""
        self._daemons["slurmctld"].send_signal(signal.SIGSTOP if pause else signal.SIGCONT)

    def end_ctld(self) -> None:
        """End the controller in good order: it saves everything."""
        self._daemons["slurmctld"].send_signal(signal.SIGTERM)
        self._daemons["slurmctld"].wait(PATIENCE_S)
        self._kill("slurmctld")

    def start_ctld(self, *, wait: bool = True) -> None:
        """Start the controller; wait until it answers."""
        self._spawn("slurmctld", "slurmctld", "-D", "-f", self.env["SLURM_CONF"])
        if wait:
            self.until(lambda: self.run("scontrol", "ping"), "slurmctld answers", PATIENCE_S)

    def start_rest(self) -> str:
        """Start slurmrestd and wait until it listens; its address."""
        if shutil.which("slurmrestd", path=_PATH) is None:
            raise LabError("There is no slurmrestd here; run scripts/install_slurm.sh first.")
        path = self.state / "run" / "rest.sock"
        path.unlink(missing_ok=True)
        # As root it would not begin; nor without slurmdbd, unless plugins for that are left out.
        command = ("env", "SLURMRESTD_SECURITY=disable_user_check", "slurmrestd",
                   "-f", self.env["SLURM_CONF"])  # fmt: skip
        listed = self.attempt(*command, "-s", "list").stderr
        plugins = re.findall(r"(?m)openapi/(?:v[0-9.]+|slurmctld)$", listed)
        self._spawn("slurmrestd", *command, "-a", "rest_auth/local", "-s", ",".join(plugins),
                    f"unix:{path}")  # fmt: skip
        self.until(lambda: _listens(path), "slurmrestd listens")
        return f"unix:{path}"

    def kill_rest(self) -> None:
        """Let slurmrestd die; no-op if it is gone."""
        self._kill("slurmrestd")

    # -- what tests do ---------------------------------------------------------------------------

    def attempt(
        self,
        *argv: str,
        timeout: float = PATIENCE_S,
        uid: int | None = None,
        text: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with this Slurm, perhaps as another user, and give whatever comes."""
        if uid is not None:
            argv = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *argv)
        stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout, check=False, cwd=self.work,
            env={**self.env, **(env or {})}, **stdin,
        )  # fmt: skip

    def run(
        self,
        *argv: str,
        timeout: float = PATIENCE_S,
        uid: int | None = None,
        text: str | None = None,
    ) -> str:
        """Run a command with this Slurm and give its output; LabError if it fails."""
        done = self.attempt(*argv, timeout=timeout, uid=uid, text=text)
        if done.returncode:
            said = f"{done.stdout}{done.stderr}".strip()
            raise LabError(f"{' '.join(argv)!r} ended with {done.returncode}: {said}")
        return done.stdout

    def submit(self, script_text: str, *sbatch_args: str, uid: int | None = None) -> int:
        """Submit a batch script and give the job's number; its output goes to `work/NUMBER.out`."""
        usual = ("-D", str(self.work), "-o", f"{self.work}/%j.out", "--open-mode=append")
        argv = ("sbatch", "--parsable", *usual, *sbatch_args)
        return int(self.run(*argv, uid=uid, text=script_text))

    def jobs(self) -> dict[int, dict[str, Any]]:
        """All jobs that Slurm remembers, by number, as `squeue --json` has them."""
        listed = json.loads(self.run("squeue", "--json"))["jobs"]
        return {job["job_id"]: job for job in listed}

    def clear(self) -> None:
        """Start what is down, cancel all jobs, and wait until none is left."""
        for name, daemon in (("slurmctld", self.start_ctld), *self._node_starters()):
            if name not in self._daemons:
                daemon()
        self.until(self._is_empty, "no job is left")

    def _node_starters(self) -> list[tuple[str, Callable[[], None]]]:
        return [(f"slurmd-{name}", partial(self.start_node, name)) for name in self.node_names]

    def _is_empty(self) -> bool:
        for job in self.run("squeue", "-h", "-o", "%A").split():
            self.attempt("scancel", job)
        return not self.run("squeue", "-h", "-o", "%A").strip()

    def node_state(self, name: str) -> str:
        """The state of a node in lower case, with Slurm's marks such as `*`."""
        return self.run("sinfo", "-h", "-N", "-p", "rota", "-n", name, "-o", "%T").strip()

    def beat(self, age_s: float = 0.0) -> None:
        """Write the heartbeat of a scheduler that was last alive so many seconds ago."""
        fresh = self.heartbeat.with_suffix(".new")
        fresh.write_text(f"{int(time() - age_s)}\n")
        fresh.replace(self.heartbeat)

    def until(self, condition: Callable[[], Any], what: str, limit_s: float = PATIENCE_S) -> Any:
        """Wait until a condition holds and give it; commands may fail in the meantime."""
        until_s = monotonic() + limit_s
        trouble: Exception | None = None
        while monotonic() < until_s:
            try:
                if found := condition():
                    return found
            except (LabError, subprocess.TimeoutExpired, OSError, KeyError) as error:
                trouble = error
            sleep(0.05)
        logs = "\n".join(_tail(path) for path in sorted((self.state / "log").glob("slurmctld*")))
        raise LabError(f"{limit_s:.0f} s have passed, but not: {what} ({trouble!r})\n{logs}")


_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
"""Daemons are not on everybody's path."""


def _claim_ports(count: int) -> tuple[socket.socket, range]:
    """Find free ports in a row; the socket holds the one before them as long as it is open."""
    step = count + 1
    turns = (LAST_PORT - FIRST_PORT) // step
    begin = secrets.randbelow(turns)
    for turn in range(turns):
        base = FIRST_PORT + step * ((begin + turn) % turns)
        claim = _bound(base)
        if claim is None:
            continue
        others = [_bound(port) for port in range(base + 1, base + step)]
        for other in others:
            if other is not None:
                other.close()
        if None not in others:
            return claim, range(base + 1, base + step)
        claim.close()
    raise LabError(f"There are no {step} free ports in a row from {FIRST_PORT} to {LAST_PORT}.")


def _bound(port: int) -> socket.socket | None:
    """A socket at a port of all addresses; nothing if somebody else has it."""
    found = socket.socket()
    try:
        found.bind(("", port))
    except OSError:
        found.close()
        return None
    return found


def _listens(path: Path) -> bool:
    """Whether somebody listens at a unix socket; OSError if not."""
    with socket.socket(socket.AF_UNIX) as found:
        found.connect(str(path))
    return True


def _tail(path: Path, lines: int = 20) -> str:
    last = path.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"-- {path.name}", *last])
