"""Public formats: small samples by hand, and the real files where they are at hand."""

from __future__ import annotations

import gzip
from contextlib import suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest
from calls import python_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import TraceError
from rota.perf.allreduce import allreduce_curves
from rota.perf.hetero import gavel_curves
from rota.traces import FORMATS, load_trace

if TYPE_CHECKING:
    from rota.traces import Trace


def read(folder: Path, text: str, name: str = "log.csv") -> Trace:
    path = folder / name
    path.write_text(text)
    return load_trace(path)


def test_chronus_minutes_become_seconds_and_strict_jobs_get_deadlines(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
        "expect_time_list,expect_value_list,best_effort,job_type\n"
        "0,vc_a,1,10,5,vgg16,7,14,11,10,0,strict\n"
        "1,vc_b,2,20,5,vgg16,7,14,20,10,1,best\n"
        "2,vc_b,0,20,5,vgg16,7,14,20,10,1,best\n",
    )
    assert trace.submit_s.tolist() == [600, 1200]
    assert trace.duration_s.tolist() == [420, 420]
    assert trace.deadline_s.tolist() == [600 + 660, np.inf]
    assert trace.left_out == {"no GPU": 1}


def test_openb_pods_without_gpu_or_run_are_left_out(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time,gpu_spec_aug33,duration_s\n"
        "p0,12000,16384,1,460,LS,Running,0,10,0.0,T4,10.0\n"
        "p1,12000,16384,2,1000,LS,Running,1,11,1.0,T4|P100,10.0\n"
        "p2,1000,1024,0,0,LS,Running,1,11,1.0,,10.0\n"
        "p3,1000,1024,1,1000,LS,Pending,1,11,,,\n",
    )
    assert trace.num_gpus.tolist() == [1, 2]
    assert trace.cpus_per_worker.tolist() == [12, 6]
    assert trace.memory_gb_per_worker.tolist() == [16, 8]
    assert trace.names("gpu_type") == ["T4", ""]
    assert trace.started_s.tolist() == [0, 1]
    assert trace.left_out == {"no GPU": 1, "never ran": 1}


SWF = """\
; Version: 2.2
; MaxProcs: 64
  1   0  5  100  8 -1 -1  8  600 -1 1  3 1 -1 1 -1 -1 -1
  2  10  5   50 -1 -1 -1  4   -1 -1 1 -1 1 -1 1 -1 -1 -1
  3  20 -1   -1 -1 -1 -1  4  600 -1 5  3 1 -1 1 -1 -1 -1
  4  30  5    0  4 -1 -1  4  600 -1 0  3 1 -1 1 -1 -1 -1
  5  40  5   50 -1 -1 -1 -1  600 -1 1  3 1 -1 1 -1 -1 -1
  6  50  5   90  2 -1 -1  2  600 -1 1  3 1 -1 1 -1 -1 -1
  6  50  5   40  2 -1 -1  2  600 -1 2  3 1 -1 1 -1 -1 -1
  6  95  5   50  2 -1 -1  2  600 -1 3  3 1 -1 1 -1 -1 -1
"""


def test_swf_processors_count_as_gpus(tmp_path: Path) -> None:
    trace = read(tmp_path, SWF, "log.swf")

    assert trace.job_id.tolist() == ["1", "2", "6"]
    assert trace.num_gpus.tolist() == [8, 4, 2]  # the request stands in for job 2
    assert trace.duration_s.tolist() == [100, 50, 90]
    np.testing.assert_array_equal(trace.estimate_s, [600, np.nan, 600])
    assert trace.names("user") == ["3", "", "3"]
    assert trace.left_out == {
        "part of another job": 2,
        "no run time recorded": 1,
        "never ran": 1,
        "no processors recorded": 1,
    }


def test_swf_waits_become_starts(tmp_path: Path) -> None:
    text = SWF.replace("  2  10  5   50", "  2  10 -1   50")
    np.testing.assert_array_equal(read(tmp_path, text, "log.swf").started_s, [5, np.nan, 55])


