"""A round's end: write what was decided, apply it, run to the next decision, reward, reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rota.core.layout import DONE, WAITING
from rota.core.types import Bools, Floats, Ints
from rota.envs.pack_kernels import pack
from rota.envs.rewards import (
    DAS,
    DEEPSHARE,
    FADES,
    FEE,
    HOUR_S,
    JOBS,
    PROGRESS,
    SLOWDOWN,
    Score,
)
from rota.jit import kernel, part
from rota.ledger.work_kernels import ran_s
from rota.sim.event_kernels import advance, tidy
from rota.sim.replay_kernels import draft_arrays, enact_draft, note_round, one_of, open_draft

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.envs.book import Book
    from rota.sim.state import State

CloseRound: TypeAlias = "Callable[..., int]"
"""A kernel that ends rounds, made by `closing_with`."""
LEAST_PRODUCT = 0.01
"""Dollars × minutes that a job counts with at least in the reward of DAS, which they divide."""
SMALL = 512
"""Shares in use before unused ones are removed; few, so that they stay in the processor's cache."""


class Ends(NamedTuple):
    """The rounds and episodes that ended in a step."""

    reward: Floats  # (B,)
    terminated: Bools  # (B,) all jobs have ended
    truncated: Bools  # (B,) too many rounds, or nothing will ever happen again
    jct_s: Floats  # (B,) mean over the jobs of the episode; inf if one has not ended
    cost_s: Floats  # (B,) the same with what their fees are worth
    unfinished: Ints  # (B,) jobs that have not ended
    makespan_s: Floats  # (B,)
    resizes: Ints  # (B,)
    moves: Ints  # (B,)
    rounds: Ints  # (B,)
    total: Floats  # (B,) the return
    played: Ints  # (B,) which entry of the pool it was
    jcts_s: Floats  # (B, J) of each job; NaN: it has not ended


class EpisodePlan(NamedTuple):
    """Which worlds of a pool a batch plays."""

    entries: Ints  # (B, K) entries of the pool by episode; after the last comes the first again
    begun: Ints  # (B,) episodes begun
    entry: Ints  # (B,) the entry being played


@part
def reached(job: Any, true: Any, kind: int, now_s: float) -> float:
    """The level of a job; its reward is the growth of that level."""
    if kind == FEE:
        return -(true["fee"] + true["fee_rate"] * (now_s - job["settled_s"]))
    if job["status"] == DONE:
        return 1.0
    done_s = job["pace"] * ran_s(job, now_s)
    whole_s = job["progress_s"] + true["work_s"]
    return (job["progress_s"] + done_s) / whole_s if whole_s != 0.0 else 0.0


@part
def time_to_come(job: Any, true: Any, now_s: float) -> float:
    """Seconds until a job ends if it goes on as it does; 0 if it does not run."""
    if job["pace"] > 0.0:
        pause_s = max(0.0, job["resume_s"] - now_s)
        left_s = true["work_s"] / job["pace"] - ran_s(job, now_s)
        return float(pause_s + max(0.0, left_s))
    return 0.0


@part
def usual_fee(job: Any, true: Any, price: float) -> float:
    """What a job would pay at the mean price and its usual speed; 0 before its first start.

    It is what every policy has to pay, so it is no part of the reward, where it would be noise.
    """
    if job["started_s"] != job["started_s"]:  # NaN
        return 0.0
    return float(price * job["gpus"] * (job["progress_s"] + true["work_s"]) / HOUR_S)


@part
def mean_price(s: State) -> float:
    """Of a GPU for an hour, over all nodes."""
    total = 0.0
    for n in range(s.nodes.size):
        total += s.nodes[n]["price_per_gpu_h"]
    return total / s.nodes.size


