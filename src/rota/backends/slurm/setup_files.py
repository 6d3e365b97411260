"""The files that set rota up beside a Slurm: the hold hook, the watchdog, systemd units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from rota.backends.slurm.hook import render_hook
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WATCHDOG: Final = PurePosixPath("/usr/local/lib/rota/failopen.sh")
"""Where the watchdog's unit looks for its script, outside of any Python environment."""
_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_WORD: Final = re.compile(r"[A-Za-z0-9_.,:=+@/-]+")


@dataclass(frozen=True, kw_only=True)
class SlurmSetup:
    """What these files say."""

    partitions: Sequence[str]
    policy: str
    fallback: str
    rota: Sequence[str]
    """The command `rota`, as systemd starts it."""
    user: str = "rota"
    """The account that the daemon and its watchdog run as."""
    operators: Sequence[int] = ()
    """Accounts, by number, whose own jobs the hook obeys as it obeys root."""
    state: PurePosixPath
    heartbeat: PurePosixPath
    timeout_s: int = 300

    def __post_init__(self) -> None:
        if not _USER.fullmatch(self.user):
            raise ConfigError(f"{self.user!r} is no name of an account.")
        if not self.state.is_absolute():
            raise ConfigError(f"The state is at {str(self.state)!r}; give a path that begins at /.")
        if self.heartbeat.is_relative_to(self.state):
            raise ConfigError(
                f"The heartbeat {self.heartbeat} is in the state directory, which only its owner "
                "can enter: slurmctld could not read it. Put it beside that directory."
            )


def setup_files(setup: SlurmSetup) -> dict[str, str]:
    """The files by name, ready to be installed."""
    hook = render_hook(setup.partitions, setup.heartbeat, setup.timeout_s, setup.operators)
    run = [
        *setup.rota, "run", "--backend", "slurm",
        *(word for name in setup.partitions for word in ("--partition", name)),
        "--policy", setup.policy, "--fallback", setup.fallback,
        "--state", str(setup.state), "--heartbeat", str(setup.heartbeat),
    ]  # fmt: skip
    check = ["/bin/sh", str(WATCHDOG), str(setup.heartbeat), str(setup.timeout_s),
             ",".join(setup.partitions)]  # fmt: skip
    who = {"User": setup.user, "Group": setup.user}
    return {
        "job_submit.lua": hook,
        "failopen.sh": _shipped("failopen.sh"),
        "rota-slurm.service": _unit("rota-slurm.service", {**who, "ExecStart": _command(run)}),
        "rota-failopen.service": _unit(
            "rota-failopen.service", {**who, "ExecStart": _command(check)}
        ),
        "rota-failopen.timer": _shipped("rota-failopen.timer"),
    }


def _shipped(name: str) -> str:
    return files("rota.backends.slurm").joinpath(name).read_text(encoding="utf-8")


def _unit(name: str, values: Mapping[str, str]) -> str:
    """A unit as it ships, with these lines in place of its own."""
    lines = _shipped(name).splitlines()
    keys = [line.partition("=")[0] for line in lines]
    assert values.keys() <= set(keys), f"{name} lacks one of {sorted(values)}"
    told = [
        f"{key}={values[key]}" if key in values else line
        for key, line in zip(keys, lines, strict=True)
    ]
    return "\n".join(told) + "\n"


def _command(words: Sequence[str]) -> str:
    """A command of a unit; systemd gives some characters a meaning, so these are refused."""
    for word in words:
        if not _WORD.fullmatch(word):
            raise ConfigError(
                f"{word!r} cannot stand in a unit of systemd: use letters, digits and . _ - + / : "
                "= , @ only."
            )
    return " ".join(words)
