"""What GPUs cost in public clouds, and what a job's running costs its user."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from rota.errors import InputError, UnknownNameError
from rota.perf.physics import HOUR_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rota.core.cluster import Cluster
    from rota.perf.physics import Billing

GPUS_OF_HOST: Final = {
    "a2-highgpu": "A100", "a2-megagpu": "A100", "a2-ultragpu": "A100-80GB", "a3-highgpu": "H100",
    "a3-edgegpu": "H100", "a3-megagpu": "H100-MEGA", "a3-ultragpu": "H200", "a4-highgpu": "B200",
}  # fmt: skip
"""Google's machine families with GPUs; their names end in the number: `a2-highgpu-8g`."""
GPUS_OF_G2: Final = {24: 2, 48: 4, 96: 8}
"""By vCPUs: L4s of a `g2-standard` machine; all others have one."""

_OURS: Final = ("cloud", "gpu_type", "on_demand_usd_per_gpu_h", "spot_usd_per_gpu_h", "source",
                "date")  # fmt: skip
_FULL: Final = ("cloud", "snapshot_date", "accelerator", "region", "price_usd_per_gpu_h",
                "spot_usd_per_gpu_h")  # fmt: skip
_HEADLINE: Final = ("cloud", "snapshot_date", "accelerator", "median_usd_per_gpu_h")
_HOSTS: Final = ("cloud", "snapshot_date", "InstanceType", "Region", "price_usd_h", "spot_usd_h")


@dataclass(frozen=True)
class Price:
    """One line of a price list; NaN where something is not on offer."""

    cloud: str
    gpu_type: str
    on_demand_usd_per_gpu_h: float
    spot_usd_per_gpu_h: float
    date: str
    region: str = ""
    source: str = ""


@dataclass(frozen=True)
class _Row:
    """A line of a file that can say where a cell stands."""

    file: Path
    line: int
    cells: Mapping[str, str]

    def bad(self, column: str, wants: str) -> InputError:
        return InputError(
            f"{self.file}, row {self.line}, column {column!r}: "
            f"{self.cells[column]!r} {wants}. Mend or remove the row."
        )

    def text(self, column: str) -> str:
        if not self.cells[column]:
            raise self.bad(column, "must not be empty")
        return self.cells[column]

    def dollars(self, column: str, *, may_be_free: bool = False) -> float:
        """A price; NaN where the cell is empty, which is how lists say `not on offer`."""
        cell = self.cells[column]
        if not cell:
            return math.nan
        try:
            value = float(cell)
        except ValueError:
            raise self.bad(column, "is not a number") from None
        if not 0 <= value < math.inf or (value == 0 and not may_be_free):
            least = "of 0 or more" if may_be_free else "above 0"
            raise self.bad(column, f"is no price: it must be a number {least}")
        return value


def load_prices(path: Path | None = None) -> tuple[Price, ...]:
    """Read a price list, plain or gzipped; the small one that rota ships unless told otherwise.

    Three layouts are told apart by their columns: rota's own, a cloud catalogue with one row per
    machine and region, and a digest with medians. A list of Google's hosts, which are sold apart
    from their GPUs, yields the price of the host per GPU: add it to that of the GPU.
    """
    path = path or Path(str(files("rota.perf") / "data" / "prices.csv"))
    header, rows = _read(path)
    for columns, reader in _READERS.items():
        if set(columns) <= set(header):
            return tuple(reader(row) for row in rows)
    raise InputError(
        f"{path}: The columns {', '.join(header)} are those of no price list that is known. "
        f"A small list has {', '.join(_OURS)}."
    )