@part
def reward_since(s: State, score: Score, b: int) -> float:
    """The reward for the time since the last one; each job's part goes to `gains`."""
    clock, kind = s.clock[0], score.kind
    from_s, to_s = score.since_s[b], clock["now_s"]
    total, oldest = 0.0, clock["arrived"]
    price = mean_price(s) if score.dollar_s[b] > 0.0 else 0.0
    for j in range(score.oldest[b], clock["arrived"]):
        job, true = s.jobs[j], s.truth[j]
        ended = true["done_s"] == true["done_s"]  # not NaN
        gain = 0.0
        if not ended or true["done_s"] >= from_s:
            if kind == PROGRESS or kind == FEE:
                level = reached(job, true, kind, to_s)
                gain = level - score.level[b, j]
                score.level[b, j] = level
            else:
                end_s = true["done_s"] if ended else to_s
                gain = max(from_s, job["submit_s"]) - end_s
                unit_s = score.unit_s
                if kind == SLOWDOWN:
                    unit_s = job["progress_s"] + true["work_s"]
                    if unit_s <= 0.0:
                        unit_s = 1.0  # a job without work: count its wait in seconds
                gain = gain / unit_s if gain < 0.0 else 0.0
                if kind == JOBS and score.dollar_s[b] > 0.0:
                    # What is to come is charged when the job starts, and corrected later, so that
                    # a place is judged at once.
                    level = usual_fee(job, true, price) + reached(job, true, FEE, to_s)
                    level -= true["fee_rate"] * time_to_come(job, true, to_s)
                    gain += (level - score.level[b, j]) * score.dollar_s[b] / unit_s
                    score.level[b, j] = level
        score.gains[b, j] = gain
        total += gain
        if not ended and j < oldest:
            oldest = j
    score.oldest[b], score.since_s[b] = oldest, to_s
    score.total[b] += total
    return total


@part
def reward_of_sharing(s: State, score: Score, b: int) -> float:
    """DeepShare's reward for the round that begins now; each running job gets an equal part.

    The mean of the part of their speed that running jobs lose to others, with its weight, is taken
    off the recent utilisation, with its own; 0 if no job runs.
    """
    clock, recent = s.clock[0], score.recent[b]
    recent[0] = FADES * recent[0] + clock["held"] / max(1, clock["up"])
    recent[1] = FADES * recent[1] + 1.0
    total, running = 0.0, clock["running"]
    for r in range(running):
        j = s.running[r]
        alone = s.truth[j]["alone"]
        lost = 1.0 - s.jobs[j]["pace"] / alone if alone > 0.0 else 0.0
        gain = score.utilisation_weight * recent[0] / recent[1] - score.contention_weight * lost
        score.gains[b, j] = gain / running
        total += gain / running
    score.total[b] += total
    return total


@part
def reward_of_starts(s: State, score: Score, b: int) -> float:
    """DAS's reward for the round that begins now: a mean over jobs that start in it or wait.

    Who starts brings 1 / (fee × completion time), in dollars and minutes, as long as it goes on as
    it begins. Who waits is fined by what its GPUs would cost in an hour.
    """
    clock = s.clock[0]
    now_s, dear = clock["now_s"], mean_price(s)
    total, many = 0.0, 0
    for i in range(clock["live"]):
        j = s.order[i]
        job, true, gain = s.jobs[j], s.truth[j], 0.0
        if job["status"] == WAITING:
            gain = -score.fine * dear * job["gpus"]
        elif job["since_s"] == now_s and job["pace"] > 0.0:
            held_s = time_to_come(job, true, now_s)
            minutes = (now_s + held_s - job["submit_s"]) / 60.0
            gain = 1.0 / max(true["fee_rate"] * held_s * minutes, LEAST_PRODUCT)
        else:
            continue
        score.gains[b, j] = gain
        total += gain
        many += 1
    for j in range(score.gains.shape[1]):
        score.gains[b, j] /= max(1, many)
    total /= max(1, many)
    score.total[b] += total
    return total


@part
def sum_up(s: State, score: Score, plan: EpisodePlan, ends: Ends, b: int) -> None:
    """Write the results of an episode into `ends`."""
    clock = s.clock[0]
    sum_s, fees, last_s, ended = 0.0, 0.0, clock["begin_s"], 0
    for j in range(ends.jcts_s.shape[1]):
        ends.jcts_s[b, j] = np.nan
        if j < clock["jobs"] and s.truth[j]["done_s"] == s.truth[j]["done_s"]:
            ends.jcts_s[b, j] = s.truth[j]["done_s"] - s.jobs[j]["submit_s"]
            sum_s += ends.jcts_s[b, j]
            fees += s.truth[j]["fee"]
            last_s = max(last_s, s.truth[j]["done_s"])
            ended += 1
    # A mean over ended jobs alone would reward a policy that lets the others starve.
    ends.unfinished[b] = clock["jobs"] - ended
    ends.jct_s[b] = sum_s / ended if ended == clock["jobs"] else np.inf
    ends.cost_s[b] = ends.jct_s[b] + score.dollar_s[b] * fees / max(1, ended)
    ends.makespan_s[b] = last_s - clock["begin_s"]
    ends.resizes[b], ends.moves[b] = clock["resizes"], clock["moves"]
    ends.rounds[b] = clock["rounds"]
    ends.total[b], ends.played[b] = score.total[b], plan.entry[b]


