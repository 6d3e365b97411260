"""Where jobs come from: job logs of many formats, and synthetic workloads."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rota.traces.formats import FORMATS
    from rota.traces.load import load_trace
    from rota.traces.plain_csv import write_csv
    from rota.traces.presets import PRESETS
    from rota.traces.summary import describe
    from rota.traces.synthetic import Workload, generate
    from rota.traces.trace import Trace

SACCT_COMMAND: Final = (
    "TZ=UTC sacct -a -X -D --parsable2 -S 2026-01-01 -E now "
    "-o JobID,User,State,Submit,Start,ElapsedRaw,TimelimitRaw,AllocTRES,JobName"
)
"""What an operator runs to export a Slurm cluster's history; `-S` is the first day wanted."""

__all__ = [
    "FORMATS",
    "PRESETS",
    "SACCT_COMMAND",
    "Trace",
    "Workload",
    "describe",
    "generate",
    "load_trace",
    "write_csv",
]

_HOME: Final = {
    "FORMATS": "formats",
    "PRESETS": "presets",
    "Trace": "trace",
    "Workload": "synthetic",
    "describe": "summary",
    "generate": "synthetic",
    "load_trace": "load",
    "write_csv": "plain_csv",
}


def __getattr__(name: str) -> Any:
    """Import a part when it is first asked for, so that `rota --help` does not wait for numpy."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
