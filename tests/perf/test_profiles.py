"""Profiles that are sound are read; those that cannot be measurements are refused by row."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.errors import InputError
from rota.perf import profiles, published
from rota.perf.colocation import pair_table

if TYPE_CHECKING:
    from pathlib import Path

DL2 = "model,sync_mode,total_batch_size,num_ps,num_workers,sum_worker_speed\n"
GOOD = "vgg-16,dist_sync,32,1,1,9.5\n"


def folder(tmp_path: Path, text: str, *, raw: bytes | None = None) -> Path:
    """A data folder whose DL2 profile is this text."""
    home = tmp_path / "profiles" / "dl2_ps_worker"
    home.mkdir(parents=True)
    packed = gzip.compress(text.encode(), mtime=0) if raw is None else raw
    (home / "dl2_ps_worker_speed.csv.gz").write_bytes(packed)
    return tmp_path


def test_a_sound_profile_is_read(tmp_path: Path) -> None:
    rows = profiles.dl2(folder(tmp_path, DL2 + GOOD + "dssm,dist_sync,256,2,3,700\n"))

    assert rows["model"].tolist() == ["vgg-16", "dssm"]
    assert rows["num_workers"].tolist() == [1, 3]
    assert rows.of(model="dssm")["sum_worker_speed"].tolist() == [700.0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("vgg-16,dist_sync,32,1,,9.5", "row 3, column 'num_workers': the cell is empty"),
        ("vgg-16,dist_sync,32,1,1,-2", "row 3, column 'sum_worker_speed': '-2' must be a number"),
        ("vgg-16,dist_sync,32,1,1,nan", "row 3, column 'sum_worker_speed': 'nan' must be"),
        ("vgg-16,dist_sync,32,1,1,fast", "row 3, column 'sum_worker_speed': 'fast' must be"),
        ("vgg-16,dist_sync,32,1,1.5,9", "row 3, column 'num_workers': '1.5' must be"),
        ("vgg-16,dist_sync,32,0,1,9", "row 3, column 'num_ps': '0' must be 1 or more"),
        ("vgg-17,dist_sync,32,1,1,9", "row 3, column 'model': 'vgg-17' is unknown; known are"),
        ("vgg-16,dist_sync,32,1,2,0", "row 3, column 'sum_worker_speed': a speed of 0 means"),
        ("vgg-16,dist_sync,32,1,1,9.6", "row 3: model 'vgg-16', num_ps 1, num_workers 1 was"),
        ("vgg-16,dist_sync,32", "row 3: 3 cells where the header names 6"),
    ],
)
def test_a_bad_row_is_refused_and_named(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        profiles.dl2(folder(tmp_path, DL2 + GOOD + row + "\n"))

    assert said in str(caught.value)
    assert "dl2_ps_worker_speed.csv.gz" in str(caught.value)


def test_failed_runs_can_be_left_out_or_kept(tmp_path: Path) -> None:
    data = folder(tmp_path, DL2 + GOOD + "vgg-16,dist_sync,32,1,2,0\n")

    assert len(profiles.dl2(data, drop_failed=True)) == 1
    assert len(profiles.dl2(data, keep_failed=True)) == 2


@pytest.mark.parametrize(
    ("text", "raw", "said"),
    [
        ("", gzip.compress((DL2 + GOOD).encode(), mtime=0)[:40], "garbled or cut short"),
        ("", b"no gzip at all", "cannot be read"),
        ("", gzip.compress(b"\xff\xfe\x00", mtime=0), "garbled or cut short"),
        ("", None, "the file is empty"),
        (DL2, None, "no measurements"),
        ("model,num_ps\nvgg-16,1\n", None, "column 'total_batch_size' is missing"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, raw: bytes | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        profiles.dl2(folder(tmp_path, text, raw=raw))


@pytest.mark.parametrize(
    "read",
    [
        profiles.dl2, profiles.pollux, profiles.pollux_convergence, profiles.gavel_solo,
        profiles.gavel_pairs, profiles.arena, profiles.deepshare_isolated,
        profiles.deepshare_ratios, published.dl2_measured, published.deepshare_measured,
    ],
)  # fmt: skip
def test_an_absent_folder_is_said_with_where_to_find_it(tmp_path: Path, read: object) -> None:
    with pytest.raises(InputError, match=r"are missing. They are public: .*github.com"):
        read(tmp_path)  # type: ignore[operator]


def test_a_model_without_rows_is_missed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no row with model 'resnet-50'; is the file complete"):
        published.dl2_measured(folder(tmp_path, DL2 + GOOD))


def test_a_gpu_type_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"called 'H100'. Did you mean 'V100'"):
        profiles.titan(tmp_path, "H100")


def test_a_pair_of_an_unknown_job_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "profiles" / "gavel"
    home.mkdir(parents=True)
    solo = (
        b"table,gpu,consolidated,job_type,batch_size,num_gpus,steps_per_s\n"
        b"gavel_sim,k80,1,A3C,,1,3.4\n"
    )
    pair = (
        b"gpu,job_type_a,num_gpus_a,job_type_b,num_gpus_b,steps_per_s_a,steps_per_s_b\n"
        b"k80,A3C,1,GPT (batch size 8),1,1.0,1.0\n"
    )
    (home / "solo_throughput.csv.gz").write_bytes(gzip.compress(solo, mtime=0))
    (home / "pair_throughput.csv.gz").write_bytes(gzip.compress(pair, mtime=0))
    with pytest.raises(InputError, match=r"row 2: 'GPT \(batch size 8\)' has no speed"):
        pair_table(profiles.gavel_pairs(tmp_path), profiles.gavel_solo(tmp_path), "k80")


def test_a_placement_must_be_digits(tmp_path: Path) -> None:
    home = tmp_path / "profiles" / "pollux_t4"
    home.mkdir(parents=True)
    (home / "placements.csv.gz").write_bytes(
        gzip.compress(b"application,placement,local_bsz,step_time\nbert,2x,4,.5\n", mtime=0)
    )
    (home / "scalability.csv.gz").write_bytes(
        gzip.compress(
            b"application,num_nodes,num_replicas,local_bsz,step_time\nbert,6,6,4,1.5\n", mtime=0
        )
    )
    with pytest.raises(InputError, match="row 2, column 'placement': '2x' must be the GPUs"):
        profiles.pollux(tmp_path)


def test_an_unknown_gpu_type_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "profiles" / "arena_large_models"
    home.mkdir(parents=True)
    (home / "optimal_iteration_time.csv").write_text(
        "model,params,global_batch_size,gpu,num_nodes,gpus_per_node,num_gpus,iter_s\n"
        "bert,1.3B,128,h100,1,2,2,5.5\n"
    )
    with pytest.raises(InputError, match="row 2, column 'gpu': 'h100' is unknown"):
        profiles.arena(tmp_path)


def test_a_missing_pair_is_named(tmp_path: Path) -> None:
    home = tmp_path / "profiles" / "deepshare"
    home.mkdir(parents=True)
    (home / "contention_ratio.csv.gz").write_bytes(
        gzip.compress(
            b"model_a,num_gpus_a,num_nodes_a,model_b,num_gpus_b,num_nodes_b,ratio_a\n"
            b"MoE,2,2,MoE,2,2,.9\n"
        )
    )
    with pytest.raises(InputError, match=r"no row for .*MobileNetV3.* beside"):
        profiles.deepshare_ratios(tmp_path)


def test_the_real_profiles_are_sound(data: Path) -> None:
    assert len(profiles.dl2(keep_failed=True)) == 804
    assert len(profiles.dl2(drop_failed=True)) == 795
    assert profiles.deepshare_ratios().shape == (30, 30)
    assert len(profiles.deepshare_isolated()) == 36
    assert len(profiles.gavel_pairs(data)) == 5277
    assert np.all(profiles.arena(data)["iter_s"] > 0)
    with pytest.raises(InputError, match="row 28, column 'sum_worker_speed': a speed of 0"):
        profiles.dl2()


READERS = [
    lambda data: profiles.dl2(data, keep_failed=True), profiles.deepshare_isolated,
    profiles.deepshare_samples, profiles.pollux_convergence, profiles.gavel_pairs, profiles.arena,
    lambda data: profiles.gavel_solo(data, keep_failed=True),
]  # fmt: skip


@pytest.mark.logs
@pytest.mark.parametrize("read", READERS)
def test_what_ships_and_what_tests_read_is_what_was_published(
    logs: Path, data: Path, read: Any
) -> None:
    published = read(logs)
    # Files of tests are rounded to seven digits; what ships is not rounded.
    ships = read in READERS[:3]
    kept = read(None if ships else data)
    assert len(kept) == len(published)
    rows = [
        sorted(zip(*(column.tolist() for column in profile.columns.values()), strict=True))
        for profile in (kept, published)
    ]
    for own, other in zip(*rows, strict=True):
        for a, b in zip(own, other, strict=True):
            assert a == b if ships or isinstance(a, str | int) else a == pytest.approx(b, rel=1e-6)


@pytest.mark.logs
def test_pairs_and_step_times_are_those_that_were_published(logs: Path, data: Path) -> None:
    np.testing.assert_array_equal(profiles.deepshare_ratios(), profiles.deepshare_ratios(logs))
    mine, theirs = ({**profiles.pollux(d), **profiles.titan(d, "A100")} for d in (data, logs))
    assert list(mine) == list(theirs)
    for model, steps in mine.items():
        for name, values in vars(steps).items():
            np.testing.assert_allclose(values, getattr(theirs[model], name), rtol=1e-6)