def _read(path: Path) -> tuple[list[str], Iterator[_Row]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: The price list cannot be read: {error}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: This is no text; a price list is a CSV file.") from None
    lines = csv.reader(text.splitlines())
    header = [name.strip() for name in next(lines, [])]
    return header, _rows(path, header, lines)


def _rows(path: Path, header: list[str], lines: Iterator[list[str]]) -> Iterator[_Row]:
    for line, cells in enumerate(lines, start=2):
        if len(cells) != len(header):
            raise InputError(
                f"{path}, row {line}: There are {len(cells)} cells for {len(header)} columns; "
                "mend or remove the row."
            )
        yield _Row(path, line, dict(zip(header, (cell.strip() for cell in cells), strict=True)))


def _ours(row: _Row) -> Price:
    return Price(
        row.text("cloud"),
        row.text("gpu_type"),
        row.dollars("on_demand_usd_per_gpu_h"),
        row.dollars("spot_usd_per_gpu_h"),
        row.text("date"),
        source=row.cells["source"],
    )


def _full(row: _Row) -> Price:
    return Price(
        row.text("cloud"),
        row.text("accelerator"),
        row.dollars("price_usd_per_gpu_h"),
        row.dollars("spot_usd_per_gpu_h"),
        row.text("snapshot_date"),
        row.text("region"),
    )


def _headline(row: _Row) -> Price:
    dollars = row.dollars("median_usd_per_gpu_h")
    date = row.text("snapshot_date")
    return Price(row.text("cloud"), row.text("accelerator"), dollars, math.nan, date)


def _host(row: _Row) -> Price:
    machine = row.text("InstanceType").removesuffix("-nolssd")  # sold without its local disk
    family, _, size = machine.rpartition("-")
    count = size.removesuffix("g")
    if not count.isdecimal() or not int(count) or family not in (*GPUS_OF_HOST, "g2-standard"):
        raise row.bad("InstanceType", "is no machine with GPUs that is known")
    gpu_type = GPUS_OF_HOST.get(family, "L4")
    gpus = GPUS_OF_G2.get(int(count), 1) if gpu_type == "L4" else int(count)
    # Some hosts come free with their GPUs.
    on_demand, spot = (
        row.dollars(name, may_be_free=True) / gpus for name in ("price_usd_h", "spot_usd_h")
    )
    date, region = row.text("snapshot_date"), row.text("Region")
    return Price(row.text("cloud"), gpu_type, on_demand, spot, date, region, "host only")


_READERS: Final = {_OURS: _ours, _FULL: _full, _HEADLINE: _headline, _HOSTS: _host}


def price_of(
    gpu_type: str,
    prices: Sequence[Price] | None = None,
    *,
    cloud: str | None = None,
    spot: bool = False,
) -> float:
    """Dollars per GPU-hour: the median of the newest lines of one cloud.

    Without `cloud` it is the first in the list that has the type on offer. Upper and lower case
    are the same, as data sets disagree about them.
    """
    rows = load_prices() if prices is None else prices
    known = {row.cloud for row in rows}
    if cloud is not None and cloud not in known:
        raise UnknownNameError("cloud", cloud, known)
    rows = [row for row in rows if cloud in (None, row.cloud)]
    same = [row for row in rows if row.gpu_type.casefold() == gpu_type.casefold()]
    if not same:
        where = f"GPU type in the price list of {cloud}" if cloud else "GPU type in the price list"
        raise UnknownNameError(where, gpu_type, {row.gpu_type for row in rows})
    offered = [row for row in same if not math.isnan(_dollars(row, spot))]
    if not offered:
        kind, other = ("spot", "on-demand") if spot else ("on-demand", "spot")
        raise InputError(
            f"The list has no {kind} price of {gpu_type!r}{f' at {cloud}' if cloud else ''}; "
            f"take the {other} price{' or another cloud' if cloud else ''}."
        )
    first = [row for row in offered if row.cloud == offered[0].cloud]
    newest = max(row.date for row in first)
    return median(_dollars(row, spot) for row in first if row.date == newest)


def _dollars(row: Price, spot: bool) -> float:
    return row.spot_usd_per_gpu_h if spot else row.on_demand_usd_per_gpu_h


def with_prices(
    cluster: Cluster,
    prices: Sequence[Price] | None = None,
    *,
    cloud: str | None = None,
    spot: bool = False,
) -> Cluster:
    """The same cluster, each node at the price of its GPUs."""
    rows = load_prices() if prices is None else prices
    # Only types that some node has: a cluster may list others.
    used = {
        t: price_of(cluster.gpu_types[t], rows, cloud=cloud, spot=spot)
        for t in np.unique(cluster.type).tolist()
    }
    return replace(cluster, price_per_gpu_h=np.array([used[t] for t in cluster.type.tolist()]))


def fee(stints: Sequence[tuple[float, float, float, float]], billing: Billing) -> float:
    """Dollars for stints of (start_s, end_s, GPUs billed, price per GPU-hour), each rounded up.

    Waiting costs nothing: it is in no stint. Where a job pays for whole nodes, the GPUs billed
    are all those of the nodes it touches. A stint over nodes of several prices is several stints.
    """
    total = 0.0
    for start_s, end_s, gpus, price in stints:
        # Times are sums of floats: a stint of a minute must not become two by the last bit.
        grains = math.ceil((end_s - start_s) / billing.grain_s - 1e-6)
        total += grains * billing.grain_s * gpus * price / HOUR_S
    return total
