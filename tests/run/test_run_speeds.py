"""What was learned of speeds outlives a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from helpers.damage import flipped
from rota.core import Cluster, Job, JobTable, Snapshot
from rota.core.layout import RUNNING, SHARE
from rota.run.speeds import Speeds

if TYPE_CHECKING:
    from pathlib import Path

    from rota.core.types import Floats


def shown(speeds: Speeds, now_s: float, progress_s: float, workers: int) -> Floats:
    """The curve of a job of model "words" that holds `workers`, after it was seen now."""
    asked = Job(workers=1, max_workers=4, model=speeds.number("words"))
    table = JobTable.of([asked])
    row = table.rows[0]
    row["status"], row["held_workers"], row["share_len"] = RUNNING, workers, 1
    row["progress_s"] = progress_s
    cluster = Cluster.uniform(1, 4)
    snapshot = Snapshot(now_s, cluster, table, cluster.empty(), np.zeros(0, SHARE))
    seen = speeds.see(snapshot, by_nodes=True)
    assert seen.curves is not None
    curve: Floats = seen.curves.speed[0, 0, 1, 1:]
    return curve


def learned(path: Path) -> Speeds:
    """It has seen that four workers are no faster than one."""
    speeds = Speeds(path)
    for minute, workers in enumerate((1, 1, 4, 4)):
        shown(speeds, 60.0 * minute, 60.0 * minute, workers)
    speeds.keep()
    return speeds


def test_another_daemon_knows_what_the_first_one_knew(tmp_path: Path) -> None:
    path = tmp_path / "speeds.npz"
    first, said = learned(path), list[str]()
    after = Speeds(path, said.append)
    assert not said
    assert after.models == {"words": 0}
    wanted = shown(first, 181.0, 181.0, 4)
    found = shown(after, 181.0, 181.0, 4)
    np.testing.assert_allclose(found, wanted, rtol=0.01)
    assert found[3] < 1.3 * found[0]
    fresh = shown(Speeds(tmp_path / "none.npz"), 181.0, 181.0, 4)
    assert fresh[3] > 2 * fresh[0]


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 0.999])
def test_a_damaged_file_is_said_and_done_without(tmp_path: Path, part: float) -> None:
    path, said = tmp_path / "speeds.npz", list[str]()
    learned(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    speeds = Speeds(path, said.append)
    assert len(said) == 1
    assert "speeds are learned anew" in said[0]
    shown(speeds, 0.0, 0.0, 1)


def test_no_flipped_bit_of_its_table_of_contents_keeps_a_daemon_from_starting(
    tmp_path: Path,
) -> None:
    path, said = tmp_path / "speeds.npz", list[str]()
    learned(path)
    whole = path.read_bytes()
    for bad in flipped(whole, whole.index(b"PK\x01\x02")):
        path.write_bytes(bad)
        shown(Speeds(path, said.append), 0.0, 0.0, 1)
    assert said


def test_a_file_that_is_none_of_ours_is_called_damaged(tmp_path: Path) -> None:
    path, said = tmp_path / "speeds.npz", list[str]()
    path.write_bytes(b"not an archive at all")
    Speeds(path, said.append)
    assert said == [
        f"{path} is damaged, or of another version of rota: speeds are learned anew, and written "
        "over it"
    ]


@pytest.mark.parametrize("name", ["1.book", "1.cells", "1.K", "models"])
def test_so_is_one_of_another_version(tmp_path: Path, name: str) -> None:
    path, said = tmp_path / "speeds.npz", list[str]()
    learned(path)
    with np.load(path) as kept:
        arrays = dict(kept)
    for wrong in ({name: np.zeros((3, 2), "f4")}, {name: np.array([{}], object)}, {}):
        changed = {key: array for key, array in arrays.items() if key != name} | wrong
        np.savez(path, **changed)
        assert shown(Speeds(path, said.append), 0.0, 0.0, 1).shape == (4,)
    assert len(said) == 3


def test_without_room_on_the_disk_it_is_said_once(tmp_path: Path) -> None:
    said = list[str]()
    speeds = Speeds(tmp_path / "gone" / "speeds.npz", said.append)
    shown(speeds, 0.0, 0.0, 1)
    speeds.keep()
    speeds.keep()
    assert len(said) == 1
    assert "cannot be written: No such file or directory; tried again" in said[0]
    (tmp_path / "gone").mkdir()
    speeds.keep()
    assert Speeds(speeds.path).models == {"words": 0}
