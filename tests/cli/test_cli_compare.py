"""`rota compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.cli.app import run
from rota.cli.compare_config import load_config
from rota.errors import ConfigError

CONFIG = """
traces = [
    { source = "poisson:jobs=40,total_gpus=16,load=1.2", name = "random" },
    "log.csv",
]
seeds = "0:3"
policies = ["fifo-skip", "srtf", "own.py:Own"]
baseline = "fifo-skip"
resamples = 500

[cluster]
nodes = 2

[conditions]
restart_s = 10
"""
LOG = "job_id,submit_s,duration_s,num_gpus\n" + "".join(
    f"j{k},{k},{10 + 90 * (k % 3)},{1 + k % 8}\n" for k in range(30)
)
OWN = """
import os
from rota.policies import make_policy

class Own:
    decide = staticmethod(make_policy("sjf-skip").decide)

class Dies:
    def decide(self, snapshot):
        os._exit(3)

class Raises:
    def decide(self, snapshot):
        raise ValueError("no idea")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a configuration in a folder below it."""
    place = tmp_path / "study"
    place.mkdir()
    for name, text in (("c.toml", CONFIG), ("log.csv", LOG), ("own.py", OWN)):
        (place / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return place


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """What the command prints on both streams; it must succeed."""
    code = run(["compare", *words])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    return shown.out, shown.err


def without_clock(results: dict[str, Any]) -> dict[str, Any]:
    runs = [{key: run[key] for key in run if key != "wall_s"} for run in results["runs"]]
    return {**results, "runs": runs, "made_at": ""}


def test_results_do_not_depend_on_how_many_run_at_a_time(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for jobs in ("1", "2"):
        compared(capsys, "study/c.toml", "--out", f"out{jobs}", "--jobs", jobs)
    one, two = (
        without_clock(json.loads(Path(f"out{jobs}/results.json").read_text())) for jobs in (1, 2)
    )
    assert one == two
    # The preset runs under each of 3 seeds, the file once: seeds make no difference to it.
    assert len(one["runs"]) == 3 * 3 + 1 * 3
    assert any("so each policy ran there once" in note for note in one["notes"])
    assert (folder / "c.toml").read_text() == CONFIG


def test_table_says_over_what_it_compares(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert folder.is_dir()
    out, err = compared(capsys, "study/c.toml", "--jobs", "1")
    assert "random on 2 nodes × 8 GPUs" in out
    assert "3 runs" in out
    assert "30 jobs" in out
    assert "all traces, against fifo-skip" in out
    assert "rough guide" in out
    assert "out/c/report.html" in err
    assert Path("out/c/report.html").read_text().startswith("<!DOCTYPE html>")


def test_json_is_one_object_with_the_paired_differences(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.is_dir()
    out, _ = compared(capsys, "study/c.toml", "--jobs", "1", "--json")
    results = json.loads(out)
    found = {(row["scope"], row["policy"]): row for row in results["comparisons"]}
    assert set(found) == {
        (scope, policy)
        for scope in ("random", "log.csv", "all traces")
        for policy in ("srtf", "own.py:Own")
    }
    row = found["random", "srtf"]
    means = {
        policy: [r["mean_jct_s"] for r in results["runs"]
                 if r["trace"] == "random" and r["policy"] == policy]
        for policy in ("fifo-skip", "srtf")
    }  # fmt: skip
    assert row["over"] == "runs"
    assert row["n"] == 3
    assert row["ratio"] == pytest.approx(sum(means["srtf"]) / sum(means["fifo-skip"]) - 1)
    assert row["ratio_ci"][0] <= row["ratio"] <= row["ratio_ci"][1]
    assert found["log.csv", "srtf"]["over"] == "jobs"
    assert found["all traces", "srtf"]["n"] == 4


def test_faults_and_errors_make_a_file_depend_on_the_seed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
        traces = ["log.csv"]
        seeds = [0, 1, 2]
        policies = ["fifo", "sjf:error=1"]
        cluster.nodes = 2
    """
    (folder / "d.toml").write_text(text)
    out, _ = compared(capsys, "study/d.toml", "--json")
    runs = json.loads(out)["runs"]
    assert [run["policy"] for run in runs] == ["fifo"] + ["sjf:error=1"] * 3

    (folder / "e.toml").write_text(f"{text}\nconditions.job_mtbf_s = 500")
    out, _ = compared(capsys, "study/e.toml", "--json")
    assert len(json.loads(out)["runs"]) == 6


