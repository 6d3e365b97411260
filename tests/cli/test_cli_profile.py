"""`rota profile`: what it measures, what it does not measure again, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from children import child, eventually
from elastic_jobs import PATIENCE_S, PRELOAD, runs, script
from local_jobs import Site, sweep

from rota.backends.local import StateDir
from rota.backends.local import measuring as module
from rota.cli.app import run
from rota.cli.signals import on_signals
from rota.errors import ConfigError, JobError
from rota.perf.job_laws import read_laws
from rota.perf.job_tables import JobTables, PlacedModel
from rota.scenarios import load
from rota.traces.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rota.backends.local.measuring import PlacedRequest

NODES = ("--nodes", "2", "--gpus", "4")
TWO = """
[[job]]
name = "a"
command = "true"
elastic = true
workers = 2
min_workers = 1
max_workers = 4

[[job]]
name = "b"
model = "big"
command = ["true", "x y"]
elastic = true
workers = 4
"""


class Made:
    """In place of what measures: a job trains at 100 samples a second and worker, half beside."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.fails: set[str] = set()
        self.told: Callable[[], None] = lambda: None

    def __call__(self, *_: Any, **__: Any) -> Made:
        return self

    def __enter__(self) -> Made:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rates(self, placed: Sequence[PlacedRequest], tell: Any) -> list[list[float]]:
        tell(0.5)
        self.told()
        self.asked.append(tuple(f"{p.request.name}{p.workers}@{p.nodes}" for p in placed))
        for one in placed:
            if one.request.name in self.fails:
                raise JobError(f"{one.request.title}: it failed: for a reason.")
        return [[100.0 * one.workers / len(placed)] * 5 for one in placed]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Made:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_STATE", str(tmp_path / "none"))
    found = Made()
    monkeypatch.setattr(module, "Measuring", found)
    return found


def wrote(tmp_path: Path, text: str) -> str:
    (tmp_path / "jobs.toml").write_text(text)
    return "jobs.toml"


