"""`rota train` and `rota evaluate`: from a recipe to a policy that is compared with others."""

from __future__ import annotations

import json
import pickle
import shlex
from typing import TYPE_CHECKING

import pytest
from small_training import small_recipe

from rota.cli.app import run
from rota.systems.registry import trained

if TYPE_CHECKING:
    from pathlib import Path

TABLES = {
    "world": {
        "train": "3000:3008", "validate": "1000:1002", "against": ["fifo"], "clusters": 8,
        "pool": 8,
    },
    "run": {"updates": 3, "validate_every": 3},
}  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    return str(small_recipe(tmp_path, **TABLES))


def test_trains_and_compares(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(["train", recipe, "--out", str(out), "--set", "run.seed=2"]) == 0
    shown = capsys.readouterr()
    assert "checkpoint:" in shown.out
    assert "rl 3/3" in shown.err
    assert "  teacher: none; ppo alone" in shown.err
    score = "  score: mean JCT in hours, lower is better, on 2 validation traces (seeds 1000 to"
    assert score in shown.err
    assert "  compared with: fifo, hull-greedy" in shown.err
    assert "mean JCT in hours, 2 validation traces (seeds 1000 to 1001)" in shown.out
    assert "teacher: none" in shown.out
    assert "against the strongest rival, hull-greedy: mean JCT " in shown.out

    words = ["--scenario", "dl2-testbed", "--seeds", "2000:2003", "--against", "fifo"]
    words += ["--against", "optimus"]
    best = str(out / "best.ckpt")
    assert run(["evaluate", best, *words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["scenario"] == "dl2-testbed"
    assert facts["seeds"] == [2000, 2001, 2002]
    assert [row["policy"] for row in facts["policies"]] == [best, "fifo", "optimus"]
    assert facts["policies"][0]["mean_jct_s"] > 0
    assert [row["against"] for row in facts["paired"]] == ["fifo", "optimus"]
    low, high = facts["paired"][0]["ci95"]
    assert low <= facts["paired"][0]["mean_jct_change"] <= high

    assert run(["evaluate", best, *words]) == 0
    assert "mean JCT of best.ckpt against fifo" in capsys.readouterr().out
    assert run(["simulate", "--scenario", "dl2-testbed", "-p", best, "-p", "fifo"]) == 0
    assert "best.ckpt" in capsys.readouterr().out
    assert run(["train", recipe, "--out", str(out)]) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(["train", recipe, "--out", str(out), "--set", "run.seed=2", "--resume"]) == 0


def test_a_training_with_own_settings_is_gone_on_with_as_its_error_says(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my run"
    changes = ["--set", "world.against=[]", "--set", "run.updates=1", "--set", "lens.window=7"]
    assert run(["train", recipe, "--out", str(out), *changes]) == 0
    capsys.readouterr()
    assert run(["train", recipe, "--out", str(out), "--resume"]) == 2
    said = capsys.readouterr().err
    assert "other settings in [world]" in said
    rota, *words = shlex.split(said.split("`")[1])
    assert rota == "rota"
    assert run([*words, "--set", "run.updates=2"]) == 0
    shown = capsys.readouterr()
    assert "training tiny (" in shown.err
    assert "rl 2/2" in shown.err
    assert run([*words, "--set", "lens.window=8"]) == 2
    assert "other settings in [lens]" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", "{", "{}"])
def test_a_json_file_that_is_no_recipe_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "recipe.json").write_text(text)
    assert run(["train", str(tmp_path / "recipe.json"), "--out", str(tmp_path / "run")]) == 2
    assert "recipe.json: This is no " in capsys.readouterr().err


def test_tells_as_json_how_the_network_stands_against_the_strongest_rule(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    changes = [
        "clone.teacher=drf", "clone.samples=200", "clone.epochs=1", "run.learner=none",
        'world.against=["auto"]',
    ]  # fmt: skip
    words = ["train", recipe, "--out", str(out), *(w for c in changes for w in ("--set", c))]
    assert run([*words, "--json"]) == 0
    shown = capsys.readouterr()
    facts = json.loads(shown.out)
    assert "  teacher: drf, copied first; no reinforcement learning follows" in shown.err
    assert "  compared with: drf, drf-bundles, optimus, hull-greedy" in shown.err
    assert (facts["teacher"], facts["unit"], facts["scenario"]) == ("drf", "hours", "dl2-testbed")
    assert facts["traces"] == "2 validation traces (seeds 1000 to 1001)"
    rivals = {rival["policy"]: rival for rival in facts["rivals"]}
    assert list(rivals) == ["drf", "drf-bundles", "optimus", "hull-greedy"]
    assert facts["strongest"] == min(rivals, key=lambda name: rivals[name]["jct"])
    for rival in rivals.values():
        assert rival["change"] == pytest.approx(facts["jct"] / rival["jct"] - 1)
        low, high = rival["ci95"]
        assert low <= rival["change"] <= high
    assert facts["perfect_copy"]["teacher"] == "drf"

    # The same numbers as an evaluation on the validation seeds, and the same after a resume.
    assert run(["evaluate", facts["checkpoint"], "--scenario", "dl2-testbed", "--seeds",
                "1000:1002", "--json"]) == 0  # fmt: skip
    paired = json.loads(capsys.readouterr().out)["paired"]
    assert [row["against"] for row in paired] == ["drf-bundles", "optimus", "hull-greedy"]
    for row in paired:
        assert row["mean_jct_change"] == pytest.approx(rivals[row["against"]]["change"], rel=1e-6)
    assert run([*words, "--resume"]) == 0
    again = capsys.readouterr().out
    assert f"{facts['jct']:.3f}" in again
    assert "drf (teacher)" in again
    assert "(strongest)" in again or "(teacher, strongest)" in again


@pytest.mark.parametrize(("limit", "code"), [("3 weeks", 2), ("0s", 2), ("90", 0), ("0.5h", 0)])
def test_a_time_limit_is_a_duration(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str, code: int
) -> None:
    words = ["train", recipe, "--out", str(tmp_path / "run"), "--set", "world.against=[]"]
    assert run([*words, "--set", "run.updates=1", "--time-limit", limit]) == code
    shown = capsys.readouterr()
    assert ("3 weeks" in shown.err) == (limit == "3 weeks")
    assert ("above 0" in shown.err) == (limit == "0s")
    if not code:
        facts = json.loads((tmp_path / "run" / "recipe.json").read_text())
        assert facts["run"]["minutes"] == {"90": 1.5, "0.5h": 30.0}[limit]
        assert "compared with: no other policy" in shown.err


@pytest.mark.parametrize(
    ("changes", "network"),
    [
        ([], "the untrained one"),
        (["run.start=dl2-onepass"], "that of dl2-onepass, as it was"),
        (["clone.teacher=drf", "clone.samples=200", "clone.epochs=1"], "the copy of drf"),
        (["clone.teacher=drf", "clone.samples=200", "clone.epochs=1", "run.learner=none"], ""),
    ],
)
def test_a_time_limit_without_an_update_is_told(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[str],
    network: str,
) -> None:  # fmt: skip
    words = ["train", recipe, "--out", str(tmp_path / "run"), "--time-limit", "0.001s"]
    assert run([*words, *(w for c in changes for w in ("--set", c))]) == 0
    said = f"note: no update was made within 0.001 s, so the network is {network}; give more time"
    assert (said in capsys.readouterr().err) == bool(network)


def test_a_shipped_policy_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "dl2-onepass", "--scenario", "dl2-small", "--seeds", "2000,2001"]
    assert run([*words, "--against", "fifo-skip", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["paired"][0]["against"] == "fifo-skip"
    assert run(["policies"]) == 0
    assert "dl2-onepass" in capsys.readouterr().out


OWN = """
from dataclasses import replace
from rota.core import Draft

class Raises:
    def decide(self, snapshot):
        raise ValueError("no idea")

class Nothing:
    def decide(self, snapshot):
        return None

class Others:
    def decide(self, snapshot):
        decision = Draft(snapshot).commit()
        return replace(decision, uid=decision.uid + 7, drafted=None)

class Unmade:
    def __init__(self):
        raise RuntimeError("not today")

    def decide(self, snapshot):
        return None
"""


def complaint(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the one line that says why; nothing else may be printed."""
    code, shown = run(words), capsys.readouterr()
    assert shown.out == ""
    # What a training says about itself before it starts: a line, and indented ones below.
    lines = [line for line in shown.err.splitlines() if not line.startswith(("training ", "  "))]
    assert len(lines) == 1, shown.err
    assert lines[0].startswith("error: ")
    assert "internal error" not in lines[0]
    return code, lines[0]


@pytest.mark.parametrize(
    ("teacher", "code", "why"),
    [
        ("{own}:Raises", 1, "teacher 'Raises' failed at 0 s with 1 job: ValueError: no idea."),
        ("{own}:Nothing", 1, "decide() returned NoneType, not a Decision."),
        ("{own}:Others", 1, "The decision is about other jobs than the snapshot."),
        ("{own}:Unmade", 2, "RuntimeError: not today."),
        ("{own}:Missing", 2, "is called 'Missing'"),
        ("drff", 2, "Did you mean 'drf'?"),
        ("none.ckpt", 2, "There is no such checkpoint."),
        ("journal:none.db", 2, "There is no journal at none.db."),
        ("journal:{own}", 2, "is not a journal of rota"),
    ],
)
def test_a_teacher_that_fails_is_told(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], teacher: str, code: int,
    why: str,
) -> None:  # fmt: skip
    own = tmp_path / "own.py"
    own.write_text(OWN)
    words = ["train", recipe, "--out", str(tmp_path / "run"), "--set", "world.against=[]"]
    got, line = complaint([*words, "--set", f"clone.teacher={teacher.format(own=own)}"], capsys)
    assert (got, why in line) == (code, True), line


def test_weights_that_will_not_do_are_told(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = trained()["dl2-onepass"].read_bytes()
    files = {
        "pickle": pickle.dumps([1]),
        "short": good[:2000],
        "old": good.replace(b'\\"format\\": 1,', b'\\"format\\": 9,'),
    }
    for name, content in files.items():
        (tmp_path / f"{name}.ckpt").write_bytes(content)
    for name, changes, why in [
        ("pickle", [], "a pickle"),
        ("short", [], "truncated"),
        ("old", [], "has format 9"),
        ("gone", [], "no such checkpoint"),
        ("good", ["lens.window=3"], "lens.window = 20, not 3"),
    ]:
        start = "dl2-onepass" if name == "good" else str(tmp_path / f"{name}.ckpt")
        words = [x for change in (f"run.start={start}", *changes) for x in ("--set", change)]
        got, line = complaint(["train", recipe, "--out", str(tmp_path / name), *words], capsys)
        assert (got, why in line) == (2, True), line
        if name != "good":
            words = ["--scenario", "dl2-testbed", "--seeds", "2000", "--json"]
            got, line = complaint(["evaluate", start, *words], capsys)
            assert (got, why in line) == (2, True), line


def test_a_folder_or_trace_that_will_not_do_is_told(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty.csv").write_text("job_id,submit_s,duration_s,num_gpus\n")
    (tmp_path / "short.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,5,1\n")
    for out, changes, why in [
        ("file", [], "cannot be made a folder"),
        ("a", ["world.trace={}/empty.csv"], "no jobs"),
        ("b", ["world.trace={}/short.csv"], "holds 1 jobs, too few for parts = 10"),
        ("c", ["world.trace={}/none.csv"], "There is no such file"),
        ("d", ["world.parts=1"], "parts = 1 must be 2 or more"),
        ("e", ["network.width=0"], "width"),
        ("f", ['world.against=["auto", "drff"]'], "Did you mean 'drf'?"),
        ("g", ['world.against=[""]'], "No policy is called ''"),
        ("h", ["world.against=drf"], "against = 'drf' must be a list of texts"),
    ]:
        words = [x for change in changes for x in ("--set", change.format(tmp_path))]
        got, line = complaint(["train", recipe, "--out", str(tmp_path / out), *words], capsys)
        assert (got, why in line) == (2, True), line


def test_bad_input_is_told(recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.ckpt"
    bad.write_bytes(pickle.dumps([1]))
    for words, complaint in [
        (["train", "dl3"], "No recipe is called"),
        (["train", recipe, "--set", "ppo.clipp=1"], "Did you mean 'clip'?"),
        (["simulate", "poisson", "-p", str(bad)], "a pickle"),
        (["simulate", "poisson", "-p", "none.ckpt"], "no such checkpoint"),
        (["evaluate", "fifo", "--scenario", "dl2-testbed", "--seeds", "x"], "--seeds x must be"),
        (["evaluate", "auto", "--scenario", "dl2-testbed"], "No policy is called 'auto'"),
        (["evaluate", "fifo", "--scenario", "dl2-testbed", "--deadline", "0"], "above 0"),
        (["evaluate", "fifo", "--scenario", "dl2-testbed", "--deadline", "nan"], "no duration"),
    ]:
        assert run(words) == 2
        assert complaint in capsys.readouterr().err


def test_a_policy_is_compared_with_its_perfect_copy(
    recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--scenario", "dl2-testbed", "--seeds", "1000:1003", "--against", "", "--json"]
    assert run(["evaluate", "optimus", *words, "--through", recipe]) == 0
    facts = json.loads(capsys.readouterr().out)
    copy = f"optimus through {recipe}"
    assert [row["policy"] for row in facts["policies"]] == [copy, "optimus"]
    assert (facts["paired"][0]["policy"], facts["paired"][0]["against"]) == (copy, "optimus")
    assert run(["evaluate", "srtf:error=0.5", *words, "--through", recipe]) == 2
    assert "errors of its own" in capsys.readouterr().err
