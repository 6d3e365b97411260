"""`rota scenarios`, and scenarios in `rota simulate` and `rota compare`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rota.cli.app import run
from rota.cli.plays import read_seeds
from rota.errors import InputError
from rota.scenarios import names

if TYPE_CHECKING:
    from pathlib import Path

TINY = """\
version = 2
about = "a few jobs on two nodes"

[workload]
kind = "preset"
preset = "poisson"
jobs = 40
load = 1.1

[cluster]
nodes = 2
gpus = 8
price_per_gpu_h = 2.0

[when]
restart_s = 30

[aliases]
fifo = "fifo-skip"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tiny.toml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    got = run(words)
    shown = capsys.readouterr()
    assert got == code, shown.err
    return shown.out, shown.err


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(said(capsys, "simulate", *words, "--json")[0])
    return facts


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, "scenarios")
    assert all(name in out for name in names())
    entries = json.loads(said(capsys, "scenarios", "--json")[0])["scenarios"]
    assert [entry["name"] for entry in entries] == names()
    for entry in entries:
        load = entry.pop("load")
        assert load is None or 0 < load < 2
        assert load is None or entry["workload"] in ("preset", "deepshare", "daily")
        assert {key: type(value) for key, value in entry.items()} == {
            "name": str, "version": int, "digest": str, "about": str, "workload": str, "jobs": int,
            "cluster": dict, "speed": str, "contention": str, "measured": bool, "package": str,
        }  # fmt: skip
        assert entry["cluster"]["nodes"] >= 1
        assert entry["measured"] == entry["name"].endswith("-published")


def test_one_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(capsys, "scenarios", "show", "dl2-small-published")
    assert 'units = "batches"' in out
    assert 'drf = "dl2-drf"' in out
    assert "correlation = 0.9" in out  # defaults too
    facts = json.loads(said(capsys, "scenarios", "show", "philly", "--json")[0])
    assert facts["cluster"]["gpus"] == 3205
    assert facts["settings"]["when"]["slot_s"] == 0
    assert "Did you mean 'philly'" in said(capsys, "scenarios", "show", "phily", code=2)[1]


def test_the_list_and_the_help_say_what_load_means(capsys: pytest.CaptureFixture[str]) -> None:
    listed, _ = said(capsys, "scenarios")
    assert "from the first arrival\nto the last" in listed
    assert "single jobs outlast the arrivals" in listed
    row = next(line for line in listed.splitlines() if line.startswith("rigid-blind-philly"))
    assert " 0.9 " in row
    helped, _ = said(capsys, "scenarios", "--help")
    assert "load is the part of the cluster" in " ".join(helped.split())
    shown, _ = said(capsys, "scenarios", "show", "rigid-blind-philly")
    assert shown.index("# load: the part") < shown.index("load = 0.9")
    assert "nominal" in said(capsys, "scenarios", "show", "deepshare")[0]
    assert "# load" not in said(capsys, "scenarios", "show", "dl2-busy")[0]


def test_one_run_per_policy_and_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert folder.is_dir()
    facts = simulated(
        capsys, "--scenario", "tiny.toml", "--seeds", "3:6", "-p", "fifo", "-p", "srtf"
    )
    assert facts["scenario"]["name"] == "tiny"
    assert facts["scenario"]["version"] == 2
    assert facts["scenario"]["aliases"] == {"fifo": "fifo-skip"}
    assert facts["scenario"]["overrides"] == {}
    assert facts["seeds"] == [3, 4, 5]
    assert [(r["seed"], r["policy"]) for r in facts["runs"]] == [
        (seed, policy) for seed in (3, 4, 5) for policy in ("fifo", "srtf")
    ]
    assert all(run["mean_fee"] > 0 for run in facts["runs"])
    by_seed = {(r["seed"], r["policy"]): r["mean_jct_s"] for r in facts["runs"]}
    # A run by itself, under the alias's own name, gives the same numbers.
    alone = simulated(
        capsys, "--scenario", "tiny.toml", "--seed", "4", "-p", "fifo-skip", "-p", "srtf"
    )
    assert [r["mean_jct_s"] for r in alone["runs"]] == [by_seed[4, "fifo"], by_seed[4, "srtf"]]
    rows = {row["policy"]: row for row in facts["summary"]}
    means = [sum(by_seed[s, p] for s in (3, 4, 5)) / 3 for p in ("fifo", "srtf")]
    assert [rows[p]["mean_jct_s"] for p in ("fifo", "srtf")] == pytest.approx(means)
    assert rows["srtf"]["ratio"] == pytest.approx(means[1] / means[0] - 1)
    low, high = rows["srtf"]["mean_jct_ci_s"]
    assert low < means[1] < high


def test_table_over_seeds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert folder.is_dir()
    out, err = said(
        capsys, "simulate", "--scenario", "tiny.toml", "--seeds", "0,2", "-p", "fifo", "-p", "srtf",
        "--slot", "60",
    )  # fmt: skip
    assert "tiny (version 2): 40 jobs on 2 nodes × 8 GPUs, 2 seeds from 0 to 2" in out
    assert "vs fifo" in out
    assert "in slots" in out
    assert "mean fee" in out
    assert "note: slot_s = 60.0 replaces what scenario 'tiny' says." in err
    assert "note: in tiny, fifo means fifo-skip." in err


