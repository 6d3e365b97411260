"""Learning from journals: the rounds that were recorded, and the jobs."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hand_journals import add_round, live_journal
from shadow_journal import write_shadow_journal
from small_training import small_trainer

from rota.core import Cluster
from rota.core.layout import (
    ARRIVE,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    RESIZE,
    START,
    STOP,
)
from rota.envs import BatchEnv, WorldPool
from rota.errors import ConfigError, InputError, TrainingError
from rota.learn import checkpoint
from rota.learn.batch_rollout_env import BatchRolloutEnv
from rota.learn.checkpoint import weights_of
from rota.learn.clone import CloneConfig, clone
from rota.learn.demonstrations import watch_journal, watch_policy
from rota.learn.journal_replay import JournalReplay, jobs_of
from rota.learn.training_log import CURVE
from rota.policies import make_policy
from rota.run.journal import Journal
from rota.scenarios import load
from rota.sim import Conditions, simulate
from rota.systems.registry import system, trained
from rota.traces import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from hand_journals import Happening

    from rota.learn.trainer import Trainer
    from rota.scenarios import Scenario
    from rota.scenarios.scenario import World

BOTH = ["dl2-onepass", "dl2"]
TESTBED = load("dl2-testbed")
SEED = 3000


def written(path: Path, world: World, policy: str, **more: Any) -> Path:
    """A journal as `rota simulate` writes it."""
    meta = {
        "policy": policy, "total_gpus": world.cluster.total_gpus, "trace": world.trace.name,
        "seed": SEED, "cluster": world.cluster, "conditions": world.when, **more,
    }  # fmt: skip
    with Journal.create(path, meta=meta) as journal:
        simulate(
            world.cluster, world.trace, make_policy(policy), world.when, seed=SEED,
            physics=world.physics, journal=journal,
        )  # fmt: skip
    return path


def named(scenario: Scenario) -> dict[str, Any]:
    return {"name": scenario.name, "version": scenario.version, "digest": scenario.digest}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten elastic jobs under DRF."""
    path = tmp_path_factory.mktemp("journal") / "run.db"
    return written(path, TESTBED.draw(SEED), TESTBED.policy("drf"), scenario=named(TESTBED))


def lens_of(name: str) -> tuple[Any, Any]:
    kind = system(name)
    return kind.make_lens(kind.lens_settings()), kind.agents


def test_gives_the_trace_back(journal: Path) -> None:
    found, wanted = jobs_of(str(journal)), TESTBED.draw(SEED).trace
    for column in fields(Trace):
        if column.name not in ("name", "line"):
            np.testing.assert_array_equal(
                getattr(found, column.name), getattr(wanted, column.name), column.name
            )


@pytest.mark.parametrize("scenario", ["dl2-testbed", "das-small"])
def test_lives_through_the_same_rounds(tmp_path: Path, scenario: str) -> None:
    # das-small: GPU types, contention, drift and preemption. What comes out must be what went in.
    chosen = load(scenario)
    world = chosen.draw(SEED)
    path = written(tmp_path / "run.db", world, "srtf", scenario=named(chosen))
    record = JournalReplay(path, chosen)
    policy, count = make_policy("srtf"), 0
    for snapshot, decision in record.rounds():
        theirs = policy.decide(snapshot)
        count += 1
        for job in range(len(snapshot.jobs)):
            assert decision.share(job) == theirs.share(job)
        if count == 200:
            break
    assert count >= 10


TAUGHT = [
    *((TESTBED, policy, name) for policy in ("drf", "optimus") for name in BOTH),
    (load("contention-arrivals", ["workload.jobs=40"]), "contention-greedy", "deepshare"),
    (load("deepshare", ["workload.jobs=40"]), "contention-rollout", "deepshare"),
]


@pytest.mark.parametrize(
    ("scenario", "policy", "name"), TAUGHT, ids=[f"{s.name}-{p}-{n}" for s, p, n in TAUGHT]
)
def test_teaches_what_its_policy_teaches(
    tmp_path: Path, scenario: Scenario, policy: str, name: str
) -> None:
    world, meant = scenario.draw(SEED), scenario.policy(policy)
    record = JournalReplay(
        written(tmp_path / "run.db", world, meant, scenario=named(scenario)), scenario
    )
    lens, agents = lens_of(name)
    read = watch_journal(record, lens, 1000, world.trace.models, agents)

    envs = BatchRolloutEnv(BatchEnv(WorldPool.draw(scenario, [SEED]), lens, "progress", 1), agents)
    config = CloneConfig(samples=len(read))
    seen = watch_policy(envs, lambda: make_policy(meant), config, np.random.default_rng(0))
    assert len(read) >= 10
    assert read.seen.arrays.keys() == seen.seen.arrays.keys()
    for key in seen.seen.arrays:
        np.testing.assert_array_equal(read.seen[key], seen.seen[key], key)
    ours, theirs = read.decisions, seen.decisions
    np.testing.assert_array_equal(ours.allowed.flags, theirs.allowed.flags)
    np.testing.assert_array_equal(ours["action"], theirs["action"])
    if lens.places:
        assert (ours["action"] > 0).any()
        assert (ours["action"] == 0).any()


