"""What a policy in shadow would have done, round by round, against what was done in its place."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rota.core.layout import ARRIVE, NODE_DOWN, START, STOP
from rota.run.reader import EventChunk, JobChunk

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rota.run.reader import JournalView


@dataclass(kw_only=True)
class ShadowRounds:
    """Counts over the rounds of a journal in shadow; a round is judged by what came next."""

    rounds: int = 0
    decided: Counter[str] = field(default_factory=Counter)
    """Rounds by the policy that decided; "": none did."""
    troubles: Counter[str] = field(default_factory=Counter)
    """Why the policy itself did not decide, and how often."""
    idle: int = 0
    """Rounds in which nothing would have been done, and nothing was done until the next."""
    agreed: int = 0
    """Rounds after which just the jobs were started that the policy would have started."""
    differed: int = 0
    stops: int = 0
    """Times that a running job would have been stopped; a wish that stands counts once."""
    moves: int = 0
    resizes: int = 0
    stopped_jobs: int = 0
    starts: int = 0
    """Jobs that were started, each time."""
    wanted: int = 0
    """Those that the policy would have started, too, when it was last asked."""
    unasked: int = 0
    """Those that started before the policy was asked about them."""

    @property
    def judged(self) -> int:
        """Rounds after which there was another one."""
        return self.idle + self.agreed + self.differed


def read_shadow_rounds(view: JournalView, foreign: Collection[int] = ()) -> ShadowRounds:
    """Follow a journal to its end; `foreign` are the uids of jobs that are not the policy's."""
    walk = _RoundWalk(foreign)
    for chunk in view.chunks():
        if isinstance(chunk, JobChunk):
            walk.uids += map(int, chunk.jobs.job_id.tolist())
        elif isinstance(chunk, EventChunk):
            walk.happen(chunk.events.events[["kind", "job"]].tolist())
        else:
            for note in chunk.notes or ():
                if "by" in note:  # else it only tells what was measured of jobs
                    walk.judge(note)
    walk.count.stopped_jobs = len(walk.stopped)
    return walk.count


class _RoundWalk:
    """Where a walk through the rounds stands."""

    def __init__(self, foreign: Collection[int]) -> None:
        self.count, self._foreign = ShadowRounds(), foreign
        self.uids: list[int] = []
        self.stopped: set[int] = set()
        self._wishes: dict[int, str] | None = None  # of the last round, by uid
        self._by = ""
        self._known: set[int] = set()  # came before the last round
        self._came: set[int] = set()
        self._started: set[int] = set()
        self._others = False  # a job was stopped since

    def happen(self, events: Sequence[tuple[int, int]]) -> None:
        """Take in what was done since the last round."""
        count = self.count
        for kind, job in events:
            if kind >= NODE_DOWN:
                continue
            if (uid := self.uids[job]) in self._foreign:
                continue
            if kind == ARRIVE:
                self._came.add(uid)
            elif kind == START:
                self._started.add(uid)
                count.starts += 1
                if self._wishes is None or uid not in self._known:
                    count.unasked += 1
                elif self._wishes.get(uid) == "start":
                    count.wanted += 1
            elif kind == STOP:
                self._others = True

    def judge(self, note: Mapping[str, Any]) -> None:
        """Take in the next round, and judge the one before."""
        count, quiet = self.count, int(note.get("quiet", 0))
        if self._wishes is not None:
            # Nothing had happened after the last round and the quiet ones, except the last of them.
            self._verdict(set(), quiet)
            self._verdict(self._started, 1, self._others)
            count.decided[self._by] += quiet
        count.rounds += 1 + quiet * (self._wishes is not None)
        count.decided[note["by"]] += 1
        if note.get("trouble"):
            count.troubles[note["trouble"]] += 1
        wishes = {int(wish["uid"]): str(wish["do"]) for wish in note.get("shadow", ())}
        before = self._wishes or {}
        new = [(uid, do) for uid, do in wishes.items() if before.get(uid) != do]
        count.stops += sum(do == "stop" for _, do in new)
        count.moves += sum(do == "move" for _, do in new)
        count.resizes += sum(do == "resize" for _, do in new)
        self.stopped |= {uid for uid, do in new if do == "stop"}
        self._wishes, self._by = wishes, note["by"]
        self._known |= self._came
        self._came, self._started, self._others = set(), set(), False

    def _verdict(self, started: set[int], rounds: int, others: bool = False) -> None:
        """Compare what would have been done after so many rounds with what was done."""
        wishes = self._wishes or {}
        if wishes.keys() != started or set(wishes.values()) - {"start"} or others:
            self.count.differed += rounds
        elif started:
            self.count.agreed += rounds
        else:
            self.count.idle += rounds
