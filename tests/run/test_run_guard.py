"""Under a guard the loop goes on, whatever the policy does, and says who decided and why."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from helpers.live import FIRST_UID, Queue, Task, ToyCluster
from rota.core import Cluster, Decision, Draft, Start
from rota.core.layout import SHARE
from rota.errors import ConfigError, PolicyError
from rota.run.guard import RETRY_S, Guard
from rota.run.loop import rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.core import Policy, Snapshot
    from rota.run.loop import Round


@dataclass
class Does:
    """A policy that does one thing."""

    what: Callable[[Snapshot], Any]
    name: str = "subject"
    asked: int = 0

    def decide(self, snapshot: Snapshot) -> Any:
        self.asked += 1
        return self.what(snapshot)


def sound(snapshot: Snapshot) -> Decision:
    return FIFO.decide(snapshot)


FIFO = Queue()
QUICK = Guard(fallback=FIFO, deadline_s=0.3)
COMPUTING_S = 0.4
"""For which compiled code is deaf: longer than the deadline."""
PATIENT = Guard(fallback=FIFO)


def cluster() -> ToyCluster:
    return ToyCluster([Task(0, 3, 2), Task(0, 3, 8), Task(1, 2, 1)])


def first(policy: Policy, guard: Guard, backend: ToyCluster | None = None) -> Round:
    return next(iter(rounds(policy, backend or cluster(), guard=guard)))


# -- every way not to decide ---------------------------------------------------------------


def sleeps(snapshot: Snapshot) -> Decision:
    time.sleep(3600)
    return sound(snapshot)


def loops(_: Snapshot) -> Decision:
    while True:
        pass


def swallows(snapshot: Snapshot) -> Decision:
    """Takes no notice of the alarm and answers all the same."""
    with suppress(BaseException):
        time.sleep(3600)
    return sound(snapshot)


def computes(snapshot: Snapshot) -> Decision:
    """As compiled code does, it hears of the alarm only when it is done."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        time.sleep(COMPUTING_S)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    return sound(snapshot)


def with_fallback_in_time(late: Callable[[float], Round]) -> tuple[Round, float]:
    """A round with a late policy; the deadline is raised if the machine makes others late too."""
    for deadline_s in (0.3, 3.0, 30.0, 300.0):
        turn = late(deadline_s)
        if "'queue' had not decided" not in turn.trouble:
            break
    return turn, deadline_s


