"""The plain CSV form: what is read, what is refused and how, what is written."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import ConfigError, RotaError, TraceError, UnknownNameError
from rota.traces import Trace, load_trace, write_csv
from rota.traces.columns import COLUMNS, NAMES

HEADER = "job_id,submit_s,duration_s,num_gpus"
GOOD = f"{HEADER}\na,0,10,1\nb,5,20.5,2\n"


def wrote(folder: Path, content: str | bytes, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path | str, **options: Any) -> str:
    with pytest.raises(TraceError) as caught:
        load_trace(path, **options)
    return str(caught.value)


def test_reads_the_four_columns(tmp_path: Path) -> None:
    trace = load_trace(wrote(tmp_path, GOOD))

    assert trace.name == "jobs"
    assert trace.job_id.tolist() == ["a", "b"]
    assert trace.duration_s.tolist() == [10, 20.5]
    assert (trace.skipped, dict(trace.left_out)) == (0, {})


@pytest.mark.parametrize(
    "content",
    [
        GOOD.encode("utf-8-sig"),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.rstrip("\n").encode(),
        GOOD.replace("\n", "\n\n").encode(),
        GOOD.replace("a,0", '"a",0').encode(),
        gzip.compress(GOOD.encode(), mtime=0),
        b"colour,num_gpus,job_id,duration_s,submit_s\nred,1,a,10,0\nblue,2,b,20.5,5\n",
    ],
    ids=["BOM", "CRLF", "no last newline", "blank lines", "quotes", "gzip", "columns shuffled"],
)
def test_the_same_jobs_in_another_dress_read_the_same(tmp_path: Path, content: bytes) -> None:
    trace = load_trace(wrote(tmp_path, content))

    assert trace.job_id.tolist() == ["a", "b"]
    assert trace.submit_s.tolist() == [0, 5]
    assert trace.num_gpus.tolist() == [1, 2]


def test_an_empty_optional_cell_means_the_default(tmp_path: Path) -> None:
    text = f"{HEADER},min_workers,gpus_per_worker,user,deadline_s,estimate_s,cpus_per_worker\n"
    trace = load_trace(wrote(tmp_path, text + "a,0,1,4,,2,,,,\nb,0,1,4,1,,eve,9,60,8\n"))

    assert trace.min_workers.tolist() == [2, 1]
    assert trace.max_workers.tolist() == [2, 4]
    assert trace.names("user") == ["", "eve"]
    assert trace.deadline_s.tolist() == [np.inf, 9]
    assert trace.cpus_per_worker.tolist() == [0, 8]
    np.testing.assert_array_equal(trace.estimate_s, [np.nan, 60])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("b,5,-1,1", "field 'duration_s': -1 is not a positive"),
        ("b,5,0,1", "field 'duration_s': 0 is not a positive"),
        ("b,5,nan,1", "field 'duration_s': nan is not a positive"),
        ("b,5,1e300,1", "field 'duration_s': 1e300 is not a positive"),
        ("b,inf,1,1", "field 'submit_s': inf is not a time"),
        ("b,1700000000000,1,1", "milliseconds"),
        ("b,5,1,0", "field 'num_gpus': 0 is not a whole number"),
        ("b,5,1,-2", "field 'num_gpus': -2 is not a whole number"),
        ("b,5,1,1.5", "field 'num_gpus': 1.5 is not a whole number"),
        ("b,5,1,1e300", "field 'num_gpus': 1e300 is not a whole number"),
        ("b,5,soon,1", "field 'duration_s': 'soon' is not a number"),
        ("b,5,,1", "field 'duration_s': '' is not a number"),
        (",5,1,1", "field 'job_id': '' is empty"),
        ("a,5,1,1", "field 'job_id': 'a' is also the id of line 2"),
        ("b,5", "cut short: it has 2 fields, the header names 4"),
        ("b,5,1,1,9", "too long"),
        ("x" * 300 + ",5,1,1", "longer than 256 characters"),
    ],
)
def test_names_file_line_field_and_value_of_a_bad_line(
    tmp_path: Path, line: str, says: str
) -> None:
    path = wrote(tmp_path, f"{HEADER}\na,0,10,1\n{line}\n")

    message = refusal(path)
    assert message.startswith(f"{path}:3: ")
    assert says in message
    assert "--skip-bad" in message

    trace = load_trace(path, skip_bad=True)
    assert (trace.job_id.tolist(), trace.skipped) == (["a"], 1)


@pytest.mark.parametrize(
    ("columns", "cells", "says"),
    [
        ("min_workers,max_workers", "3,2", "min_workers exceeds max_workers"),
        ("max_workers", "3", "min_workers exceeds max_workers"),
        ("gpus_per_worker", "3", "not divisible"),
        ("gpus_per_worker", "-1", "'gpus_per_worker': -1 is not a whole number"),
        ("num_servers,max_servers", "3,2", "num_servers lies outside min_servers"),
        ("samples", "0", "'samples': 0 is not a positive"),
        ("deadline_s", "-5", "does not lie after submit_s"),
        ("checkpoint_s", "0", "'checkpoint_s': 0 is not a positive"),
        ("cpus_per_worker", "-1", "'cpus_per_worker': -1 is not a number of cores"),
        ("num_servers", "0.5", "'num_servers': 0.5 is not a whole number"),
    ],
)
def test_refuses_optional_values_that_make_no_sense(
    tmp_path: Path, columns: str, cells: str, says: str
) -> None:
    assert says in refusal(wrote(tmp_path, f"{HEADER},{columns}\na,0,1,4,{cells}\n"))


def test_lines_are_counted_across_quoted_line_breaks(tmp_path: Path) -> None:
    path = wrote(tmp_path, f'{HEADER}\n"a\n1",0,10,1\nb,5,-1,1\n')
    assert refusal(path).startswith(f"{path}:4: ")


def test_skipping_counts_every_kind_of_broken_line(tmp_path: Path) -> None:
    lines = ["a,0,10,1", "b,0,x,1", "c,0", "a,1,1,1", "d,0,1,1"]
    trace = load_trace(wrote(tmp_path, "\n".join([HEADER, *lines])), skip_bad=True)
    assert (trace.job_id.tolist(), trace.skipped) == (["a", "d"], 3)


def test_skipping_everything_is_an_error(tmp_path: Path) -> None:
    path = wrote(tmp_path, f"{HEADER}\na,0,0,1\nb,0,0,1\n")
    assert "No job remains (2 broken)" in refusal(path, skip_bad=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf \n\n", "empty"),
        (HEADER.encode(), "a header but no jobs"),
        (b"job_id,submit_s,num_gpus\na,0,1\n", "Column 'duration_s' is missing: read as format"),
        (b"job_id;submit_s;duration_s\na;0;1\n", "separated by commas"),
        (f"{HEADER},num_gpus\na,0,1,1,1\n".encode(), "names this column twice"),
        (gzip.compress(GOOD.encode() * 99, mtime=0)[:-20], "cut short or damaged"),
        (f"{HEADER}\nJos\xe9,0,1,1\n".encode("latin-1"), "Byte 39 (0xe9) is not UTF-8"),
        (GOOD.encode("utf-16"), "UTF-16"),
        (b"\x7fELF\0\0\0", "binary file"),
        (b"PK\x03\x04 and so on", "zip archive"),
        (f'{HEADER}\n"a,0,1,1\n'.encode(), "quotation mark left open"),
        (b'{"jobs": []}', "This is JSON"),
    ],
)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_refuses_a_file_that_is_wrong_as_a_whole(
    tmp_path: Path, content: bytes, says: str, skip_bad: bool
) -> None:
    path = wrote(tmp_path, content)
    message = refusal(path, skip_bad=skip_bad)
    assert message.startswith(str(path))
    assert says in message


def test_a_missing_column_lists_what_was_found(tmp_path: Path) -> None:
    path = wrote(tmp_path, "id,when\n1,2\n")
    assert "Found: id, when" in refusal(path)


def test_refuses_a_directory(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    path = wrote(tmp_path, GOOD)
    assert f"Did you mean {str(path)!r}" in refusal(tmp_path / "job.csv")
    assert "Nor is there a directory" in refusal(tmp_path / "nowhere" / "job.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_refuses_an_unreadable_file(tmp_path: Path) -> None:
    path = wrote(tmp_path, GOOD)
    path.chmod(0)
    assert "cannot be read" in refusal(path)


def test_an_unknown_name_suggests_a_preset_and_the_list() -> None:
    with pytest.raises(UnknownNameError, match=r"`rota traces`.*Did you mean 'venus'"):
        load_trace("venuss")
    with pytest.raises(ConfigError, match="name of the trace is empty"):
        load_trace("")


def test_an_unknown_format_suggests_another(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'sacct'"):
        load_trace(wrote(tmp_path, GOOD), format="sact")


def test_a_preset_has_no_format() -> None:
    with pytest.raises(ConfigError, match="built-in preset"):
        load_trace("venus", format="csv")


def test_writes_only_what_says_something(tmp_path: Path) -> None:
    trace = Trace.build(
        "t", submit_s=[0, 1], duration_s=[0.1, 3], num_gpus=[1, 2], user=["", "ann"]
    )
    write_csv(trace, tmp_path / "out.csv")

    text = (tmp_path / "out.csv").read_text()
    assert text == f"{HEADER},user\n0,0,0.1,1,\n1,1,3,2,ann\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wrote(tmp_path, "old", "out.csv")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    trace = Trace.build("t", submit_s=[0], duration_s=[1], num_gpus=[1])
    with pytest.raises(RotaError, match="No space left on device"):
        write_csv(trace, path)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["out.csv"]


positive = st.floats(1e-6, 1e9)
maybe = st.one_of(st.just(np.nan), positive)
word = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
job = st.fixed_dictionaries(
    {
        "submit_s": st.floats(-1e9, 1e9),
        "duration_s": positive,
        "num_gpus": st.integers(1, 64).map(lambda workers: 2 * workers),
        "gpus_per_worker": st.sampled_from([0, 1, 2]),
        "min_workers": st.just(1),
        "max_workers": st.integers(128, 199),
        "cpus_per_worker": st.floats(0, 1e3),
        "user": word,
        "model": word,
        "gpu_type": word,
        "deadline_s": st.one_of(st.just(np.inf), st.floats(2e9, 3e9)),
        "restart_s": maybe,
        "resize_s": maybe,
        "checkpoint_s": maybe,
        "estimate_s": maybe,
    }
)


@settings(deadline=None)
@given(st.lists(job, min_size=1, max_size=8), st.booleans())
def test_reading_what_was_written_gives_the_same_trace(
    jobs: list[dict[str, Any]], packed: bool
) -> None:
    columns: dict[str, Any] = {key: [one[key] for one in jobs] for key in jobs[0]}
    trace = Trace.build("t", **columns)
    with TemporaryDirectory() as folder:
        path = Path(folder) / ("t.csv.gz" if packed else "t.csv")
        write_csv(trace, path)
        back = load_trace(path)

    for column in COLUMNS:
        if column.name in NAMES:
            assert back.names(column.name) == trace.names(column.name)
        else:
            np.testing.assert_array_equal(getattr(back, column.name), getattr(trace, column.name))
    assert back.name == "t"


def test_the_logs_own_starts_are_kept_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    text = "job_id,submit_s,duration_s,num_gpus,started_s,ran_on_nodes\na,5,1,1,7.5,0\nb,6,1,1,,\n"
    path.write_text(text)
    trace = load_trace(path)
    np.testing.assert_array_equal(trace.started_s, [7.5, np.nan])
    write_csv(trace, tmp_path / "again.csv")
    np.testing.assert_array_equal(load_trace(tmp_path / "again.csv").started_s, [7.5, np.nan])
    for wrong, what in (("7.5", "4"), ("7.5", "1e13"), ("7.5", "soon"), ("7.5,0", "7.5,-1")):
        path.write_text(text.replace(wrong, what))
        with pytest.raises(TraceError, match=r"log.csv:2: field '(started_s|ran_on_nodes)'"):
            load_trace(path)
