"""`rota simulate`."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
from pathlib import Path

import pytest

from rota.cli.app import run
from rota.core import Cluster
from rota.policies import make_policy
from rota.run.reader import read_journal
from rota.sim import simulate
from rota.traces import load_trace

LOG = """\
job_id,submit_s,duration_s,num_gpus,user,estimate_s
a,0,100,8,ann,200
b,10,50,8,bob,5
c,20,10,2,ann,30
"""
HOSTILE = '''
import numpy as np
from rota.core import Draft

class Overfills:
    """Gives every job all of what the first node has."""
    def decide(self, snapshot):
        decision = Draft(snapshot).commit()
        shares = np.zeros(len(snapshot.jobs), decision.shares.dtype)
        shares["workers"] = snapshot.jobs.workers
        return type(decision)(
            uid=decision.uid, at=np.arange(len(shares)), length=np.ones(len(shares), np.int64),
            shares=shares,
        )

class Raises:
    def decide(self, snapshot):
        raise ValueError("no idea")

class Verse:
    def decide(self, snapshot):
        raise ValueError("no idea\\n  at all")

class Loops:
    def decide(self, snapshot):
        while True:
            pass

class Starves:
    def decide(self, snapshot):
        return Draft(snapshot).commit()

class Particular:
    def __init__(self, taste):
        pass
    decide = Starves.decide
'''
LOUD = """
from rota.policies import make_policy

print("imported")

