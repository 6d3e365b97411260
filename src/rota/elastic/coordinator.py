"""The controller of an elastic job: which members are wanted, which are late, when it is over.

Members and agent exchange JSON lines on the connection that a member opens:

    member                                      agent
    hello  name, card, outline                  welcome  mode, limits
    ready  it has imported and built everything
    alive  step, epoch, samples, phase, sum
                                                 prepare  number, members: connect to the members
    prepared number, error                                of the next group while training goes on
                                                 hold     number: report your step, and do at most
    held   number, step                                   two more
                                                 switch   number, at, transfers: join the next group
    joined number, step, pause_s, sum                     after that step; which state goes where
                                                 drop     number: the change was given up
                                                 ask      number, before, workers: the group was
grow   number, version, growth, error                     resized; shall the network grow?
ungrown number, error: it cannot grow for a switch
    trouble number: no answer from other members break    number: leave the group, report your step
    broken number, step
                                                 halt     at: end after that step
    finished step, sum: no more samples          release  end
    failed error: the script raised              fail     error: the job has failed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from rota.elastic.changes import Changes
from rota.elastic.member_table import MemberTable
from rota.elastic.protocol import Result, Status, check_members
from rota.elastic.training_progress import TrainingProgress
from rota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.elastic.member_table import MemberEntry
    from rota.elastic.outline import Outline
    from rota.elastic.protocol import JobSpec, Member, State

FAIL_S: Final = 5.0
"""Seconds that members of a failed job have to print why they end."""


class Coordinator:
    """Controls one elastic job from its first member to its end."""

    def __init__(self, spec: JobSpec, now_s: float) -> None:
        self.limits, self.table = spec.limits, MemberTable(spec)
        self.changes, self.progress = Changes(self.table, now_s), TrainingProgress(now_s)
        self.wanted: tuple[Member, ...] = spec.members
        self.target, self.reached = 0, -1
        self.result: Result | None = None
        self._known: tuple[str, Outline] | None = None  # what the first member trains
        self._grace_s: float | None = None
        self._ending: Literal["", "done", "stopped", "failed"] = ""
        self._error = ""
        for member in self.wanted:
            self.table.start(member, now_s)

    # What the scheduler asks.

    def resize(self, members: Sequence[Member], now_s: float) -> int:
        """Aim for exactly these members from now on; returns the number of the request."""
        if self._ending or self._grace_s is not None:
            raise ConfigError("The job is ending; it cannot be resized.")
        check_members(tuple(members), self.table.spec.mode)
        for member in members:
            entry = self.table.entries.get(member.name)
            if entry and not entry.alive:
                raise ConfigError(f"Member {member.name} was in this job before; use a new name.")
            if entry and entry.member.kind != member.kind:
                raise ConfigError(f"Member {member.name} is a {entry.member.kind} already.")
        self.wanted, self.changes.asked_s, self.target = tuple(members), now_s, self.target + 1
        self.table.expect(members, now_s)
        self._advance(now_s)
        return self.target

    def stop(self, grace_s: float, now_s: float) -> None:
        """End after the present step; kill members that still run after `grace_s`."""
        if self._ending or self._grace_s is not None:
            return
        self._grace_s = grace_s
        for entry in self.table.alive():
            self.table.kill(entry.name, grace_s)
        self._advance(now_s)

    def status(self, now_s: float) -> Status:
        """The job as it is now."""
        progress, group, growths = self.progress, self.changes.group, self.changes.growths
        active = {entry.name for entry in self.table.active()}
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
            waiting=tuple(entry.name for entry in self.table.of("starting", "ready")),
            target=self.target,
            reached=self.reached,
            refused=dict(self.table.refused),
            last=self.changes.last,
            version=len(growths.made),
            growth=growths.made[-1] if growths.made else None,
            ungrown=growths.trouble,
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

    # Events of members.

    def hello(self, name: str, card: dict[str, Any], outline: Outline, now_s: float) -> None:
        """Take in a member that says hello."""
        entry = self.table.entries.get(name)
        if entry is None or entry.card or entry.state != "starting":
            raise ConfigError(f"No member called {name!r} is expected.")
        if self._known is None:
            self._known, self.changes.sizes = (name, outline), list(outline.sizes)
            self.changes.growths.learn(outline, self.table.spec.mode)
        other, known = self._known
        try:
            outline.check(name, known, other)
            outline.check_growths(name, self.changes.growths.made)
            if self.changes.last is None:
                known.check_growths(other, outline.growths)
        except ConfigError as error:
            if self.changes.last is None:  # which of the two is right cannot be known
                self._fail(str(error), now_s)
            raise
        entry.card = {**card, "name": name, "kind": entry.member.kind}
        entry.heard_s = now_s

    def receive(self, name: str, message: dict[str, Any], now_s: float) -> None:
        """Handle a message of a member that has said hello."""
        entry, op = self.table[name], message.get("op")
        entry.heard_s = now_s
        if not entry.alive:
            return
        if op in ("alive", "finished", "joined"):
            self._note(entry, message, now_s)
        if op == "ready" and entry.state == "starting":
            entry.set_state("ready", now_s)
        elif op == "trouble":
            self.changes.trouble(message["number"], message["error"], now_s)
        elif op == "failed":
            self._remove(entry, f"it raised {message['error']}", now_s, FAIL_S)
        elif op == "grow":
            self.changes.growths.propose(message)
        elif op in ("prepared", "held", "joined", "broken"):
            self.changes.answer(entry, message, now_s)
        elif op == "ungrown":
            why = f"could not let its network grow: {message['error']}"
            if not self.changes.ungrown(message["number"], f"{name} {why}", now_s):
                self._remove(entry, f"it {why}", now_s, FAIL_S)
        self._advance(now_s)

    def lose(self, name: str, why: str, now_s: float) -> None:
        """A member's process or connection has ended; `why` is empty for exit code 0."""
        entry, why = self.table[name], why or "its script ended before the training did"
        if entry.state == "leaving":
            entry.set_state("gone", now_s)
        elif entry.alive:
            self._remove(entry, why, now_s)
        self._advance(now_s)

    def tick(self, now_s: float) -> None:
        """Enforce the time limits."""
        limits, changes = self.limits, self.changes
        for entry in self.table.alive():
            if entry.state == "starting" and now_s - entry.since_s > limits.start_s:
                what = "ready" if entry.card else "heard of"
                self._remove(entry, f"it was not {what} within {limits.start_s:g} s", now_s)
            elif entry.card and now_s - entry.heard_s > limits.silent_s:
                self._remove(entry, f"it sent nothing for {limits.silent_s:g} s", now_s)
        waited_s = now_s - max(changes.since_s, self.progress.moved_s)
        if changes.phase == "prepare" and now_s - changes.since_s > limits.connect_s:
            changes.retry(f"it did not connect within {limits.connect_s:g} s", now_s)
        elif changes.phase == "switch" and waited_s > limits.stall_s + limits.transfer_s:
            for name in sorted(changes.open):
                self._remove(self.table[name], "it did not take part in a change", now_s)
        elif changes.group and not self._ending and waited_s > limits.stall_s:
            self._remove_stalled(now_s)
        elif not self._ending and waited_s > limits.transfer_s:
            self._fail_if_left(now_s)
        self._advance(now_s)

    def _note(self, entry: MemberEntry, message: dict[str, Any], now_s: float) -> None:
        """Note the progress that a member reports."""
        entry.phase = message.get("phase", "wait")
        entry.finished = entry.finished or message["op"] == "finished"
        entry.step = max(entry.step, message["step"]) if entry.state == "active" else entry.step
        since_s = self.changes.began_s + self.changes.paused_s
        if self.progress.note(message, now_s, since_s):
            self.changes.moved()
        if message.get("sum") is not None:
            moment = self.changes.growths.moment(message)
            if other := self.progress.differs(entry.name, moment, message["sum"]):
                self._fail(
                    f"The parameters of {entry.name} differ from those of {other} after step "
                    f"{message['step']}; does the script change them on some ranks only?",
                    now_s,
                )

    # What the controller does about them.

    def _advance(self, now_s: float) -> None:
        """Begin the next thing to do, unless a change is under way."""
        changes, active = self.changes, self.table.active()
        if changes.failure:
            self._fail(changes.failure, now_s)
        finished = bool(active) and all(entry.finished for entry in active)
        if finished and not self._ending and not changes.joins:
            self._end("stopped" if self._grace_s is not None else "done", now_s)
        if self._ending:
            if not (self.result or self.table.alive() or self.table.of("leaving")):
                self.result = Result(
                    state=self._ending,
                    step=self.progress.step,
                    samples=self.progress.samples,
                    error=self._error,
                )
        elif changes.phase == "idle" and self._grace_s is not None:
            self._halt(now_s)
        elif changes.phase == "idle":
            self._change_members(now_s)

    def _change_members(self, now_s: float) -> None:
        """Start, join and release members until they are those wanted."""
        table, active = self.table, self.table.active()
        wanted = {member.name for member in self.wanted}
        for entry in table.of("starting", "ready"):
            if entry.name not in wanted:
                self.table.release(entry, now_s, self.limits.leave_s)
        starting = table.of("starting")
        for member in self.wanted:
            # One at a time: a start takes CPU from the members that train.
            if member.name not in table.entries and not starting:
                starting.append(self.table.start(member, now_s))
        if starting and not table.must_leave(wanted):
            return
        stay = [entry.name for entry in active if entry.name in wanted]
        names = table.ordered(stay + [entry.name for entry in table.of("ready")])
        if not self.table.enough(names):
            if not active:
                self._fail(f"No member could start; {self.table.reasons()}.", now_s)
        elif set(names) != {entry.name for entry in active}:
            self.changes.begin(names, now_s)
            return
        else:
            self._grow(now_s)
        self.reached = self.target

    def _grow(self, now_s: float) -> None:
        """After a resize, ask the first worker for a growth; make the one that it proposed."""
        group, growths = self.changes.group, self.changes.growths
        if group is None or any(entry.finished for entry in self.table.active()):
            return
        if growth := growths.take():
            self.changes.grow(growth, now_s)
        elif facts := growths.ask(group.number, len(group.names)):
            self.table.tell(group.names[:1], op="ask", **facts, **self.progress.pace())

    def _halt(self, now_s: float) -> None:
        """Ask the group to end; if there is none, end the job."""
        for entry in self.table.of("starting", "ready"):
            self.table.release(entry, now_s, None)
        if not self.table.active():
            self._end("stopped", now_s)
            self._advance(now_s)
        elif not self.changes.halted:
            self.changes.halt(now_s)

    def _remove(self, entry: MemberEntry, why: str, now_s: float, after_s: float = 0.0) -> None:
        """Remove a member, and go on without it."""
        was = entry.state
        self.table.remove(entry, why, now_s, after_s)
        if not self._ending:
            self.changes.lose(entry, was, why, now_s)

    def _remove_stalled(self, now_s: float) -> None:
        """No step for `stall_s`: remove the members that are busy in their scripts."""
        limit, active = f"{self.limits.stall_s:g} s", self.table.active()
        asked = self.changes.open if self.changes.phase == "break" else set()
        blocking = [entry for entry in active if entry.name in asked]
        blocking = blocking or [s for s in active if s.phase == "work" and not s.finished]
        if not blocking:
            self._fail(
                f"No step for {limit}: all members wait for one another after step "
                f"{self.progress.step}; do their scripts make the same collective calls?",
                now_s,
            )
        elif len(blocking) == len(active):
            self._fail(f"No step for {limit}: {_listed(blocking)} did not call step().", now_s)
        else:
            self.progress.moved_s = now_s
            for entry in blocking:
                self._remove(entry, f"it did not call step() for {limit}", now_s)

    def _fail_if_left(self, now_s: float) -> None:
        """Fail if some members have left their loops and all others wait for them in a step.

        A member that has finished its last step has used the gradients of all. What the others
        need to finish it is on its way, and arrives within `transfer_s`.
        """
        active = self.table.active()
        done = [entry for entry in active if entry.finished]
        held = [entry for entry in active if not entry.finished and entry.phase == "meet"]
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
        for entry in self.table.alive():
            self.table.release(entry, now_s, None)

    def _fail(self, error: str, now_s: float) -> None:
        if self._ending:
            return
        self._ending = "failed" if self._grace_s is None else "stopped"
        self._error = error
        for entry in self.table.alive():
            self.table.tell([entry.name], op="fail", error=error)
            self.table.dismiss(entry, now_s, FAIL_S)


def _listed(entries: Sequence[MemberEntry]) -> str:
    return ", ".join(entry.name for entry in entries)
