"""Sensitivity and intensity learned from jobs that run: a world whose laws are known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rota.core import Cluster, Job, Snapshot
from rota.core.jobs import JobTable
from rota.perf.job_laws import JobLaw, JobLaws, JobRanks
from rota.perf.learned_ranks import LearnedRanks
from rota.policies import make_policy
from rota.run.speeds import Speeds

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["known", "new", "also new"]
KNOWN, AVERAGE = JobRanks(0.5, 0.8, paired=True), JobRanks(0.5, 0.5)
LAWS = JobLaws(
    {"known": JobLaw(1.0, 1.0, 0.0, KNOWN, KNOWN, ())}, AVERAGE, AVERAGE, one_node=False, r2=None
)
OVER_BOTH = ((0, 1), (1, 1))


@dataclass
class World:
    """Two nodes; jobs (model, what it holds) whose speeds follow given ranks."""

    ranks: dict[str, tuple[float, float]]
    time_s: float = 0.0
    done: dict[int, float] = field(default_factory=dict)

    def play(
        self,
        learner: LearnedRanks,
        models: list[str],
        rounds: int = 20,
        *,
        pause: bool = False,
        told: list[int] | None = None,
    ) -> None:
        """All of these run over both nodes for `rounds` of 10 s; others have left."""
        for _ in range(rounds):
            learner.see(self.snapshot(models, pause=pause), NAMES, told)
            for j, model in enumerate(models):
                ratio = 1.0
                for k, other in enumerate(models):
                    if k != j:
                        ratio *= 1 - self.ranks[model][0] * self.ranks[other][1]
                self.done[j] = self.done.get(j, 0.0) + 10 * 2.0 * ratio
            self.time_s += 10.0

    def snapshot(self, models: list[str], *, pause: bool = False) -> Snapshot:
        jobs = [Job(workers=2, model=NAMES.index(model)) for model in models]
        held = dict.fromkeys(range(len(jobs)), OVER_BOTH)
        made = Snapshot.of(Cluster.uniform(2, 8), jobs, held, time_s=self.time_s)
        rows = made.jobs.rows.copy()
        rows["uid"] = np.arange(len(jobs))
        rows["progress_s"] = [self.done.get(j, 0.0) for j in range(len(jobs))]
        rows["resume_s"] = self.time_s if pause else 0.0
        return Snapshot(
            made.time_s, made.cluster, JobTable(rows), made.nodes.copy(), made.shares.copy()
        )


def ranks_of(learner: LearnedRanks, name: str, nodes: int = 2) -> tuple[float, float]:
    found = learner.ranks(name, nodes)
    return found.sensitivity, found.intensity


def learned(models: list[str], ranks: dict[str, tuple[float, float]], **more: Any) -> LearnedRanks:
    learner, world = LearnedRanks(LAWS), World(ranks)
    world.play(learner, models[:1])  # the first one alone
    world.play(learner, models, 200, **more)
    return learner


def test_the_sensitivity_of_a_model_follows_from_the_intensity_of_another() -> None:
    learner = learned(["new", "known"], {"known": (0.5, 0.8), "new": (0.2, 0.3)})
    assert ranks_of(learner, "new")[0] == pytest.approx(0.2, abs=0.02)
    assert ranks_of(learner, "new")[1] == pytest.approx(0.5)  # job 1 was never alone


def test_the_intensity_of_a_model_follows_from_the_sensitivity_of_another() -> None:
    learner = learned(["known", "new"], {"known": (0.5, 0.8), "new": (0.2, 0.9)})
    assert ranks_of(learner, "new") == (pytest.approx(0.5), pytest.approx(0.9, abs=0.04))


def test_a_profile_is_not_overruled_and_a_model_never_seen_is_average() -> None:
    learner = learned(["known", "new"], {"known": (0.9, 0.1), "new": (0.2, 0.9)})
    assert ranks_of(learner, "known") == (0.5, 0.8)
    assert ranks_of(learner, "also new") == (0.5, 0.5)


def test_times_in_which_jobs_change_tell_nothing() -> None:
    learner = learned(["new", "known"], {"known": (0.5, 0.8), "new": (0.2, 0.3)}, pause=True)
    assert ranks_of(learner, "new") == (0.5, 0.5)


def test_jobs_on_one_node_count_only_if_that_was_measured() -> None:
    world, learner = World({"new": (0, 0)}), LearnedRanks(LAWS)
    assert (learner.see(world.snapshot(["new"]), NAMES).kind[:, 1] == -1).all()
    assert (learner.see(world.snapshot(["new"]), NAMES).kind[:, 2] >= 0).all()


@pytest.mark.parametrize("truth", [0.2, 0.5, 0.9])
def test_several_neighbours_multiply(truth: float) -> None:
    ranks = {"known": (0.5, 0.8), "new": (truth, 0.3)}
    learner, world = LearnedRanks(LAWS), World(ranks)
    world.play(learner, ["new"])
    world.play(learner, ["new", "known", "known"], 1000)
    assert ranks_of(learner, "new")[0] == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize(("step_s", "every_s"), [(1, 10), (8, 1), (12, 10), (30, 10), (60, 7)])
@pytest.mark.parametrize("lost", [0.0, 0.4])
def test_long_steps_show_the_same_as_short_ones(step_s: int, every_s: int, lost: float) -> None:
    learner, world, work = LearnedRanks(LAWS), World({}), 0.0
    last_s = shown_s = 0.0  # when a step ended, and until when progress was shown
    for now_s in range(12_000):
        beside = now_s >= 3_010  # the neighbour comes in the middle of a step, where they are long
        pace = 1 - lost if beside else 1.0
        work += pace
        if work >= last_s + step_s:
            last_s, shown_s = last_s + step_s, now_s
        if now_s % every_s == 0:
            world.time_s = now_s
            world.done[0] = last_s + pace * min(now_s - shown_s, 2.0)  # as a backend guesses
            learner.see(world.snapshot(["new", "known"] if beside else ["new"]), NAMES, told=[0])
    assert ranks_of(learner, "new")[0] == pytest.approx(lost / 0.8, abs=0.03)


def test_ranks_stay_within_bounds_whatever_was_seen() -> None:
    learner = LearnedRanks(LAWS)
    learner._sums["new", True] = [-900.0, 600.0, 900.0, 600.0]  # a gain, and more than all
    assert ranks_of(learner, "new") == (0.0, 1.0)
    again = LearnedRanks(LAWS)
    again.unpack(learner.pack())
    assert ranks_of(again, "new") == (0.0, 1.0)


def test_a_job_that_does_not_report_its_samples_is_a_neighbour_and_no_witness() -> None:
    learner, world = LearnedRanks(LAWS), World({})
    for models in (["known"], ["known", "new"]):
        for _ in range(100):
            learner.see(world.snapshot(models), NAMES, told=[1])
            world.time_s += 10.0
            world.done[0] = world.time_s  # a plain script: its progress is the time that it ran
    assert ranks_of(learner, "new") == (0.5, 0.5)
    told = learned(["new", "known"], {"known": (0.5, 0.8), "new": (0.2, 0.3)}, told=[0])
    assert ranks_of(told, "new")[0] == pytest.approx(0.2, abs=0.02)


def test_what_is_learned_over_several_nodes_says_nothing_of_one() -> None:
    learner = learned(["new", "known"], {"known": (0.5, 0.8), "new": (0.2, 0.3)})
    assert ranks_of(learner, "new", 1) == (0.5, 0.5)
    laws = replace(LAWS, on_one=JobRanks(0.1, 0.2), one_node=True)
    learner.laws = laws
    seen = learner.see(World({}).snapshot(["new"]), NAMES)
    new, other = seen.kind[1, 1, 1], seen.kind[3, 1, 1]
    assert (seen.hurt[new], seen.harm[other]) == (pytest.approx(0.1), pytest.approx(0.2))
    assert seen.hurt[seen.kind[1, 2, 1]] == pytest.approx(0.2, abs=0.02)


def test_what_was_learned_outlives_a_daemon(tmp_path: Path) -> None:
    path, said = tmp_path / "speeds.npz", list[str]()
    first = Speeds(path, said.append, LAWS)
    assert [first.number(name) for name in NAMES] == [0, 1, 2]
    world = World({"known": (0.5, 0.8), "new": (0.1, 0.3)})
    world.play(first._ranks, ["new"])
    world.play(first._ranks, ["new", "known"], 100)
    first.keep()
    after = Speeds(path, said.append, LAWS)
    seen = after.see(world.snapshot(["new", "known", "also new"]), by_nodes=True)
    assert not said
    laws = seen.contention
    assert laws is not None
    kinds = laws.kind[[0, 1, 2, 3], 2, 1]  # by job now, and one for jobs without a model
    assert laws.hurt[kinds] == pytest.approx([0.1, 0.5, 0.5, 0.5], abs=0.05)
    assert Speeds(path, said.append).see(world.snapshot(["new"]), by_nodes=True).contention is None


def test_a_daemon_without_a_profile_keeps_what_was_learned_with_one(tmp_path: Path) -> None:
    path, said = tmp_path / "speeds.npz", list[str]()
    first = Speeds(path, said.append, LAWS)
    first._ranks._sums["new", True] = [0.0, 600.0, 0.0, 600.0]
    first.keep()
    Speeds(path, said.append).keep()
    assert ranks_of(Speeds(path, said.append, LAWS)._ranks, "new") == ranks_of(first._ranks, "new")
    assert not said


def test_what_was_learned_with_another_profile_is_said_and_done_without(tmp_path: Path) -> None:
    path, said = tmp_path / "speeds.npz", list[str]()
    first = Speeds(path, said.append, LAWS)
    first.number("new")
    first._ranks._sums["new", True] = [0.0, 600.0, 0.0, 600.0]
    first.keep()
    after = Speeds(path, said.append, replace(LAWS, across=JobRanks(0.4, 0.5)))
    assert ranks_of(after._ranks, "new") == (0.4, 0.5)
    assert after.models == {"new": 0}  # speeds alone do not depend on it
    assert len(said) == 1
    assert "with another --profile; it is learned anew" in said[0]


@pytest.mark.parametrize("named", [True, False])
def test_a_policy_that_heeds_neighbours_can_use_it(tmp_path: Path, named: bool) -> None:
    speeds, world = Speeds(tmp_path / "speeds.npz", laws=LAWS), World({})
    for name in NAMES if named else []:
        speeds.number(name)
    seen = speeds.see(world.snapshot(NAMES), by_nodes=True)
    make_policy("contention-greedy").decide(seen).check(seen)


@pytest.mark.parametrize("sums", [[np.nan, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0]])
def test_damaged_sums_are_said_and_done_without(tmp_path: Path, sums: list[float]) -> None:
    path, said = tmp_path / "speeds.npz", list[str]()
    first = Speeds(path, laws=LAWS)
    first._ranks._sums["new", True] = sums
    first.keep()
    assert ranks_of(Speeds(path, said.append, LAWS)._ranks, "new") == (0.5, 0.5)
    assert "is damaged" in said[0]