def test_demonstrations_hold_nothing_that_the_lens_forbids(journal: Path) -> None:
    lens, agents = lens_of("dl2-onepass")
    read = watch_journal(
        JournalReplay(journal, TESTBED), lens, 5, TESTBED.draw(SEED).trace.models, agents
    )
    assert len(read) == 5
    known = read.decisions["action"] >= 0
    assert known.any()
    assert read.decisions.allowed.allows(read.decisions["action"])[known].all()
    read.decisions["action"][:] = -1
    assert len(read.taught()) == 0


TABLES = {
    "world": {"train": "3000:3008", "validate": "1000:1002", "clusters": 8, "pool": 8},
    "clone": {"epochs": 2},
    "ppo": {"steps": 8},
    "run": {"updates": 2, "validate_every": 1},
}


def trainer(tmp_path: Path, name: str, *changes: str, folder: str = "out") -> Trainer:
    return small_trainer(tmp_path, *changes, system=name, tables=TABLES, out=folder)


@pytest.mark.parametrize("name", BOTH)
def test_clones_a_journal_and_goes_on_from_there_on_its_jobs(
    tmp_path: Path, journal: Path, name: str
) -> None:
    trainer(tmp_path, name, f"clone.teacher=journal:{journal}", "run.learner=none").run()
    start = tmp_path / "out" / "best.ckpt"

    tuned = trainer(
        tmp_path, name, f"run.start={start}", f"world.trace={journal}", "world.parts=5",
        folder="tuned",
    )  # fmt: skip
    for key, weights in checkpoint.load(start).weights.items():
        np.testing.assert_array_equal(weights_of(tuned.network, tuned.critic)[key], weights)
    assert tuned.worlds._validation.jobs == 2  # the last fifth of ten jobs
    assert len(tuned.worlds.training_env(np.random.default_rng(0)).batch_env.pool) == 4
    tuned.run()
    assert (tmp_path / "tuned" / CURVE).read_text().count("\n") == 3


def test_begins_with_a_shipped_policy(tmp_path: Path) -> None:
    found = trainer(tmp_path, "dl2-onepass", "run.start=dl2-onepass").network
    shipped = checkpoint.load(trained()["dl2-onepass"]).weights
    for key, weights in weights_of(found).items():
        np.testing.assert_array_equal(weights, shipped[key])


