"""A journal in stretches: which jobs are learned from, and which are held out."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hand_journals import add_round, live_journal
from hypothesis import given
from hypothesis import strategies as st

from rota.core.layout import ARRIVE, FINISH, START
from rota.errors import InputError
from rota.learn.recipe_file import load_recipe
from rota.learn.stretches import LEAST, MOST, read_stretches, split
from rota.learn.training_worlds import TrainingWorlds
from rota.scenarios import load

if TYPE_CHECKING:
    from pathlib import Path

TESTBED = load("dl2-testbed")


def lived(path: Path, jobs: int) -> Path:
    """A live journal of jobs of one GPU that come every 10 s and take 30 s."""
    cluster = {"names": ["a", "b"], "gpus": [4, 4]}
    meta = {"policy": "dl2-queue", "total_gpus": 8, "cluster": cluster, "began_at": 0.0}
    submit_s = [10.0 * k for k in range(jobs)]
    with live_journal(path, meta, 100, [1] * jobs, submit_s) as journal:
        happened = [
            event
            for k, s in enumerate(submit_s)
            for event in ((s, k, ARRIVE, ()), (s, k, START, ((k % 2, 1),)),
                          (s + 30.0, k, FINISH, ()))
        ]  # fmt: skip
        add_round(journal, 10.0 * jobs + 30.0, sorted(happened, key=lambda e: e[0]), {})
    return path


@given(st.integers(0, 200))
def test_every_stretch_has_one_use(count: int) -> None:
    uses = split(count)
    assert sorted(k for use in uses for k in use) == list(range(count))
    learn, choose, judge = map(set, uses)
    assert not learn & choose
    assert not (learn | choose) & judge


def test_the_least_number_is_split_by_hand() -> None:
    learn, choose, judge = split(LEAST)
    assert judge == [2, 5, 8, 11, 14, 17]
    assert choose == [4, 10, 16]
    assert learn == [0, 1, 3, 6, 7, 9, 12, 13, 15]


def test_no_held_out_job_is_learned_from_or_chosen_by(tmp_path: Path) -> None:
    past = read_stretches(lived(tmp_path / "run.db", 3 * LEAST), TESTBED, 3)
    uses = [{str(name) for trace in use for name in trace.job_id}
            for use in (past.learn, past.choose, past.judge)]  # fmt: skip
    assert set.union(*uses) == {str(100 + k) for k in range(3 * LEAST)}
    assert sum(map(len, uses)) == 3 * LEAST
    recipe = load_recipe("dl2-onepass", ["world.against=[]", 'world.scenario="dl2-testbed"'])
    worlds = TrainingWorlds(recipe, None, past)
    played = worlds.training_env(np.random.default_rng(0)).batch_env.pool
    seen = {str(name) for world in played.worlds for name in world.trace.job_id}
    assert seen == uses[0]
    assert not seen & uses[2]
    assert worlds.validation_words == "the last 3 of 12 parts of the trace"


def test_jobs_are_played_on_the_journals_machines_without_slots(tmp_path: Path) -> None:
    past = read_stretches(lived(tmp_path / "run.db", 2 * LEAST), TESTBED, 2)
    world = past.world(TESTBED, past.judge[0])
    assert world.cluster.gpus.tolist() == [4, 4]
    assert (world.when.slot_s, world.when.whole_slots) == (0.0, False)
    assert world.when.restart_s == TESTBED.when.restart_s
    np.testing.assert_array_equal(world.trace.duration_s, [30.0, 30.0])


def test_the_latest_jobs_are_taken(tmp_path: Path) -> None:
    jobs = MOST + 7
    past = read_stretches(lived(tmp_path / "run.db", jobs), TESTBED, 1)
    assert past.jobs == MOST
    assert str(past.learn[0].job_id[0]) == "107"


def test_too_few_jobs_are_refused_with_the_number_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"35 jobs.*17 stretches of 2; 18 are needed \(36 jobs\)"):
        read_stretches(lived(tmp_path / "run.db", 35), TESTBED, 2)


def test_a_simulated_journal_keeps_its_conditions(tmp_path: Path) -> None:
    path = lived(tmp_path / "run.db", LEAST)
    with sqlite3.connect(path) as db:
        told = json.dumps({"slot_s": 60.0, "restart_s": 7.0, "faults": {}, "unknown": 1})
        db.execute("INSERT INTO meta VALUES ('conditions', ?)", (told,))
    db.close()
    past = read_stretches(path, TESTBED, 1)
    when = past.world(TESTBED, past.judge[0]).when
    assert (when.slot_s, when.restart_s) == (60.0, 7.0)
