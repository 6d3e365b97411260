"""The agent's head when the network grows, through all courses of events: see `growing_world`."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from elastic_world import LIMITS
from growing_world import GrowingWorld
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.elastic.coordinator import Coordinator
from rota.elastic.protocol import JobSpec, Member
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.elastic.outline import Outline

GROWS = GrowingWorld.outline


def members(names: list[str]) -> list[Member]:
    return [Member(name) for name in names]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 10**9), st.integers(0, 4), st.integers(1, 7), st.sampled_from([0.0, 0.1, 0.5])
)
def test_members_that_train_together_always_have_the_same_network(
    seed: int, kills: int, sizes: int, refusals: float
) -> None:
    rng = random.Random(seed)
    world = GrowingWorld(seed, rng.randint(1, 4), length=10_000, refusals=refusals)
    todo = ["kill"] * kills + ["resize"] * sizes
    rng.shuffle(todo)
    for what in todo:
        world.run(rng.randint(0, 120))
        if world.controller.result or world.controller._ending:
            break
        alive = [fake for fake in world.fakes.values() if fake.alive]
        if what == "kill":
            if len(alive) > 1:
                world.kill(rng.choice(alive))
            continue
        table = world.controller.table
        wanted = [m.name for m in world.controller.wanted if m.name in table.entries]
        keep = [name for name in wanted if table[name].alive and rng.random() < 0.7]
        new = [f"m{world.count + k}" for k in range(rng.randint(0 if keep else 1, 3))]
        world.count += len(new)
        world.controller.resize(members(keep + new), world.now_s)
    status = world.settle()
    if status.state in ("failed", "stopping"):
        # Only when all members that had the state were killed, or could not follow the growths.
        assert kills or refusals
        return
    assert (status.state, status.reached) == ("running", status.target)
    world.run(300)  # a growth that was proposed last
    made = world.controller.changes.growths.made
    for name in world.controller.status(world.now_s).active:
        network = world.networks.get(name)
        if network and world.controller.changes.phase == "idle":
            assert list(network.growths) == made


def grown(names: str, outline: Outline = GROWS) -> Coordinator:
    """A head whose members have joined their first group, at time 3."""
    spec = JobSpec(command=("x",), members=tuple(map(Member, names)), limits=LIMITS)
    controller = Coordinator(spec, 0.0)
    meet(controller, names, outline)
    join(controller, names, 1)
    return controller


def meet(controller: Coordinator, names: str, outline: Outline = GROWS) -> None:
    for name in names:
        controller.hello(name, {"host": "h", "state_port": 1}, outline, 1)
        tell(controller, name, "ready")


def tell(controller: Coordinator, name: str, op: str, step: int = 0, **facts: Any) -> None:
    progress = {"step": step, "epoch": 0, "samples": 10 * step, "sum": None}
    controller.receive(name, {"op": op, **progress, **facts}, 3)


def join(controller: Coordinator, names: str, number: int, step: int = 0, **facts: Any) -> None:
    for name in names:
        tell(controller, name, "prepared", number=number)
    for name in names:
        tell(controller, name, "joined", step, number=number, pause_s=0.0, **facts)


def orders(controller: Coordinator, op: str) -> list[dict[str, Any]]:
    """What was sent to members since the last look."""
    found = [order.message for order in controller.table.orders if order.message.get("op") == op]
    controller.table.orders.clear()
    return found


def resized() -> Coordinator:
    """Two workers that were three; the first one was asked."""
    controller = grown("abc")
    controller.resize(members(["a", "b"]), 3)
    orders(controller, "ask")
    for name in "ab":
        tell(controller, name, "prepared", number=2)
    for name in "abc":
        tell(controller, name, "held", 4, number=2)
    for name in "ab":
        tell(controller, name, "joined", 6, number=2, pause_s=0.0)
    return controller


def test_the_first_worker_is_asked_after_a_resize_and_all_grow_at_one_step() -> None:
    controller = resized()
    (ask,) = orders(controller, "ask")
    assert (ask["number"], ask["before"], ask["workers"]) == (2, 3, 2)
    assert controller.status(3).reached == 1
    tell(controller, "a", "grow", number=2, version=0, growth={"layer": "0"})
    assert controller.status(3).state == "changing"
    for name in "ab":
        tell(controller, name, "prepared", number=3)
    for name, step in (("a", 7), ("b", 8)):
        tell(controller, name, "held", step, number=3)
    first, second = orders(controller, "switch")
    assert first == second
    assert (first["at"], first["transfers"]) == (10, [])
    assert (first["growths"], first["equalize"]) == ([{"layer": "0"}], True)
    for name in "ab":
        tell(controller, name, "joined", 10, number=3, pause_s=0.1, version=1, sum=5)
    status = controller.status(3)
    assert status.last is not None
    assert (status.last.cause, status.version, status.growth) == ("growth", 1, {"layer": "0"})
    assert not orders(controller, "ask")  # a growth is no resize
    # Who joins later learns of it.
    controller.resize(members(["a", "b", "d"]), 3)
    meet(controller, "d")
    for name in "abd":
        tell(controller, name, "prepared", number=4)
    for name in "ab":
        tell(controller, name, "held", 11, number=4)
    switch = orders(controller, "switch")[0]
    assert (switch["growths"], switch["equalize"]) == ([{"layer": "0"}], False)


def test_nobody_is_asked_at_the_start_after_a_loss_or_when_as_many_workers_remain() -> None:
    controller = grown("ab")
    assert not orders(controller, "ask")
    controller.lose("b", "killed", 3)
    tell(controller, "a", "broken", 5, number=2)
    join(controller, "a", 3, 5)
    assert controller.status(3).generation == 3
    controller.resize(members(["c"]), 3)
    meet(controller, "c")
    for name in "ac":
        tell(controller, name, "prepared", number=4)
    tell(controller, "a", "held", 6, number=4)
    tell(controller, "c", "joined", 8, number=4, pause_s=0.0)
    assert controller.status(3).active == ("c",)
    assert not orders(controller, "ask")


def test_a_script_that_does_not_opt_in_is_not_asked() -> None:
    controller = grown("abc", replace(GROWS, plan={**GROWS.plan, "grow": False}))
    controller.resize(members(["a"]), 3)
    tell(controller, "a", "prepared", number=2)
    for name in "abc":
        tell(controller, name, "held", 4, number=2)
    tell(controller, "a", "joined", 6, number=2, pause_s=0.0)
    assert controller.status(3).active == ("a",)
    assert not orders(controller, "ask")


@pytest.mark.parametrize(
    "answer",
    [
        {"number": 1, "version": 0, "growth": {"layer": "0"}},  # of an earlier group
        {"number": 2, "version": 1, "growth": {"layer": "0"}},  # of another network
        {"number": 2, "version": 0, "growth": None},
        {"number": 2, "version": 0, "growth": None, "error": "No layer is called 'x'."},
        {"number": 2, "version": 0, "growth": {"layer": "0"}, "error": "but"},
    ],
)
def test_an_answer_that_names_no_growth_changes_nothing(answer: dict[str, Any]) -> None:
    controller = resized()
    tell(controller, "a", "grow", **answer)
    status = controller.status(3)
    assert (status.state, status.version, status.ungrown) == ("running", 0, answer.get("error", ""))


def test_a_growth_is_answered_once() -> None:
    controller = resized()
    tell(controller, "a", "grow", number=2, version=0, growth=None)
    tell(controller, "a", "grow", number=2, version=0, growth={"layer": "0"})
    assert controller.status(3).state == "running"


def test_a_resize_goes_before_a_growth_and_asks_again() -> None:
    controller = resized()
    controller.resize(members(["a"]), 3)
    tell(controller, "a", "grow", number=2, version=0, growth={"layer": "0"})
    tell(controller, "a", "prepared", number=3)
    for name in "ab":
        tell(controller, name, "held", 8, number=3)
    orders(controller, "ask")
    tell(controller, "a", "joined", 10, number=3, pause_s=0.0)
    status = controller.status(3)
    assert (status.state, status.active, status.version) == ("running", ("a",), 0)
    (ask,) = orders(controller, "ask")
    assert (ask["before"], ask["workers"]) == (2, 1)


def growing() -> Coordinator:
    """Two workers that have the order to grow at step 10."""
    controller = resized()
    tell(controller, "a", "grow", number=2, version=0, growth={"layer": "0"})
    for name in "ab":
        tell(controller, name, "prepared", number=3)
    for name in "ab":
        tell(controller, name, "held", 8, number=3)
    orders(controller, "ask")
    return controller


@pytest.mark.parametrize("trouble_first", [False, True])
def test_a_growth_that_one_member_cannot_make_is_taken_back_by_all(trouble_first: bool) -> None:
    controller = growing()
    tell(controller, "a", "joined", 10, number=3, pause_s=0.1, version=1, sum=5)
    if trouble_first:
        tell(controller, "a", "trouble", number=3, error="closed")
    tell(controller, "b", "ungrown", number=3, error="No layer is called '0'.")
    breaks = orders(controller, "break")
    assert breaks[-1]["growths"] == []
    number = breaks[-1]["number"]
    for name in "ab":
        tell(controller, name, "broken", 10, number=number)
    join(controller, "ab", number + 1, 10, version=0)
    assert orders(controller, "switch")[-1]["growths"] == []
    status = controller.status(3)
    assert (status.state, status.version, status.active) == ("running", 0, ("a", "b"))
    assert status.ungrown == "b could not let its network grow: No layer is called '0'."
    assert status.last is not None
    assert status.last.cause == "growth"


def test_a_growth_whose_step_is_agreed_outlives_the_loss_of_the_worker_that_proposed_it() -> None:
    controller = growing()
    controller.lose("a", "killed", 3)
    tell(controller, "b", "broken", 10, number=4)
    join(controller, "b", 5, 10, version=1)
    (switch,) = orders(controller, "switch")
    assert (switch["growths"], switch["equalize"]) == ([{"layer": "0"}], True)
    status = controller.status(3)
    assert (status.state, status.version) == ("running", 1)


def test_a_growth_whose_step_is_not_agreed_is_lost_with_a_worker() -> None:
    controller = resized()
    tell(controller, "a", "grow", number=2, version=0, growth={"layer": "0"})
    controller.lose("b", "killed", 3)
    tell(controller, "a", "broken", 10, number=4)
    join(controller, "a", 5, 10)
    switch = orders(controller, "switch")[-1]
    assert (switch["growths"], switch["equalize"]) == ([], False)
    assert controller.status(3).version == 0


def test_a_growth_for_which_members_do_not_connect_is_given_up_and_fails_nothing() -> None:
    controller = resized()
    for _ in range(5):
        controller.changes.growths._asked = 2
        tell(controller, "a", "grow", number=2, version=0, growth={"layer": "0"})
        assert controller.status(3).state == "changing"
        number = controller.changes._number
        tell(controller, "b", "prepared", number=number, error="refused")
        status = controller.status(3)
        assert (status.state, status.version) == ("running", 0)
        assert "did not connect to grow their network: it could not connect: refused" in (
            status.ungrown
        )


def test_a_newcomer_that_cannot_follow_the_growths_is_left_out() -> None:
    controller = growing()
    for name in "ab":
        tell(controller, name, "joined", 10, number=3, pause_s=0.1, version=1)
    controller.resize(members(["a", "b", "d"]), 3)
    meet(controller, "d")
    for name in "abd":
        tell(controller, name, "prepared", number=4)
    for name in "ab":
        tell(controller, name, "held", 11, number=4)
    tell(controller, "d", "ungrown", number=4, error="there is no `grow`")
    for name in "ab":
        tell(controller, name, "broken", 13, number=5)
    join(controller, "ab", 6, 13, version=1)
    status = controller.status(3)
    assert (status.state, status.active, status.version) == ("running", ("a", "b"), 1)
    assert status.refused == {"d": "it could not let its network grow: there is no `grow`"}


def test_checksums_of_networks_before_and_after_a_growth_are_not_compared() -> None:
    controller = growing()
    tell(controller, "b", "alive", 10, phase="work", sum=4, version=0)
    tell(controller, "a", "joined", 10, number=3, pause_s=0.1, version=1, sum=5)
    assert controller.status(3).error == ""
    tell(controller, "b", "joined", 10, number=3, pause_s=0.1, version=1, sum=6)
    assert "The parameters of b differ from those of a" in controller.status(3).error


def test_members_that_differ_about_growth_do_not_begin() -> None:
    spec = JobSpec(command=("x",), members=tuple(map(Member, "ab")), limits=LIMITS)
    controller = Coordinator(spec, 0.0)
    controller.hello("a", {"host": "h", "state_port": 1}, GROWS, 1)
    other = replace(GROWS, plan={**GROWS.plan, "grow": False})
    with pytest.raises(ConfigError, match="b has grow=False, but a has grow=True"):
        controller.hello("b", {"host": "h", "state_port": 1}, other, 1)


def test_first_members_of_different_versions_do_not_begin() -> None:
    for first, second in (((), ({"layer": "0"},)), (({"layer": "0"},), ())):
        spec = JobSpec(command=("x",), members=tuple(map(Member, "ab")), limits=LIMITS)
        controller = Coordinator(spec, 0.0)
        controller.hello("a", {"host": "h", "state_port": 1}, replace(GROWS, growths=first), 1)
        with pytest.raises(ConfigError, match="give ROTA_RESUME to all first members"):
            controller.hello("b", {"host": "h", "state_port": 1}, replace(GROWS, growths=second), 1)


def test_a_resumed_network_keeps_its_growths() -> None:
    controller = grown("ab", replace(GROWS, growths=({"layer": "0"},)))
    switch = orders(controller, "switch")[0]
    assert (switch["growths"], switch["equalize"]) == ([{"layer": "0"}], False)
    assert controller.status(3).version == 1


def test_with_servers_nobody_is_asked_and_status_says_why() -> None:
    first = (Member("a"), Member("s", "server"))
    spec = JobSpec(command=("x",), members=first, mode="servers", limits=LIMITS)
    controller = Coordinator(spec, 0.0)
    meet(controller, "as")
    join(controller, "as", 1)
    assert "With parameter servers a network cannot grow" in controller.status(3).ungrown
    controller.resize([*first, Member("b")], 3)
    meet(controller, "b")
    for name in "abs":
        tell(controller, name, "prepared", number=2)
    for name in "as":
        tell(controller, name, "held", 4, number=2)
    for name in "abs":
        tell(controller, name, "joined", 6, number=2, pause_s=0.0)
    assert set(controller.status(3).active) == {"a", "b", "s"}
    assert not orders(controller, "ask")
