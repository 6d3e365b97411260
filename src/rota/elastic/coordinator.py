"""The head of an agent: which members are wanted, who is late, when the job is over.

No sockets, no processes, no clock: events go in with their time, `Order`s come out. So every
course of events can be tested.

What members and agent say to each other, JSON lines on the connection that a member opens:

    member                                      agent
    hello  name, card, outline                  welcome  mode, limits
    ready  it is warm
    alive  step, epoch, samples, phase, sum
                                                 prepare  number, members: connect, behind the
    prepared number, error                                back of a training that goes on
                                                 hold     number: say where you are, go two steps
    held   number, step                                   further at most
                                                 switch   number, at: after that step; and who
    joined number, step, pause_s, sum                     gives what to whom
                                                 drop     number: that change will not be
    trouble number: the others do not answer     break    number: leave the group, say what you have
    broken number, step
                                                 halt     at: end after that step
    finished step, sum: no more samples          release  go
    failed error: the script raised              fail     error: the job has failed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from rota.elastic.changes import Changes
from rota.elastic.desk import Desk
from rota.elastic.progress import Progress
from rota.elastic.protocol import Result, Status, check_members
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.elastic.outline import Outline
    from rota.elastic.protocol import JobSpec, Member, State
    from rota.elastic.roster import Seat

FAIL_S: Final = 5.0
"""What is left to members of a failed job, to say why they end."""


class Coordinator:
    """Leads one job from its first member to its end."""

    def __init__(self, spec: JobSpec, now_s: float) -> None:
        self.limits, self.desk = spec.limits, Desk(spec)
        self.changes, self.progress = Changes(self.desk, now_s), Progress(now_s)
        self.wanted: tuple[Member, ...] = spec.members
        self.target, self.reached = 0, -1
        self.result: Result | None = None
        self._known: tuple[str, Outline] | None = None  # what the first member trains
        self._grace_s: float | None = None
        self._ending: Literal["", "done", "stopped", "failed"] = ""
        self._error = ""
        for member in self.wanted:
            self.desk.start(member, now_s)

    # What the scheduler asks.

    def resize(self, members: Sequence[Member], now_s: float) -> int:
        """Want exactly these members from now on."""
        if self._ending or self._grace_s is not None:
            raise ConfigError("The job is ending; it cannot be resized.")
        check_members(tuple(members), self.desk.spec.mode)
        for member in members:
            seat = self.desk.roster.seats.get(member.name)
            if seat and not seat.living:
                raise ConfigError(f"Member {member.name} was here before; take a new name.")
            if seat and seat.member.kind != member.kind:
                raise ConfigError(f"Member {member.name} is a {seat.member.kind} already.")
        self.wanted, self.changes.asked_s = tuple(members), now_s
        self.target += 1
        self._advance(now_s)
        return self.target

    def stop(self, grace_s: float, now_s: float) -> None:
        """End after the step that all are in; whoever is there after `grace_s` is killed."""
        if self._ending or self._grace_s is not None:
            return
        self._grace_s = grace_s
        for seat in self.desk.living():
            self.desk.kill(seat.name, grace_s)
        self._advance(now_s)

    def status(self, now_s: float) -> Status:
        """The job as it is now."""
        progress, group = self.progress, self.changes.group
        active = {seat.name for seat in self.desk.active()}
        return Status(
            state=self._state(),
            step=progress.step,
            epoch=progress.epoch,
            samples=progress.samples,
            samples_per_s=progress.samples_per_s(now_s),
            ago_s=max(0.0, now_s - progress.stepped_s),
            total=self._known[1].total if self._known else 0,
            busy_s=progress.busy_s,
            changes=self.changes.count,
            paused_s=self.changes.paused_s,
            generation=group.number if group else 0,
            active=tuple(name for name in (group.names if group else ()) if name in active),
            waiting=tuple(seat.name for seat in self.desk.roster.of("starting", "ready")),
            target=self.target,
            reached=self.reached,
            refused=dict(self.desk.refused),
            last=self.changes.last,
            error=self._error,
        )

    def _state(self) -> State:
        if self.result:
            return self.result.state
        if self._ending or self._grace_s is not None:
            return "stopping"
        if self.changes.group is None:
            return "starting"
        return "running" if self.changes.phase == "idle" else "changing"

    # What happens to members.

    def meet(self, name: str, card: dict[str, Any], outline: Outline, now_s: float) -> None:
        """Let a member in that says hello."""
        seat = self.desk.roster.seats.get(name)
        if seat is None or seat.card or seat.standing != "starting":
            raise ConfigError(f"Nobody called {name!r} is expected.")
        if self._known is None:
            self._known, self.changes.sizes = (name, outline), list(outline.sizes)
        other, known = self._known
        try:
            outline.check(name, known, other)
        except ConfigError as error:
            if self.changes.last is None:  # nobody can tell which of them is right
                self._fail(str(error), now_s)
            raise
        seat.card = {**card, "name": name, "kind": seat.member.kind}
        seat.heard_s = now_s

    def hear(self, name: str, message: dict[str, Any], now_s: float) -> None:
        """Take in one message of a member that has been let in."""
        seat, op = self.desk.roster[name], message.get("op")
        seat.heard_s = now_s
        if not seat.living:
            return
        if op in ("alive", "finished", "joined"):
            self._note(seat, message, now_s)
        if op == "ready" and seat.standing == "starting":
            seat.place("ready", now_s)
        elif op == "trouble":
            self.changes.trouble(message["number"], message["error"], now_s)
        elif op == "failed":
            self._part(seat, f"it raised {message['error']}", now_s, FAIL_S)
        elif op in ("prepared", "held", "joined", "broken"):
            self.changes.answer(seat, message, now_s)
        self._advance(now_s)

    def lose(self, name: str, why: str, now_s: float) -> None:
        """A member's process has ended, or its connection; `why` is empty if all went well."""
        seat, why = self.desk.roster[name], why or "its script ended before the training did"
        if seat.standing == "leaving":
            seat.place("gone", now_s)
        elif seat.living:
            self._part(seat, why, now_s)
        self._advance(now_s)

    def tick(self, now_s: float) -> None:
        """Look whether anybody has taken too long."""
        limits, changes = self.limits, self.changes
        for seat in self.desk.living():
            if seat.standing == "starting" and now_s - seat.since_s > limits.start_s:
                what = "ready" if seat.card else "heard of"
                self._part(seat, f"it was not {what} within {limits.start_s:g} s", now_s)
            elif seat.card and now_s - seat.heard_s > limits.silent_s:
                self._part(seat, f"it gave no sign of life for {limits.silent_s:g} s", now_s)
        waited_s = now_s - max(changes.since_s, self.progress.moved_s)
        if changes.phase == "prepare" and now_s - changes.since_s > limits.connect_s:
            changes.retry(f"it did not connect within {limits.connect_s:g} s", now_s)
        elif changes.phase == "switch" and waited_s > limits.stall_s + limits.transfer_s:
            for name in sorted(changes.open):
                self._part(self.desk.roster[name], "it did not take part in a change", now_s)
        elif changes.group and not self._ending and waited_s > limits.stall_s:
            self._stalled(now_s)
        elif not self._ending and waited_s > limits.transfer_s:
            self._deserted(now_s)
        self._advance(now_s)

    def _note(self, seat: Seat, message: dict[str, Any], now_s: float) -> None:
        """What a member tells of its training."""
        seat.phase = message.get("phase", "wait")
        seat.finished = seat.finished or message["op"] == "finished"
        seat.step = max(seat.step, message["step"]) if seat.standing == "active" else seat.step
        since_s = self.changes.began_s + self.changes.paused_s
        if self.progress.note(message, now_s, since_s):
            self.changes.moved()
        if message.get("sum") is not None:
            other = self.progress.differs(seat.name, message["step"], message["sum"])
            if other:
                self._fail(
                    f"The parameters of {seat.name} differ from those of {other} after step "
                    f"{message['step']}; does the script change them on some ranks only?",
                    now_s,
                )

    # What follows from it.

    def _advance(self, now_s: float) -> None:
        """Begin what is to be done next, if nothing is under way."""
        changes, active = self.changes, self.desk.active()
        if changes.failure:
            self._fail(changes.failure, now_s)
        finished = bool(active) and all(seat.finished for seat in active)
        if finished and not self._ending and not changes.joins:
            self._end("stopped" if self._grace_s is not None else "done", now_s)
        if self._ending:
            if not (self.result or self.desk.living() or self.desk.roster.of("leaving")):
                self.result = Result(
                    state=self._ending,
                    step=self.progress.step,
                    samples=self.progress.samples,
                    error=self._error,
                )
        elif changes.phase == "idle" and self._grace_s is not None:
            self._halt(now_s)
        elif changes.phase == "idle":
            self._pursue(now_s)

    def _pursue(self, now_s: float) -> None:
        """Bring the members nearer to those wanted."""
        roster, active = self.desk.roster, self.desk.active()
        wanted = {member.name for member in self.wanted}
        for seat in roster.of("starting", "ready"):
            if seat.name not in wanted:
                self.desk.release(seat, now_s, self.limits.leave_s)
        starting = roster.of("starting")
        for member in self.wanted:
            # One at a time: a start takes CPU from those who train.
            if member.name not in roster.seats and (member.outside or not starting):
                starting.append(self.desk.start(member, now_s))
        if starting:
            return
        stay = [seat.name for seat in active if seat.name in wanted]
        names = roster.ordered(stay + [seat.name for seat in roster.of("ready")])
        if not self.desk.enough(names):
            if not active:
                self._fail(f"Nobody could begin; {self.desk.reasons()}.", now_s)
        elif set(names) != {seat.name for seat in active}:
            self.changes.begin(names, now_s)
            return
        self.reached = self.target

    def _halt(self, now_s: float) -> None:
        """Ask the group to end, or end what has not begun."""
        for seat in self.desk.roster.of("starting", "ready"):
            self.desk.release(seat, now_s, None)
        if not self.desk.active():
            self._end("stopped", now_s)
            self._advance(now_s)
        elif not self.changes.halted:
            self.changes.halt(now_s)

    def _part(self, seat: Seat, why: str, now_s: float, after_s: float = 0.0) -> None:
        """Go on without a member."""
        was = seat.standing
        self.desk.part(seat, why, now_s, after_s)
        if not self._ending:
            self.changes.lose(seat, was, why, now_s)

    def _stalled(self, now_s: float) -> None:
        """No step for too long: part with those in whose script the time goes by."""
        limit, active = f"{self.limits.stall_s:g} s", self.desk.active()
        asked = self.changes.open if self.changes.phase == "break" else set()
        guilty = [seat for seat in active if seat.name in asked]
        guilty = guilty or [s for s in active if s.phase == "work" and not s.finished]
        if not guilty:
            self._fail(
                f"No step for {limit}: all members wait for one another after step "
                f"{self.progress.step}; do their scripts make the same collective calls?",
                now_s,
            )
        elif len(guilty) == len(active):
            self._fail(f"No step for {limit}: {_listed(guilty)} did not call step().", now_s)
        else:
            self.progress.moved_s = now_s
            for seat in guilty:
                self._part(seat, f"it did not call step() for {limit}", now_s)

    def _deserted(self, now_s: float) -> None:
        """Some have left their loops, and those who are left wait for them in a step.

        Whoever has made the last step has had the gradients of all; what the others need to make
        it is on its way, and `transfer_s` is enough for it.
        """
        active = self.desk.active()
        done = [seat for seat in active if seat.finished]
        held = [seat for seat in active if not seat.finished and seat.phase == "meet"]
        if done and held and len(done) + len(held) == len(active) and not self.changes.joins:
            self._fail(
                f"{_listed(done)} left the loop after step {done[0].step}, but {_listed(held)} "
                f"waited for more than {self.limits.transfer_s:g} s in the step after "
                f"{held[0].step}; does the script leave its loop on some ranks only?",
                now_s,
            )

    def _end(self, how: Literal["done", "stopped"], now_s: float) -> None:
        self._ending = how
        self.changes.drop(now_s)
        for seat in self.desk.living():
            self.desk.release(seat, now_s, None)

    def _fail(self, error: str, now_s: float) -> None:
        if self._ending:
            return
        self._ending = "failed" if self._grace_s is None else "stopped"
        self._error = error
        for seat in self.desk.living():
            self.desk.tell([seat.name], op="fail", error=error)
            self.desk.dismiss(seat, now_s, FAIL_S)


def _listed(seats: Sequence[Seat]) -> str:
    return ", ".join(seat.name for seat in seats)
