"""Where the measured tables are that `-published` scenarios repeat: they are not shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rota.errors import InputError

USUAL: Final = Path("..") / "shared" / "data"
_DL2: Final = (
    ("profiles/dl2_ps_worker/dl2_ps_worker_speed.csv.gz",),
    "config_speed.txt of https://github.com/pengyanghua/DL2 (columns model, sync_mode, "
    "total_batch_size, num_ps, num_workers, sum_worker_speed)",
)
NEEDED: Final = {
    "dl2-measured": _DL2,
    "dl2-clean": _DL2,
    "deepshare-measured": (
        (
            "profiles/deepshare/isolated_throughput.csv",
            "profiles/deepshare/contention_ratio.csv.gz",
        ),
        "scheduler/jobs/isolated_thp.csv and shared_thp_ratio.csv of "
        "https://github.com/gajagajago/deepshare, made long",
    ),
}
"""By family of speeds: files below the data folder, and where they are public."""


def data_folder(family: str, given: Path | None, scenario: str) -> Path | None:
    """The folder with the tables that a family needs; None if it needs none."""
    if family not in NEEDED:
        return None
    files, source = NEEDED[family]
    tried = _candidates() if given is None else [given]
    for folder in tried:
        if all((folder / file).is_file() for file in files):
            return folder
    lacks = [file for file in files if not (tried[0] / file).is_file()]
    raise InputError(
        f"Scenario {scenario!r} rests on a measured table, which rota does not ship: "
        f"{' and '.join(lacks)} is missing below {' and '.join(map(str, tried))}. "
        f"It is public: {source}. Say where the data folder is with --data DIR."
    )


def _candidates() -> list[Path]:
    """The usual place beside the working directory, then beside the repository."""
    beside = Path(__file__).resolve().parents[3] / USUAL
    return [USUAL] if beside.resolve() == USUAL.resolve() else [USUAL, beside]
