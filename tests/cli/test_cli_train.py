"""`rota train` and `rota evaluate`: from a recipe to a policy that is compared with others."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import pytest

from rota.cli.app import run

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = """about = "tiny"
system = "dl2-onepass"
[world]
scenario = "dl2-testbed"
train = "3000:3008"
validate = "1000:1002"
against = ["fifo"]
clusters = 8
pool = 8
[run]
updates = 3
validate_every = 3
threads = 1
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return str(path)


def test_trains_and_compares(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(["train", recipe, "--out", str(out), "--set", "run.seed=2"]) == 0
    shown = capsys.readouterr()
    assert "checkpoint:" in shown.out
    assert "rl 3/3" in shown.err

    words = ["--scenario", "dl2-testbed", "--seeds", "2000:2003", "--against", "fifo,optimus"]
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


def test_a_shipped_policy_has_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "dl2-onepass", "--scenario", "dl2-small", "--seeds", "2000,2001"]
    assert run([*words, "--against", "fifo-skip", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["paired"][0]["against"] == "fifo-skip"
    assert run(["policies"]) == 0
    assert "dl2-onepass" in capsys.readouterr().out


def test_bad_input_is_told(recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.ckpt"
    bad.write_bytes(pickle.dumps([1]))
    for words, complaint in [
        (["train", "dl3"], "No recipe is called"),
        (["train", recipe, "--set", "ppo.clipp=1"], "Did you mean 'clip'?"),
        (["simulate", "poisson", "-p", str(bad)], "a pickle"),
        (["simulate", "poisson", "-p", "none.ckpt"], "no such checkpoint"),
        (["evaluate", "fifo", "--scenario", "dl2-testbed", "--seeds", "x"], "--seeds x must be"),
    ]:
        assert run(words) == 2
        assert complaint in capsys.readouterr().err
