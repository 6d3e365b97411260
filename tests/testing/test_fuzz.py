"""The fuzzer itself: what it draws, what it finds, and that nothing brings it down."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from plugged import install

from rota.cli.app import run
from rota.core.layout import ARRIVE, EVENT, FINISH, MOVE, NODE_DOWN, RESIZE, SHARE, START, STOP
from rota.errors import PolicyError
from rota.policies import make_policy
from rota.testing import WorldSpec, examine
from rota.testing.drawing import draw_world
from rota.testing.examining import drawn
from rota.testing.fuzzing import FuzzPlan, fuzz, replayed, shrunk, write_finding
from rota.testing.invariants import differences, violations
from rota.testing.shrinking import shrink
from rota.testing.world_runs import play

if TYPE_CHECKING:
    from pathlib import Path

    from rota.scenarios.scenario import World
    from rota.testing.world_runs import Run

TWO_JOBS = WorldSpec(
    cluster={"gpus": [2, 1], "cpus": [4, 4], "gpu_types": ["old", "new"], "type": [0, 1]},
    jobs=[
        {"submit_s": 0.0, "duration_s": 10.0, "num_gpus": 2, "gpu_type": "old"},
        {"submit_s": 1.0, "duration_s": 10.0, "num_gpus": 1, "cpus_per_worker": 3.0},
    ],
    when={"min_run_s": 5.0},
)
BEHAVES: list[tuple[Any, ...]] = [
    (0.0, 0, ARRIVE), (0.0, 0, START, (0, 2, 0)), (1.0, 1, ARRIVE), (1.0, 1, START, (1, 1, 0)),
    (10.0, 0, FINISH), (11.0, 1, FINISH),
]  # fmt: skip


def test_a_seed_gives_the_same_world_and_the_same_policies() -> None:
    for number in range(5):
        assert drawn(3, number, 4) == drawn(3, number, 4)
    assert draw_world(3, 0) != draw_world(3, 1)
    assert draw_world(3, 0) != draw_world(4, 0)


def test_a_world_survives_being_written_down() -> None:
    for number in range(20):
        world = draw_world(0, number)
        assert WorldSpec.from_json(world.to_json()) == world


def test_drawn_worlds_can_be_built_and_hold_every_kind_of_thing() -> None:
    worlds = [draw_world(1, number) for number in range(300)]
    for world in worlds:
        assert len(world.build().trace) == len(world.jobs) > 0
    seen = {key for world in worlds for part in (world.cluster, world.when, world.faults,
            world.physics, *world.jobs) for key in part}  # fmt: skip
    assert {"cpus", "memory_gb", "rack", "gpu_types", "price_per_gpu_h"} <= seen
    assert {"restart_s", "min_run_s", "slot_s", "hide_durations", "estimate_error"} <= seen
    assert {"curves", "contention", "drift", "nodes", "jobs", "samples", "min_workers"} <= seen
    assert any(0 in world.cluster["gpus"] for world in worlds)


def _run(world: World, rows: list[tuple[Any, ...]]) -> Run:
    """A run of which the log says this: (time, job, kind, shares…)."""
    run = play(world, make_policy("fifo"), "rounds", 0)
    events = np.array([(row[0], row[1], row[2], len(row) - 3) for row in rows], EVENT)
    entries = np.array([share for row in rows for share in row[3:]], SHARE)
    return replace(run, events=events, entries=entries)


def _kinds(rows: list[tuple[Any, ...]], spec: WorldSpec = TWO_JOBS) -> set[str]:
    world = spec.build()
    return {broken.kind for broken in violations(world, _run(world, rows))}


def test_a_run_that_behaves_breaks_nothing() -> None:
    assert _kinds(BEHAVES) == set()


@pytest.mark.parametrize(
    ("kind", "row", "instead"),
    [
        ("overfull", 3, (1.0, 1, START, (0, 1, 0))),
        ("type", 1, (0.0, 0, START, (0, 1, 0), (1, 1, 0))),
        ("size", 1, (0.0, 0, START, (0, 1, 0))),
        ("size", 1, (0.0, 0, START, (0, 2, 1))),
        ("time", 4, (0.5, 0, FINISH)),
        ("work", 4, (9.0, 0, FINISH)),
        ("held", 5, (11.0, 1, ARRIVE)),
        ("down", 2, (1.0, 1, NODE_DOWN)),
        ("min-run", 4, (4.0, 0, STOP)),
        ("min-run", 4, (4.0, 0, MOVE, (0, 2, 0))),
        ("min-run", 4, (4.0, 0, RESIZE, (0, 2, 0))),
    ],
)
def test_a_broken_rule_is_noticed(kind: str, row: int, instead: tuple[Any, ...]) -> None:
    assert kind in _kinds([*BEHAVES[:row], instead, *BEHAVES[row + 1 :]])


def test_cpus_given_twice_are_noticed() -> None:
    jobs = [{**TWO_JOBS.jobs[0], "cpus_per_worker": 1.5}, TWO_JOBS.jobs[1]]
    spec = replace(TWO_JOBS, jobs=jobs, cluster={**TWO_JOBS.cluster, "gpus": [3, 1]})
    rows = [*BEHAVES[:3], (1.0, 1, START, (0, 1, 0)), *BEHAVES[4:]]
    assert "overfull" in _kinds(rows, spec)


def test_two_runs_that_differ_in_one_end_differ() -> None:
    run = play(TWO_JOBS.build(), make_policy("fifo"), "compiled", 0)
    other = replace(run.outcome, done_s=np.add(run.outcome.done_s, [0.0, 1e-9]))
    assert differences(run.outcome, run.outcome) == []
    assert differences(run.outcome, other) == ["done_s"]


def test_a_failing_world_is_cut_down_to_what_matters() -> None:
    world = draw_world(0, 2)
    assert len(world.jobs) > 50
    small = shrink(world, lambda spec: any(job["num_gpus"] == 8 for job in spec.jobs))
    assert [job["num_gpus"] for job in small.jobs] == [8]
    assert len(small.cluster["gpus"]) == 1
    assert (small.when, small.faults, small.physics) == ({}, {}, {})


BAD_POLICIES = """
import os, signal
from rota.policies import make_policy