def test_earlier_results_are_replaced_by_force_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "s.toml").write_text("traces=['log.csv']\npolicies=['fifo','sjf']\ncluster.nodes=2")
    words = ("study/s.toml", "--out", "here")
    compared(capsys, *words)
    assert run(["compare", *words]) == 2
    assert "--force replaces them" in capsys.readouterr().err
    compared(capsys, *words, "--force")
    assert run(["compare", "study/s.toml", "--out", "study", "--force"]) == 2
    assert "holds other files" in capsys.readouterr().err


@pytest.mark.parametrize(("jobs", "name", "message"), [
    ("2", "Dies", "own.py:Dies on log.csv, seed 0: its process died"),
    ("2", "Raises", "own.py:Raises on log.csv, seed 0: Policy 'Raises' raised ValueError"),
    ("1", "Raises", "own.py:Raises on log.csv, seed 0: Policy 'Raises' raised ValueError"),
])  # fmt: skip
def test_a_run_that_fails_is_named(
    folder: Path, jobs: str, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = f"['fifo', 'own.py:{name}']"
    (folder / "f.toml").write_text(f"traces=['log.csv']\npolicies={policies}\ncluster.nodes=2")
    assert run(["compare", "study/f.toml", "--jobs", jobs]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"error: {message}" in shown.err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trace = ['x']", "c.toml: There is no key 'trace'. Did you mean 'traces'?"),
        ("policies = ['fifo']", "'traces' is missing"),
        ("traces = ['poisson']", "'policies' is missing"),
        ("traces = []\npolicies = ['fifo']", "traces = [] must be a list"),
        ("traces = [1]\npolicies = ['fifo']", "traces = [1] must be a list"),
        ("traces = ['poisson', 'poisson']\npolicies = ['fifo']", "Two traces are called 'poisson'"),
        ("traces = [{ src = 'x' }]\npolicies = ['fifo']", "trace 1: There is no key 'src'"),
        ("traces = [{ source = 'x', head = 0 }]\npolicies = ['fifo']", "head = 0 must be"),
        ("traces = [{ source = 'x', format = 'phily' }]\npolicies = ['f']", "'philly'"),
        ("traces = ['poisson']\npolicies = ['fifo']\nseeds = '0-3'", "seeds = '0-3' must be"),
        ("traces = ['poisson']\npolicies = ['fifo']\nseeds = '3:3'", "seeds = '3:3' must be"),
        ("traces = ['poisson']\npolicies = ['fifo']\nseeds = [-1]", "seeds = [-1] must be"),
        ("traces = ['poisson']\npolicies = ['fifo']\nresamples = 1", "resamples = 1 must be"),
        ("traces = ['poisson']\npolicies = [3]", "policies = [3] must be a list of texts"),
        ("traces = ['poisson']\npolicies = ['fifo']\n[cluster]\nnode = 3", "Did you mean 'nodes'?"),
        ("traces = ['poisson']\npolicies = ['fifo']\n[cluster]\nnodes = 0", "nodes = 0 must be"),
        (
            "traces = ['poisson']\npolicies = ['fifo']\n[cluster]\nnodes = 2\nfile = 'x'",
            "Give a file, or nodes and gpus, not both",
        ),
        (
            "traces = ['poisson']\npolicies = ['fifo']\n[conditions]\nrestart = 3",
            "[conditions]: There is no key 'restart'. Did you mean 'restart_s'?",
        ),
        (
            "traces = ['poisson']\npolicies = ['fifo']\n[conditions]\nrestart_s = -3",
            "c.toml: [conditions]: restart_s=-3.0 must be 0 or more",
        ),
        (
            "traces = ['poisson']\npolicies = ['fifo']\n[conditions]\nretries = 1.5",
            "[conditions]: retries = 1.5 must be a whole number",
        ),
        (
            "traces = ['poisson']\npolicies = ['fifo']\nconditions.restart_s = [1, -1]",
            "[conditions]: restart_s = [1, -1] must be a number of seconds, 0 or more, or a list",
        ),
        ("traces = ['poisson']\npolicies = ['fifo']\nconditions.restart_s = []", "or a list of"),
        (
            "traces = ['poisson']\npolicies = ['fifo']\nconditions.restart_s = ['1m']",
            "or a list of",
        ),
        ("traces = ['poisson']\npolicies = ['fifo']\nconditions.restart_s = [nan]", "or a list of"),
        (
            "traces = ['poisson']\npolicies = ['fifo']\n"
            "[cluster]\nnodes = 2\n[[clusters]]\nnodes = 2",
            "Give [cluster] or [[clusters]], not both",
        ),
        (
            "traces = ['poisson']\npolicies = ['fifo']\n"
            "[[clusters]]\nnodes = 2\n[[clusters]]\nnodes = 2",
            "Two clusters are called '2 nodes'",
        ),
        (
            "traces = ['poisson']\npolicies = ['fifo']\nclusters = []",
            "clusters = [] must be a list",
        ),
        (
            "traces = ['poisson']\npolicies = ['fifo']\n[[clusters]]\nadd_nodes = -1",
            "cluster 1: add_nodes = -1 must be a whole number of 0 or more",
        ),
        (
            "traces = ['poisson']\npolicies = ['fifo']\n[[clusters]]\ngpu_type = 'a100'",
            "cluster 1: gpu_type says what add_nodes adds",
        ),
        ("traces = ['poisson']\npolicies = ['fifo']\n[[clusters]]\nnode = 1", "'nodes'?"),
        ("traces = [", "no valid TOML"),
    ],
)
def test_a_wrong_configuration_is_refused_by_key(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_baseline_joins_the_policies(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("traces = ['poisson']\npolicies = ['sjf', 'sjf']\nbaseline = 'fifo'")
    config = load_config(path)
    assert list(config.policies) == ["fifo", "sjf"]
    assert config.baseline == "fifo"


def test_the_examples_are_sound() -> None:
    folder = Path(__file__).parents[2] / "examples"
    for path in folder.glob("*.toml"):
        assert load_config(path).policies


def test_a_journal_brings_its_cluster_unless_another_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "study/log.csv", "-p", "fifo-skip", "--nodes", "3", "--gpus", "9"]
    assert run([*words, "--journal", "study/run.db"]) == 0
    capsys.readouterr()
    text = "traces = ['run.db', 'log.csv']\npolicies = ['fifo-skip', 'srtf']\nresamples = 200\n"
    (folder / "own.toml").write_text(text)
    out, _ = compared(capsys, "study/own.toml", "--out", "own", "--jobs", "1")
    assert "run.db on 3 nodes × 9 GPUs" in out
    assert "log.csv on 16 nodes × 8 GPUs" in out
    assert "run.db is a journal with its own cluster" in out
    page = Path("own/report.html").read_text()
    assert "cluster of run.db" in page
    assert "3 nodes × 9 GPUs, 27 GPUs" in page
    runs = json.loads(Path("own/results.json").read_text())["runs"]
    here = next(r for r in runs if (r["trace"], r["policy"]) == ("run.db", "srtf"))
    assert run(["simulate", "study/run.db", "-p", "srtf", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["mean_jct_s"] == here["mean_jct_s"]
    (folder / "named.toml").write_text(f"{text}[cluster]\nnodes = 5\n")
    out, _ = compared(capsys, "study/named.toml", "--out", "named", "--jobs", "1")
    assert "run.db on 5 nodes × 8 GPUs" in out
    assert "journal with its own" not in out


AXES = """
traces = ["log.csv", { source = "poisson:jobs=30,total_gpus=16,load=1.1", name = "random" }]
seeds = [0, 1]
policies = ["fifo-skip", "srtf"]
conditions.restart_s = [0, 60]
resamples = 200

[[clusters]]
name = "now"
nodes = 2

[[clusters]]
name = "one more node"
nodes = 2
add_nodes = 1
"""


def test_clusters_and_restart_costs_are_axes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "axes.toml").write_text(AXES)
    out, _ = compared(capsys, "study/axes.toml", "--out", "axes", "--jobs", "1")
    results = json.loads(Path("axes/results.json").read_text())
    assert results["axes"] == {
        "traces": ["log.csv", "random"], "clusters": ["now", "one more node"], "restart_s": [0, 60],
    }  # fmt: skip
    labels = [
        f"{trace} · {cluster} · restart {cost} s"
        for trace in ("log.csv", "random")
        for cluster in ("now", "one more node")
        for cost in (0, 60)
    ]
    assert results["traces"] == list(results["cases"]) == labels
    # The log once in each of its 4 cases, the preset under both seeds.
    assert len(results["runs"]) == 4 * 2 * (1 + 2)
    case = results["cases"]["log.csv · one more node · restart 60 s"]
    assert (case["cluster"]["nodes"], case["conditions"]["restart_s"]) == (3, 60)
    assert [row["scope"] for row in results["comparisons"]] == [*labels, "all settings"]
    assert "log.csv · one more node · restart 60 s on 3 nodes × 8 GPUs" in out
    assert "log.csv: mean JCT, and its change from now · restart 0 s" in out
    assert "Seeds make no difference to log.csv (a file" in out
    page = Path("axes/report.html").read_text()
    assert "one more node · restart 60 s" in page
    assert "cluster of random · now · restart 0 s" in page


def test_a_case_is_what_it_would_be_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "axes.toml").write_text(AXES)
    out, _ = compared(capsys, "study/axes.toml", "--out", "axes", "--jobs", "1", "--json")
    rows = {
        (row["of_trace"], row["cluster_name"], row["restart_s"], row["policy"]): row["mean_jct_s"]
        for row in json.loads(out)["table"]
    }
    for nodes, cluster in (("2", "now"), ("3", "one more node")):
        for cost in (0, 60):
            words = ["simulate", "study/log.csv", "-p", "srtf", "--nodes", nodes, "--json"]
            assert run([*words, "--restart-cost", f"{cost}s"]) == 0
            alone = json.loads(capsys.readouterr().out)["runs"][0]["mean_jct_s"]
            assert rows["log.csv", cluster, cost, "srtf"] == alone


@pytest.mark.parametrize(("seeds", "over", "n"), [("[0]", "jobs", 30), ("[0, 1, 2]", "runs", 3)])
def test_a_run_counts_once_however_many_settings_it_was_made_in(
    folder: Path, seeds: str, over: str, n: int, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"""
        traces = [{{ source = "poisson:jobs=30,total_gpus=16,load=1.1", name = "random" }}]
        seeds = {seeds}
        policies = ["fifo-skip", "srtf"]
        cluster.nodes = 2
        resamples = 500
    """
    (folder / "one.toml").write_text(text)
    (folder / "many.toml").write_text(f"{text}\nconditions.restart_s = [0, 1e-9, 2e-9, 3e-9]")
    one, many = (
        json.loads(compared(capsys, f"study/{name}.toml", "--jobs", "1", "--json")[0])
        for name in ("one", "many")
    )
    alone, pooled = one["comparisons"][0], many["comparisons"][-1]
    assert pooled["scope"] == "all settings"
    assert (pooled["over"], pooled["n"], pooled["pairs_of_runs"]) == (over, n, 4 * max(1, n % 30))
    # Settings that make no difference give no further certainty.
    wide, still = (row["ratio_ci"][1] - row["ratio_ci"][0] for row in (alone, pooled))
    assert still == pytest.approx(wide, rel=0.15)


def test_all_clusters_of_a_trace_are_given_the_same_jobs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
        traces = ["log.csv"]
        policies = ["fifo-skip", "srtf"]
        drop_oversized = true
        [[clusters]]
        name = "small"
        nodes = 1
        gpus = 4
        [[clusters]]
        name = "large"
        nodes = 2
    """
    (folder / "drop.toml").write_text(text)
    out, err = compared(capsys, "study/drop.toml", "--jobs", "1", "--json")
    results = json.loads(out)
    # Of 30 jobs of 1 … 8 GPUs, 16 take no more than 4.
    assert {run["jobs"] for run in results["runs"]} == {16}
    assert err.count("left out 14 jobs") == 1
    lost = [note for note in results["notes"] if "14 jobs left out" in note]
    assert [note.partition(":")[0] for note in lost] == ["log.csv"]
    assert any("left out on all of them" in note for note in results["notes"])


@pytest.mark.parametrize(("text", "message"), [
    ("traces=['log.csv']\npolicies=['srft']", "No policy is called 'srft'"),
    ("traces=['gone.csv']\npolicies=['fifo']", "gone.csv"),
    ("traces=['poisson:jobs=3,load=x']\npolicies=['fifo']", "load"),
    ("traces=['log.csv']\npolicies=['fifo']\n[cluster]\nnodes=1\ngpus=4",
     "a larger cluster (nodes, gpus or file of [cluster]), or leave such jobs out "
     "(drop_oversized = true)."),
])  # fmt: skip
def test_what_is_wrong_with_the_input_names_the_file_and_its_keys(
    folder: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "w.toml").write_text(text)
    assert run(["compare", "study/w.toml", "--jobs", "1"]) == 2
    shown = capsys.readouterr().err.splitlines()[-1]
    assert shown.startswith("error: study/w.toml: ")
    assert message in shown
    assert "--" not in shown


def test_a_scenario_keeps_its_own_cluster_and_costs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = AXES.replace('traces = ["log.csv", { source', "traces = [{ source")
    (folder / "s.toml").write_text(
        f"{text}\n[[scenarios]]\nname = 'dl2-testbed-published'\nhead = 5\nseeds = [3]\n"
    )
    out, _ = compared(capsys, "study/s.toml", "--out", "s", "--jobs", "1", "--json")
    results = json.loads(out)
    assert len(results["traces"]) == 4 + 1
    assert results["traces"][-1] == "dl2-testbed-published"


RECORDED = """\
JobID|State|Submit|Start|ElapsedRaw|AllocTRES
1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:00|100|node=2,gres/gpu:a100=8
2|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:02:00|100|node=1,gres/gpu:a100=4
3|COMPLETED|2026-01-01T00:00:10|2026-01-01T00:00:10|50|node=1,gres/gpu:v100=2
"""


def test_a_logs_own_record_and_types_are_compared_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "jobs.txt").write_text(RECORDED)
    text = """
        traces = ["jobs.txt"]
        policies = ["fifo", "srtf"]
        resamples = 200
        [[clusters]]
        [[clusters]]
        name = "two more v100 nodes"
        add_nodes = 2
        gpu_type = "v100"
    """
    (folder / "r.toml").write_text(text)
    out, _ = compared(capsys, "study/r.toml", "--out", "r", "--jobs", "1")
    results = json.loads(Path("r/results.json").read_text())
    own, more = results["cases"].values()
    assert (own["cluster"]["nodes"], own["cluster"]["gpus"]) == (3, 10)
    assert (more["cluster"]["nodes"], more["cluster"]["gpus"]) == (5, 14)
    was = results["as_it_was"]
    assert [row["mean_jct_s"] for row in was] == [pytest.approx((100 + 220 + 50) / 3)] * 2
    assert [row["utilisation"] > 0 for row in was] == [True, True]
    assert [row["trace"] for row in results["curves_as_it_was"]] == results["traces"]
    assert max(results["curves_as_it_was"][0]["utilisation"]["share"]) == 1
    lines = out.splitlines()
    assert lines[0] == "jobs.txt · own cluster on 3 nodes × 2–4 GPUs"
    assert [line.split("  ")[0] for line in lines[3:6]] == ["as it was", "fifo", "srtf"]
    assert "as it was: the log's own record" in out
    assert "made of the GPU types in the log: 2 × 4 a100, 1 × 2 v100" in out
    page = Path("r/report.html").read_text()
    assert page.count("as it was</t") == 2
    assert "the log&#x27;s own record, not a simulation" in page

    (folder / "i.toml").write_text(
        "traces = ['jobs.txt']\npolicies = ['fifo']\nignore_gpu_types = true\n[cluster]\nnodes = 1"
    )
    out, _ = compared(capsys, "study/i.toml", "--out", "i", "--jobs", "1")
    assert "jobs.txt on 1 node × 8 GPUs" in out
    assert "up to 10 GPUs were in use at once, but this cluster has 8" in out
    (folder / "w.toml").write_text(text.replace('"v100"', '"h100"'))
    assert run(["compare", "study/w.toml", "--out", "w"]) == 2
    assert "no node with GPU type 'h100' to add more of" in capsys.readouterr().err


def test_a_preset_brings_its_cluster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "v.toml").write_text("traces = ['venus:jobs=20']\npolicies = ['fifo']")
    out, _ = compared(capsys, "study/v.toml", "--out", "v", "--jobs", "1")
    assert "venus:jobs=20 on 133 nodes × 8 GPUs" in out
    assert "venus comes with its own cluster" in out