@pytest.mark.parametrize(
    ("name", "changes", "complaint"),
    [
        ("dl2-onepass", ["run.start=dl2-onepas"], "Did you mean 'dl2-onepass'"),
        ("dl2", ["run.start=dl2-onepass"], "through the lens 'dl2-onepass', not 'dl2'"),
        ("dl2-onepass", ["run.start=dl2-onepass", "lens.window=7"], r"lens\.window = 20, not 7"),
        ("dl2-onepass", ["run.start=none.ckpt"], "no such checkpoint"),
        ("dl2-onepass", ["clone.teacher=journal:none.db"], "There is no journal"),
        ("dl2-onepass", ["clone.teacher=journal:{journal}", "lens.types=1"], "set it to 8"),
        ("dl2-onepass", ["world.trace=none.db"], "There is no such file"),
        ("dl2-onepass", ["world.trace={journal}", "world.parts=11"], "10 jobs, too few for parts"),
    ],
)
def test_says_what_is_wrong_before_it_begins(
    tmp_path: Path, journal: Path, name: str, changes: list[str], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        trainer(tmp_path, name, *(change.format(journal=journal) for change in changes))
    assert not (tmp_path / "out").exists()


def rigid(folder: Path, models: list[str] | None = None) -> Path:
    """Three gangs that know one size only, on a plain cluster."""
    more = {} if models is None else {"model": models}
    trace = Trace.build(
        "rigid", submit_s=[0, 1, 2], duration_s=[50, 60, 70], num_gpus=[4, 2, 4], **more
    )
    cluster = Cluster.uniform(2, 4)
    meta = {"policy": "fifo", "total_gpus": 8, "cluster": cluster, "conditions": Conditions()}
    path = folder / "rigid.db"
    with Journal.create(path, meta=meta) as journal:
        simulate(cluster, trace, make_policy("fifo"), journal=journal)
    return path


def test_refuses_a_journal_in_which_there_is_nothing_to_choose(tmp_path: Path) -> None:
    lens, agents = lens_of("dl2-onepass")
    with pytest.raises(InputError, match="does this lens have a choice"):
        watch_journal(JournalReplay(rigid(tmp_path), TESTBED), lens, 10, (), agents)


def test_a_journal_without_a_choice_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does this lens have a choice"):
        trainer(tmp_path, "dl2-onepass", f"clone.teacher=journal:{rigid(tmp_path)}")
    assert not (tmp_path / "out").exists()


def test_refuses_models_that_the_lens_does_not_know(tmp_path: Path) -> None:
    lens, agents = lens_of("dl2-onepass")
    record = JournalReplay(rigid(tmp_path, ["a", "b", "a"]), TESTBED)
    with pytest.raises(InputError, match=r"jobs train 'b', which .* does not know \(a\)"):
        watch_journal(record, lens, 10, ("a",), agents)
    with pytest.raises(ConfigError, match=r"\[lens\] types = 8 .* set it to 10"):
        watch_journal(record, lens, 10, ("a", *"cdefghij"[:8], "b"), agents)


def test_refuses_a_journal_of_another_world(tmp_path: Path, journal: Path) -> None:
    world, busy = TESTBED.draw(SEED), load("dl2-busy")
    # The same run, passed off as one in which jobs are as fast as their trace says.
    plain = written(tmp_path / "plain.db", world, TESTBED.policy("optimus"))
    with pytest.raises(InputError, match=r"as fast as its trace says .* another world"):
        list(JournalReplay(plain, TESTBED).rounds())
    old = written(tmp_path / "old.db", world, "fifo", scenario={"name": "dl2-busy", "digest": "?"})
    with pytest.raises(InputError, match="differs from the one of that name here"):
        JournalReplay(old, TESTBED)
    assert JournalReplay(journal, busy).physics.curves is not None  # found by its name


def test_refuses_what_is_no_journal_or_tells_too_little(tmp_path: Path, journal: Path) -> None:
    with pytest.raises(InputError, match="There is no journal"):
        JournalReplay(tmp_path / "none.db", TESTBED)
    (tmp_path / "text.db").write_text("hello")
    with pytest.raises(InputError, match="not a journal"):
        JournalReplay(tmp_path / "text.db", TESTBED)
    half = tmp_path / "half.db"
    shutil.copy(journal, half)
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    with pytest.raises(InputError, match=r"half\.db"):
        JournalReplay(half, TESTBED)
    with Journal.create(tmp_path / "bare.db", meta={"policy": "x", "total_gpus": 1}) as bare:
        with pytest.raises(InputError, match="no jobs to learn from"):
            JournalReplay(bare.path, TESTBED)
        bare.add_jobs(["a"], [-1], [], [1], [0.0], [5.0])
        with pytest.raises(InputError, match="does not say which cluster"):
            JournalReplay(bare.path, TESTBED)


def test_too_few_demonstrations_are_told(journal: Path) -> None:
    lens, agents = lens_of("dl2-onepass")
    kind = system("dl2-onepass")
    network = kind.make_network(kind.network_settings(), lens)
    one = watch_journal(
        JournalReplay(journal, TESTBED), lens, 1, TESTBED.draw(SEED).trace.models, agents
    )
    with pytest.raises(TrainingError, match="too few to learn from"):
        next(clone(network, one, CloneConfig(), torch.Generator()))


# -- journals of a live cluster ------------------------------------------------------------------

LIVE = {"policy": "hull-greedy", "total_gpus": 8, "cluster": {"gpus": [4, 4]}}
NOTE = {"ended": {"10": {"restart_s": 2.0, "resize_s": 0.5, "work_s": 99.0}}}
ROUNDS: list[tuple[float, list[Happening], dict[str, Any]]] = [
    # When the round was, what had happened by then and was decided, and what was noted. Jobs come
    # and end a moment before a round. 1 never runs, 3 is cancelled as it waits again, 4 runs on.
    (1.05, [(1.0, 0, ARRIVE, []), (1.0, 1, ARRIVE, []), (1.05, 0, START, [(0, 2)])], {}),
    (5.05, [(5.0, 2, ARRIVE, []), (5.05, 0, RESIZE, [(0, 4)]), (5.05, 2, START, [(1, 2)])], {}),
    (9.1, [(9.0, 3, ARRIVE, []), (9.1, 0, STOP, []), (9.1, 3, START, [(0, 4)])], {}),
    (15.0, [(14.9, 1, GIVE_UP, []), (15.0, 3, STOP, []), (15.0, 0, START, [(0, 1)])], {}),
    (21.05, [(21.0, 2, FINISH, []), (21.05, 0, MOVE, [(1, 1)])], {}),
    (30.0, [(25.0, 3, KILL, []), (25.0, 3, GIVE_UP, []), (30.0, 4, ARRIVE, []),
            (30.0, 4, START, [(0, 2), (1, 1)])], {}),
    (40.2, [(40.0, 0, FINISH, [])], NOTE),
    (100.0, [], {}),
]  # fmt: skip


def lived(path: Path, **columns: Any) -> Path:
    with live_journal(path, LIVE, 10, [2] * 5, [1.0, 1.0, 5.0, 9.0, 30.0], **columns) as journal:
        for now_s, happened, note in ROUNDS:
            add_round(journal, now_s, happened, note)
    return path


def test_lives_through_a_lived(tmp_path: Path) -> None:
    record = JournalReplay(lived(tmp_path / "live.db"), TESTBED)
    seen = [
        (snapshot.time_s, {record.trace.job_id[uid]: decision.share(k)
                           for k, uid in enumerate(snapshot.jobs.uid) if decision.share(k)})
        for snapshot, decision in record.rounds()
    ]  # fmt: skip
    four = ((0, 2, 0), (1, 1, 0))
    assert seen == [
        (1.05, {"10": ((0, 2, 0),)}),
        (5.05, {"10": ((0, 4, 0),), "12": ((1, 2, 0),)}),
        (9.1, {"12": ((1, 2, 0),), "13": ((0, 4, 0),)}),
        (15.0, {"10": ((0, 1, 0),), "12": ((1, 2, 0),)}),
        (21.05, {"10": ((1, 1, 0),)}),
        (30.0, {"10": ((1, 1, 0),), "14": four}),
        (40.2, {"14": four}),
        (100.0, {"14": four}),
    ]
    # 4 s, then 4.05 - .5 with double, 6.05 - 2 with half and 18.95 - .5 with half of its size.
    work_s = dict(zip(record.trace.job_id.tolist(), record.trace.duration_s.tolist(), strict=True))
    assert work_s["10"] == pytest.approx(4 + 7.1 + 2.025 + 9.225)
    assert (work_s["12"], work_s["13"]) == pytest.approx((15.95, 11.8))
    assert work_s["14"] > 70 * 1.5
    assert "11" not in work_s


@pytest.mark.parametrize("name", BOTH)
def test_a_live_journal_teaches(tmp_path: Path, name: str) -> None:
    sizes = {"min_workers": [1] * 5, "max_workers": [4] * 5}
    path = lived(tmp_path / "live.db", **sizes)
    lens, agents = lens_of(name)
    read = watch_journal(JournalReplay(path, TESTBED), lens, 1000, (), agents)
    assert len(read) > 0
    assert (read.decisions["action"] >= 0).any()
    trainer(tmp_path, name, f"clone.teacher=journal:{path}", "run.learner=none").run()
    assert (tmp_path / "out" / "best.ckpt").exists()


def test_the_jobs_of_a_live_journal_are_those_that_ran_to_their_end(tmp_path: Path) -> None:
    trace = jobs_of(str(lived(tmp_path / "live.db")))
    assert trace.job_id.tolist() == ["10", "12", "13"]
    assert trace.duration_s.tolist() == pytest.approx([101, 15.95, 11.8])
    assert sum(trace.left_out.values()) == 2


def test_a_journal_whose_cluster_changed_does_not_teach(journal: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.db"
    shutil.copy(journal, changed)
    with sqlite3.connect(changed) as db:
        db.execute("INSERT INTO meta VALUES ('cluster.2', '{\"gpus\": [2]}')")
    db.close()
    with pytest.raises(InputError, match="written on 2 clusters in turn"):
        JournalReplay(changed, TESTBED)


def test_a_journal_in_shadow_is_carried_out_as_slurm_did_it_and_when(tmp_path: Path) -> None:
    path = tmp_path / "shadow.db"
    write_shadow_journal(path)
    held = {
        snapshot.time_s: np.flatnonzero(decision.length).tolist()
        for snapshot, decision in JournalReplay(path, TESTBED).rounds()
    }
    # Job 1, the first row, starts at 10 s. At 110 s it has ended, and job 2 is alone.
    assert (held[10.0], held[110.0]) == ([0], [0])
    assert sorted(held) == [10, 12, 110, 111, 115]
