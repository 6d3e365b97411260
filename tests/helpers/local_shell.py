"""The verbs of the local backend as a user types them, on one state directory."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from children import child
from elastic_jobs import PATIENCE_S
from local_jobs import Site, sweep

from rota.backends.local import StateDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Shell:
    """Commands on one state directory."""

    def __init__(self, state: Path) -> None:
        self.state, self.log = state, state.with_suffix(".log")
        self.daemons = ExitStack()

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        at = words.index("--") if "--" in words else len(words)
        words = (*words[:at], "--state", str(self.state), *words[at:])
        done = subprocess.run(
            [sys.executable, "-m", "rota", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done
        return done

    def jobs(self) -> dict[int, dict[str, Any]]:
        found = json.loads(self("queue", "--all", "--json").stdout)["jobs"]
        return {row["job"]: row for row in found}

    def daemon(self, *words: str, gpus: int = 2) -> subprocess.Popen[bytes]:
        """On two nodes of `gpus` GPUs."""
        words = (*words, "--nodes", "2", "--gpus", str(gpus), "--every", "1")
        words = (*words, "--state", str(self.state))
        with self.log.open("ab") as log:
            return self.daemons.enter_context(
                child([sys.executable, "-m", "rota", "run", *words], stderr=log)
            )

    def until(self, what: Callable[[], Any]) -> Any:
        until_s = monotonic() + PATIENCE_S
        while not (found := what()):
            assert monotonic() < until_s, self.log.read_text()
            sleep(0.1)
        return found

    def state_of(self, job: int) -> str:
        """As `rota queue` has it, but without starting it."""
        store = StateDir(self.state)
        if ended := store.ended(job):
            return ended.state
        return "running" if store.held(job).seats else "waiting"


@contextmanager
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path / "state")
    try:
        with made.daemons:
            yield made
    finally:
        sweep(Site(made.state))
