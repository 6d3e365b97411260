"""Trainings in real processes whose members join, leave and are killed."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING

import elastic_script
import numpy as np
import pytest
from children import eventually
from elastic_jobs import PATIENCE_S, Trial, runs, trial

from rota.elastic import ElasticJob, Member
from rota.elastic.parking import parked

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES, BATCH, EPOCHS = 230, 24, 9  # ten steps an epoch, the last one of 14 samples
CONFIG = {"samples": SAMPLES, "batch": BATCH, "epochs": EPOCHS, "differ": 1}


def alone(folder: Path, **config: object) -> Trial:
    """The same training in this process, without an agent."""
    folder.mkdir()
    settings = {"samples": SAMPLES, "batch": BATCH, **config, "differ": 0}
    elastic_script.main({"out": str(folder), **settings})
    return Trial(ElasticJob(folder), folder)


def every_sample_once(epochs: int) -> Counter[tuple[int, int]]:
    return Counter({(epoch, k): 1 for epoch in range(epochs) for k in range(SAMPLES)})


def servers(*names: str) -> list[Member]:
    return [Member(name, "server") for name in names]


def gates(seed: int, count: int) -> list[int]:
    """Random steps, far enough apart that each change is over before the next."""
    rng = random.Random(seed)
    return [k * 80 // count + rng.randint(3, 80 // count - 5) for k in range(count)]


def test_a_resized_training_equals_one_that_was_not(tmp_path: Path) -> None:
    *steps, last = gates(1, 5)
    with trial(tmp_path, ["a"], gates=[*steps, last], **CONFIG) as run:
        sizes = []
        for step, members in zip(
            steps, (["a", "b"], list("abcd"), list("bcd"), ["d"]), strict=True
        ):
            status = run.change_at(step, members)
            sizes.append(len(status.active))
            assert status.last is not None
            assert status.last.step >= step
        assert sizes == [2, 4, 3, 1]
        assert (status.total, status.changes) == (SAMPLES * EPOCHS, 4)
        assert 0 < status.last.pause_s < status.paused_s
        assert status.busy_s > 0
        run.open(last)  # no member ends before everything was checked
        result = run.job.wait(PATIENCE_S)
        assert (result.state, result.samples) == ("done", SAMPLES * EPOCHS)
    # The state of d descends from a; a and d never met.
    reference = alone(tmp_path / "alone", epochs=EPOCHS, init=init_of(run))
    assert run.taken() == every_sample_once(EPOCHS)
    np.testing.assert_allclose(
        list(run.losses().values()), list(reference.losses().values()), rtol=2e-5
    )
    # The sum of all parameters may come out near 0, so the distance counts, not the ratio.
    np.testing.assert_allclose(run.ends(), reference.ends(), atol=2e-5)


def init_of(run: Trial) -> int:
    """The seed with which the first member began."""
    return run.pid("a")


def test_with_servers_a_resized_training_equals_one_that_was_not(tmp_path: Path) -> None:
    *steps, last = gates(2, 5)
    first = [Member("a"), *servers("s")]
    with trial(tmp_path, first, mode="servers", gates=[*steps, last], **CONFIG) as run:
        run.change_at(steps[0], [*first, "b"])
        run.change_at(steps[1], [*first, "b", *servers("t")])
        run.change_at(steps[2], ["b", "c", *servers("t")])
        status = run.change_at(steps[3], ["c", *servers("t")])
        assert status.active == ("c", "t")
        run.open(last)
        assert run.job.wait(PATIENCE_S).state == "done"
    reference = alone(tmp_path / "alone", epochs=EPOCHS, init=init_of(run))
    assert run.taken() == every_sample_once(EPOCHS)
    np.testing.assert_allclose(
        list(run.losses().values()), list(reference.losses().values()), rtol=2e-5
    )


@pytest.mark.parametrize("mode", ["allreduce", "servers"])
def test_micro_batches_need_not_be_equally_many(tmp_path: Path, mode: str) -> None:
    # 64 samples are 22, 21 and 21, which makes 4, 3 and 3 micro-batches of 7; then 32 and 32,
    # which makes 5 and 5. In the last step of an epoch, of 38, it is 2 each, then 3 and 3.
    config = {**CONFIG, "batch": 64, "clip_norm": 0.05, "check_every": 1}
    team = servers("s", "t") if mode == "servers" else []
    first = [*map(Member, "abc"), *team]
    with trial(tmp_path, first, mode=mode, gates=[15], micro=7, **config) as run:
        run.change_at(15, [*map(Member, "ab"), *team])
        result = run.job.wait(PATIENCE_S)
        assert (result.state, result.error) == ("done", "")
    reference = alone(tmp_path / "alone", **{**config, "epochs": EPOCHS, "init": init_of(run)})
    assert run.taken() == every_sample_once(EPOCHS)
    np.testing.assert_allclose(
        list(run.losses().values()), list(reference.losses().values()), rtol=2e-5
    )
    # Servers have only the parameters that they keep, so the sums of the workers count.
    np.testing.assert_allclose(run.ends()[:2], reference.ends() * 2, atol=2e-5)
    unclipped = alone(tmp_path / "free", **{**config, "init": init_of(run), "clip_norm": 1e9})
    assert abs(unclipped.losses()[8] - reference.losses()[8]) > 1e-4  # it is clipped at all


def test_a_member_no_longer_wanted_when_it_starts_is_released(tmp_path: Path) -> None:
    with trial(tmp_path, ["a"], epochs=10**6, pace_s=0.005) as run:
        run.members(["a"])
        for k in range(25):
            run.job.resize(["a", f"x{k}"])
            run.job.resize(["a"])
        run.job.settle(PATIENCE_S)
        run.until(run.job.observe().step + 5)
        assert run.job.observe().active == ("a",)


@pytest.mark.parametrize("mode", ["allreduce", "servers"])
def test_a_stopped_training_goes_on_where_it_was(tmp_path: Path, mode: str) -> None:
    """The state is on disk meanwhile, with the moments that workers or servers keep."""
    place = {"ROTA_PARK": str(tmp_path / "parked")}
    config = {**CONFIG, "gates": [30], "optimizer": "AdamW", "lr": 0.002}
    team = servers("s", "t") if mode == "servers" else []
    with trial(
        tmp_path / "1", [Member("a"), Member("b"), *team], mode=mode, env=place, **config
    ) as run:
        run.until(30)
        run.job.stop(PATIENCE_S)
        run.open(30)
        stopped = run.job.wait(PATIENCE_S)
        assert stopped.state == "stopped"
    assert parked(tmp_path / "parked")
    again = [Member("c", env={"ROTA_RESUME": place["ROTA_PARK"]})]
    again += [Member("u", "server", env=again[0].env)] if team else []
    with trial(tmp_path / "2", again, mode=mode, out=run.out, **config) as rest:
        assert rest.job.wait(PATIENCE_S).samples == SAMPLES * EPOCHS
    reference = alone(
        tmp_path / "alone", epochs=EPOCHS, init=init_of(run), optimizer="AdamW", lr=0.002
    )
    assert rest.taken() == every_sample_once(EPOCHS)
    np.testing.assert_allclose(
        list(rest.losses().values()), list(reference.losses().values()), rtol=2e-4
    )
    assert rest.job.observe().step == 10 * EPOCHS


@pytest.mark.parametrize("mode", ["allreduce", "servers"])
def test_a_training_whose_agent_was_killed_goes_on_from_its_last_state(
    tmp_path: Path, mode: str
) -> None:
    place = {"ROTA_PARK": str(tmp_path / "parked")}
    config = {**CONFIG, "optimizer": "AdamW", "lr": 0.002}
    team = servers("s", "t") if mode == "servers" else []
    first = [Member("a"), Member("b"), *team]
    with trial(
        tmp_path / "1", first, mode=mode, env=place, park_every_s=1e-6, gates=[40], **config
    ) as run:
        run.until(40)
        eventually(lambda: parked(tmp_path / "parked"))
        os.kill(json.loads(run.text("agent.json"))["pid"], signal.SIGKILL)
        assert run.job.wait(PATIENCE_S).state == "failed"
        eventually(lambda: not any(runs(run.pid(member.name)) for member in first))
    step = json.loads((tmp_path / "parked" / "parked.json").read_text())["step"]
    assert 0 < step <= 40
    again = [Member("c", env={"ROTA_RESUME": place["ROTA_PARK"]})]
    again += [Member("u", "server", env=again[0].env)] if team else []
    with trial(tmp_path / "2", again, mode=mode, **config) as rest:
        result = rest.job.wait(PATIENCE_S)
        assert (result.state, result.step) == ("done", 10 * EPOCHS)
    reference = alone(
        tmp_path / "alone", epochs=EPOCHS, init=init_of(run), optimizer="AdamW", lr=0.002
    )
    losses = rest.losses()
    assert min(losses) == step
    expected = [loss for k, loss in reference.losses().items() if k >= step]
    np.testing.assert_allclose(list(losses.values()), expected, rtol=2e-4)


def soak(folder: Path, seed: int, resizes: int, kills: int, mode: str = "allreduce") -> None:
    """Change and kill at random; every sample counts once, nothing hangs, no process is left."""
    rng, names = random.Random(seed), (f"m{k}" for k in range(10**6))
    kinds = ["worker", "server"] if mode == "servers" else ["worker"]
    now = {kind: [next(names)] for kind in kinds}
    todo = ["resize"] * resizes + ["kill"] * kills
    rng.shuffle(todo)

    def members() -> list[Member]:
        return [Member(name, kind) for kind in kinds for name in now[kind]]

    with trial(folder, members(), mode=mode, epochs=10**6, pace_s=0.005, differ=1) as run:
        run.job.settle(PATIENCE_S)
        for what in ["resize", *todo]:
            many = [kind for kind in kinds if len(now[kind]) > 1]
            if what == "kill" and many:
                group = now[rng.choice(many)]
                run.kill(group.pop(rng.randrange(len(group))))
                run.members([member.name for member in members()])
                continue
            for kind in kinds:
                kept = rng.sample(now[kind], rng.randint(1, len(now[kind])))
                now[kind] = kept + [next(names) for _ in range(rng.randint(0, 4 - len(kept)))]
            run.job.resize(members())
            status = run.job.settle(PATIENCE_S)
            assert set(status.active) == {member.name for member in members()}
        run.until(run.job.observe().step + 20)
        run.job.stop(PATIENCE_S)
        result = run.job.wait(PATIENCE_S)
        assert (result.state, result.error) == ("stopped", "")
    taken = run.taken()
    whole = max(epoch for epoch, _ in taken)
    assert {key: n for key, n in taken.items() if n != 1} == {}
    assert sum(epoch < whole for epoch, _ in taken) == whole * 240
    assert sum(taken.values()) == result.samples


def test_a_few_resizes_and_kills(tmp_path: Path) -> None:
    soak(tmp_path, seed=3, resizes=4, kills=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_hundreds_of_resizes_and_dozens_of_kills(tmp_path: Path, seed: int) -> None:
    soak(tmp_path, seed, resizes=25, kills=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_resizes_and_kills_with_servers(tmp_path: Path, seed: int) -> None:
    soak(tmp_path, seed, resizes=15, kills=5, mode="servers")
