"""Turn what a user names, a file or a preset, into a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rota.errors import ConfigError, UnknownNameError
from rota.traces.formats import LOG_FORMATS
from rota.traces.presets import PRESETS, preset
from rota.traces.read import read_trace
from rota.traces.synthetic import generate

if TYPE_CHECKING:
    from rota.traces.trace import Trace


def load_trace(
    source: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    seed: int = 0,
    skip_bad: bool = False,
) -> Trace:
    """Read a job log, or generate one from a preset such as `venus:jobs=5000,load=0.9`.

    `format` overrides what the content says. `skip_bad` passes over broken lines and counts
    them in `Trace.skipped`. `seed` concerns presets only. A preset's name wins over a file of
    the same name; write `./venus` for the file.
    """
    if format is not None:
        LOG_FORMATS.get(format)
    if isinstance(source, str):
        if not source.strip():
            raise ConfigError(
                "The name of the trace is empty; name a file, or one of `rota traces`."
            )
        name, _, settings = source.partition(":")
        if name in PRESETS:
            if format is not None:
                raise ConfigError(
                    f"{source!r} is a built-in preset and has no format; write './{source}' if "
                    f"you mean a file."
                )
            return generate(preset(name, settings), np.random.default_rng(seed))
        if not _is_path(source):
            kind = "trace file or preset (`rota traces` lists the presets)"
            raise UnknownNameError(kind, name, PRESETS)
    return read_trace(Path(source), kind=format, skip_bad=skip_bad)


def _is_path(source: str) -> bool:
    """Is this a file, or at least meant as one?"""
    return any(mark in source for mark in "/\\.") or Path(source).exists()
