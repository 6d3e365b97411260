"""Trainings in real processes whose networks grow with their groups."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from elastic_jobs import PATIENCE_S, Trial, trial
from growers import ScriptedGrower
from torch import nn

from rota.elastic import Member
from rota.elastic.batches import Batches, Position, ShareSampler
from rota.elastic.growing import GrowingNetwork

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES, BATCH = 240, 24
ENDLESS = {"epochs": 10**6, "pace_s": 0.002, "differ": 1, "grow": {}}


def grown(run: Trial) -> list[int]:
    """The first step that was made with each version of the network, from 0 on."""
    first: dict[int, int] = {}
    for line in run.lines():
        if "version" in line:
            first[line["version"]] = min(line["step"], first.get(line["version"], line["step"]))
    return [first[version] for version in sorted(first)]


def in_one_process(run: Trial, name: str, growths: list[dict[str, Any]], steps: int) -> list[float]:
    """The losses of the same training in a plain loop, which grows before the same steps."""
    at_steps = dict(zip(grown(run)[1:], growths, strict=True))
    torch.manual_seed(run.pid(name))
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.9)
    network = GrowingNetwork(model, optimizer, ScriptedGrower(), seed=0)
    data = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, 8, generator=data)
    targets = torch.randint(0, 3, (SAMPLES,), generator=data)
    plan = Batches(samples=SAMPLES, batch=BATCH, epochs=10**6)
    sampler, position, losses = ShareSampler(plan), Position(), list[float]()
    while position.step < steps:
        if position.step in at_steps:
            network.reach([*network.growths, at_steps[position.step]], structure_only=False)
        chosen = torch.from_numpy(sampler.share(position, 0, 1).indices)
        loss = nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen])
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        position = plan.after(position, 1)
        losses.append(float(loss.detach()))
    return losses


def scripted(count: int) -> list[dict[str, Any]]:
    """What the scripted grower proposes, one after the other."""
    return [{"do": ("deepen", "widen")[k % 2], "version": k} for k in range(count)]


def compare(run: Trial, first: str, count: int) -> None:
    """Every sample counts once, and the losses are those of one process that grew likewise."""
    taken, losses = run.taken(), run.losses()
    whole = max(epoch for epoch, _ in taken)
    assert {key: n for key, n in taken.items() if n != 1} == {}
    assert sum(epoch < whole for epoch, _ in taken) == whole * SAMPLES
    assert list(losses) == list(range(len(losses)))
    reference = in_one_process(run, first, scripted(count), len(losses))
    np.testing.assert_allclose(list(losses.values()), reference, rtol=1e-4)


def play(folder: Path, rounds: int, deaths: dict[int, str], kills: tuple[int, ...]) -> None:
    """Resize the group in every round, so that its network grows; lose a worker in some of them."""
    names = (f"m{k}" for k in range(10**6))
    now = [next(names)]
    grow = {"deaths": {str(version): when for version, when in deaths.items()}}
    config = {**ENDLESS, "optimizer": "AdamW", "lr": 0.002, "grow": grow}
    with trial(folder, now, **config) as run:
        run.until(3)
        for k in range(rounds):
            now = now[1:] if len(now) > 3 else [*now, next(names), *[next(names)][: 3 - len(now)]]
            run.job.resize(now)
            left = len(now) - (k in deaths)
            status = run.see(
                lambda status, k=k, left=left: (
                    (status.state, status.version, len(status.active)) == ("running", k + 1, left)
                )
            )
            now = list(status.active)
            if k in kills:
                run.kill(now.pop(k % len(now)))
                run.members(now)
            run.until(run.job.observe().step + 3)
        status = run.job.observe()
        assert (status.version, status.growth) == (rounds, scripted(rounds)[-1])
        run.job.stop(PATIENCE_S)
        result = run.job.wait(PATIENCE_S)
        assert (result.state, result.error) == ("stopped", "")
    compare(run, "m0", rounds)


def test_a_training_that_grows_twenty_times_equals_one_in_one_process(tmp_path: Path) -> None:
    deaths = {2: "apply", 7: "change", 10: "apply", 15: "change"}
    play(tmp_path, 20, deaths, kills=(4, 6, 12, 18))


def test_a_growth_that_one_worker_cannot_make_is_made_by_none(tmp_path: Path) -> None:
    misdeeds = {"c": ["refuse", "apply", 1], "d": ["raise", "change", 2]}
    config = {**ENDLESS, "optimizer": "AdamW", "lr": 0.002, "grow": {"misdeeds": misdeeds}}
    with trial(tmp_path, ["a"], **config) as run:
        run.until(3)
        run.job.resize(["a", "b"])
        run.see(lambda status: status.version == 1 and status.state == "running")
        run.job.resize(["a", "b", "c"])
        status = run.see(lambda status: "c has no room" in status.ungrown)
        run.members(list("abc"))
        run.until(run.job.observe().step + 5)
        assert (run.job.observe().version, status.refused) == (1, {})
        run.job.resize(["a", "b"])  # c is gone, so the same growth can be made now
        status = run.see(lambda status: status.version == 2 and status.state == "running")
        assert status.ungrown == ""
        run.job.resize(["a", "b", "d", "e"])
        status = run.see(lambda status: "ValueError: the grower is wrong" in status.ungrown)
        assert status.ungrown.startswith("d could not let its network grow")
        run.members(list("abde"))
        run.until(run.job.observe().step + 5)
        run.job.stop(PATIENCE_S)
        assert run.job.wait(PATIENCE_S).error == ""
    compare(run, "a", 2)


@pytest.mark.parametrize(
    ("deed", "moment", "error"),
    [
        ("raise", "propose", "ValueError: the grower is wrong"),
        ("unknown", "propose", "No layer is called 'twist'"),
        ("rubbish", "propose", "is not a growth"),
        ("huge", "propose", "is not a growth"),
        ("raise", "change", "ValueError: the grower is wrong"),
        ("refuse", "apply", "a has no room"),
    ],
)
def test_a_bad_growth_is_reported_and_training_goes_on(
    tmp_path: Path, deed: str, moment: str, error: str
) -> None:
    config = {**ENDLESS, "grow": {"misdeeds": {"a": [deed, moment, 0]}}}
    with trial(tmp_path, ["a"], **config) as run:
        run.until(2)
        run.job.resize(["a", "b"])
        status = run.see(lambda status: bool(status.ungrown))
        assert error in status.ungrown
        run.until(status.step + 10)
        status = run.job.observe()
        assert (status.state, status.version, status.changes) == ("running", 0, 1)
        assert f"The network does not grow: {status.ungrown}" in run.text("logs/a.log")


def test_a_worker_that_dies_while_it_is_asked_costs_only_itself(tmp_path: Path) -> None:
    config = {**ENDLESS, "grow": {"misdeeds": {"a": ["die", "propose", 0]}}}
    with trial(tmp_path, ["a"], **config) as run:
        run.until(2)
        run.job.resize(["a", "b", "c"])
        run.members(["b", "c"])
        status = run.job.observe()
        run.until(status.step + 10)
        assert run.job.observe().version == 0
        assert "asked" not in run.text("logs/b.log")
        run.job.resize(["b"])
        run.see(lambda status: status.version == 1)
        assert "asked 2 1" in run.text("logs/b.log")


def test_a_stopped_training_that_has_grown_goes_on_with_the_grown_network(tmp_path: Path) -> None:
    place = {"ROTA_PARK": str(tmp_path / "parked")}
    config = {**ENDLESS, "optimizer": "AdamW", "lr": 0.002}
    with trial(tmp_path / "1", ["a"], env=place, **config) as run:
        run.until(3)
        for k, names in enumerate((["a", "b"], ["b"])):
            run.job.resize(names)
            run.see(lambda status, k=k: status.version == k + 1 and status.state == "running")
        run.until(run.job.observe().step + 3)
        run.job.stop(PATIENCE_S)
        stopped = run.job.wait(PATIENCE_S)
        assert (stopped.state, stopped.error) == ("stopped", "")
    manifest = json.loads((tmp_path / "parked" / "parked.json").read_text())
    assert manifest["growths"] == scripted(2)
    again = [Member(name, env={"ROTA_RESUME": place["ROTA_PARK"]}) for name in "cd"]
    plain = {key: value for key, value in config.items() if key != "grow"}
    with trial(tmp_path / "2", again, **plain) as rest:
        result = rest.job.wait(PATIENCE_S)
        assert (result.state, result.step) == ("failed", 0)
        assert "the script gives Elastic no `grow`" in rest.text("logs/c.log")
    with trial(tmp_path / "3", again, out=run.out, **config) as rest:
        rest.until(stopped.step + 5)
        assert rest.job.observe().version == 2
        rest.job.resize([*again, "e"])
        rest.see(lambda status: status.version == 3 and status.state == "running")
        rest.until(rest.job.observe().step + 5)
        rest.job.stop(PATIENCE_S)
        assert rest.job.wait(PATIENCE_S).error == ""
        assert len(rest.lines()) > 0
    both = Trial(run.job, run.out)
    compare(both, "a", 3)


def test_a_grown_training_outlives_its_agent(tmp_path: Path) -> None:
    place = {"ROTA_PARK": str(tmp_path / "parked")}
    with trial(tmp_path / "1", ["a"], env=place, park_every_s=1e-6, **ENDLESS) as run:
        run.until(3)
        run.job.resize(["a", "b"])
        run.see(lambda status: status.version == 1)
        step = run.job.observe().step

        def saved(_: object) -> bool:
            facts = json.loads((tmp_path / "parked" / "parked.json").read_text())
            return len(facts["growths"]) == 1 and facts["step"] > step

        run.see(saved)
        os.kill(json.loads(run.text("agent.json"))["pid"], signal.SIGKILL)
        assert run.job.wait(PATIENCE_S).state == "failed"
    again = [Member("c", env={"ROTA_RESUME": place["ROTA_PARK"]})]
    with trial(tmp_path / "2", again, **ENDLESS) as rest:
        rest.until(step + 5)
        assert rest.job.observe().version == 1


def test_with_servers_growth_is_refused_once_and_training_goes_on(tmp_path: Path) -> None:
    first = [Member("a"), Member("s", "server")]
    with trial(tmp_path, first, mode="servers", **ENDLESS) as run:
        run.until(2)
        run.job.resize([*first, Member("b")])
        status = run.job.settle(PATIENCE_S)
        run.until(status.step + 5)
        status = run.job.observe()
        assert (status.state, status.version) == ("running", 0)
        assert "With parameter servers a network cannot grow" in status.ungrown
        assert run.text("logs/a.log").count("With parameter servers a network cannot grow") == 1
