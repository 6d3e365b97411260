"""Slurm's accounting log."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.errors import TraceError
from rota.traces import SACCT_COMMAND, load_trace

if TYPE_CHECKING:
    from pathlib import Path

    from rota.traces import Trace

# Shape as printed by Slurm 22.05 on a small test cluster; names are made up.
SAMPLE = """\
JobID|JobName|Partition|State|ExitCode|Submit|Start|End|ElapsedRaw|AllocNodes|AllocTRES|NodeList|Comment|Reason
1|shrunk|free|RESIZING|0:0|2026-01-15T20:51:27|2026-01-15T20:51:27|2026-01-15T20:51:28|1|4|billing=4,cpu=4,gres/gpu=8,node=4|n[1-4]||None
1|shrunk|free|CANCELLED by 0|0:0|2026-01-15T20:51:28|2026-01-15T20:51:28|2026-01-15T20:51:57|29|2|billing=2,cpu=2,gres/gpu=4,node=2|n[1,3]||None
9|ok|free|COMPLETED|0:0|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:51:59|1|1|billing=1,cpu=1,gres/gpu=1,node=1|n1|c1|None
9.batch|batch||COMPLETED|0:0|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:51:59|1|1|cpu=1,gres/gpu=1,mem=0,node=1|n1||
10|fail|free|FAILED|3:0|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:51:59|1|1|billing=1,cpu=1,gres/gpu=1,node=1|n1||None
11_0|arr|free|COMPLETED|0:0|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:51:59|1|1|billing=1,cpu=1,gres/gpu=1,node=1|n1||None
11_[3-5]|arr|free|PENDING|0:0|2026-01-15T20:51:58|Unknown|Unknown|0|0||None assigned||Resources
12|canc|free|CANCELLED by 0|0:0|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:52:00|2|2|billing=2,cpu=2,gres/gpu=4,node=2|n[2-3]||None
12.0|canc||CANCELLED by 0|0:15|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:52:00|2|2|cpu=2,gres/gpu=4,mem=0,node=2|n[2-3]||
13|tmo|free|TIMEOUT|0:0|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:53:25|87|1|billing=1,cpu=1,gres/gpu=1,node=1|n2||None
14|req|free|REQUEUED|0:0|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:52:00|2|2|billing=2,cpu=2,gres/gpu=4,node=2|n[3-4]||None
14|req|free|CANCELLED by 0|0:0|2026-01-15T20:52:01|2026-01-15T20:52:03|2026-01-15T20:52:05|2|1|billing=2,cpu=2,gres/gpu=1,node=1|n2||JobHeldUser
15|idle|free|CANCELLED by 1000|0:0|2026-01-15T20:51:58|2026-01-15T20:52:05|2026-01-15T20:52:05|0|0||None assigned||None
16|long|free|RUNNING|0:0|2026-01-15T20:51:58|2026-01-15T20:51:58|Unknown|500|1|billing=1,cpu=1,gres/gpu=1,node=1|n2||None
17|cpu|free|COMPLETED|0:0|2026-01-15T20:51:58|2026-01-15T20:51:58|2026-01-15T20:52:58|60|1|billing=1,cpu=1,node=1|n2||None
"""  # noqa: E501

SHORT = "JobID|User|State|Submit|ElapsedRaw|TimelimitRaw|AllocTRES"


def read(folder: Path, text: str, **options: Any) -> Trace:
    path = folder / "sacct.txt"
    path.write_text(text)
    return load_trace(path, **options)


def test_reads_one_job_per_id(tmp_path: Path) -> None:
    trace = read(tmp_path, SAMPLE)
    jobs = zip(trace.job_id, trace.submit_s, trace.duration_s, trace.num_gpus, strict=True)

    assert [(str(name), *map(int, numbers)) for name, *numbers in jobs] == [
        ("1", 0, 30, 8),  # resized: 1 s + 29 s, at its largest
        ("9", 31, 1, 1),
        ("10", 31, 1, 1),
        ("11_0", 31, 1, 1),
        ("12", 31, 2, 4),
        ("13", 31, 87, 1),
        ("14", 31, 4, 4),  # requeued: 2 s + 2 s, first submission
    ]
    assert trace.names("model")[:3] == ["shrunk", "ok", "fail"]
    assert trace.cpus_per_worker[0] == 0.5


def test_counts_what_is_left_out_by_reason(tmp_path: Path) -> None:
    trace = read(tmp_path, SAMPLE)

    assert trace.skipped == 0
    assert trace.left_out == {"still queued": 1, "still running": 1, "never ran": 1, "no GPU": 1}


@pytest.mark.parametrize(
    "state",
    ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "CANCELLED by 0"],
)
def test_a_job_that_ran_is_kept_however_it_ended(tmp_path: Path, state: str) -> None:
    line = f"1|ann|{state}|2026-01-01T00:00:00|60|10|gres/gpu=2"
    trace = read(tmp_path, f"{SHORT}\n{line}\n")

    assert trace.duration_s.tolist() == [60]
    assert trace.estimate_s.tolist() == [600]
    assert trace.names("user") == ["ann"]


def test_a_requeued_job_that_runs_again_is_still_running(tmp_path: Path) -> None:
    lines = [
        "1|ann|REQUEUED|2026-01-01T00:00:00|60|10|gres/gpu=2",
        "1|ann|RUNNING|2026-01-01T00:05:00|60|10|gres/gpu=2",
        "2|ann|REQUEUED|2026-01-01T00:00:00|60|10|gres/gpu=2",
        "2|ann|PENDING|2026-01-01T00:05:00|0|10|",
        "3|ann|COMPLETED|2026-01-01T00:00:00|60|10|gres/gpu=2",
    ]
    trace = read(tmp_path, "\n".join([SHORT, *lines]))

    assert trace.job_id.tolist() == ["3"]
    assert trace.left_out == {"still queued": 1, "still running": 1}


def test_components_of_a_het_job_are_one_gang(tmp_path: Path) -> None:
    lines = [
        "8+0|ann|COMPLETED|2026-01-01T00:00:00|60|10|cpu=4,gres/gpu:a100=4,gres/gpu=4",
        "8+1|ann|COMPLETED|2026-01-01T00:00:00|58|10|cpu=2,gres/gpu:v100=2,gres/gpu=2",
    ]
    trace = read(tmp_path, "\n".join([SHORT, *lines]))

    assert trace.job_id.tolist() == ["8"]
    assert trace.num_gpus.tolist() == [6]
    assert trace.duration_s.tolist() == [60]
    assert trace.names("gpu_type") == [""]


@pytest.mark.parametrize(
    ("resources", "gpus", "kind"),
    [
        ("billing=8,gres/gpu=8,mem=64G", 8, ""),
        ("gres/gpu:a100=4", 4, "a100"),
        ("gres/gpu:a100=4,gres/gpu=4", 4, "a100"),
        ("gres/gpu=4,gres/gpu:a100=4,gres/gpumem=0", 4, "a100"),
        ("gres/gpu:a100=1,gres/gpu:v100=1,gres/gpu=2", 2, ""),
        ("gpu:a100:2", 2, "a100"),
        ("gpu:2", 2, ""),
        ("gres:gpu:3", 3, ""),
        ("gres/gpu:a100:2", 2, "a100"),
        ("gpu:a100:2(S:0-1)", 2, "a100"),
        ("gpu", 1, ""),
        ("gpu:a100", 1, "a100"),
        ("gres/gpu:a100", 1, "a100"),
        ("gpu:a100(S:0)", 1, "a100"),
        ("gres/gpu:1g.5gb", 1, "1g.5gb"),
        ("gpumem:4,gpu:2", 2, ""),
    ],
)
def test_counts_gpus_once_in_every_spelling(
    tmp_path: Path, resources: str, gpus: int, kind: str
) -> None:
    line = f"1|ann|COMPLETED|2026-01-01T00:00:00|60|10|{resources}"
    trace = read(tmp_path, f"{SHORT}\n{line}\n")
    assert (trace.num_gpus.tolist(), trace.names("gpu_type")) == ([gpus], [kind])


def test_falls_back_to_the_request_and_to_start_and_end(tmp_path: Path) -> None:
    text = (
        "JobID|State|Submit|Start|End|Timelimit|AllocTRES|ReqTRES|AllocCPUS|ReqMem\n"
        "1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-02T00:01:00|1-12:00:00||"
        "gres/gpu=2|8|4Gc\n"
        "2|COMPLETED|2026-01-01T00:00:01|2026-01-01T00:01:00|2026-01-01T00:01:09|UNLIMITED||"
        "gres/gpu=2|8|64G\n"
    )
    trace = read(tmp_path, text)

    assert trace.duration_s.tolist() == [86400, 9]
    np.testing.assert_array_equal(trace.estimate_s, [36 * 3600, np.nan])
    assert trace.cpus_per_worker.tolist() == [4, 4]
    assert trace.memory_gb_per_worker.tolist() == [16, 32]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone cannot be changed here")
def test_times_do_not_depend_on_where_the_importer_sits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Between these two, clocks in Berlin went forward: local arithmetic would give 1 h.
    lines = [
        "1|ann|COMPLETED|2026-03-29T01:30:00|60|10|gres/gpu=2",
        "2|ann|COMPLETED|2026-03-29T03:30:00|60|10|gres/gpu=2",
    ]
    monkeypatch.setitem(os.environ, "TZ", "Europe/Berlin")
    time.tzset()
    try:
        trace = read(tmp_path, "\n".join([SHORT, *lines]))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert trace.submit_s.tolist() == [0, 7200]


def test_a_bar_in_a_last_comment_does_no_harm(tmp_path: Path) -> None:
    text = f"{SHORT}|Comment\n1|ann|COMPLETED|2026-01-01T00:00:00|60|10|gres/gpu=2|a|b|c\n"
    assert len(read(tmp_path, text)) == 1


def test_a_bar_in_an_inner_comment_is_a_broken_line(tmp_path: Path) -> None:
    good = "1|ann||COMPLETED|2026-01-01T00:00:00|60|gres/gpu=2"
    bad = "2|ann|x|y|COMPLETED|2026-01-01T00:00:00|60|gres/gpu=2"
    text = f"JobID|User|Comment|State|Submit|ElapsedRaw|AllocTRES\n{good}\n{bad}\n"

    with pytest.raises(TraceError, match=r"sacct.txt:3: .* 8 fields, the header names 7"):
        read(tmp_path, text)
    assert read(tmp_path, text, skip_bad=True).skipped == 1


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("2|ann|COMPLETED|yesterday|60|10|gres/gpu=2", "Submit"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|long|10|gres/gpu=2", "ElapsedRaw"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|-60|10|gres/gpu=2", "ElapsedRaw"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|inf|10|gres/gpu=2", "ElapsedRaw': inf is too long"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|1e300|10|gpu", "ElapsedRaw': 1e300 is too long"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|nan|10|gres/gpu=2", "ElapsedRaw': nan is not"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|60|10|gres/gpu=two", "AllocTRES"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|60|10|gres/gpu=-2", "AllocTRES': 'gres/gpu=-2' is"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|60|10|gpu:-2", "AllocTRES': 'gpu:-2' is"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|60|10|gpu:a100:-2", "AllocTRES': 'gpu:a100:-2' is"),
        ("2|ann|COMPLETED|2026-01-01T00:00:00|60|10|cpu=nan,gpu", "AllocTRES': 'cpu=nan,gpu' is"),
        ("|ann|COMPLETED|2026-01-01T00:00:00|60|10|gres/gpu=2", "JobID"),
    ],
)
def test_names_the_field_of_a_broken_line(tmp_path: Path, line: str, field: str) -> None:
    text = f"{SHORT}\n1|ann|COMPLETED|2026-01-01T00:00:00|60|10|gres/gpu=2\n{line}\n"

    with pytest.raises(TraceError, match=rf"sacct.txt:3: field '{field}"):
        read(tmp_path, text)
    assert read(tmp_path, text, skip_bad=True).skipped == 1


@pytest.mark.parametrize("column", ["JobID", "Submit", "State", "ElapsedRaw", "AllocTRES"])
def test_a_missing_field_is_answered_with_the_command(tmp_path: Path, column: str) -> None:
    text = f"{SHORT}\n1|ann|COMPLETED|2026-01-01T00:00:00|60|10|gres/gpu=2\n"
    with pytest.raises(TraceError, match=f"'{column}' is missing") as caught:
        read(tmp_path, text.replace(column, "Else"), format="sacct")
    assert SACCT_COMMAND in str(caught.value)


def test_the_table_for_the_eye_is_answered_with_the_command(tmp_path: Path) -> None:
    text = "       JobID    JobName      State\n------------ ---------- ----------\n"
    with pytest.raises(TraceError, match="--parsable2"):
        read(tmp_path, text)


def test_nothing_but_waiting_jobs_is_an_error(tmp_path: Path) -> None:
    text = f"{SHORT}\n1|ann|PENDING|2026-01-01T00:00:00|0|10|\n"
    with pytest.raises(TraceError, match="No job remains \\(1 still queued\\)"):
        read(tmp_path, text)


def test_the_command_asks_for_all_that_the_reader_needs(tmp_path: Path) -> None:
    header = SACCT_COMMAND.rpartition(" ")[2].replace(",", "|")
    line = "1|ann|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:40|60|10|gres/gpu=2|train|it"
    trace = read(tmp_path, f"{header}\n{line}\n")
    assert trace.names("model") == ["train|it"]
    assert trace.started_s.tolist() == [40]


def test_keeps_the_starts_so_that_jobs_end_when_they_did(tmp_path: Path) -> None:
    trace = read(tmp_path, SAMPLE)
    started = dict(zip(trace.job_id.tolist(), trace.started_s.tolist(), strict=True))
    # 14 ran 31–33 and, requeued, 36–38: 4 s of work that end at 38.
    assert started == {"1": 0, "9": 31, "10": 31, "11_0": 31, "12": 31, "13": 31, "14": 34}
    assert trace.ran_on_nodes.tolist() == [4, 1, 1, 1, 2, 1, 2]
    assert np.isnan(read(tmp_path, f"{SHORT}\n1|a|FAILED|2026-01-01|5|1|gpu:1\n").started_s).all()


def test_a_suspended_job_ends_when_the_log_says(tmp_path: Path) -> None:
    head = "JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES"
    times = "2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T00:01:40"
    trace = read(tmp_path, f"{head}\n1|COMPLETED|{times}|60|gres/gpu=1\n")
    # Submitted at 0, ran 60 of the 90 s from 10 to 100.
    assert (trace.started_s + trace.duration_s).tolist() == [100]


def test_a_start_before_the_submission_is_not_used_and_pointed_out(tmp_path: Path) -> None:
    head = "JobID|State|Submit|Start|ElapsedRaw|AllocTRES"
    rows = [
        "1|COMPLETED|2026-01-01T00:01:00|2026-01-01T00:00:00|60|gres/gpu=1",
        "2|COMPLETED|2026-01-01T00:01:00|2026-01-01T00:02:00|60|gres/gpu=1",
        "3|COMPLETED|2026-01-01T00:01:00|Unknown|60|gres/gpu=1",
    ]
    trace = read(tmp_path, "\n".join([head, *rows]))
    np.testing.assert_array_equal(trace.started_s, [np.nan, 60, np.nan])
    assert trace.notes == ("1 job started before the submission; these starts are not used.",)
    with pytest.raises(TraceError, match="field 'Start'"):
        read(tmp_path, "\n".join([head, *rows]).replace("Unknown", "soon"))


WIDE = "JobID|State|Submit|{elapsed}|{limit}|AllocTRES|ReqTRES|ReqGRES|AllocCPUS|ReqMem"


def wide(*rows: str, elapsed: str = "ElapsedRaw", limit: str = "Timelimit") -> str:
    """A log of jobs with these run times, limits, resources, CPUs and memory."""
    lines = [f"{k}|COMPLETED|2026-01-01T00:00:00|{row}" for k, row in enumerate(rows)]
    return "\n".join([WIDE.format(elapsed=elapsed, limit=limit), *lines])


def test_takes_gpus_of_the_first_column_that_names_any(tmp_path: Path) -> None:
    trace = read(tmp_path, wide(
        "60||cpu=4,mem=8G,node=1||gpu:a100:2||", "60|||cpu=2|gpu||", "60||cpu=1|cpu=1|||",
    ))  # fmt: skip
    assert trace.num_gpus.tolist() == [2, 1]
    assert trace.names("gpu_type") == ["a100", ""]
    assert (trace.cpus_per_worker * trace.num_gpus).tolist() == [4, 2]
    assert trace.left_out == {"no GPU": 1}
    (note,) = trace.notes
    assert note.startswith("no job has GPUs in AllocTRES and ReqTRES; they are taken from ReqGRES.")
    assert "AccountingStorageTRES" in note

    counted = read(tmp_path, wide("60||gres/gpu=4||gpu:2||", "60||cpu=1|cpu=1|||"))
    assert (counted.num_gpus.tolist(), counted.notes) == ([4], ())


def test_a_log_without_any_gpu_is_answered_with_the_setting_that_counts_them(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        TraceError, match=r"\(1 no GPU\)\. No job has GPUs in AllocTRES and ReqTRES\."
    ):
        read(tmp_path, wide("60||cpu=4||||"))


def test_run_times_and_limits_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    rows = ["|1:00|gpu|||8|", "60|soon|gpu|||8|", "60|UNLIMITED|gpu|||8|", "60|9:99:99x|gpu|||8|"]
    trace = read(tmp_path, wide(*rows))
    assert trace.job_id.tolist() == ["1", "2", "3"]
    assert trace.left_out == {"no run time in ElapsedRaw": 1}
    assert np.isnan(trace.estimate_s).all()
    assert trace.notes == ("2 lines have no limit that can be read in Timelimit, such as 'soon'.",)

    raw = read(tmp_path, wide("60|-5|gpu|||8|", "60|10|gpu|||8|", limit="TimelimitRaw"))
    np.testing.assert_array_equal(raw.estimate_s, [np.nan, 600])
    assert raw.notes == ("1 line has no limit that can be read in TimelimitRaw, such as -5.",)

    with pytest.raises(TraceError, match="field 'Elapsed': 'a while' is not a span of time"):
        read(tmp_path, wide("a while||gpu||||", elapsed="Elapsed"))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("60|||gres/gpu=-1|||", "field 'ReqTRES': 'gres/gpu=-1' is no list"),
        ("60||||gpu:-1||", "field 'ReqGRES': 'gpu:-1' is no list"),
        ("60||gpu|||many|", "field 'AllocCPUS': 'many' is no number of CPUs"),
        ("60||gpu|||-4|", "field 'AllocCPUS': -4 is no number of CPUs"),
        ("60||gpu|||4|lots", "field 'ReqMem': 'lots' is no amount of memory"),
    ],
)
def test_complaints_name_the_column_and_the_value_of_the_file(
    tmp_path: Path, row: str, says: str
) -> None:
    text = wide("60||gpu||||", row)
    with pytest.raises(TraceError, match=f"sacct.txt:3: {says}"):
        read(tmp_path, text)
    assert read(tmp_path, text, skip_bad=True).skipped == 1


def test_an_end_before_the_start_is_told_of_the_columns_there_are(tmp_path: Path) -> None:
    times = "2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:00:30"
    with pytest.raises(TraceError, match="field 'End': '2026-01-01T00:00:30' lies before Start"):
        read(tmp_path, f"JobID|State|Submit|Start|End|AllocTRES\n1|COMPLETED|{times}|gpu\n")
