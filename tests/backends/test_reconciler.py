"""The reconciler through every order of events: late answers, old looks, crashes, strangers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.backends.next_action import JobStanding, next_action
from rota.backends.reconciler import MOST_TRIES, Intent, JobOrder, Reconciler, Seen, Traits

if TYPE_CHECKING:
    from rota.backends.reconciler import Outcome
    from rota.core.plan import Share

GPUS = {0: 4, 1: 4, 2: 4}
HERE, THERE = ((0, 1, 0),), ((1, 1, 0),)
WAITS, RUNS = Seen("waiting"), Seen("running", HERE)
STOPPABLE = Traits(gpus_per_worker=4, stoppable=True)


@pytest.mark.parametrize(
    ("phase", "wanted", "holds", "in_place", "action"),
    [
        ("waiting", HERE, (), False, "start"),
        ("waiting", (), (), False, "wait"),
        ("starting", HERE, HERE, False, "wait"),
        ("starting", THERE, HERE, False, "withdraw"),
        ("starting", (), HERE, False, "withdraw"),
        ("running", HERE, HERE, False, "wait"),
        ("running", THERE, HERE, False, "stop"),
        ("running", THERE, HERE, True, "resize"),
        ("running", (), HERE, True, "stop"),
        ("running", THERE, None, False, "wait"),
        ("stopping", HERE, HERE, False, "wait"),
        ("stopping", (), HERE, True, "wait"),
    ],
)
def test_next_action(phase: str, wanted: Share, holds: Share, in_place: bool, action: str) -> None:
    standing = JobStanding(phase, wanted, holds, in_place, False, lambda: True)  # type: ignore[arg-type]
    assert next_action(standing) == action


def one(traits: Traits = STOPPABLE, share: Share | None = None) -> Reconciler:
    """A reconciler of one job, number 7."""
    made = Reconciler()
    made.add(Intent(7, share), traits)
    return made


def look(made: Reconciler, seen: Seen, free: dict[int, int] | None = None) -> None:
    """Let it see job 7 so, and take what follows."""
    for intent in made.saw(made.begin_look(), {7: seen}, GPUS if free is None else free):
        made.take(intent)


def actions(made: Reconciler, now_s: float = 0.0) -> list[JobOrder]:
    """What it orders now; intents are taken."""
    found = []
    for order, intent in made.orders(now_s):
        if intent is not None:
            made.take(intent)
        found.append(order)
    return found


def want(made: Reconciler, share: Share) -> None:
    intent = made.wanting(7, share)
    assert intent is not None
    made.take(intent)


def test_a_start_is_ordered_once_and_not_again_before_a_later_look() -> None:
    made = one()
    look(made, WAITS)
    want(made, HERE)
    early = made.begin_look()
    (order,) = actions(made)
    assert (order.action, order.share) == ("start", HERE)
    assert actions(made) == []
    made.done(order, "unknown")
    made.saw(early, {7: WAITS}, GPUS)  # it began before the answer: it says nothing
    assert actions(made) == []
    look(made, WAITS)
    assert [one.action for one in actions(made)] == ["start"]


def test_a_job_starts_only_where_there_is_room() -> None:
    made = one()
    look(made, WAITS, {0: 3})
    want(made, HERE)
    assert actions(made) == []
    look(made, WAITS, {0: 4})
    assert [one.action for one in actions(made)] == ["start"]


BOTH = (*HERE, *THERE)
ELASTIC = Traits(gpus_per_worker=4, in_place=True)


def test_a_job_that_starts_small_is_left_to_start_and_resized_once_it_runs() -> None:
    made = one(ELASTIC)
    look(made, WAITS)
    want(made, BOTH)
    (order,) = actions(made)
    made.done(order, "done")
    look(made, Seen("starting", HERE))
    assert actions(made) == []
    look(made, RUNS)
    (order,) = actions(made)
    assert (order.action, order.share) == ("resize", BOTH)


def test_a_job_that_is_resized_in_place_and_loses_a_node_waits_for_a_policy_to_decide() -> None:
    made = one(ELASTIC, BOTH)
    look(made, Seen("running", BOTH))
    look(made, RUNS)
    assert made.share(7) == HERE
    assert actions(made) == []


def test_a_resize_in_place_that_does_not_come_about_is_given_up() -> None:
    made = one(ELASTIC, BOTH)
    look(made, RUNS)
    assert [one.action for one in actions(made, 10.0)] == ["resize"]
    made.done(JobOrder(7, "resize", BOTH, 1), "done")
    look(made, RUNS)
    assert made.overdue(10.0) == []
    assert made.overdue(9.0 + made.start_s) == []
    (late,) = made.overdue(10.0 + made.start_s)
    made.take(late)
    assert (made.share(7), actions(made)) == (HERE, [])


def test_two_jobs_do_not_start_in_the_same_room() -> None:
    made = one(share=HERE)
    made.add(Intent(8, HERE), STOPPABLE)
    made.saw(made.begin_look(), {7: WAITS, 8: WAITS}, GPUS)
    assert [one.uid for one in actions(made)] == [7]
    made.saw(made.begin_look(), {8: WAITS}, GPUS)  # the cluster does not know of the start yet
    assert actions(made) == []


@pytest.mark.parametrize("outcome", [None, "done", "unknown"])
def test_a_start_keeps_its_room_until_it_is_seen_though_the_job_is_to_go_elsewhere_by_now(
    outcome: Outcome | None,
) -> None:
    made = one(share=HERE)
    made.add(Intent(8, HERE), STOPPABLE)
    made.saw(made.begin_look(), {7: WAITS, 8: WAITS}, GPUS)
    (order,) = actions(made)
    want(made, THERE)
    if outcome is not None:
        made.done(order, outcome)
    assert actions(made) == []  # 8 has to wait: 7 may be on its way to where it was to go
    if outcome is None:
        made.done(order, "done")
    made.saw(made.begin_look(), {7: WAITS, 8: WAITS}, GPUS)
    assert [(one.uid, one.share) for one in actions(made)] == [(7, THERE), (8, HERE)]


def test_what_a_resized_job_gets_more_is_no_room_for_others_and_what_it_has_counts_once() -> None:
    made = one(Traits(gpus_per_worker=2, in_place=True), share=((0, 2, 0),))
    made.add(Intent(8, ((0, 1, 0),)), Traits(gpus_per_worker=2))
    made.add(Intent(9, ((0, 1, 0),)), Traits(gpus_per_worker=2))
    look_at = {7: Seen("running", ((0, 1, 0),)), 8: WAITS, 9: WAITS}
    made.saw(made.begin_look(), look_at, {0: 4, 1: 4})  # of 6, beside what 7 has
    assert [(one.uid, one.action) for one in actions(made)] == [(7, "resize"), (8, "start")]
    made.saw(made.begin_look(), {9: WAITS}, {0: 6, 1: 4})
    assert [one.uid for one in actions(made)] == [9]


def test_a_job_is_given_notice_and_time_to_save_before_it_is_stopped() -> None:
    made = one(replace(STOPPABLE, notice_s=60.0))
    look(made, RUNS)
    want(made, ())
    (notice,) = actions(made, 10.0)
    assert (notice.action, made.intent(7).noticed_s) == ("notice", 10.0)
    made.done(notice, "done")
    look(made, RUNS)
    assert actions(made, 69.0) == []
    look(made, replace(RUNS, saved=True))
    assert [one.action for one in actions(made, 69.0)] == ["stop"]


def test_notice_ends_after_its_time_also_if_nothing_was_saved_and_over_a_crash() -> None:
    made = one(replace(STOPPABLE, notice_s=60.0))
    made.take(Intent(7, (), noticed_s=10.0))
    look(made, RUNS)
    assert actions(made, 69.0) == []
    assert [one.action for one in actions(made, 70.0)] == ["stop"]


def test_a_job_that_may_stay_after_all_forgets_its_notice() -> None:
    made = one(replace(STOPPABLE, notice_s=60.0))
    made.take(Intent(7, HERE, noticed_s=10.0))
    look(made, RUNS)
    assert made.intent(7) == Intent(7, HERE)
    assert actions(made, 99.0) == []


def test_a_running_job_that_cannot_go_on_elsewhere_is_left_alone() -> None:
    made = one(Traits(gpus_per_worker=4))
    look(made, RUNS)
    assert made.wanting(7, THERE) is None
    assert made.wanting(7, ()) is None
    made.take(Intent(7, THERE))  # decided while it waited, but somebody else has started it
    look(made, RUNS)
    assert made.intent(7).share is None
    assert actions(made) == []
    assert made.share(7) == HERE


def test_a_job_that_lost_its_node_waits_for_a_policy() -> None:
    made = one(share=HERE)
    look(made, RUNS)
    look(made, WAITS)
    assert (made.share(7), actions(made)) == ((), [])


def test_a_job_that_was_stopped_and_is_wanted_again_in_the_same_place_starts_again() -> None:
    made = one(share=HERE)
    look(made, RUNS)
    want(made, ())
    (stop,) = actions(made)
    want(made, HERE)
    made.done(stop, "done")
    look(made, WAITS)
    assert [one.action for one in actions(made)] == ["start"]


def test_a_stopped_job_that_somebody_starts_is_left_running() -> None:
    made = one(share=())
    look(made, WAITS)
    look(made, RUNS)
    assert (made.share(7), actions(made)) == (HERE, [])


def test_an_order_that_is_refused_again_and_again_is_given_up() -> None:
    made = one(share=HERE)
    for _ in range(MOST_TRIES):
        look(made, WAITS)
        (order,) = actions(made)
        given_up = made.done(order, "refused")
    assert given_up == Intent(7, None)
    made.take(given_up)
    look(made, WAITS)
    assert (actions(made), made.share(7)) == ([], ())


def test_a_start_that_never_comes_is_taken_back() -> None:
    made = one(share=HERE)
    look(made, Seen("starting", HERE))
    assert made.overdue(0.0) == []
    (late,) = made.overdue(made.start_s)
    made.take(late)
    assert [one.action for one in actions(made)] == ["withdraw"]


def test_a_start_without_room_is_given_up() -> None:
    made = one(share=HERE)
    look(made, WAITS, {0: 0})
    assert made.overdue(5.0) == []
    assert made.overdue(5.0 + made.start_s) == [Intent(7, None)]


@pytest.mark.parametrize(
    ("seen", "then"), [(WAITS, None), (RUNS, None), (Seen("starting", HERE), ())]
)
def test_a_job_that_is_given_up_keeps_what_it_has_or_is_taken_back(
    seen: Seen, then: Share | None
) -> None:
    made = one(share=HERE)
    look(made, seen)
    assert made.giving_up(7) == Intent(7, then)


def test_a_job_that_its_cluster_has_put_back_in_line_is_taken_back_and_decided_anew() -> None:
    made = one(share=HERE)
    look(made, RUNS)
    look(made, Seen("starting", HERE))
    assert [one.action for one in actions(made)] == ["withdraw"]
    assert made.share(7) == ()


def test_a_job_whose_nodes_come_free_one_by_one_has_lost_all_of_them() -> None:
    both = ((0, 1, 0), (1, 1, 0))
    made = one(share=both)
    look(made, Seen("running", both))
    look(made, Seen("stopping", HERE))
    look(made, WAITS)
    assert (made.share(7), actions(made)) == ((), [])


@pytest.mark.parametrize("before", [WAITS, Seen("starting", THERE), None])
def test_a_start_that_comes_too_late_leaves_a_job_where_somebody_else_has_started_it(
    before: Seen | None,
) -> None:
    made = one(share=THERE)
    if before is not None:
        look(made, before, {})
    look(made, RUNS)
    assert (made.share(7), actions(made)) == (HERE, [])
    want(made, THERE)  # but a policy may move it
    look(made, RUNS)
    assert [one.action for one in actions(made)] == ["stop"]


# -- every order of events ------------------------------------------------------------------------


@dataclass
class Process:
    """A job as it really is."""

    traits: Traits
    phase: str = "waiting"
    share: Share = ()
    runs: int = 0


@dataclass
class World:
    """A cluster whose commands take effect late, or never, and its reconciler, which may die."""

    jobs: dict[int, Process]
    kept: dict[int, Intent] = field(default_factory=dict)
    flying: list[tuple[Reconciler, JobOrder, bool]] = field(default_factory=list)
    orphans: list[JobOrder] = field(default_factory=list)
    looks: list[tuple[Reconciler, int, dict[int, Seen], dict[int, int]]] = field(
        default_factory=list
    )
    now_s: float = 0.0
    mind: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        self.kept = {uid: Intent(uid) for uid in self.jobs}
        self.begin()

    def begin(self) -> None:
        """A daemon starts; all it knows is what was written down."""
        self.mind = Reconciler()
        for uid, intent in self.kept.items():
            self.mind.add(intent, self.jobs[uid].traits)

    def crash(self) -> None:
        self.orphans += [order for _, order, happened in self.flying if not happened]
        self.flying.clear()
        self.looks.clear()
        self.begin()

    def keep(self, intent: Intent | None) -> None:
        if intent is not None:
            self.kept[intent.uid] = intent
            self.mind.take(intent)

    def free(self) -> dict[int, int]:
        free = dict(GPUS)
        for job in self.jobs.values():
            if job.phase in ("running", "stopping"):
                for node, workers, _ in job.share:
                    free[node] -= workers * job.traits.gpus_per_worker
        assert min(free.values()) >= 0
        return free

    def happen(self, order: JobOrder) -> None:
        """An order takes effect, if it still can."""
        job = self.jobs[order.uid]
        if order.action == "start" and job.phase in ("waiting", "starting"):
            job.phase, job.share = "starting", order.share
        elif order.action == "withdraw" and job.phase == "starting":
            job.phase, job.share = "waiting", ()
        elif order.action == "stop" and job.phase == "running":
            assert job.traits.stoppable
            job.phase = "stopping"
        elif order.action == "resize" and job.phase == "running":
            assert job.traits.in_place
            room = self.free()
            for node, workers, _ in job.share:
                room[node] += workers * job.traits.gpus_per_worker
            if all(room[n] >= w * job.traits.gpus_per_worker for n, w, _ in order.share):
                job.share = order.share

    def progress(self, uid: int) -> None:
        """The cluster goes on with a job."""
        job = self.jobs[uid]
        if job.phase == "stopping":
            job.phase, job.share = "waiting", ()
        elif job.phase == "starting":
            free = self.free()
            if all(free[n] >= w * job.traits.gpus_per_worker for n, w, _ in job.share):
                job.phase, job.runs = "running", job.runs + 1

    def order(self) -> None:
        for intent in self.mind.overdue(self.now_s):
            self.keep(intent)
        for order, intent in self.mind.orders(self.now_s):
            self.keep(intent)
            assert all(o.uid != order.uid for m, o, _ in self.flying if m is self.mind)
            assert order.action != "stop" or self.jobs[order.uid].traits.stoppable
            self.flying.append((self.mind, order, False))

    def look(self) -> None:
        number = self.mind.begin_look()
        sights = {
            uid: Seen(job.phase, job.share)  # type: ignore[arg-type]
            for uid, job in self.jobs.items()
        }
        self.looks.append((self.mind, number, sights, self.free()))

    def see(self, at: int) -> None:
        mind, number, sights, free = self.looks.pop(at)
        for intent in mind.saw(number, sights, free):
            self.keep(intent)

    def answer(self, at: int, outcome: Outcome) -> None:
        mind, order, happened = self.flying.pop(at)
        if outcome == "done" and not happened:
            self.happen(order)
        elif outcome == "refused" and happened:
            outcome = "done"
        elif outcome == "unknown" and not happened:
            self.orphans.append(order)
        self.keep(mind.done(order, outcome))

    def settle(self) -> None:
        """Nothing strange happens any more."""
        while self.orphans:
            self.happen(self.orphans.pop())
        for _ in range(60):
            self.now_s += 20.0
            while self.flying:
                self.answer(0, "done")
            for uid in self.jobs:
                self.progress(uid)
            self.look()
            self.see(len(self.looks) - 1)
            self.order()
        self.looks.clear()


KINDS = (
    Traits(gpus_per_worker=2, stoppable=True),
    Traits(gpus_per_worker=4, stoppable=True, notice_s=30.0),
    Traits(gpus_per_worker=1, stoppable=True, in_place=True),
    Traits(gpus_per_worker=2),
)
shares = st.sampled_from([(), ((0, 1, 0),), ((1, 1, 0),), ((0, 1, 0), (1, 1, 0)), ((2, 1, 0),)])
STEPS = ("want", "order", "happen", "answer", "refuse", "lose", "look", "see", "go on", "crash",
         "orphan", "stranger", "fail", "requeue", "tick")  # fmt: skip


def play(data: st.DataObject, world: World, steps: tuple[str, ...]) -> dict[int, Share]:
    """Random events; returns what was decided last for every job."""
    wanted: dict[int, Share] = {}
    uids = sorted(world.jobs)
    for step in data.draw(st.lists(st.sampled_from(steps), max_size=60)):
        uid = data.draw(st.sampled_from(uids))
        at = data.draw(st.integers(0, 5))
        if step == "want":
            share = data.draw(shares)
            each = {u: world.jobs[u].traits.gpus_per_worker for u in uids}
            used = dict.fromkeys(GPUS, 0)
            for other in uids:
                for node, workers, _ in share if other == uid else world.mind.share(other):
                    used[node] += workers * each[other]
            if all(used[n] <= GPUS[n] for n in GPUS):
                intent = world.mind.wanting(uid, share)
                world.keep(intent)
                if intent is not None:
                    wanted[uid] = share
        elif step == "order":
            world.order()
        elif step == "happen" and world.flying:
            mind, order, happened = world.flying[at % len(world.flying)]
            if not happened:
                world.happen(order)
            world.flying[at % len(world.flying)] = (mind, order, True)
        elif step in ("answer", "refuse", "lose") and world.flying:
            outcome: Outcome = {"answer": "done", "refuse": "refused", "lose": "unknown"}[step]  # type: ignore[assignment]
            world.answer(at % len(world.flying), outcome)
        elif step == "look":
            world.look()
        elif step == "see" and world.looks:
            world.see(at % len(world.looks))
        elif step == "go on":
            world.progress(uid)
        elif step == "crash":
            world.crash()
        elif step == "orphan" and world.orphans:
            world.happen(world.orphans.pop(at % len(world.orphans)))
        elif step == "stranger" and world.jobs[uid].phase == "waiting":
            world.jobs[uid].phase, world.jobs[uid].share = "starting", ((2, 1, 0),)
        elif step == "fail" and world.jobs[uid].phase in ("running", "stopping"):
            world.jobs[uid].phase, world.jobs[uid].share = "waiting", ()
        elif step == "requeue" and world.jobs[uid].phase in ("running", "stopping"):
            world.jobs[uid].phase = "starting"  # the cluster itself starts it again, where it was
        elif step == "tick":
            world.now_s += 10.0
        world.free()  # nothing was given twice
    return wanted


def world_of(data: st.DataObject, kinds: tuple[Traits, ...]) -> World:
    count = data.draw(st.integers(1, 3))
    return World({uid: Process(data.draw(st.sampled_from(kinds))) for uid in range(count)})


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whatever_happens_every_job_comes_to_rest_as_intended(data: st.DataObject) -> None:
    world = world_of(data, KINDS)
    play(data, world, STEPS)
    world.settle()
    for uid, job in world.jobs.items():
        assert job.share == world.mind.share(uid)
        if world.kept[uid].share is None and job.phase == "starting":
            continue  # a stranger has given it nodes that are taken: that is not ours to end
        assert world.mind.settled(uid), (uid, job, world.kept[uid])
        assert job.phase in ("waiting", "running")


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_what_was_decided_last_comes_about_over_crashes_and_lost_answers_or_is_decided_anew(
    data: st.DataObject,
) -> None:
    world = world_of(data, tuple(kind for kind in KINDS if kind.stoppable))
    steps = tuple(s for s in STEPS if s not in ("stranger", "fail", "requeue", "refuse", "tick"))
    wanted = play(data, world, steps)
    world.settle()
    for uid, share in wanted.items():
        overtaken = world.kept[uid].share is None and world.jobs[uid].phase == "running"
        assert world.jobs[uid].share == share or overtaken


def test_a_job_that_was_cancelled_ends_whatever_it_did() -> None:
    for seen, first in ((WAITS, "cancel"), (RUNS, "stop"), (Seen("starting", HERE), "withdraw")):
        made = one(replace(STOPPABLE, notice_s=60.0))
        made.take(Intent(7, HERE, cancelled=True))
        look(made, seen)
        assert [one.action for one in actions(made)] == [first]
    assert made.wanting(7, THERE) is None
    assert made.intent(7).noticed_s == inf
