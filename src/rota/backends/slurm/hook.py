"""The script with which slurmctld holds new jobs for rota; it ships as `job_submit.lua`."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import PurePath

HELD: Final = "rota:held"
"""AdminComment of a job that waits for rota; ` nodelist=…` may follow, its user's own node list,
and ` nodes=A/G`: it was submitted with A nodes, and rota has given it G.
"""
LET_GO: Final = "rota:let-go"
"""AdminComment of a job that the watchdog has given back to Slurm."""
USER_HELD: Final = "rota:user-held"
"""First word of the Comment of a job that its user holds."""
USER_RELEASED: Final = "rota:user-released"
"""Comment of a job without any other, when its user has released it: hooks cannot clear it."""


def check_partitions(names: Iterable[str]) -> None:
    """Refuse what cannot be the name of one partition."""
    for name in names:
        if not name or re.search(r"[\s,]", name):
            raise ConfigError(f"{name!r} is no name of a partition: give one name, without commas.")


def render_hook(
    partitions: Collection[str],
    heartbeat: PurePath,
    timeout_s: int,
    operators: Sequence[int] = (),
) -> str:
    """Give the text of `job_submit.lua` for these partitions.

    Jobs are held only while the heartbeat is no older than the timeout. It should be on a local
    disk: slurmctld reads it for each new job. Operators (uids) may do with their own jobs what
    only root may otherwise: list SlurmUser and the account that rota runs as.
    """
    if not partitions:
        raise ConfigError("No partition is managed; name one at least.")
    check_partitions(partitions)
    if not heartbeat.is_absolute():
        raise ConfigError(f"The heartbeat is at {str(heartbeat)!r}; give a path that begins at /.")
    if timeout_s < 1:
        raise ConfigError(f"A heartbeat cannot time out in {timeout_s} s; give 1 or more.")
    values = {
        "MANAGED": f"{{ {', '.join(_quoted(name) for name in partitions)} }}",
        "HEARTBEAT": _quoted(str(heartbeat)),
        "TIMEOUT_S": str(int(timeout_s)),
        "OPERATORS": f"{{ {', '.join(str(int(uid)) for uid in (0, *operators))} }}",
    }
    text = files("rota.backends.slurm").joinpath("job_submit.lua").read_text(encoding="utf-8")
    lines = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("local ") and words[1] in values:
            line = f"local {words[1]} = {values.pop(words[1])}"
        lines.append(line)
    assert not values, f"job_submit.lua has no {values}"
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A string of Lua."""
    if not text.isprintable():
        raise ConfigError(f"{text!r} has characters that cannot be printed; rename it.")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
