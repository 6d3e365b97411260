"""The contract suite: every named policy passes it, and every way to break it is noticed."""

from __future__ import annotations

import runpy
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rota.testing.policy_contract as suite
from rota.core import Decision, Draft
from rota.core.layout import SHARE, STOP
from rota.errors import PolicyError
from rota.policies import ORDERINGS, Placer, make_policy
from rota.sim import Simulator
from rota.testing import CONTRACT_WORLDS, check_backend, check_policy, policy_cases
from rota.testing.contract_worlds import contract_world

if TYPE_CHECKING:
    from rota.core import Plan, Snapshot


@pytest.mark.parametrize("name", ORDERINGS)
def test_every_named_policy_keeps_the_contract(name: str) -> None:
    check_policy(make_policy(name))


@pytest.mark.parametrize("case", policy_cases(), ids=str)
@pytest.mark.parametrize("name", ["fifo+elastic", "srtf+elastic"])
def test_elastic_policies_keep_the_contract(case: suite.PolicyCase, name: str) -> None:
    case(make_policy(name))


@pytest.mark.parametrize("place", ["consolidate", "spread", "topology", "fgd", "first-fit"])
def test_every_placement_keeps_the_contract(place: str) -> None:
    for name in ("rigid", "gpu-types", "cpus-and-memory", "servers", "restart-cost"):
        suite.PolicyCase(name)(make_policy(f"srtf+{place}"))


@pytest.mark.parametrize("name", CONTRACT_WORLDS)
def test_the_simulator_keeps_the_backends_contract(name: str) -> None:
    world = contract_world(name)
    check_backend(lambda: Simulator(world.cluster, world.trace, world.when, physics=world.physics))


def test_the_simplest_policy_of_ones_own_keeps_the_contract() -> None:
    path = Path(__file__).parents[2] / "examples" / "longest_wait.py"
    check_policy(runpy.run_path(str(path))["LongestWait"])


# -- policies that break it, each in one way ---------------------------------------------


class Good:
    """Shortest remaining time first, in Python; what the broken ones are made of."""

    name = "good"

    def __init__(self) -> None:
        self.find = Placer("best-fit")
        self.asked = 0

    def order(self, snapshot: Snapshot) -> Any:
        return np.argsort(snapshot.jobs.remaining_s, kind="stable")

    def draft(self, snapshot: Snapshot) -> Draft:
        self.asked += 1
        draft = Draft(snapshot)
        for job in self.order(snapshot).tolist():
            if not draft.held(job):
                share = self.find(draft, job)
                if share is not None:
                    draft.place(job, share)
        return draft

    def decide(self, snapshot: Snapshot) -> Decision:
        return self.draft(snapshot).commit()


class ReturnsNothing(Good):
    def decide(self, snapshot: Snapshot) -> Any:
        self.draft(snapshot)


class Raises(Good):
    def decide(self, snapshot: Snapshot) -> Decision:
        if len(snapshot.jobs) > 2:
            raise KeyError("I did not expect so many")
        return super().decide(snapshot)


class Overfills(Good):
    """Gives everybody node 0."""

    def decide(self, snapshot: Snapshot) -> Decision:
        count = len(snapshot.jobs)
        shares = np.zeros(count, SHARE)
        shares["workers"] = snapshot.jobs.workers
        return Decision(snapshot.jobs.uid, np.arange(count), np.ones(count, np.int64), shares)


class OverfillsInADraft(Good):
    """Edits the draft's arrays past its checks, as compiled code may."""

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = self.draft(snapshot)
        running = np.flatnonzero(draft.length)
        draft.at[:], draft.length[:] = draft.at[running[0]], draft.length[running[0]]
        return draft.commit()


class Mutates(Good):
    def decide(self, snapshot: Snapshot) -> Decision:
        snapshot.jobs.rows.flags.writeable = True
        snapshot.jobs.rows["estimate_s"] += 1
        return super().decide(snapshot)


class Forgets(Good):
    """Every other answer is to do nothing."""

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = self.draft(snapshot)
        return draft.commit() if self.asked % 2 else Draft(snapshot).commit()


class Learns(Good):
    """Remembers from one run to the next: it has learned to do it the other way round."""

    last_s = -np.inf
    runs = 0

    def order(self, snapshot: Snapshot) -> Any:
        self.runs += snapshot.time_s < self.last_s
        self.last_s = snapshot.time_s
        return super().order(snapshot)[:: -1 if self.runs else 1]


class ByNumber(Good):
    def order(self, snapshot: Snapshot) -> Any:
        return np.argsort(snapshot.jobs.uid, kind="stable")


class Starves(Good):
    """Never starts a job of more than 2 GPUs."""

    def order(self, snapshot: Snapshot) -> Any:
        return np.flatnonzero(snapshot.jobs.gpus <= 2)


class StopsTooSoon(Good):
    """Plans every round on an empty cluster, whatever has just been started."""

    def draft(self, snapshot: Snapshot) -> Draft:
        draft = Draft(snapshot, blank=True)
        for job in self.order(snapshot).tolist():
            share = self.find(draft, job)
            if share is not None:
                draft.place(job, share)
        return draft