def test_options_override_a_scenario_and_say_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "log.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,10,1\nb,5,20,2\n")
    facts = simulated(
        capsys, "log.csv", "--scenario", "tiny.toml", "-p", "fifo", "--nodes", "3",
        "--restart-cost", "5", "--head", "1",
    )  # fmt: skip
    assert facts["cluster"]["gpus"] == 24
    assert facts["conditions"]["restart_s"] == 5
    assert facts["trace"]["jobs"] == 1
    assert facts["scenario"]["overrides"] == {
        "trace": "log.csv", "nodes": 3, "head": 1, "restart_s": 5,
    }  # fmt: skip
    # Ten GPU-seconds at 2 $ an hour.
    assert facts["runs"][0]["mean_fee"] == pytest.approx(10 * 2 / 3600)


def test_seeds_for_outside_checks_are_pointed_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.is_dir()
    words = ("simulate", "--scenario", "tiny.toml", "-p", "fifo", "--seeds")
    assert "seeds from 10,000 up are for outside checks" in said(capsys, *words, "9999:10001")[1]
    assert "outside" not in said(capsys, *words, "9999")[1]


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0:3", (0, 1, 2)), ("7", (7,)), ("3,1,3", (3, 1)), (" 2 : 4 ", (2, 3)), ("1, 2", (1, 2))],
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3:", ":3", "1:2:3", "-1:2", "5:5", "5:2", "1,,2", "1.5",
                                  "0:9999999", "²"])  # fmt: skip
def test_seeds_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="--seeds"):
        read_seeds(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--seeds", "0:2", "poisson", "-p", "fifo"], "--seeds goes with --scenario"),
        (["--data", ".", "poisson", "-p", "fifo"], "--data goes with --scenario"),
        (["--scenario", "tiny.toml", "--seed", "1", "--seeds", "0:2", "-p", "fifo"], "not both"),
        (["--scenario", "tiny.toml", "--seeds", "x", "-p", "fifo"], "must be whole numbers"),
        (["--scenario", "tinny", "-p", "fifo"], "No scenario"),
        (["--scenario", "tiny.toml"], "Name at least one policy"),
        (["-p", "fifo"], "Name a TRACE"),
        (["--scenario", "das-small", "--nodes", "3", "-p", "fifo"], "several kinds of nodes"),
        (["--scenario", "dl2-small-published", "--data", "none", "-p", "fifo-skip"],
         "--data none: there is no such folder"),
        (["none.csv", "--data", "none", "-p", "fifo-skip"], "--data none: there is no such folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert folder.is_dir()
    assert says in said(capsys, "simulate", *words, code=2)[1]


def test_logs_of_work_run_at_the_speeds_of_the_scenario(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ds.csv").write_text(
        "job_id,submit_s,model,num_gpus,total_samples\n0,0,FSDP,4,1000\n1,0,MoE,8,1000\n"
    )
    words = ("ds.csv", "--scenario", "contention-arrivals", "-p", "fifo-skip+spread")
    facts = simulated(capsys, *words)
    assert facts["trace"]["jobs"] == 2
    assert facts["scenario"]["overrides"]["trace"] == "ds.csv"


def test_scenarios_in_comparisons(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "c.toml").write_text(
        'traces = ["poisson:jobs=30"]\npolicies = ["fifo", "srtf"]\nseeds = "0:3"\n'
        'resamples = 100\n[[scenarios]]\nname = "tiny.toml"\nseeds = "0:4"\n'
        '[[scenarios]]\nname = "tiny.toml"\nlabel = "again"\nhead = 10\n'
    )
    out, _ = said(capsys, "compare", "c.toml", "--jobs", "1", "--out", "out", "--json")
    results = json.loads(out)
    assert results["traces"] == ["poisson:jobs=30", "tiny", "again"]
    assert len(results["runs"]) == (3 + 4 + 3) * 2
    assert results["scenarios"]["tiny"]["seeds"] == [0, 1, 2, 3]
    assert results["scenarios"]["tiny"]["cluster"]["gpus"] == 16
    assert results["scenarios"]["again"]["aliases"] == {"fifo": "fifo-skip"}
    assert any("fifo means fifo-skip there" in note for note in results["notes"])
    runs = [r for r in results["runs"] if r["trace"] == "tiny" and r["policy"] == "fifo"]
    facts = simulated(capsys, "--scenario", "tiny.toml", "--seeds", "0:4", "-p", "fifo")
    assert [r["mean_jct_s"] for r in runs] == [r["mean_jct_s"] for r in facts["runs"]]
    assert "tiny" in (folder / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('scenarios = ["tiny"]', "a list of tables, each written [[scenarios]]"),
        ("[[scenarios]]", "scenario 1: 'name' is missing"),
        ('[[scenarios]]\nname = "tiyn"', "scenario 1: No scenario"),
        ('[[scenarios]]\nname = "venus"\nsede = 3', "scenario 1: There is no key 'sede'"),
        ('[[scenarios]]\nname = "venus"\nseeds = "x"', "scenario 1: seeds = 'x' must be"),
        ('[[scenarios]]\nname = "venus"\n[[scenarios]]\nname = "venus"', "called 'venus'"),
    ],
)
def test_bad_scenarios_in_comparisons(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    (folder / "c.toml").write_text(f'policies = ["fifo"]\n{text}\n')
    assert says in said(capsys, "compare", "c.toml", code=2)[1]