@pytest.mark.parametrize("slow", [sleeps, loops, swallows, computes])
def test_who_is_late_is_replaced_by_the_fallback(
    slow: Callable[[Snapshot], Decision], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(deadline_s: float) -> Round:
        monkeypatch.setattr(sys.modules[__name__], "COMPUTING_S", deadline_s + 0.1)
        return first(Does(slow), replace(QUICK, deadline_s=deadline_s))

    turn, deadline_s = with_fallback_in_time(late)
    assert turn.by == "queue"
    said = f"Policy 'subject' had not decided after {deadline_s:g} s (round 1, 2 live"
    assert turn.trouble.startswith(said)
    assert list(turn.plan) == [Start(FIRST_UID, ((0, 2, 0),))]


def test_a_late_answer_is_refused_outside_the_main_thread_too() -> None:
    def late(deadline_s: float) -> Round:
        found: list[Round] = []
        guard = replace(QUICK, deadline_s=deadline_s)
        slow = Does(lambda snapshot: (time.sleep(deadline_s + 0.1), sound(snapshot))[1])
        thread = threading.Thread(target=lambda: found.append(first(slow, guard)))
        thread.start()
        thread.join()
        return found[0]

    turn, _ = with_fallback_in_time(late)
    assert turn.by == "queue"
    assert "'subject' had not decided" in turn.trouble


def leaves(_: Snapshot) -> Decision:
    sys.exit("I quit")


def outgrows(snapshot: Snapshot) -> Decision:
    return outgrows(snapshot)


def overfills(snapshot: Snapshot) -> Decision:
    shares = np.array([(0, 2, 0), (0, 8, 0)], SHARE)
    return Decision(snapshot.jobs.uid, np.arange(2), np.ones(2, np.int64), shares)


def poses_as_drafted(snapshot: Snapshot) -> Decision:
    return replace(overfills(snapshot), drafted=snapshot)


def drafted(**changes: Any) -> Callable[[Snapshot], Decision]:
    return lambda snapshot: replace(Draft(snapshot).commit(), **changes)


def fails(error: BaseException) -> Callable[[Snapshot], Decision]:
    def decide(_: Snapshot) -> Decision:
        raise error

    return decide


FAILURES: dict[str, tuple[Callable[[Snapshot], Any], str]] = {
    "raises": (fails(ValueError("no\n  idea")), "raised ValueError in round 1 at 0 s: no idea."),
    "leaves": (leaves, "raised SystemExit in round 1 at 0 s: I quit."),
    "is closed": (fails(GeneratorExit()), "raised GeneratorExit"),
    "outgrows": (outgrows, "raised RecursionError"),
    "returns nothing": (lambda _: None, "returned NoneType, not a Decision"),
    "returns a class": (lambda _: Decision, "not a Decision"),
    "overfills": (overfills, "Node 'node-0' has 4 GPUs but the decision uses 10"),
    "poses as drafted": (poses_as_drafted, "has 4 GPUs but the decision uses 10"),
    "wakes in the past": (drafted(wake_s=-1.0), "woken at -1 s, which is not after now (0 s)"),
    "wakes never": (drafted(wake_s=np.nan), "not after now"),
    "wakes some day": (drafted(wake_s="soon"), "raised TypeError"),
    "points nowhere": (
        drafted(at=np.array([-1, 0]), length=np.array([1, 0])), "Job 100 points at shares outside"
    ),
    "takes a negative": (drafted(length=np.array([-1, 0])), "Job 100 points at shares outside"),
    "is short": (drafted(at=np.zeros(1, np.int64)), "1 × at and 2 × length for 2 jobs"),
    "tunes nobody": (drafted(tunes={7: {"batch": 1.0}}), "tunes name job 7, an index"),
    "tunes nothing": (drafted(tunes=None), "raised TypeError"),
    "explains nobody": (drafted(reasons={-1: "x"}), "reasons name job -1"),
    "talks long": (fails(ValueError("x" * 9999)), "xxx…"),
}  # fmt: skip


@pytest.mark.parametrize("how", FAILURES)
def test_who_fails_is_replaced_by_the_fallback(how: str) -> None:
    what, says = FAILURES[how]
    turn = first(Does(what), PATIENT)
    assert says in turn.trouble
    assert "\n" not in turn.trouble
    assert (turn.by, turn.shadow) == ("queue", None)
    assert list(turn.plan) == [Start(FIRST_UID, ((0, 2, 0),))]


@pytest.mark.parametrize("how", ["raises", "leaves", "returns nothing", "wakes in the past"])
def test_a_run_under_a_policy_that_always_fails_is_the_fallbacks(how: str) -> None:
    alone, guarded = cluster(), cluster()
    for _ in rounds(FIFO, alone):
        pass
    for turn in rounds(Does(FAILURES[how][0]), guarded, guard=PATIENT):
        assert turn.by == "queue"
    assert [t.ended_s for t in guarded.tasks.values()] == [t.ended_s for t in alone.tasks.values()]


def test_the_user_can_still_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        first(Does(fails(KeyboardInterrupt())), PATIENT)


def test_what_the_backend_raises_is_not_the_policys() -> None:
    class Broken(ToyCluster):
        def apply(self, plan: Any) -> None:
            raise OSError(f"gone, with {len(plan)} actions")

    with pytest.raises(OSError, match="gone"):
        first(FIFO, PATIENT, Broken([Task(0, 1, 1)]))


# -- who decides then ------------------------------------------------------------------------


def test_a_sound_policy_decides_itself() -> None:
    backend = cluster()
    seen = list(rounds(Does(sound), backend, guard=PATIENT))
    assert {(turn.by, turn.trouble, turn.shadow) for turn in seen} == {("subject", "", None)}
    assert [turn.number for turn in seen] == list(range(1, len(seen) + 1))


def test_trouble_is_of_one_round_only() -> None:
    policy = Does(lambda snapshot: sound(snapshot) if policy.asked % 2 == 0 else None)
    seen = list(rounds(policy, cluster(), guard=PATIENT))
    assert [turn.by for turn in seen[:4]] == ["queue", "subject", "queue", "subject"]
    assert [bool(turn.trouble) for turn in seen[:4]] == [True, False, True, False]


@pytest.mark.parametrize("fallback", [None, Does(lambda _: 1, "reserve")])
def test_if_nobody_decides_nothing_changes_and_all_are_asked_again_soon(fallback: Any) -> None:
    backend = ToyCluster([Task(0, 3, 2), Task(0, 3, 2)])
    backend.tasks[FIRST_UID].share = ((1, 2, 0),)
    loop = rounds(Does(lambda _: None), backend, guard=Guard(fallback))
    turn = next(loop)
    assert (turn.by, len(turn.plan)) == ("", 0)
    assert turn.plan.decision.share(0) == ((1, 2, 0),)
    assert turn.trouble.count("returned") == (1 if fallback is None else 2)
    next(loop)
    assert backend.wakes == [np.inf, RETRY_S]


def test_the_bare_loop_says_who_decided_and_ends_with_an_error() -> None:
    assert next(iter(rounds(Does(sound), cluster()))).by == "subject"
    with pytest.raises(PolicyError, match="raised ValueError in round 1"):
        next(iter(rounds(Does(fails(ValueError("x"))), cluster())))
    with pytest.raises(PolicyError, match="raised SystemExit in round 1"):
        next(iter(rounds(Does(leaves), cluster())))


def test_a_guard_that_leaves_no_time_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"deadline_s=0 leaves no time"):
        Guard(deadline_s=0)