def test_swf_fields_beyond_the_18th_are_ignored_and_pointed_out_once(tmp_path: Path) -> None:
    first, *rest = SWF.splitlines()
    longer = [line if line.startswith(";") else f"{line} 7 0.5" for line in rest]
    for name, text, lines in (
        ("all.swf", "\n".join([first, *longer]), "8 lines have"),
        ("one.swf", "\n".join([first, *rest[:-1], longer[-1]]), "1 line has"),
    ):
        trace = read(tmp_path, text, name)
        assert trace.job_id.tolist() == ["1", "2", "6"]
        assert trace.notes == (f"{lines} more than 18 fields; the extra fields are ignored.",)
    assert read(tmp_path, SWF, "log.swf").notes == ()
    with pytest.raises(TraceError, match="read as format 'csv'"):
        read(tmp_path, ("one two three " * 7 + "\n") * 2, "words.txt")


HELIOS_LOG = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,vc1,16,64,2,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:42:01,2020-06-09 18:52:01,600,60
8,u2,vc1,0,4,1,COMPLETED,2020-06-09 18:41:02,2020-06-09 18:41:02,2020-06-09 18:42:02,60,0
9,u2,vc2,1,4,1,CANCELLED,2020-06-09 18:41:11,,2020-06-09 18:42:02,0,0
"""


def test_published_helios_and_acme_logs_keep_their_starts(tmp_path: Path) -> None:
    trace = read(tmp_path, HELIOS_LOG)
    assert trace.job_id.tolist() == ["7"]
    assert (trace.submit_s[0], trace.started_s[0], trace.duration_s[0]) == (0, 60, 600)
    assert (trace.num_gpus[0], trace.ran_on_nodes[0], trace.cpus_per_worker[0]) == (16, 2, 4)
    assert trace.left_out == {"no GPU": 1, "never ran": 1}

    acme = (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
        "queue,gpu_time\n"
        "a,u0,1.0,8,128,Other,FAILED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:05+08:00,"
        "2023-03-01 00:01:05+08:00,60.0,5.0,480.0\n"
    )
    assert read(tmp_path, acme).started_s.tolist() == [5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("job_id,num_gpu,submit_time,iterations,model_name,duration\na,1,0,1,x,1e300\n",
         "log.csv:2: field 'duration': 1e300 is not a positive"),
        ("1 0 5 1e300 1 -1 -1 1 9 -1 1 1 1 1 1 -1 -1 -1\n",
         "log.csv:1: field 'run_time': 1e300 is not a positive"),
        ("1 0 5 60 1.5 -1 -1 1 9 -1 1 1 1 1 1 -1 -1 -1\n",
         "log.csv:1: field 'allocated_processors': 1.5 is not a whole"),
        ("job_id,gpu_num,submit_time,start_time,duration\na,1.5,1,1,60\n",
         "log.csv:2: field 'gpu_num': 1.5 is not a whole"),
    ],
)  # fmt: skip
def test_complaints_name_the_column_and_the_value_of_the_file(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(TraceError, match=says):
        read(tmp_path, text)


def test_swf_reports_a_cut_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"log.swf:4: The line is cut short: it has 3 fields"):
        read(tmp_path, "\n".join(SWF.splitlines()[:3]) + "\n 2 10 5\n", "log.swf")


def test_work_becomes_time_by_the_speed_models(tmp_path: Path) -> None:
    gavel = read(
        tmp_path, "vc,seq,job_type,batch_size,total_steps,arrival_s,num_gpus\n"
        "x,0,ResNet-18,32.0,1000,5,1\nx,1,CycleGAN,,1000,6,1\n",
    )  # fmt: skip
    assert gavel.models == ("ResNet-18 (batch size 32)", "CycleGAN")
    speed = gavel_curves(gpu_types=("v100",))
    for k, model in enumerate(gavel.models):
        alone = speed.speed[speed.index(model), 0, 1, 1]
        assert gavel.duration_s[k] == pytest.approx(1000 / alone)
    assert gavel.samples.tolist() == [1000, 1000]

    pollux = read(
        tmp_path, "load,workload,name,time,application,num_replicas,batch_size\n"
        "0.5,1,bert-0,110,bert,1,12\n0.5,1,bert-1,111,bert,4,48\n",
    )  # fmt: skip
    assert pollux.job_id.tolist() == ["0.5/1/bert-0", "0.5/1/bert-1"]
    assert pollux.samples[0] == pollux.samples[1] == 12 * 14774  # two epochs of 7,387 steps
    own = allreduce_curves(["bert"]).speed[0, 0, 1, 1]
    assert pollux.duration_s[0] == pytest.approx(12 * 14774 / own)

    own_header = "name,time,application,num_replicas,batch_size\nbert-1,111,bert,4,48\n"
    alone = read(tmp_path, own_header)
    assert (alone.job_id.tolist(), alone.users) == (["bert-1"], ())
    assert alone.duration_s[0] == pollux.duration_s[1]

    shared = read(tmp_path, "job_id,submit_s,model,num_gpus,total_samples\n0,0,FSDP,4,86895\n")
    assert shared.duration_s[0] == pytest.approx(3600, rel=0.15)  # as DeepShare measured it


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("vc,seq,job_type,total_steps,arrival_s,num_gpus\nx,0,GPT-9,1,1,1\n",
         "'job_type': 'GPT-9' has no speed model"),
        ("load,workload,name,time,application,num_replicas,batch_size\n1,1,a,0,gpt,1,8\n",
         "'application': 'gpt' has no speed model"),
        ("job_id,submit_s,model,num_gpus,total_samples\n0,0,FSDP,1,5\n",
         "begin at 2 GPUs"),
    ],
)  # fmt: skip
def test_work_of_an_unknown_model_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(TraceError, match=what):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("id,gpu_num,job_num,cpu_job_num,gpu_job_num", "a summary per cluster"),
        ("machine_id,num_gpus", "a list of machines"),
        ("sn,cpu_milli,memory_mib,gpu,model", "a list of nodes"),
        ("time,active,total", "nodes in use over time"),
        ("duration", "a sample of durations"),
    ],
)
def test_files_that_hold_no_jobs_are_called_what_they_are(
    tmp_path: Path, header: str, what: str
) -> None:
    with pytest.raises(TraceError, match=f"This is .*{what}"):
        read(tmp_path, f"{header}\n{','.join('1' * (header.count(',') + 1))}\n")


@pytest.mark.logs
@pytest.mark.parametrize(
    ("file", "jobs", "left_out"),
    [
        ("philly/philly_jobs.csv.gz", 70342, {}),
        ("helios_venus/venus_jobs.csv.gz", 99707, {}),
        ("alibaba_pai2020/pai_tasks.csv.gz", 39043, {}),
        ("alibaba_openb2023/openb_pods.csv.gz", 4579, {"no GPU": 850, "never ran": 583}),
        ("muri_philly/muri_0e4a51.csv.gz", 2241, {}),
        ("muri_philly/muri_ee9e8c.csv.gz", 4509, {}),
        ("tiresias/60_job.csv", 60, {}),
        ("shockwave/shockwave_120jobs_100.csv.gz", 120, {}),
    ],
)
def test_reads_the_public_traces(
    logs: Path, file: str, jobs: int, left_out: dict[str, int]
) -> None:
    trace = load_trace(logs / "traces" / file)
    assert (len(trace), trace.skipped, dict(trace.left_out)) == (jobs, 0, left_out)


@pytest.mark.logs
def test_reads_the_chronus_trace(logs: Path) -> None:
    trace = load_trace(logs / "traces" / "chronus_philly_slo" / "chronus_MIX1.csv.gz")
    assert len(trace) + trace.left_out["no GPU"] == 22511
    slack_s = trace.deadline_s - trace.submit_s - trace.duration_s
    assert slack_s.min() > 0


@pytest.mark.logs
def test_every_file_in_the_data_folder_is_read_or_named(logs: Path) -> None:
    refused = {}
    for path in sorted((logs / "traces").glob("*/*.csv*")):
        try:
            load_trace(path)
        except TraceError as error:
            refused[path.name] = str(error)
    other = {name: why for name, why in refused.items() if "This is" not in why}
    assert len(refused) - len(other) >= 12
    # Job logs without GPUs, or with some jobs without: what is wrong, and where, is said.
    assert all("'num_gpus'" in why for why in other.values()), other


@pytest.mark.parametrize("name", ["tiresias60", "philly_ee9e8c", "muri3", "philly_103959"])
def test_reads_the_golden_traces_as_plain(golden: Path, name: str) -> None:
    jobs = {"tiresias60": 60, "philly_ee9e8c": 1053, "muri3": 992, "philly_103959": 1450}
    assert len(load_trace(golden / f"{name}.csv")) == jobs[name]


def test_a_log_is_read_by_columns_however_long_it_is(tmp_path: Path) -> None:
    head = "job_id,submit_time,submit_s,duration_s,num_gpus,clamped_48h\n"
    line = "hv{0},2020-04-01 00:00:{1:02d},{0},{1},{2},0\n"

    def calls(jobs: int) -> int:
        path = tmp_path / f"{jobs}.csv"
        lines = [line.format(k, 1 + k % 59, 1 + k % 8) for k in range(jobs)]
        path.write_text("".join([head, *lines]))
        return python_calls(lambda: load_trace(path))

    calls(10)  # imports what is imported late
    assert calls(20_000) == calls(200)


@pytest.mark.logs
def test_venus_loads_with_as_many_calls_as_its_first_lines(logs: Path, tmp_path: Path) -> None:
    path, first = logs / "traces" / "helios_venus" / "venus_jobs.csv.gz", tmp_path / "few.csv.gz"
    with gzip.open(path, "rt") as whole, gzip.open(first, "wt") as few:
        few.writelines(islice(whole, 500))
    load_trace(first)
    assert python_calls(lambda: load_trace(path)) < 2 * python_calls(lambda: load_trace(first))


def test_every_format_has_a_line_about_it() -> None:
    assert all(known.about and known.name == name for name, known in FORMATS.items())


SEEDS = (
    SWF,
    HELIOS_LOG,
    "id_job\tstate\ttime_submit\ttime_start\ttime_end\ttres_alloc\ttimelimit\n"
    "1\t3\t1000\t1010\t1100\t1=4,2=16000,4=1,1001=2\t60\n2\t0\t1000\t0\t0\tNULL\t60\n",
    "JobID|User|State|Submit|ElapsedRaw|AllocTRES|ReqMem|Timelimit\n"
    "1|ann|COMPLETED|2026-01-01T00:00:00|60|gres/gpu=2|4Gn|1-00:00:00\n"
    "8+0|ann|TIMEOUT|2026-01-01T00:00:00|60|gres/gpu:a100=2|4Gc|UNLIMITED\n",
    "job_id,submit_s,duration_s,num_gpus,min_workers,gpus_per_worker,user,deadline_s\n"
    "a,0,10,4,,2,ann,\nb,-5,2.5,8,1,,,1e9\n",
)


@settings(deadline=None)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from([*'|,;\n\r"\0-.e:+9aé', "", "nan"]))),
    st.booleans(),
)
def test_a_damaged_file_is_read_or_refused_but_never_crashes(
    text: str, damage: list[tuple[int, str]], skip_bad: bool
) -> None:
    for at, mark in damage:
        text = text[:at] + mark + text[at + 1 :]
    with TemporaryDirectory() as folder, suppress(TraceError):
        path = Path(folder) / "log"
        path.write_text(text)
        trace = load_trace(path, skip_bad=skip_bad)
        assert len(trace) > 0