@part
def begin_draft(s: State) -> None:
    """Let the draft say what every job holds, and leave room for edits."""
    tidy(s, s.shares.size - min(SMALL, s.shares.size // 2))
    open_draft(s)


@part
def pack_counts(s: State, book: Book, b: int) -> None:
    """The draft of a round that was written in numbers of tasks."""
    begin_draft(s)
    clock = s.clock[0]
    clock["used"] = pack(
        draft_arrays(s), s.jobs, s.order, clock["live"], clock["now_s"], book.workers[b],
        book.servers[b], clock["used"],
    )  # fmt: skip


@part
def take_draft(s: State, used: Ints, b: int) -> None:
    """The draft of a round that was written node by node: it is in the state already."""
    s.clock[0]["used"] = used[b]


def closing_with(name: str, write: Callable[[State, Any, int], None]) -> CloseRound:
    """The kernel that ends rounds; `write`, a part, leaves what was decided in the state's draft.

    It reads `written`: the book, or where the draft is in the state, how many shares it uses.

    Machine code is kept under `name`.
    """

    def close(
        s: State, live: Ints, now_s: Floats, written: Any, ended: Bools, score: Score,
        plan: EpisodePlan, ends: Ends, most_rounds: int,
    ) -> int:  # fmt: skip
        """Apply the rounds that are over and run to the next; returns how many episodes ended."""
        over = 0
        for b in range(ended.size):
            ends.reward[b], ends.terminated[b], ends.truncated[b] = 0.0, False, False
            if not ended[b]:
                continue
            for j in range(score.gains.shape[1]):
                score.gains[b, j] = 0.0
            one = one_of(s, b)
            clock = one.clock[0]
            write(one, written, b)
            enact_draft(one, True)
            note_round(one)
            # Some look at the round itself, not at what came of it.
            reward, by_round = 0.0, score.kind == DEEPSHARE or score.kind == DAS
            if score.kind == DEEPSHARE:
                reward = reward_of_sharing(one, score, b)
            elif score.kind == DAS:
                reward = reward_of_starts(one, score, b)
            more = advance(one)
            live[b], now_s[b] = clock["live"], clock["now_s"]
            ends.reward[b] = reward if by_round else reward_since(one, score, b)
            if more and clock["rounds"] < most_rounds:
                continue
            ends.terminated[b] = clock["ended"] == clock["jobs"]
            ends.truncated[b] = not ends.terminated[b]
            sum_up(one, score, plan, ends, b)
            over += 1
        return over

    close.__name__ = close.__qualname__ = name
    return kernel(close)


close_round = closing_with("close_round", pack_counts)
"""For lenses that count."""
close_placed_round = closing_with("close_placed_round", take_draft)
"""For lenses that place."""


@kernel
def begin_drafts(s: State, which: Bools, used: Ints) -> None:
    """Begin the rounds of the clusters flagged in `which`, for lenses that place."""
    for b in range(which.size):
        if which[b]:
            one = one_of(s, b)
            begin_draft(one)
            used[b] = one.clock[0]["used"]


@kernel
def begin_episodes(
    s: State,
    live: Ints,
    now_s: Floats,
    words: Any,
    pool: Any,
    which: Bools,
    score: Score,
    plan: EpisodePlan,
) -> None:
    """Begin the next episode of the clusters flagged in `which`.

    words  arrays (B, …): the memory of the state as plain words, which copy faster than records
    pool   arrays (R, …): the same of the states that episodes begin with
    """
    for b in range(which.size):
        if not which[b]:
            continue
        r = plan.entries[b, plan.begun[b] % plan.entries.shape[1]]
        plan.begun[b] += 1
        plan.entry[b] = r
        for k in range(len(words)):
            to, source = words[k], pool[k]
            for i in range(source.shape[1]):
                to[b, i] = source[r, i]
        score.since_s[b], score.oldest[b], score.total[b] = -np.inf, 0, 0.0
        score.recent[b] = 0.0
        for j in range(score.level.shape[1]):
            score.level[b, j] = 0.0
        advance(one_of(s, b))
        live[b], now_s[b] = s.clock[b, 0]["live"], s.clock[b, 0]["now_s"]
