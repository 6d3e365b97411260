"""The agent's head through all courses of events: see `elastic_world`."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from elastic_world import LIMITS, OUTLINE, FakeMember, ServerWorld, World
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.elastic.coordinator import Coordinator
from rota.elastic.protocol import JobSpec, Member
from rota.elastic.training_progress import TrainingProgress
from rota.errors import ConfigError


def members(names: list[str]) -> list[Member]:
    return [Member(name) for name in names]


def play(seed: int, kills: int, resizes: int, outside: float = 0.0) -> World:
    """Train, change and kill at random; so large a part of the members is started outside."""
    rng = random.Random(seed)
    world = World(seed, rng.randint(1, 3), length=10_000)
    todo = ["kill"] * kills + ["resize"] * resizes
    rng.shuffle(todo)
    for what in todo:
        world.run(rng.randint(0, 60))
        if world.controller.result or world.controller._ending:
            break
        if what == "kill":
            candidates = [p for p in world.fakes.values() if p.alive]
            if len(candidates) > 1:
                world.kill(rng.choice(candidates))
            continue
        table = world.controller.table
        present = [m.name for m in world.controller.wanted if m.name in table.entries]
        present = [name for name in present if table[name].alive]
        keep = [name for name in present if rng.random() < 0.7]
        new = [f"m{world.count + k}" for k in range(rng.randint(0 if keep else 1, 2))]
        world.count += len(new)
        far = [Member(name, outside=True) for name in new if rng.random() < outside]
        near = members([name for name in new if name not in {one.name for one in far}])
        known = [table[name].member for name in keep]
        world.controller.resize([*known, *near, *far], world.now_s)
        world.fakes |= {one.name: FakeMember(one.name) for one in far}
    return world


@settings(max_examples=200)
@given(
    st.integers(0, 10**9), st.integers(0, 4), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0])
)  # fmt: skip
def test_every_course_of_events_ends_in_the_wanted_group(
    seed: int, kills: int, sizes: int, outside: float
) -> None:
    world = play(seed, kills, sizes, outside)
    status = world.settle()
    if status.state in ("failed", "stopping"):
        # Only when all members that had the state were killed.
        assert kills
        return
    table = world.controller.table
    wanted = {m.name for m in world.controller.wanted if table[m.name].alive}
    assert status.state == "running", status
    assert status.reached == status.target
    assert set(status.active) == wanted or not wanted
    chains = {p.chain for p in world.fakes.values() if p.alive and p.name in status.active}
    longest = max(chains, key=len)
    assert all(chain == longest[: len(chain)] for chain in chains if chain is not None)


@settings(max_examples=150)
@given(st.integers(0, 10**9), st.integers(0, 3), st.integers(0, 5))
def test_no_parameter_is_ever_ahead_of_another(seed: int, kills: int, sizes: int) -> None:
    rng = random.Random(seed)
    world = ServerWorld(seed, rng.randint(1, 2), length=10_000)
    servers, todo = ["s0", "s1"], ["kill"] * kills + ["resize"] * sizes
    rng.shuffle(todo)
    for what in todo:
        world.run(rng.randint(0, 80))
        if world.controller.result or world.controller._ending:
            return
        table = world.controller.table
        alive = [m.name for m in world.controller.wanted if m.name in world.fakes]
        workers = [n for n in alive if table[n].alive and n not in servers]
        if what == "kill":
            if len(workers) > 1:
                world.kill(world.fakes[rng.choice(workers)])
            continue
        keep = [name for name in workers if rng.random() < 0.7]
        new = [f"m{world.count + k}" for k in range(rng.randint(0 if keep else 1, 2))]
        world.count += len(new) + 2
        servers = rng.sample(servers, rng.randint(1, len(servers)))
        servers += [f"s{world.count + k}" for k in range(rng.randint(0, 2))]
        kept = [Member(name, "server") for name in servers]
        world.controller.resize([*members(keep + new), *kept], world.now_s)
    status = world.settle()
    if status.state in ("failed", "stopping"):
        assert kills
        return
    assert (status.state, status.reached) == ("running", status.target)
    world.run(300)
    shards = world.controller.changes.group.shards if world.controller.changes.group else {}
    assert sorted(key for keys in shards.values() for key in keys) == [0, 1, 2, 3, 4]


@settings(max_examples=50)
@given(st.integers(0, 10**9), st.integers(0, 2), st.integers(0, 3))
def test_a_stopped_job_ends(seed: int, kills: int, sizes: int) -> None:
    world = play(seed, kills, sizes)
    world.controller.stop(1e5, world.now_s)
    world.run(6000)
    assert world.controller.result is not None
    assert not any(puppet.alive for puppet in world.fakes.values())


@settings(max_examples=50)
@given(st.integers(0, 10**9), st.integers(0, 2), st.integers(0, 3))
def test_a_training_ends_when_its_samples_do(seed: int, kills: int, sizes: int) -> None:
    world = play(seed, 0, sizes)
    rng = random.Random(seed)
    done = max((len(p.chain or ()) for p in world.fakes.values()), default=0)
    world.length = done + rng.randint(1, 6)
    for _ in range(kills):
        world.run(rng.randint(0, 30))
        alive = [puppet for puppet in world.fakes.values() if puppet.alive]
        if len(alive) > 1 and not world.controller.result:
            world.kill(rng.choice(alive))
    world.run(9000)
    assert world.controller.result is not None
    if not kills:
        assert world.controller.result.state == "done"
        assert world.controller.result.step == world.length


def test_names_are_not_reused() -> None:
    world = World(0, 2, length=1000)
    world.run(200)
    world.controller.resize(members(["m1"]), world.now_s)
    world.run(400)
    with pytest.raises(ConfigError, match="m0 was in this job before"):
        world.controller.resize(members(["m0", "m1"]), world.now_s)


def test_a_member_that_never_gets_ready_is_left_out() -> None:
    world = World(0, 1, length=1000)
    world.run(100)
    world.controller.resize([Member("m0"), Member("late", outside=True)], world.now_s)
    world.now_s += LIMITS.start_s + 1
    world.say(world.fakes["m0"], "alive", phase="work", **world.progress(world.fakes["m0"]))
    world.controller.tick(world.now_s)
    status = world.controller.status(world.now_s)
    assert status.reached == status.target == 1
    assert "was not heard of" in status.refused["late"]


def test_a_member_whose_host_is_taken_away_does_not_wait_for_newcomers() -> None:
    world = World(0, 1, length=1000)
    far = Member("far", outside=True)
    world.controller.resize([Member("m0"), far], world.now_s)
    world.fakes["far"] = FakeMember("far")
    assert set(world.settle().active) == {"m0", "far"}
    world.controller.resize([Member("m0"), Member("late", outside=True)], world.now_s)
    world.run(400)  # `late` never says hello
    assert world.controller.status(world.now_s).active == ("m0",)


def test_the_time_of_steps_leaves_out_pauses() -> None:
    controller = Coordinator(JobSpec(command=("x",), members=(Member("a"),), limits=LIMITS), 0.0)

    def hear(name: str, op: str, now_s: float, step: int = 0, **facts: object) -> None:
        progress = {"step": step, "epoch": 0, "samples": 10 * step, "sum": None}
        controller.receive(name, {"op": op, **progress, **facts}, now_s)

    card = {"host": "h", "state_port": 1}
    controller.hello("a", card, OUTLINE, 1)
    hear("a", "ready", 1)
    hear("a", "prepared", 2, number=1)
    hear("a", "joined", 3, number=1, pause_s=2.0)
    hear("a", "alive", 5, 4)
    status = controller.status(5)
    assert (status.busy_s, status.samples, status.total) == (2, 40, 20)
    assert (status.changes, status.paused_s) == (0, 0)
    controller.resize(members(["a", "b"]), 5)
    controller.hello("b", card, OUTLINE, 6)
    hear("b", "ready", 6)
    for name in "ab":
        hear(name, "prepared", 6, number=2)
    hear("a", "held", 6, 5, number=2)
    # The last step was made at 7.5; the pause ends at 8, and b has waited for 2 s.
    hear("a", "joined", 8, 7, number=2, pause_s=0.5)
    assert controller.status(8).busy_s == 4.5
    hear("b", "joined", 8, 7, number=2, pause_s=2.0)
    hear("b", "alive", 9, 8)
    status = controller.status(9)
    assert (status.busy_s, status.changes, status.paused_s) == (5.5, 1, 0.5)
    hear("a", "trouble", 10, 8, number=2, error="closed")
    for name in "ab":
        hear(name, "broken", 10, 8, number=3)
    for name in "ab":
        hear(name, "prepared", 10, number=4)
    for name in "ab":
        hear(name, "joined", 11, 8, number=4, pause_s=1.0)
    hear("a", "alive", 12, 9)
    status = controller.status(12)
    assert (status.busy_s, status.changes, status.paused_s) == (7.5, 2, 1.5)


def test_speed_does_not_depend_on_when_members_tell() -> None:
    progress = TrainingProgress(0.0)

    def hear(op: str, now_s: float, step: int, **facts: float) -> None:
        message = {"op": op, "step": step, "epoch": 0, "samples": 10 * step, **facts}
        progress.note(message, now_s, since_s=0.0)

    hear("joined", 1.0, 0, pause_s=1.0)
    assert progress.samples_per_s(1.4) == 0
    # A step takes .25 s; news come at odd times, some of them late.
    for now_s in (1.6, 2.1, 2.55, 3.3):
        done = int((now_s - 1.0) / 0.25)
        hear("alive", now_s, done, ago_s=now_s - 1.0 - 0.25 * done)
        assert progress.samples_per_s(now_s) == pytest.approx(40)
        assert progress.samples_per_s(now_s + 0.9) == pytest.approx(40)
        assert progress.busy_s == pytest.approx(1.0 + 0.25 * done)
    assert progress.samples_per_s(60.0) < 2  # it stands still
    hear("joined", 61.0, progress.step, pause_s=57.75)
    assert progress.samples_per_s(61.5) == 0  # with others now
    hear("alive", 62.1, progress.step + 4, ago_s=0.1)
    assert progress.samples_per_s(62.1) == pytest.approx(40)


@pytest.mark.parametrize("ago_s", [None, -5.0, 1e18])
def test_a_member_cannot_turn_the_time_of_steps_back_or_on(ago_s: float | None) -> None:
    progress = TrainingProgress(0.0)
    for step, now_s in ((1, 1.0), (2, 2.0)):
        message = {"op": "alive", "step": step, "epoch": 0, "samples": step, "ago_s": 0.0}
        progress.note({**message, "ago_s": ago_s if step == 2 else 0.0}, now_s, since_s=0.0)
    assert 1.0 <= progress.stepped_s <= 2.0
    assert 0.0 < progress.samples_per_s(2.0) < 2000


def test_a_step_that_takes_long_has_a_speed_all_the_time() -> None:
    progress = TrainingProgress(0.0)
    for step, now_s in ((1, 30.2), (2, 60.4)):
        message = {"op": "alive", "step": step, "epoch": 0, "samples": 64 * step}
        progress.note({**message, "ago_s": now_s - 30 * step}, now_s, since_s=0.0)
        for later_s in (0, 10, 29):
            assert progress.samples_per_s(now_s + later_s) == pytest.approx(64 / 30, rel=1e-3)


def test_members_that_differ_fail_a_job_that_has_not_begun() -> None:
    first = (Member("a"), Member("b"))
    controller = Coordinator(JobSpec(command=("x",), members=first, limits=LIMITS), 0.0)
    controller.hello("a", {}, OUTLINE, 1)
    with pytest.raises(ConfigError, match="b trains another model than a"):
        controller.hello("b", {}, replace(OUTLINE, form="other"), 1)
    assert "another model" in controller.status(1).error


def group_of(names: str, **limits: float) -> Coordinator:
    """A head whose members have joined their first group, at time 3."""
    first = tuple(Member(name) for name in names)
    spec = JobSpec(command=("x",), members=first, limits=replace(LIMITS, **limits))
    controller = Coordinator(spec, 0.0)
    for name in names:
        controller.hello(name, {"host": "h", "state_port": 1}, OUTLINE, 1)
        tell(controller, name, "ready", 1)
    for name in names:
        tell(controller, name, "prepared", 2, number=1)
    for name in names:
        tell(controller, name, "joined", 3, number=1, pause_s=0.0)
    assert controller.status(3).state == "running"
    return controller


def tell(
    controller: Coordinator, name: str, op: str, now_s: float, step: int = 0, **facts: object
) -> None:
    progress = {"step": step, "epoch": 0, "samples": 10 * step, "sum": None}
    controller.receive(name, {"op": op, **progress, **facts}, now_s)


def test_members_do_not_wait_for_ever_for_one_that_has_left_the_loop() -> None:
    controller = group_of("abc", transfer_s=100)
    tell(controller, "a", "finished", 10, 5)
    tell(controller, "b", "alive", 11, 5, phase="meet")
    tell(controller, "c", "alive", 11, 5, phase="work")
    controller.tick(500)
    assert controller.status(500).state == "running"  # c may be at something long
    tell(controller, "c", "alive", 501, 5, phase="meet")
    controller.tick(502)
    status = controller.status(502)
    assert status.state == "stopping"
    assert "a left the loop after step 5, but b, c waited for more than 100 s" in status.error
    for name in "abc":
        controller.lose(name, "", 503)
    assert controller.result is not None
    assert controller.result.state == "failed"


def test_a_member_that_makes_its_last_step_soon_after_the_others_does_not_fail_the_job() -> None:
    controller = group_of("ab", transfer_s=100)
    tell(controller, "a", "finished", 10, 5)
    tell(controller, "b", "alive", 11, 4, phase="meet")
    controller.tick(109)
    assert controller.status(109).state == "running"
    tell(controller, "b", "finished", 109, 5)
    assert controller.status(109).error == ""
    for name in "ab":
        controller.lose(name, "", 110)
    assert controller.result is not None
    assert controller.result.state == "done"


def test_a_difference_at_the_end_fails_the_job_in_any_order_of_reports() -> None:
    for order in ("ab", "ba"):
        controller = group_of("ab")
        for name in order:
            tell(controller, name, "finished", 10, 5, sum={"a": 1, "b": 2}[name])
        later, sooner = reversed(order)
        error = controller.status(10).error
        assert f"The parameters of {later} differ from those of {sooner}" in error


def test_a_difference_is_found_though_the_other_member_has_reported_later_steps() -> None:
    controller = group_of("ab")
    for step in (1, 2, 4, 8):
        tell(controller, "b", "alive", 10, step, phase="work", sum=step + (step > 2))
    for step in (1, 2):
        tell(controller, "a", "alive", 11, step, phase="work", sum=step)
    assert controller.status(11).error == ""
    tell(controller, "a", "alive", 11, 4, phase="work", sum=4)
    assert "of a differ from those of b after step 4" in controller.status(11).error
