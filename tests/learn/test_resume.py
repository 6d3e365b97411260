"""Trainings that are killed at any moment: what is left can be gone on with, and little is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from small_training import small_recipe

from rota.errors import CheckpointError, ConfigError, InputError, TrainingError
from rota.learn import checkpoint
from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer
from rota.learn.training_folder import BEST, LAST, RESUME, RIVALS
from rota.learn.training_log import CURVE

if TYPE_CHECKING:
    from pathlib import Path

    from rota.learn.training_report import Report


# Says which update it is at, and dies some time after the one that it is told.
VICTIM = """
import os, signal, sys, threading
from pathlib import Path
import torch
from rota.learn.recipe_file import load_recipe
from rota.learn.trainer import Trainer

recipe, folder, resume, last, delay_s = sys.argv[1:]
torch.set_num_threads(1)

def watch(report):
    print(report.update, flush=True)
    if report.update >= int(last) or report.phase == "over":
        die = lambda: os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(float(delay_s), die).start()

trainer = Trainer(load_recipe(Path(recipe)), Path(folder), resume=bool(resume), watcher=watch)
trainer.run()
threading.Event().wait()  # for the end, should all updates be done by then
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return small_recipe(
        tmp_path, ppo={"learning_rate": 3e-3}, run={"updates": 24, "save_every_s": 1e-6}
    )


def curve(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / CURVE).read_text().splitlines()]


def killed(recipe: Path, folder: Path, resume: bool, last: int, delay_s: float) -> int:
    """The last update that a training told of before it was killed."""
    words = [str(recipe), str(folder), "yes" * resume, str(last), str(delay_s)]
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    return int(done.stdout.split()[-1])


def test_a_training_survives_kills(recipe: Path, tmp_path: Path) -> None:
    whole = Trainer(load_recipe(recipe), tmp_path / "whole").run()

    folder, luck = tmp_path / "killed", np.random.default_rng()
    reached = last = 0
    for resume in (False, True):
        last = int(luck.integers(last + 1, last + 10))
        delay_s = float(luck.uniform(0, 0.3))
        print(f"killed {delay_s:.3f} s after update {last}")  # shown if the test fails
        reached = killed(recipe, folder, resume, last, delay_s)
        # It saves after every update here: at most the one that it was at is lost.
        assert checkpoint.read(folder / RESUME)[0]["update"] >= reached - 1
        assert checkpoint.load(folder / LAST).about.step <= reached + 1
        last = reached

    again = Trainer(load_recipe(recipe), folder, resume=True)
    assert again.update >= reached - 1
    best = again.run()
    assert [line["update"] for line in curve(folder)] == [0, 6, 12, 18, 24]
    assert best <= min(line["jct"] for line in curve(folder))
    assert checkpoint.load(folder / BEST).about.scores["validation_jct"] == best
    # Clusters begin new episodes when a training goes on, so numbers differ; not by much, though:
    # seeds differ by up to a quarter here, and what learning gains is a third or more.
    first = curve(folder)[0]["jct"]
    assert best == pytest.approx(whole, rel=0.35)
    assert max(best, whole) < 0.8 * first


def test_going_on_at_the_end_changes_nothing(recipe: Path, tmp_path: Path) -> None:
    changes = ["run.updates=2", "run.validate_every=4"]
    best = Trainer(load_recipe(recipe, changes), tmp_path / "out").run()
    before = (tmp_path / "out" / CURVE).read_text()
    assert Trainer(load_recipe(recipe, changes), tmp_path / "out", resume=True).run() == best
    assert (tmp_path / "out" / CURVE).read_text() == before


def test_a_best_that_is_later_than_the_state_counts(recipe: Path, tmp_path: Path) -> None:
    changes = ["run.updates=2", "run.validate_every=1"]
    Trainer(load_recipe(recipe, changes), tmp_path / "out").run()
    found = checkpoint.load(tmp_path / "out" / BEST)
    about = dict(vars(found.about)) | {"step": 9, "scores": {"validation_jct": 0.001}}
    checkpoint.save(tmp_path / "out" / BEST, checkpoint.About(**about), found.weights)
    again = Trainer(load_recipe(recipe, [*changes[1:], "run.updates=3"]), tmp_path / "out",
                    resume=True)  # fmt: skip
    assert again.run() == 0.001
    assert checkpoint.load(tmp_path / "out" / BEST).about.step == 9