class Loud:
    def __init__(self):
        print("made")

    def decide(self, snapshot):
        print("asked")
        return make_policy("fifo").decide(snapshot)
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "longest_wait.py"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "hostile.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    return "log.csv"


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints; it must succeed."""
    code = run(["simulate", *words])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    return shown.out


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """The message of a command that must fail, and print nothing else."""
    assert run(["simulate", *words]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    message = shown.err.splitlines()[-1]
    assert message.startswith("error: ")
    return message


def test_json_has_the_numbers_of_a_hand_made_schedule(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # One node of 8: a runs 0–100, b 100–150, and c, behind b, 150–160.
    words = (log, "-p", "fifo", "--nodes", "1", "--json")
    facts = json.loads(simulated(capsys, *words))
    (only,) = facts["runs"]
    assert only["policy"] == "fifo"
    assert only["mean_jct_s"] == pytest.approx((100 + 140 + 140) / 3)
    assert only["makespan_s"] == 160
    assert only["mean_wait_s"] == pytest.approx((0 + 90 + 130) / 3)
    assert facts["trace"]["jobs"] == 3
    assert facts["cluster"]["gpus"] == 8
    assert facts["conditions"]["node_mtbf_s"] is None


def test_json_keys_are_those_of_the_golden_file(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads(simulated(capsys, log, "-p", "fifo", "--json"))
    keys = [*facts, *(f"runs.{key}" for key in facts["runs"][0])]
    golden = Path(__file__).with_name("test_cli_simulate_keys.txt").read_text().split()
    # Keys may be added; whoever reads the output counts on those that are there.
    assert set(golden) <= set(keys)


def test_table_says_what_it_shows(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = simulated(capsys, log, "-p", "fifo", "-p", "srtf+consolidate", "--nodes", "2")
    lines = table.splitlines()
    assert lines[0] == "log: 3 jobs on 2 nodes × 8 GPUs, seed 0"
    headings = ("policy", "mean JCT", "p50", "p90", "p99", "mean wait", "makespan", "utilisation",
                "preemptions", "moves")  # fmt: skip
    assert all(heading in lines[1] for heading in headings)
    assert [line.split()[0] for line in lines[3:5]] == ["fifo", "srtf+consolidate"]
    assert "preemption and moving are free (--restart-cost 0)" in table
    costly = simulated(capsys, log, "-p", "fifo", "--restart-cost", "30")
    assert "a stop or move costs 30.0 s (--restart-cost 30s)" in costly


def test_tables_by_size_and_user(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    by_size = simulated(capsys, log, "-p", "fifo", "--by", "size")
    assert "fifo by size" in by_size
    assert "5-8" in by_size
    by_user = simulated(capsys, log, "-p", "fifo", "--by", "user")
    assert "ann" in by_user
    assert "bob" in by_user
    both = simulated(capsys, log, "-p", "fifo", "-p", "srtf", "--by", "user", "--by", "size")
    titles = [f"{policy} by {group}" for policy in ("fifo", "srtf") for group in ("user", "size")]
    assert [both.index(title) for title in titles] == sorted(both.index(title) for title in titles)
    facts = json.loads(
        simulated(capsys, log, "-p", "fifo", "--by", "user", "--by", "size", "--json")
    )
    assert {"by_user", "by_size"} <= facts["runs"][0].keys()
    assert run(["simulate", log, "-p", "fifo", "--by", "size", "--by", "colour"]) == 2
    assert "No table is called 'colour'" in capsys.readouterr().err


def test_jobs_without_an_estimate_are_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "limits.csv"
    path.write_text(
        "job_id,submit_s,duration_s,num_gpus,estimate_s\na,0,10,1,60\nb,5,20,2,\nc,6,20,2,\n"
    )
    words = ["simulate", str(path), "-p", "sjf", "--estimates", "trace"]
    assert run(words) == 0
    assert "note: limits: no estimate of 2 of 3 jobs; policies do" in capsys.readouterr().err


def test_the_table_says_what_changes_cost(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ((), "preemption and moving are free (--restart-cost 0)"),
        (("--restart-cost", "20"), "a stop or move costs 20.00 s (--restart-cost 20s)"),
        (("--restart-cost", "20", "--resize-cost", "2"),
         "a stop costs 20.00 s, a resize or move of an elastic job 2.00 s "
         "(--restart-cost 20s --resize-cost 2s)"),
    ):  # fmt: skip
        assert said in simulated(capsys, log, "-p", "fifo", *words)


def test_options_reach_the_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    source = "poisson:jobs=40,load=0.9,total_gpus=16"
    words = (source, "-p", "srtf", "--nodes", "2", "--seed", "3", "--head", "30", "--json",
             "--restart-cost", "20s", "--min-run", "1m", "--slot", "10", "--job-mtbf", "2h",
             "--retries", "1", "--checkpoint-every", "5m", "--resize-cost", "2")  # fmt: skip
    facts = json.loads(simulated(capsys, *words))
    when = facts["conditions"]
    assert (when["restart_s"], when["min_run_s"], when["slot_s"]) == (20, 60, 10)
    assert when["resize_s"] == 2
    assert (when["job_mtbf_s"], when["retries"], when["checkpoint_s"]) == (7200, 1, 300)
    assert facts["runs"][0]["jobs"] == 30
    assert facts["runs"][0]["seed"] == 3
    again = json.loads(simulated(capsys, *words))
    for each in (facts, again):
        del each["runs"][0]["wall_s"]
    assert facts == again


def test_the_traces_own_estimates_may_mislead(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    # When a ends at 100, c (10 s) is truly shorter than b (50 s), but the trace says 5 s of b.
    def mean_jct_s(estimates: str) -> float:
        words = (log, "-p", "sjf", "--nodes", "1", "--estimates", estimates, "--json")
        return float(json.loads(simulated(capsys, *words))["runs"][0]["mean_jct_s"])

    assert mean_jct_s("true") == pytest.approx((100 + 150 + 90) / 3)
    assert mean_jct_s("trace") == pytest.approx((100 + 140 + 140) / 3)


def test_oversized_jobs_stop_a_run_unless_dropped(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (log, "-p", "fifo", "--nodes", "1", "--gpus", "4")
    message = refused(capsys, *words)
    assert "line 2: job 'a' asks for 8 GPUs" in message
    assert "--drop-oversized" in message
    assert run(["simulate", *words, "--drop-oversized", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["trace"]["oversized"] == 2
    assert "left out 2 jobs that the empty cluster cannot hold" in shown.err
    assert "none of its" in refused(
        capsys, log, "-p", "fifo", "--nodes", "1", "--gpus", "1", "--drop-oversized"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-p", "srft"], "No policy is called 'srft'. Did you mean 'srtf'?"),
        (["-p", "srtf+consolidat"], "No placement is called 'consolidat'. Did you mean 'consol"),
        (["-p", "las:quantum=-1"], "must be seconds, 1 or more"),
        ([], "Name at least one policy, such as -p fifo"),
        (["-p", "none.py:Policy"], "There is no file 'none.py'"),
        (["-p", "no_such_module:Policy"], "Cannot load a policy from 'no_such_module'"),
        (["-p", "hostile.py:Nobody"], "No policy in hostile.py is called 'Nobody'"),
        (["-p", "hostile.py:Particular"], "Cannot make policy 'hostile.py:Particular': its"),
        (["-p", "srsf:b=1,b=0.5"], "'srsf' is given 'b' twice in 'b=1,b=0.5'"),
        (["-p", "fifo", "--by", "age"], "No table is called 'age'"),
        (["-p", "fifo", "--estimates", "treu"], "Did you mean 'true'?"),
        (["-p", "fifo", "--format", "phily"], "Did you mean 'philly'?"),
        (["-p", "fifo", "--cluster", "none.toml"], "none.toml: There is no such file."),
        (["-p", "fifo", "--cluster", "x.toml", "--gpus", "4"], "leave out --nodes and --gpus"),
        (["-p", "fifo", "--gpus", "65537"], "at most 65536"),
        (["-p", "gittins", "--history", "none.csv"], "none.csv: There is no such file."),
    ],
)
def test_wrong_input_is_named(
    log: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, log, *words)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Overfills", "Node 'node-0' has 8 GPUs but the decision uses 16"),
        ("Raises", "Policy 'Raises' raised ValueError in round 1 at 0 s: no idea"),
        ("Loops", "Policy 'Loops' had not decided after 0.2 s"),
        ("Starves", "the policy starves them"),
        ("Verse", "Policy 'Verse' raised ValueError in round 1 at 0 s: no idea at all. --debug"),
    ],
)
def test_a_policy_that_misbehaves_is_stopped(
    log: str, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (log, "-p", f"hostile.py:{name}", *(["--deadline", "0.2"] * (name == "Loops")))
    assert message in refused(capsys, *words, code=1)


def test_the_example_policy_runs_as_its_comment_says(capsys: pytest.CaptureFixture[str]) -> None:
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) < 50
    (command,) = [line.split() for line in lines if line.strip().startswith("rota simulate")]
    command = [word.replace("examples/", f"{EXAMPLE.parent}/") for word in command]
    command[2] = "poisson:jobs=60"
    table = simulated(capsys, *command[2:])
    assert "longest_wait.py:LongestWait" in table


def test_notes_what_a_learner_learns_from(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "poisson:jobs=20", "-p", "gittins"]
    assert run(words) == 0
    assert "--history FILE" in capsys.readouterr().err
    assert run([*words, "--history", "poisson:jobs=50"]) == 0
    assert "--history" not in capsys.readouterr().err


def test_a_journal_holds_the_same_run(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    simulated(capsys, log, "-p", "fifo", "--nodes", "1", "--journal", "run.db")
    with read_journal("run.db") as view:
        outcome = view.outcome()
        assert view.finished
        assert view.meta["conditions"]["restart_s"] == 0
    direct = simulate(Cluster.uniform(1), load_trace(log), make_policy("fifo"))
    assert outcome.done_s.tolist() == direct.done_s.tolist()

    assert "exists already" in refused(capsys, log, "-p", "fifo", "--journal", "run.db", code=1)
    simulated(capsys, log, "-p", "fifo", "--journal", "run.db", "--force")


def test_a_journal_is_a_trace_and_brings_its_cluster(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("-p", "srtf", "--json")
    first = json.loads(simulated(capsys, log, *words, "--nodes", "1", "--journal", "run.db"))
    again = json.loads(simulated(capsys, "run.db", *words))
    assert again["cluster"] == first["cluster"]
    for facts in (first, again):
        facts["runs"][0].pop("wall_s")
        facts["runs"][0].pop("journal", None)
    assert again["runs"] == first["runs"]
    larger = json.loads(simulated(capsys, "run.db", *words, "--nodes", "2"))
    assert larger["cluster"]["nodes"] == 2


def test_several_policies_get_a_journal_each(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = f"{EXAMPLE}:LongestWait"
    simulated(capsys, log, "-p", "fifo", "-p", "srtf+spread", "-p", own, "--journal", "run.db")
    names = {path.name for path in Path().glob("run*")}
    assert names == {"run.fifo.db", "run.srtf+spread.db", "run.longest_wait.py-LongestWait.db"}


def test_files_of_one_name_in_two_folders_are_told_apart(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        shutil.copy(EXAMPLE, f"{folder}/mine.py")
    own = [f"{folder}/mine.py:LongestWait" for folder in "ab"]
    words = (log, "-p", own[0], "-p", own[1], "-p", "fifo", "--journal", "run.db")
    table = simulated(capsys, *words)
    assert [line.split()[0] for line in table.splitlines()[3:6]] == [*own, "fifo"]
    names = sorted(path.name for path in Path().glob("run*"))
    assert names == [*(f"run.{f}-mine.py-LongestWait.db" for f in "ab"), "run.fifo.db"]


@pytest.mark.parametrize("words", [["simulate", "log.csv", "-p", "loud.py:Loud"],
                                   ["compare", "c.toml", "--jobs", "2"]])  # fmt: skip
def test_what_a_policy_prints_does_not_end_up_in_the_json(
    log: str, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    Path("loud.py").write_text(LOUD)
    policies = "['loud.py:Loud', 'fifo-skip']"
    Path("c.toml").write_text(f"traces = ['{log}']\npolicies = {policies}")
    assert run([*words, "--json"]) == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out)["runs"]
    assert {"imported", "made", "asked"} <= set(shown.err.split())


def test_a_journal_that_cannot_be_written_is_an_error(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "There is no directory nowhere" in refused(
        capsys, log, "-p", "fifo", "--journal", "nowhere/run.db", code=1
    )
    words = ("poisson:jobs=3000", "-p", "fifo", "--journal", "full.db")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # a disk that fills up
    try:
        code = run(["simulate", *words])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    shown = capsys.readouterr()
    assert (code, shown.out) == (1, "")
    assert "the journal full.db" in shown.err
    assert "disk" in shown.err


def test_of_a_journal_that_went_on_elsewhere_the_last_cluster_counts(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated(capsys, log, "-p", "fifo", "--nodes", "1", "--journal", "run.db")
    with sqlite3.connect("run.db") as db:
        db.execute("INSERT INTO meta VALUES ('cluster.2', '{\"gpus\": [8, 8, 8]}')")
    db.close()
    assert run(["simulate", "run.db", "-p", "srtf", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["cluster"]["nodes"] == 3
    assert "tells of 2 clusters in turn; the last, 3 nodes × 8 GPUs, is taken" in shown.err
    assert run(["simulate", "run.db", "-p", "srtf", "--json", "--nodes", "2"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["cluster"]["nodes"] == 2
    assert "clusters in turn" not in shown.err


TYPED = """\
JobID|User|State|Submit|Start|ElapsedRaw|AllocTRES|JobName
1|ann|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:00|100|node=2,gres/gpu=8,gres/gpu:a100=8|x
2|bob|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:02:00|100|node=1,gres/gpu=4,gres/gpu:a100=4|x
3|bob|COMPLETED|2026-01-01T00:00:10|2026-01-01T00:00:10|50|node=1,gres/gpu=2,gres/gpu:v100=2|x
4|bob|RUNNING|2026-01-01T00:00:10|2026-01-01T00:00:10|50|node=1,gres/gpu=2,gres/gpu:v100=2|x
"""


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "jobs.txt").write_text(TYPED)
    monkeypatch.chdir(tmp_path)
    return "jobs.txt"


def test_a_log_with_gpu_types_needs_no_cluster_file(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", typed, "-p", "fifo", "--json"]) == 0
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    # Eight a100 in use at once on nodes of 4, two v100 on one node.
    assert facts["cluster"]["gpu_types"] == ["a100", "v100"]
    assert (facts["cluster"]["nodes"], facts["cluster"]["gpus"]) == (3, 10)
    assert "made of the GPU types in the log: 2 × 4 a100, 1 × 2 v100" in shown.err
    assert facts["notes"][0] in shown.err
    # FIFO starts job 2 when job 1 has ended, at 100 s, and job 3 at once.
    assert facts["runs"][0]["makespan_s"] == 200
    more = json.loads(simulated(capsys, typed, "-p", "fifo", "--nodes", "6", "--json"))
    assert more["cluster"]["nodes"] == 6


def test_gpu_types_can_be_ignored(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = (typed, "-p", "fifo", "--ignore-gpu-types", "--json")
    facts = json.loads(simulated(capsys, *words))
    assert facts["cluster"]["gpu_types"] == ["gpu"]
    assert facts["cluster"]["gpus"] == 128


def test_a_cluster_without_the_types_is_told_which_there_are(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("c.toml").write_text("[[node]]\ngpus = 8\ncount = 9\n")
    message = refused(capsys, typed, "-p", "fifo", "--cluster", "c.toml")
    for said in ("'a100' (2 jobs", "'v100' (1 job,", "have 'gpu'", "--ignore-gpu-types"):
        assert said in message
    assert "--nodes" not in message
    dropped = refused(capsys, typed, "-p", "fifo", "--cluster", "c.toml", "--drop-oversized")
    assert "'a100' (2 jobs" in dropped
    Path("old.txt").write_text(TYPED.replace("|Start|", "|Started|"))
    message = refused(capsys, "old.txt", "-p", "fifo")
    assert "the log records no starts" in message
    assert "Start column" in message


def test_the_first_row_is_the_logs_own_record(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = simulated(capsys, typed, "-p", "fifo", "-p", "srtf", "--by", "user")
    rows = [line.split("  ")[0] for line in table.splitlines()[3:6]]
    assert rows == ["as it was", "fifo", "srtf"]
    assert "as it was: the log's own record of starts and run times, not a simulation" in table
    assert table.index("as it was by user") < table.index("fifo by user")

    facts = json.loads(simulated(capsys, typed, "-p", "fifo", "--json"))
    was = facts["as_it_was"]
    assert [run["policy"] for run in facts["runs"]] == ["fifo"]
    assert (was["policy"], was["jobs"], was["finished"]) == ("as it was", 3, 3)
    # Job 1: 0–100, job 2: 120–220 after a wait of 120, job 3: 10–60. Job 4 still ran: left out.
    assert was["mean_wait_s"] == pytest.approx(120 / 3)
    assert was["mean_jct_s"] == pytest.approx((100 + 220 + 50) / 3)
    assert was["makespan_s"] == 220
    assert was["utilisation"] == pytest.approx((800 + 400 + 100) / (10 * 220))
    assert was["preemptions"] is None
    assert was["by_user"][0]["user"] == "ann"


def test_a_record_that_needed_more_gpus_is_pointed_out(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", typed, "-p", "fifo", "--drop-oversized", "--nodes", "2", "--gpus", "4"]
    assert run([*words, "--json"]) == 0
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    # Job 1 does not fit into one node of four a100, so the record of it is left out as well.
    assert facts["as_it_was"]["jobs"] == facts["runs"][0]["jobs"] == 2
    words = ["simulate", typed, "-p", "fifo", "--ignore-gpu-types", "--nodes", "1", "--gpus", "8"]
    assert run([*words, "--json"]) == 0
    shown = capsys.readouterr()
    said = "up to 10 GPUs were in use at once, but this cluster has 8: the row 'as it was' had more"
    assert said in shown.err


def test_jobs_without_a_recorded_start_are_pointed_out(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(typed).write_text(TYPED.replace("2026-01-01T00:02:00", "Unknown"))
    assert run(["simulate", typed, "-p", "fifo", "--json"]) == 0
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    assert facts["as_it_was"]["jobs"] == 2
    assert facts["runs"][0]["jobs"] == 3
    assert "the log records no start of 1 of 3 jobs; the row 'as it was' leaves them" in shown.err


def test_without_starts_there_is_no_such_row(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "as it was" not in simulated(capsys, log, "-p", "fifo")
    assert json.loads(simulated(capsys, log, "-p", "fifo", "--json"))["as_it_was"] is None


def test_a_preset_runs_on_its_own_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "venus:jobs=30", "-p", "fifo"]
    assert run(words) == 0
    shown = capsys.readouterr()
    assert "on 133 nodes × 8 GPUs" in shown.out
    assert shown.err.count("venus comes with its own cluster: 133 nodes × 8 GPUs") == 1
    assert run([*words, "--nodes", "40"]) == 0
    shown = capsys.readouterr()
    assert "on 40 nodes × 8 GPUs" in shown.out
    assert "own cluster" not in shown.err
    assert "on 16 nodes × 8 GPUs" in simulated(capsys, "poisson:jobs=30", "-p", "fifo")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--restart-cost", "soon"], "no duration; write one like 90s"),
        (["--slot", "-5"], "no duration"),
        (["--node-mtbf", "500"], "'500' has no unit; write 500h or 500s"),
        (["--job-mtbf", "0h"], "not above 0"),
        (["--deadline", "0"], "--deadline must be above 0"),
    ],
)
def test_durations_are_checked(
    log: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", log, "-p", "fifo", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
