"""The job table of Slurm's database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.errors import TraceError
from rota.traces import load_trace

if TYPE_CHECKING:
    from pathlib import Path

    from rota.traces import Trace

# By hand, with the columns and numbers of Slurm's own schema. 4294967295 minutes: no limit.
DUMP = """\
"job_db_inx","id_job","id_user","job_name","het_job_id","het_job_offset","state","timelimit",\
"time_submit","time_start","time_end","time_suspended","tres_alloc","tres_req"
1,40,1001,"a, b",0,4294967294,3,60,1000,1010,1100,0,"1=4,2=16384,4=1,5=4,1001=2,1002=2","1=4,1001=2"
2,41,1002,train,0,4294967294,6,4294967295,1005,1100,1200,40,"1=8,2=65536,4=2,5=8,1001=8","1=8,1001=8"
3,42,1002,train,0,4294967294,1024,60,1006,1010,1020,0,"1=1,4=1,1001=1",""
4,42,1002,train,0,4294967294,3,60,1020,1050,1080,0,"1=1,4=1,1001=1",""
5,43,1001,het,43,0,3,60,1007,1010,1070,0,"1=1,4=1,1001=4",""
6,44,1001,het,43,1,3,60,1007,1010,1060,0,"1=1,4=1,1001=2",""
7,45,1001,wait,0,4294967294,0,60,1008,0,0,0,"","1=1,1001=2"
8,46,1001,runs,0,4294967294,1,60,1009,1020,0,0,"1=1,4=1,1001=2",""
9,47,1001,cancelled,0,4294967294,4,60,1010,0,1030,0,"","1=1,1001=2"
10,48,1001,cpus,0,4294967294,3,60,1011,1020,1030,0,"1=64,4=1",""
"""


def read(folder: Path, text: str, **options: Any) -> Trace:
    path = folder / "job_table.csv"
    path.write_text(text)
    return load_trace(path, **options)


def check(trace: Trace) -> None:
    rows = zip(trace.job_id, trace.submit_s, trace.started_s, trace.duration_s, trace.num_gpus,
               strict=True)  # fmt: skip
    assert [(str(name), *map(int, numbers)) for name, *numbers in rows] == [
        ("40", 0, 10, 90, 2),  # 1002 repeats 1001: two GPUs, not four
        ("41", 5, 140, 60, 8),  # 100 s, of which 40 suspended; it ended at 200
        ("42", 6, 40, 40, 1),  # requeued: 10 s and 30 s, the end at 80
        ("43", 7, 10, 60, 6),  # two components side by side
    ]
    np.testing.assert_array_equal(trace.estimate_s, [3600, np.nan, 3600, 3600])
    assert trace.left_out == {
        "still queued": 1, "still running": 1, "never ran": 1, "no GPU": 1,
    }  # fmt: skip


def test_reads_times_states_and_resources_by_number(tmp_path: Path) -> None:
    trace = read(tmp_path, DUMP)
    check(trace)
    assert trace.names("user") == ["1001", "1002", "1002", "1001"]
    assert trace.names("model")[0] == "a, b"
    assert trace.cpus_per_worker[0] == 2
    assert trace.memory_gb_per_worker[0] == 8
    assert trace.ran_on_nodes.tolist() == [1, 2, 1, 2]
    assert len(trace.notes) == 1
    assert "1001 and above are taken for GPUs" in trace.notes[0]


def test_reads_the_tabs_and_nulls_of_mysql(tmp_path: Path) -> None:
    import csv
    import io

    rows = [[cell or "NULL" for cell in row] for row in csv.reader(io.StringIO(DUMP))]
    check(read(tmp_path, "\n".join(map("\t".join, rows))))


def test_gpu_types_come_from_the_gres_columns(tmp_path: Path) -> None:
    head = "id_job,state,time_submit,time_start,time_end,tres_alloc,gres_used"
    lines = ['1,3,5,6,7,"1=4,1001=2",gpu:volta:2', "2,3,5,6,7,,gpu:tesla:4", "3,3,5,6,7,1001=1,"]
    trace = read(tmp_path, "\n".join([head, *lines]))
    assert trace.names("gpu_type") == ["volta", "tesla", ""]
    assert trace.num_gpus.tolist() == [2, 4, 1]
    assert trace.notes == ()


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("x,3,5,6,7,1001=two", "tres_alloc"),
        ("x,done,5,6,7,1001=1", "state"),
        ("x,-1,5,6,7,1001=1", "state"),
        ("x,nan,5,6,7,1001=1", "state"),
        ("x,3,5,9,7,1001=1", "time_end"),
        ("x,3,5,soon,7,1001=1", "time_start"),
        (",3,5,6,7,1001=1", "id_job"),
    ],
)
def test_a_broken_line_is_named_or_skipped(tmp_path: Path, line: str, field: str) -> None:
    text = f"id_job,state,time_submit,time_start,time_end,tres_alloc\n1,3,5,6,7,1001=1\n{line}\n"
    with pytest.raises(TraceError, match=rf"job_table.csv:3: field '{field}'"):
        read(tmp_path, text)
    assert read(tmp_path, text, skip_bad=True).skipped == 1


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    for column in ("state", "tres_alloc"):
        text = "id_job,state,time_submit,time_start,time_end,tres_alloc\n1,3,5,6,7,1001=1\n"
        with pytest.raises(TraceError, match=f"'{column}' is missing"):
            read(tmp_path, text.replace(column, "other"))