def test_many_idle_rounds_do_not_end_a_guarded_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.run.loop.IDLE_ROUNDS", 2)
    idle = Does(lambda snapshot: Draft(snapshot).commit(wake_s=snapshot.time_s + 1))
    loop = rounds(idle, cluster(), guard=PATIENT)
    assert [turn.number for turn in itertools.islice(loop, 9)] == list(range(1, 10))


# -- shadow ------------------------------------------------------------------------------------


@dataclass
class Log:
    """A backend that remembers whether anything was carried out."""

    inner: ToyCluster
    done: list[str] = field(default_factory=list)

    def wait(self, wake_s: float) -> bool:
        return self.inner.wait(wake_s)

    def observe(self) -> Snapshot:
        return self.inner.observe()

    def apply(self, plan: Any) -> None:
        self.done.append("applied")
        self.inner.apply(plan)


def places_last(snapshot: Snapshot) -> Decision:
    draft = Draft(snapshot, blank=True)
    draft.place(0, [(1, 2)])
    return draft.commit(wake_s=snapshot.time_s + 4)


def test_a_shadow_only_speaks() -> None:
    turn = first(Does(places_last), replace(PATIENT, shadow=True))
    assert (turn.by, turn.trouble) == ("queue", "")
    assert list(turn.plan) == [Start(FIRST_UID, ((0, 2, 0),))]
    assert turn.shadow is not None
    assert list(turn.shadow) == [Start(FIRST_UID, ((1, 2, 0),))]


def test_a_shadow_without_fallback_changes_nothing_and_is_heard_when_it_asks() -> None:
    backend = cluster()
    loop = rounds(Does(places_last), backend, guard=Guard(shadow=True))
    turn = next(loop)
    assert (turn.by, turn.trouble, len(turn.plan)) == ("", "", 0)
    assert turn.shadow is not None
    assert len(turn.shadow) == 1
    next(loop)
    assert backend.wakes == [np.inf, 4.0]


def test_a_shadow_speaks_after_the_deed_and_its_failure_is_told() -> None:
    backend = Log(cluster())

    def late(_: Snapshot) -> Decision:
        backend.done.append("asked")
        raise OSError("no weights")

    turn = next(iter(rounds(Does(late), backend, guard=replace(PATIENT, shadow=True))))
    assert backend.done == ["applied", "asked"]
    assert (turn.by, turn.shadow) == ("queue", None)
    assert "raised OSError in round 1 at 0 s: no weights" in turn.trouble


def test_with_a_shadow_too_nobody_deciding_is_retried() -> None:
    for guard in (
        Guard(shadow=True),
        Guard(Does(lambda _: 1, "reserve"), shadow=True),
    ):
        backend = cluster()
        loop = rounds(Does(lambda _: None), backend, guard=guard)
        assert next(loop).by == ""
        next(loop)
        assert backend.wakes == [np.inf, RETRY_S]


def test_a_shadow_run_is_the_fallbacks_run() -> None:
    alone, shadowed = cluster(), cluster()
    for _ in rounds(FIFO, alone):
        pass
    for _ in rounds(Does(places_last), shadowed, guard=replace(PATIENT, shadow=True)):
        pass
    assert [t.ended_s for t in shadowed.tasks.values()] == [t.ended_s for t in alone.tasks.values()]


# -- the alarm signal ---------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [sleeps, sound, swallows])
def test_the_alarm_signal_is_given_back_after_every_decision(
    slow: Callable[[Snapshot], Decision],
) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    try:
        first(Does(slow), QUICK)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
        assert heard == []
        signal.raise_signal(signal.SIGALRM)
        assert heard == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_loop_that_is_given_up_takes_the_alarm_from_nobody() -> None:
    abandoned = rounds(Does(sound), cluster())
    next(abandoned)

    def collects(snapshot: Snapshot) -> Decision:
        abandoned.close()  # type: ignore[attr-defined]
        return sleeps(snapshot)

    before = signal.getsignal(signal.SIGALRM)
    turn = first(Does(collects), QUICK)
    assert "had not decided" in turn.trouble
    assert signal.getsignal(signal.SIGALRM) == before
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_a_policy_that_ignores_one_alarm_hears_the_next() -> None:
    rung: list[bool] = []

    def stubborn(_: Snapshot) -> Any:
        try:
            time.sleep(3600)
        except BaseException:
            rung.append(True)
        time.sleep(3600)

    for deadline_s in (0.3, 3.0, 30.0):  # longer if the machine was late before it had begun
        turn = first(Does(stubborn), replace(QUICK, deadline_s=deadline_s))
        if rung:
            break
    assert rung == [True]
    assert "had not decided" in turn.trouble


def test_a_down_node_is_no_trouble_when_nobody_decides() -> None:
    backend = ToyCluster([Task(0, 3, 2)], Cluster.uniform(1, 4), down={0: (0, 9)})
    turn = first(Does(lambda _: None), Guard(), backend)
    assert (turn.by, len(turn.plan)) == ("", 0)