def test_a_damaged_state_is_told(recipe: Path, tmp_path: Path) -> None:
    folder, changes = tmp_path / "out", ["run.updates=1", "run.validate_every=1"]
    Trainer(load_recipe(recipe, changes), folder).run()

    def resume() -> Trainer:
        return Trainer(load_recipe(recipe, changes), folder, resume=True)

    facts, arrays = checkpoint.read(folder / RESUME)
    checkpoint.write(folder / RESUME, {k: v for k, v in facts.items() if k != "stale"}, arrays)
    with pytest.raises(CheckpointError, match=r"lacks what this rota goes on from \('stale'\)"):
        resume()
    checkpoint.write(folder / RESUME, {}, {})
    with pytest.raises(ConfigError, match="other settings"):
        resume()
    (folder / RESUME).write_bytes(b"")
    with pytest.raises(CheckpointError, match="empty"):
        resume()
    (folder / RIVALS).write_text('["drf"]')
    (folder / RESUME).unlink()
    with pytest.raises(CheckpointError, match=r"no last\.resume .* another folder"):
        resume()
    with pytest.raises(ConfigError, match=r"already; name another folder"):
        Trainer(load_recipe(recipe, changes), folder)
    (folder / BEST).unlink()
    changes.append('world.against=["drf"]')
    Trainer(load_recipe(recipe, changes), folder)
    assert not (folder / RIVALS).exists()  # it was measured with other settings
    (folder / RIVALS).write_text('["drf"]')
    with pytest.raises(InputError, match=r"rivals\.json: This does not hold"):
        Trainer(load_recipe(recipe, changes), folder).run()
    for kept in ('{"drf": [1.0]}', '{"drf": 1.0}', '{"drf": [[1.0], 2.0]}', "no JSON"):
        (folder / RIVALS).write_text(kept)
        with pytest.raises(InputError, match=r"does not hold \d+ mean JCTs for each policy"):
            Trainer(load_recipe(recipe, changes), tmp_path / "new").worlds.measure_rivals(
                folder / RIVALS
            )
        shutil.rmtree(tmp_path / "new")


def test_a_start_with_other_settings_measures_rivals_again(recipe: Path, tmp_path: Path) -> None:
    folder, against = tmp_path / "out", 'world.against=["fifo"]'
    first = Trainer(load_recipe(recipe, [against]), folder)
    jcts = first.worlds.measure_rivals(folder / RIVALS)
    kept = (folder / RIVALS).read_text()
    Trainer(load_recipe(recipe, [against]), folder)
    assert (folder / RIVALS).read_text() == kept  # the same settings: nothing is lost
    for validate, traces in (("1004:1008", 4), ("1000:1002", 2)):
        changes = [against, f"world.validate={validate}"]
        (folder / f"another-{RIVALS}").write_text("of another scenario of the same training")
        trainer = Trainer(load_recipe(recipe, changes), folder)
        assert not (folder / f"another-{RIVALS}").exists()
        again = trainer.worlds.measure_rivals(folder / RIVALS)
        assert len(again["fifo"]) == traces
        assert (again["fifo"][0] == jcts["fifo"][0]) == (traces == 2)


def test_a_full_disk_leaves_the_last_state(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(report: Report) -> None:
        if report.update == 3:
            monkeypatch.setattr("os.fsync", full)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(TrainingError, match=r"last\.resume: No space left on device.*--resume"):
        Trainer(load_recipe(recipe), tmp_path / "out", watcher=fill).run()
    monkeypatch.undo()
    again = Trainer(load_recipe(recipe, ["run.updates=4"]), tmp_path / "out", resume=True)
    assert again.update == 2
    again.run()
    assert not list((tmp_path / "out").glob(".*.part"))


def test_a_folder_that_cannot_be_is_told(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file.*cannot be made a folder.*--out"):
        Trainer(load_recipe(recipe), tmp_path / "file" / "out")