class WakesInThePast(Good):
    def decide(self, snapshot: Snapshot) -> Decision:
        return self.draft(snapshot).commit(wake_s=snapshot.time_s)


class WakesNever(Good):
    def decide(self, snapshot: Snapshot) -> Decision:
        return self.draft(snapshot).commit(wake_s=np.nan)


class Idles(Good):
    """Does nothing, and asks again every second."""

    def decide(self, snapshot: Snapshot) -> Decision:
        return Draft(snapshot).commit(wake_s=snapshot.time_s + 1)


class Sleeps(Good):
    def decide(self, snapshot: Snapshot) -> Decision:
        time.sleep(5)
        return super().decide(snapshot)


class EditsLater(Good):
    """Hands out a decision and goes on editing its arrays the next time, past any draft."""

    last: Any = None

    def decide(self, snapshot: Snapshot) -> Decision:
        if self.last is not None:
            self.last[:] = 0
        decision = self.draft(snapshot).commit()
        self.last = decision.length.copy()
        return replace(decision, length=self.last)


def test_a_sound_policy_passes_as_object_class_and_factory() -> None:
    suite.PolicyCase("rigid")(Good())
    suite.PolicyCase("rigid")(Good)
    suite.PolicyCase("rigid")(lambda: make_policy("srtf"))


@pytest.mark.parametrize(
    ("broken", "where", "says"),
    [
        (ReturnsNothing, "rigid", "returned NoneType, not a Decision"),
        (Overfills, "rigid", "cannot be carried out: Node 'node-0' has 4 GPUs"),
        (OverfillsInADraft, "rigid", "cannot be carried out"),
        (Mutates, "rigid", "changed the snapshot"),
        (Forgets, "rigid", "asked twice"),
        (Learns, "rigid", "ended otherwise when it was played again"),
        (ByNumber, "rigid", r"numbers \(uid\)"),
        (StopsTooSoon, "min-run", r"its min_run_s is 400"),
        (WakesInThePast, "rigid", "not after now"),
        (WakesNever, "rigid", "not after now"),
        (EditsLater, "rigid", "a decision changed after it had been given"),
    ],
)
def test_a_broken_policy_is_found_out(broken: type[Good], where: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        suite.PolicyCase(where)(broken())


@pytest.mark.parametrize(
    ("broken", "says"),
    [(Raises, "raised KeyError in round"), (Starves, "the policy starves them")],
)
def test_a_failing_run_names_world_and_policy(broken: type[Good], says: str) -> None:
    with pytest.raises(PolicyError, match=says) as caught:
        suite.PolicyCase("rigid")(broken())
    assert "In world 'rigid' of rota.testing, seed 0." in caught.value.__notes__


def test_a_policy_that_gets_nowhere_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "MOST_ROUNDS", 300)
    with pytest.raises(AssertionError, match="have ended after 300 rounds"):
        suite.PolicyCase("one-gpu")(Idles())


def test_a_policy_that_takes_for_ever_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "DEADLINE_S", 0.05)
    with pytest.raises(PolicyError, match=r"had not decided after 0\.05 s"):
        suite.PolicyCase("one-gpu")(Sleeps())


# -- backends that break it --------------------------------------------------------------


@dataclass
class Bent:
    """A simulator that is bent in one way."""

    how: str

    def __post_init__(self) -> None:
        world = contract_world("rigid")
        self.sim = Simulator(world.cluster, world.trace, world.when)
        self.rounds = 0

    def wait(self, wake_s: float) -> Any:
        self.rounds += 1
        more = self.sim.wait(wake_s)
        return int(more) if self.how == "returns a number" else more

    def apply(self, plan: Plan) -> None:
        if self.how == "ignores plans":
            return
        if self.how == "forgets stops":
            keep = plan.kind != STOP
            plan = replace(plan, kind=plan.kind[keep], job=plan.job[keep])
        self.sim.apply(plan)

    def observe(self) -> Snapshot:
        seen = self.sim.observe()
        rows, nodes = seen.jobs.rows.copy(), seen.nodes.copy()
        if self.how == "runs backwards":
            return replace(seen, time_s=-float(self.rounds))
        if self.how == "counts wrongly":
            nodes["free"][0] += 1
        if self.how == "repeats numbers":
            rows["uid"] = 7
        if self.how == "loses workers":
            rows["held_workers"] = np.maximum(0, rows["held_workers"] - 1)
        seen = replace(seen, jobs=replace(seen.jobs, rows=rows), nodes=nodes)
        if self.how == "can be written to":
            nodes.flags.writeable = True
        return seen


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("returns a number", "not True or False"),
        ("ignores plans", "after the plan of round 1 job 0 holds"),
        ("forgets stops", "after a stop job 0 holds"),
        ("runs backwards", "time runs backwards"),
        ("counts wrongly", "free GPUs are"),
        ("repeats numbers", "two jobs have the same uid"),
        ("loses workers", "by its row"),
        ("can be written to", "snapshot.nodes can be written to"),
    ],
)
def test_a_broken_backend_is_found_out(how: str, says: str) -> None:
    check_backend(lambda: Bent("not at all"))
    with pytest.raises(AssertionError, match=says):
        check_backend(lambda: Bent(how))