def test_every_job_is_measured_alone_and_beside_each_other_one(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", wrote(tmp_path, TWO), *NODES]) == 0
    assert made.asked == [
        ("a1@1",), ("a2@1",), ("a2@2",), ("a4@1",), ("a4@2",), ("b4@1",), ("b4@2",),
        ("a2@1", "a2@1"), ("a2@2", "a2@2"), ("a2@2", "b4@2"), ("b4@2", "b4@2"),
    ]  # fmt: skip
    printed = capsys.readouterr()
    assert "2 pairs cannot share nodes, such as a × 2 and big × 4" in printed.err
    for words in ("keeps", "0.500", "sensitivity", "any other", "profile/profile.json"):
        assert words in printed.out
    laws = read_laws(tmp_path / "profile")
    assert list(laws.models) == ["a", "big"]  # by model, where there is one
    assert laws.one_node
    assert laws.models["a"].across.sensitivity * laws.models[
        "big"
    ].across.intensity == pytest.approx(0.5)


def test_what_was_measured_is_not_measured_again(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["profile", wrote(tmp_path, TWO), *NODES, "--json"]
    assert run(words) == 0
    first = json.loads(capsys.readouterr().out)
    made.asked.clear()
    assert run(words) == 0
    assert not made.asked
    again = json.loads(capsys.readouterr().out)
    assert (again["alone"], again["pairs"]) == (first["alone"], first["pairs"])
    assert again["failed"] == []
    table = tmp_path / "profile" / "isolated.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    assert run(words) == 0
    assert made.asked == [("b4@2",)]


@pytest.mark.parametrize("row", ["a,2,2,big,4,2", "big,4,2,a,2,2"])
def test_a_pair_of_which_a_row_was_deleted_is_measured_again(
    made: Made, tmp_path: Path, row: str
) -> None:
    words = ["profile", wrote(tmp_path, TWO), *NODES]
    assert run(words) == 0
    made.asked.clear()
    table = tmp_path / "profile" / "pairs.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(line for line in lines if not line.startswith(row)))
    assert run(words) == 0
    assert made.asked == [("a2@2", "b4@2")]
    assert sorted(table.read_text().splitlines(keepends=True)) == sorted(lines)


@pytest.mark.parametrize("changed", ["cwd", "threads"])
def test_another_folder_or_number_of_threads_is_another_job(
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changed: str,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    words = ["profile", str(tmp_path / wrote(tmp_path, TWO)), *NODES]
    words += ["--out", str(tmp_path / "profile")]
    assert run(words) == 0
    made.asked.clear()
    before = (tmp_path / "profile" / "measured.json").read_bytes()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as it is without
    assert run(words) == 0
    if changed == "cwd":
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert run(words) == 2
    assert f"job 'a' was measured with {changed} = " in capsys.readouterr().err
    assert not made.asked
    assert (tmp_path / "profile" / "measured.json").read_bytes() == before


def test_options_choose_what_is_measured(made: Made, tmp_path: Path) -> None:
    jobs = wrote(tmp_path, TWO)
    assert run(["profile", jobs, *NODES, "-w", "4", "--over", "2", "--no-pairs"]) == 0
    assert made.asked == [("a4@2",), ("b4@2",)]
    assert not (tmp_path / "profile" / "pairs.csv").exists()
    assert run(["profile", jobs, *NODES, "-w", "4", "--over", "2", "--out", "other"]) == 0
    assert ("a4@2", "b4@2") in made.asked  # the size asked for is not among them


def test_one_job_that_fails_does_not_stop_the_others(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.fails = {"a"}
    words = ["profile", wrote(tmp_path, TWO), *NODES]
    assert run(words) == 1
    error = capsys.readouterr().err
    assert "8 of 11 measurements failed; the same command tries them again, and only" in error
    assert "a × 1 alone: a: it failed: for a reason." in error
    assert "And 5 more." in error
    tables = JobTables(tmp_path / "profile")
    assert list(tables.alone) == [PlacedModel("big", 4, 1), PlacedModel("big", 4, 2)]
    assert (tmp_path / "profile" / "profile.json").exists()
    made.fails, made.asked = set(), []
    assert run(words) == 0
    assert len(made.asked) == 8


def test_if_all_fail_there_is_no_profile(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.fails = {"a", "b"}
    assert run(["profile", wrote(tmp_path, TWO), *NODES, "--no-pairs"]) == 1
    assert "7 of 7 measurements failed" in capsys.readouterr().err
    assert not (tmp_path / "profile" / "profile.json").exists()


ONE = '[[job]]\nname = "a"\ncommand = "true"\nelastic = true\n'
BAD = {
    "": "Jobs are listed under [[job]]",
    "job = 3": "Jobs are listed under [[job]]",
    "[jobs]": "There is no key 'jobs'. Did you mean 'job'?",
    "[[job]]\nname = 'a'": "job 1: 'command' is missing; it must be the command as one text",
    "[[job]]\ncommand = 'true'\nelastic = true": "job 1: name = '' must be a text",
    "[[job]]\nname = ' a'\ncommand = 'true'\nelastic = true": "without spaces around it",
    ONE + ONE: "job 2: another job is called 'a' already",
    "[[job]]\nname = 'a'\ncommand = 'true'": "say elastic = true",
    f"{ONE}servers = 2": "the speed of jobs with parameter servers is not measured",
    f"{ONE}worker = 2": "There is no key 'worker'. Did you mean 'workers'?",
    f"{ONE}state = 'x'": "There is no key 'state'",
    f"{ONE}workers = 0": "Invalid value for '--workers' / '-w': 0 is not in the range x>=1.",
    f"{ONE}workers = true": "workers = True must be a number or a text",
    f"{ONE}workers = 2\nmax_workers = 1": "workers=2 must lie between",
    f"{ONE}grace = '5 parsecs'": "'5 parsecs' is no duration",
    f"{ONE}preload = [['x']]": "preload = [['x']] must be a list of texts",
    "[[job]]\nname = 'a'\ncommand = 3": "command = 3 must be the command as one text",
    "[[job]]\nname = 'a'\ncommand = []": "command = [] must be the command as one text",
    "[[job]]\nname = 'a'\ncommand = 'a \"b'": "cannot be split: No closing quotation",
    "[[job]]\nname = 'a'\ncommand = 'no-such-thing'": "The command 'no-such-thing' does not exist",
    "[[job]]\nname = 'a'\ncommand = 'true'\nelastic = 1": "elastic = 1 must be true or false",
    "[[job": "This is no valid TOML",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_of_jobs_is_refused(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert run(["profile", wrote(tmp_path, text)]) == 2
    error = capsys.readouterr().err
    assert "jobs.toml" in error
    assert BAD[text] in error
    assert not made.asked


WORDS = {
    "--backend slurm": "jobs can be placed and measured on local only",
    "--seconds 0.5s": "--seconds 0.5 is too short; give 1s or more",
    "--seconds soon": "'soon' is no duration",
    "--over 3": "--over 3: there are 2 nodes",
    "-w 3": "--workers 3: job 'big' takes 4 to 4 workers",
    "--gpus 1 --over 1": "fits evenly on no number of nodes asked for (1) of 2 nodes × 1 GPU",
}


@pytest.mark.parametrize("words", WORDS)
def test_bad_options_are_refused(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    text = TWO if words.startswith("-w") else TWO.replace("min_workers = 1", "min_workers = 2")
    if words.startswith("-w"):
        text = text.replace("max_workers = 4", "max_workers = 3")
    code = run(["profile", wrote(tmp_path, text), *NODES, *words.split()])
    error = " ".join(capsys.readouterr().err.split())
    assert (code, WORDS[words] in error) == (2, True), error
    assert not made.asked


def test_a_missing_file_and_a_folder_that_cannot_be_written_are_told(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", "none.toml"]) == 2
    assert "none.toml: There is no such file." in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert run(["profile", wrote(tmp_path, TWO), *NODES, "--out", "file/out"]) == 2
    assert "The folder file/out cannot be written: Not a directory" in capsys.readouterr().err
    assert run(["profile", wrote(tmp_path, TWO), *NODES, "--out", "/proc/x"]) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert not made.asked


def test_beside_a_daemon_nothing_is_measured(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StateDir(tmp_path / "state").locked():
        words = ["profile", wrote(tmp_path, TWO), *NODES, "--state", str(tmp_path / "state")]
        assert run(words) == 2
    assert f"A daemon (process {os.getpid()}) schedules jobs" in capsys.readouterr().err
    assert not made.asked
    assert run(words) == 0


def test_two_do_not_measure_into_one_folder(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with StateDir(tmp_path / "profile" / "state").locked():
        assert run(["profile", wrote(tmp_path, TWO), *NODES]) == 2
    assert f"Another `rota profile` (process {os.getpid()}) measures" in capsys.readouterr().err
    assert not made.asked


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize("ignored", [True, False])
def test_a_closed_terminal_ends_a_profile_unless_nohup_started_it(
    number: signal.Signals, ignored: bool
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    lives = ignored and number == signal.SIGHUP
    try:
        with (
            nullcontext() if lives else pytest.raises(KeyboardInterrupt),
            on_signals(interrupt, signal.SIGTERM, signal.SIGHUP),
        ):
            signal.raise_signal(number)
        assert signal.getsignal(number) == (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(number, before)


def test_nohup_is_heeded_while_it_measures(made: Made, tmp_path: Path) -> None:
    before, seen = signal.signal(signal.SIGHUP, signal.SIG_IGN), list[Any]()
    made.told = lambda: seen.append(signal.getsignal(signal.SIGHUP))
    try:
        assert run(["profile", wrote(tmp_path, TWO), *NODES, "--no-pairs"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert set(seen) == {signal.SIG_IGN}


@pytest.mark.usefixtures("made")
def test_scenarios_and_the_daemon_take_a_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", wrote(tmp_path, TWO), *NODES, "--out", "mine"]) == 0
    text = """
        version = 1
        about = "own jobs"
        workload = {kind = "preset", preset = "poisson", jobs = 20, largest_gang = 8}
        cluster = {nodes = 2, gpus = 8}
        speed = {family = "profile", profile = "../mine"}
        contention = {model = "ranks"}
    """
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "scenario.toml").write_text(text)
    scenario = load(tmp_path / "own" / "scenario.toml")
    world = scenario.draw(0)
    assert world.physics.curves.names == ("a", "big")
    assert world.physics.curves.speed[0, 0, 1, 2] == 200
    laws = world.physics.contention
    assert laws.hurt[0] * laws.harm[1] == pytest.approx(0.5)
    assert set(world.trace.models) == {"a", "big"}
    before = scenario.digest
    facts = json.loads((tmp_path / "mine" / "profile.json").read_text())
    (tmp_path / "mine" / "profile.json").write_text(json.dumps({**facts, "one_node": False}))
    assert scenario.digest != before
    capsys.readouterr()
    words = ["simulate", "--scenario", str(tmp_path / "own" / "scenario.toml")]
    assert run([*words, "-p", "contention-greedy", "--json"]) == 0
    capsys.readouterr()
    (tmp_path / "mine" / "profile.json").unlink()
    assert run([*words, "-p", "fifo"]) == 2
    assert "profile.json: cannot be read (No such file" in capsys.readouterr().err
    (tmp_path / "own" / "scenario.toml").write_text(text.replace(', profile = "../mine"', ""))
    assert run([*words, "-p", "fifo"]) == 2
    assert "[speed] profile is missing" in capsys.readouterr().err
    assert run(["run", "--profile", "nowhere", "--drain", "--state", str(tmp_path / "s")]) == 2
    assert "nowhere: cannot be read" in capsys.readouterr().err


def scenario_of(tmp_path: Path, preset: str = "poisson") -> Path:
    """A scenario whose jobs are those of the folder `profile`."""
    path = tmp_path / "scenario.toml"
    path.write_text(f"""
        version = 1
        about = "own jobs"
        workload = {{kind = "preset", preset = "{preset}", jobs = 200, largest_gang = 8}}
        cluster = {{nodes = 2, gpus = 8}}
        speed = {{family = "profile", profile = "profile"}}
        contention = {{model = "ranks"}}
    """)
    return path


@pytest.mark.usefixtures("made")
def test_workers_with_several_gpus_are_refused_by_scenarios(tmp_path: Path) -> None:
    text = TWO.replace("\nworkers = 4", "\nworkers = 1\ngpus_per_worker = 4")
    assert run(["profile", wrote(tmp_path, text), *NODES, "--no-pairs"]) == 0
    with pytest.raises(ConfigError, match="'big' was measured with gpus_per_worker = 4"):
        load(scenario_of(tmp_path)).draw(0)


@pytest.mark.usefixtures("made")
def test_presets_draw_all_jobs_of_a_profile_whatever_they_are_called(tmp_path: Path) -> None:
    text = TWO.replace('model = "big"', 'model = "ResNet-50"')  # which some presets know, too
    assert run(["profile", wrote(tmp_path, text), *NODES, "--no-pairs"]) == 0
    known = [
        preset
        for preset, entry in PRESETS.items()
        if any(name == "ResNet-50" for name, _ in entry.workload.models)
    ]
    trace = load(scenario_of(tmp_path, known[0])).draw(0).trace
    assert trace.models == ("a", "ResNet-50")
    assert np.bincount(trace.model).min() > 50  # of 200


# With real processes.


def real_jobs(tmp_path: Path, **paces_s: float) -> str:
    """Trainings that sleep at each step, one for longer than the other."""
    entries = []
    for name, pace_s in paces_s.items():
        words = script(tmp_path / name, epochs=10**6, pace_s=pace_s)
        entries.append(
            f"[[job]]\nname = {name!r}\ncommand = {json.dumps(list(words))}\nelastic = true\n"
            f"workers = 2\npreload = {list(PRELOAD)}\n"
        )
    return wrote(tmp_path, "\n".join(entries))


@pytest.mark.usefixtures("alone")
def test_a_real_training_is_measured_alone_and_beside_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["profile", real_jobs(tmp_path, mine=0.01), "--nodes", "2", "--gpus", "2"]
    words += ["--over", "2"]
    try:
        assert run([*words, "--seconds", "1s", "--warm-up", "0", "--json"]) == 0
    finally:
        site = Site(tmp_path / "profile" / "state")
        left = site.agents()
        sweep(site)
    assert not left
    facts = json.loads(capsys.readouterr().out)
    (alone,), (pair,) = facts["alone"], facts["pairs"]
    placed = {"model": "mine", "workers": 2, "nodes": 2}
    assert alone == {**placed, **{key: alone[key] for key in ("value", "windows", "spread")}}
    assert alone["value"] > 0
    assert (pair["job"], pair["beside"]) == (placed, placed)
    assert pair["value"] > 0
    assert 2 <= pair["windows"] <= 10  # of both
    assert StateDir(tmp_path / "profile" / "state").uids() == []
    before = (tmp_path / "profile" / "isolated.csv").read_bytes()
    assert run([*words, "--json"]) == 0  # nothing is left to do
    assert (tmp_path / "profile" / "isolated.csv").read_bytes() == before


def told(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *words: str) -> str:
    """The error of a profile that fails; no process is left of it."""
    try:
        assert run(["profile", wrote(tmp_path, text), "--gpus", "1", *words]) == 1
    finally:
        sweep(Site(tmp_path / "profile" / "state"))
    return capsys.readouterr().err


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_STATE", str(tmp_path / "none"))


@pytest.mark.usefixtures("alone")
def test_jobs_that_die_or_end_at_once_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dies = json.dumps([sys.executable, "-c", "raise ValueError('no data here')"])
    text = f"[[job]]\nname = 'dies'\ncommand = {dies}\nelastic = true\n"
    text += "[[job]]\nname = 'ends'\ncommand = 'true'\nelastic = true\n"
    error = told(tmp_path, capsys, text)
    assert "2 of 2 measurements failed" in error
    assert "dies × 1 alone: dies: it failed:" in error
    assert "no data here" in error
    assert f"(`rota logs 1 --state {tmp_path / 'profile' / 'state'}`)" in error
    assert "ends × 1 alone: ends: it " in error


@pytest.mark.usefixtures("alone")
def test_a_job_that_reports_nothing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[[job]]\nname = 'silent'\ncommand = 'sleep 1000'\nelastic = true\n"
    error = told(tmp_path, capsys, text, "--step-limit", "1s")
    assert "silent × 1 alone: silent: it has reported no step within 1 s" in error


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_profile_that_was_killed_is_completed_by_the_next(
    tmp_path: Path, how: signal.Signals
) -> None:
    jobs, state = real_jobs(tmp_path, quick=0.01, slow=0.03), tmp_path / "profile" / "state"
    words = [sys.executable, "-m", "rota", "profile", jobs, "--nodes", "2", "--gpus", "2"]
    words += ["--over", "2", "--seconds", "2s", "--warm-up", "0", "--state", str(tmp_path / "none")]
    try:
        with child(words, cwd=tmp_path) as first:
            table = tmp_path / "profile" / "isolated.csv"
            eventually(table.exists)
            site = Site.__new__(Site)
            site.store = StateDir(state)
            agents = eventually(site.agents)
            os.kill(first.pid, how)
            first.wait(PATIENCE_S)
        left = [pid for pid in agents if runs(pid)]
        assert how == signal.SIGKILL or not left  # jobs outlive only a kill
        before = table.read_text()
        again = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert again.returncode == 0, again
        assert table.read_text().startswith(before)
        eventually(lambda: not any(map(runs, agents)))
        assert len(JobTables(tmp_path / "profile").beside) == 4
    finally:
        sweep(Site(state))
