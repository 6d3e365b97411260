"""Derive the coefficients in `rota.traces.calibrated` from the real traces, and print them.

Usage: python scripts/calibrate_traces.py DATA > src/rota/traces/calibrated.py
where DATA holds traces/philly, traces/helios_venus and traces/alibaba_pai2020.
"""

from __future__ import annotations

import sys
from datetime import date
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from rota.traces.distributions import GRID
from rota.traces.read import read_trace
from rota.traces.synthetic import Rhythm

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints

# file, weekday of second 0 on the trace's clock (0 = Monday), classes of gang size
SOURCES = {
    "PHILLY": ("philly/philly_jobs.csv.gz", date(2017, 9, 4).weekday(), (1, 2, 4, np.inf)),
    "VENUS": ("helios_venus/venus_jobs.csv.gz", date(2020, 4, 1).weekday(), (1, 4, 8, 32, np.inf)),
    "PAI": ("alibaba_pai2020/pai_tasks.csv.gz", 0, (1, 5, 16, 40, np.inf)),
}
RARE = 2e-4
"""Gang sizes rarer than this are counted with the nearest commoner one."""
LONGEST_GAP = 0.9999
"""Quantile at which gaps are cut: beyond it lie outages and the sparse first days of a log."""


HEADER = """\
\"\"\"Coefficients fitted to public traces; printed by `scripts/calibrate_traces.py`, not by hand.

Gaps are in seconds of even time (see `Rhythm`), run times in seconds for gangs up to a size.
\"\"\"

from __future__ import annotations

import numpy as np

from rota.traces.distributions import Quantiles
from rota.traces.synthetic import Rhythm

# fmt: off"""


def main(data: Path) -> None:
    """Print the module of coefficients."""
    print(HEADER)
    for name, (file, weekday, classes) in SOURCES.items():
        trace = read_trace(data / "traces" / file)
        clock_s = trace.submit_s + weekday * 86400.0  # second 0 becomes a Monday
        rhythm = fit_rhythm(clock_s)
        gaps = np.diff(rhythm.to_even(clock_s))
        gaps = np.minimum(gaps, np.quantile(gaps, LONGEST_GAP))
        print(f"{name}_RHYTHM = Rhythm(")
        print(f"{wrapped('hours=', rhythm.hours)},\n{wrapped('days=', rhythm.days)},\n)")
        print(f"{name}_GAPS = Quantiles(\n{wrapped('', quantiles(gaps, 2))}\n)")
        print(f"{name}_SIZES = \\\n{wrapped('', fit_sizes(trace.num_gpus))}")
        print(f"{name}_DURATIONS = (")
        for least, largest in pairwise((0, *classes)):
            mine = (trace.num_gpus > least) & (trace.num_gpus <= largest)
            bound = "np.inf" if largest == np.inf else str(largest)
            print(f"    ({bound}, Quantiles(")
            print(f"{wrapped('    ', quantiles(trace.duration_s[mine], 0))}\n    )),")
        print(")")


def fit_rhythm(clock_s: Floats) -> Rhythm:
    """How busy each hour of the day and each day of the week is, with mean 1.

    The square of the mean root of the hourly counts: unlike their mean, it does not let a
    single sweep of a thousand jobs make a rush hour.
    """
    hour = np.floor(clock_s / 3600).astype(np.int64)
    counts = np.bincount(hour - hour.min()).astype(float)
    index = np.arange(counts.size) + hour.min()
    root = np.sqrt(counts)
    hours = (np.bincount(index % 24, root, 24) / np.bincount(index % 24, minlength=24)) ** 2
    day = index // 24 % 7
    days = (np.bincount(day, root, 7) / np.bincount(day, minlength=7)) ** 2
    return Rhythm(
        tuple(np.round(hours / hours.mean(), 2).tolist()),
        tuple(np.round(days / days.mean(), 2).tolist()),
    )


def fit_sizes(gpus: Ints) -> tuple[tuple[int, float], ...]:
    """Weights of gang sizes; rare sizes join the nearest commoner one."""
    sizes, counts = np.unique(gpus, return_counts=True)
    common = sizes[counts >= RARE * gpus.size]
    nearest = common[np.abs(np.log(gpus[:, None] / common[None, :])).argmin(axis=1)]
    sizes, counts = np.unique(nearest, return_counts=True)
    shares = (counts / gpus.size).round(4).tolist()
    return tuple(zip(sizes.tolist(), shares, strict=True))


def quantiles(values: Floats, digits: int) -> tuple[float, ...]:
    """Quantiles at the grid, rounded to so many decimals."""
    return tuple(float(f"{value:.{digits}f}") for value in np.quantile(values, GRID))


def wrapped(prefix: str, values: tuple[object, ...]) -> str:
    """A tuple over as many lines as it needs, whole numbers without a point."""
    texts = [
        f"{value:g}" if isinstance(value, float) and value < 1e5 else str(value).removesuffix(".0")
        for value in values
    ]
    return fill(
        f"{prefix}({', '.join(texts)})",
        width=100,
        initial_indent="    ",
        subsequent_indent="     ",
        break_long_words=False,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