class Waits:
    "Starts nobody."
    def decide(self, snapshot):
        from rota.core import Draft
        return Draft(snapshot).commit()

class Dies:
    def decide(self, snapshot):
        os.kill(os.getpid(), signal.SIGSEGV)

class Hangs:
    def decide(self, snapshot):
        while True: pass

class Eats:
    def decide(self, snapshot):
        bytearray(1 << 40)

class Naps:
    "Asks to be called again and again and starts nobody."
    def decide(self, snapshot):
        from rota.core import Draft
        return Draft(snapshot).commit(wake_s=snapshot.time_s + 1e-3)
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Waits", "starved"), ("Dies", "crash"), ("Hangs", "hang"), ("Eats", "memory"),
     ("Naps", "rounds")],
)  # fmt: skip
def test_whatever_a_policy_does_the_fuzzer_goes_on(tmp_path: Path, name: str, kind: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(BAD_POLICIES)
    # Worlds 30 and 31 have neither faults nor contention, so little has to be compiled for them.
    plan = FuzzPlan(
        first=30, worlds=2, policies=(f"{file}:{name}", "fifo"),
        limit_s=2 if kind == "hang" else 120,
    )  # fmt: skip
    tally = fuzz(plan, workers=1, progress=lambda _: None)
    assert tally.worlds == 2
    kinds = {found.kind for found in tally.failures if name in found.policy}
    assert kinds - {"starved"} == {kind} - {"starved"}  # in slots a nap may last too long
    if name == "Waits":
        assert kinds == {"starved"}
        small = shrunk(tally.failures[0], most_tries=80)
        assert len(small.world.jobs) == len(small.world.cluster["gpus"]) == 1
        again = replayed(write_finding(small, tmp_path / "found"))
        assert [found.kind for found in again] == ["starved"]
        assert "WorldSpec.from_json" in small.snippet()


def test_workers_know_the_policies_that_others_have_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from rota.policies import make_policy\ndef make():\n    return make_policy('fifo')\n"
    points = {"rota.policies": {"patient": "patient_of_test:make"}}
    monkeypatch.syspath_prepend(install(tmp_path, "patience", points, patient_of_test=text))
    tally = fuzz(FuzzPlan(worlds=1, policies=("patient",)), workers=1, progress=lambda _: None)
    assert not tally.refused
    assert not tally.failures


def test_a_name_that_no_policy_has_is_refused_before_any_world_is_drawn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["fuzz", "-p", "nosuch", "--worlds", "1"]) == 2
    assert "No policy is called 'nosuch'" in capsys.readouterr().err


def test_a_policy_that_cannot_play_in_a_world_is_no_failure() -> None:
    broken = replace(TWO_JOBS, jobs=[{"submit_s": 0.0, "duration_s": 1.0, "num_gpus": 99}])
    found = examine(broken, "fifo")
    assert [(finding.kind, finding.failed) for finding in found] == [("refused", False)]


def test_too_many_rounds_are_a_policy_error() -> None:
    from rota.testing.world_runs import TooManyRoundsError

    assert issubclass(TooManyRoundsError, PolicyError)
