"""The scenario `growing`: its jobs, its settings, and what the tables say of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from rota.cli.app import app
from rota.errors import ConfigError
from rota.scenarios import load
from rota.traces.daily_jobs import Days, elastic_days

if TYPE_CHECKING:
    from pathlib import Path

DAY_S = 86400.0


def test_jobs_come_by_day_can_be_resized_and_have_deadlines() -> None:
    plan = Days(jobs=2000, load=0.6, least_slack=1.5, most_slack=8.0, sigma=0.9, max_workers=4)
    trace = elastic_days(plan, 24, np.random.default_rng(0))
    hour = trace.submit_s % DAY_S / 3600
    by_day = ((hour >= 8) & (hour < 20)).mean()
    assert by_day == pytest.approx(1 / 1.15, abs=0.05)  # as many hours, 1 : 0.15

    slack = (trace.deadline_s - trace.submit_s) / trace.duration_s
    assert (slack >= 1.5 - 1e-9).all()
    assert (slack <= 8 + 1e-9).all()
    assert np.median(slack) == pytest.approx(np.sqrt(1.5 * 8), rel=0.1)
    assert set(trace.num_gpus.tolist()) == {1, 2}
    assert (trace.min_workers == 1).all()
    assert (trace.max_workers == 4).all()
    assert np.bincount(trace.model).min() > 400


def test_a_seed_gives_the_same_world_again_and_all_its_models_can_learn() -> None:
    scenario = load("growing")
    one, same, other = (scenario.draw(seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.trace.deadline_s, same.trace.deadline_s)
    assert not np.array_equal(one.trace.submit_s, other.trace.submit_s)
    learning = one.physics.learning
    assert learning is not None
    assert learning.pause_s == 2.0
    assert all(learning.index(model) >= 0 for model in one.trace.models)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("workload.max_workers=1", "max_workers"),
        ("workload.least_slack=9", "least_slack = 9 must not be above most_slack = 8"),
        ("speed.family=ps", "knows nothing of the jobs of .* kind = 'daily'"),
        ("learning.curves=mine", "one of 'none', 'shipped'"),
        ("drift.sd=0.1", r"\[drift\] does not go with \[learning\]"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(change: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load("growing", [change]).draw(0)


def test_learning_curves_are_for_jobs_of_their_models_only() -> None:
    with pytest.raises(ConfigError, match="are of the models that"):
        load("dl2-busy", ["learning.curves=shipped"])


def test_a_table_of_learning_that_says_nothing_changes_no_digest() -> None:
    scenario = load("venus")
    assert scenario.digest == load("venus", ["learning.curves=none"]).digest
    assert scenario.digest == "533e760d4e8a"


def test_tables_and_json_show_accuracy_where_there_is_any(tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text(
        'version = 1\nabout = "a few"\nbase = "growing"\n[workload]\njobs = 12\n', encoding="utf-8"
    )
    policies = ["-p", "hull-greedy", "-p", "grow:weight=0"]
    run = ["simulate", "--scenario", str(small), *policies]
    one = CliRunner().invoke(app, [*run, "--seed", "3"])
    assert one.exit_code == 0, one.output
    assert all(word in one.output for word in ("accuracy", "gain", "grown"))

    many = CliRunner().invoke(app, [*run, "--seeds", "3:5"])
    assert many.exit_code == 0, many.output
    assert "accuracy" in many.output
    told = json.loads(CliRunner().invoke(app, [*run, "--seeds", "3:5", "--json"]).stdout)
    plain, grown = told["summary"]
    assert plain["mean_accuracy_gain"] == 0.0
    assert grown["mean_accuracy"] > plain["mean_accuracy"]
    assert {run["grown"] > 0 for run in told["runs"] if run["policy"] != "hull-greedy"} == {True}


def test_a_report_tells_of_tunes(tmp_path: Path) -> None:
    small, journal = tmp_path / "small.toml", tmp_path / "run.db"
    small.write_text(
        'version = 1\nabout = "a few"\nbase = "growing"\n[workload]\njobs = 4\n', encoding="utf-8"
    )
    run = ["simulate", "--scenario", str(small), "-p", "grow-always", "--journal", str(journal)]
    assert CliRunner().invoke(app, run).exit_code == 0
    said = CliRunner().invoke(app, ["report", str(journal), "--json"])
    found = json.loads(said.stdout)
    assert [one["settings"] for one in found["tunes"]] == [{"grow": 2}] * 4
    assert sorted(one["job_id"] for one in found["tunes"]) == ["0", "1", "2", "3"]
    assert found["notes"][-1].startswith("4 tunes of 4 jobs; the first 0.00 s after the beginning")
