"""Local search over the numbers of workers of each job on each node, for `pollux`.

A move gives one job another number of workers, where it is or elsewhere, and takes from others
what is not free; or lets it take over nodes, whose jobs go elsewhere; or rebuilds two nodes. It
stays if the sum of all jobs' worth grows by it, else it is undone. So more moves never make the
result worse, and the result is never overfull.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.jit import inline, kernel, part
from rota.policies.gpu_types.search_state_kernels import (
    ANY_TYPE,
    SearchState,
    clear,
    fill,
    give,
    keep,
    room,
    value,
)

if TYPE_CHECKING:
    from rota.core.types import Floats, Ints

SINGLE = 0.8
"""The part of the moves that are for a single job; the others rebuild two nodes."""
TAKE_OVER = 0.1
"""The part of the moves for a single job that take over nodes."""
LEAST_GAIN = 1e-9
"""A move must gain more than rounding does."""


@part
def reclaim(b: SearchState, j: int, need: int, t: int, first: int, hard: bool, count: int) -> int:
    """Take workers from others for job j, node by node from `first` on.

    Others keep the least they run with; with `hard` those that have no more are stopped. Returns
    the number of jobs noted; −1 − noted if it does not suffice.
    """
    J, N = b.share.shape
    for k in range(N):
        n = (first + k) % N
        if t != ANY_TYPE and b.type[n] != t:
            continue
        for i in range(J):
            if i == j or b.fixed[i] or b.share[i, n] == 0:
                continue
            lacks = max(1, need * b.each[j] - b.free[n])
            spare = min(b.share[i, n], b.held[i] - b.least[i])
            wanted = lacks if b.each[i] == 0 else (lacks + b.each[i] - 1) // b.each[i]
            if spare > 0:
                count = keep(b, i, count)
                give(b, i, n, -min(spare, wanted))
            elif hard:
                count = keep(b, i, count)
                clear(b, i)
            else:
                continue
            got = min(need, room(b, j, n, t))
            give(b, j, n, got)
            need -= got
            if need == 0:
                return count
    return -1 - count


@part
def take_over(b: SearchState, j: int, need: int, t: int, types: int, draw: Floats) -> int:
    """Place job j anew, node by node, and stop others there until it fits.

    Then those are placed where room is left. So jobs can change places, which often gains nothing
    halfway. Returns the number of jobs noted; −1 − noted if there is not enough room.
    """
    J, N = b.share.shape
    first, other = int(draw[5] * N), int(draw[4] * J)
    count = keep(b, j, 0)
    clear(b, j)
    for k in range(N):
        n = (first + k) % N
        if t != ANY_TYPE and b.type[n] != t:
            continue
        for m in range(J):
            i = (other + m) % J
            if room(b, j, n, t) >= need:
                break
            if i != j and not b.fixed[i] and b.share[i, n] > 0:
                count = keep(b, i, count)
                clear(b, i)
        got = min(need, room(b, j, n, t))
        give(b, j, n, got)
        need -= got
        if need == 0:
            place_stopped(b, count, t, types)
            return count
    return -1 - count


@part
def place_stopped(b: SearchState, count: int, t: int, types: int) -> None:
    """Give all but the first of the jobs noted what they held, or what there is room for.

    Each tries type t first, then the others; it waits if none has room for its least.
    """
    for k in range(1, count):
        j, size = b.touched[k], 0
        for n in range(b.free.size):
            size += b.kept[j, n]
        for s in range(types):
            fill(b, j, size, home(b, j, (max(0, t) + s) % types))
            if b.held[j] >= b.least[j]:
                break
            clear(b, j)


@part
def trim(b: SearchState, j: int, workers: int) -> None:
    """Take that many workers from job j, where it has fewest, so that it leaves nodes."""
    while workers > 0:
        best = -1
        for n in range(b.free.size):
            if b.share[j, n] > 0 and (best == -1 or b.share[j, n] < b.share[j, best]):
                best = n
        part = min(workers, b.share[j, best])
        give(b, j, best, -part)
        workers -= part


@part
def new_size(b: SearchState, j: int, pick: float, fine: float) -> int:
    """The number of workers that job j is to try: mostly one more, sometimes far more or fewer."""
    now, least, most = b.held[j], b.least[j], b.most[j]
    size = least + int(fine * (most - least + 1))
    if now == 0:
        return least if pick < 0.7 else size
    if pick < 0.4:
        size = now + 1
    elif pick < 0.5:
        size = now - 1
    elif pick < 0.6:
        size = 2 * now
    elif pick < 0.7:
        size = (now + 1) // 2
    elif pick < 0.85:
        size = now
    return min(max(size, least), most)


@part
def new_type(b: SearchState, j: int, draw: float, types: int) -> int:
    """On which type job j is to try: mostly that on which it is."""
    if b.mixed[j]:
        return ANY_TYPE
    if b.bound[j] >= 0:
        return b.bound[j]
    if draw < 0.7 and b.held[j] > 0:
        for n in range(b.free.size):
            if b.share[j, n] > 0:
                return b.type[n]
    return int(draw * 997.0) % types


@part
def attempt(b: SearchState, j: int, draw: Floats, types: int) -> int:
    """Change the share of job j as the numbers drawn say.

    Returns the number of jobs noted; −1 − noted if there is no room for it.
    """
    size, t = new_size(b, j, draw[1], draw[2]), new_type(b, j, draw[3], types)
    if draw[6] < TAKE_OVER:
        return take_over(b, j, size, t, types, draw)
    here = b.mixed[j]
    for n in range(b.free.size):
        here = here or (b.share[j, n] > 0 and b.type[n] == t)
    count = keep(b, j, 0)
    if not here or size == b.held[j] or draw[4] < 0.2:
        clear(b, j)
    elif size < b.held[j]:
        trim(b, j, b.held[j] - size)
    need = fill(b, j, size - b.held[j], t)
    if need > 0:
        first = int(draw[5] * b.free.size)
        return reclaim(b, j, need, t, first, draw[6] < 0.5, count)
    return count


@part
def rebuild(b: SearchState, draw: Floats) -> int:
    """Take all jobs off two nodes of a type, and one more job, and place them anew.

    Each gets the least it runs with, the largest first; what is left goes worker by worker to the
    job that gains most, by and large. Returns the number of jobs noted; −1 − noted if one has no
    room.
    """
    J, N = b.share.shape
    one, two = int(draw[1] * N), int(draw[2] * N)
    if b.type[two] != b.type[one]:
        two = one
    count, extra = 0, int(draw[3] * J)
    for j in range(J):
        if not b.fixed[j] and (b.share[j, one] > 0 or b.share[j, two] > 0 or j == extra):
            count = keep(b, j, count)
            clear(b, j)
    for _ in range(count):
        best = -1
        for k in range(count):
            j = b.touched[(k + int(draw[4] * count)) % count]
            if b.held[j] == 0 and (
                best == -1 or b.least[j] * b.each[j] > b.least[best] * b.each[best]
            ):
                best = j
        if fill(b, best, b.least[best], home(b, best, b.type[one])) > 0:
            return -1 - count
    spread(b, count, b.type[one], draw[5])
    return count


@inline
def home(b: SearchState, j: int, t: int) -> int:
    """The type on which job j goes where others go to t."""
    if b.mixed[j]:
        return ANY_TYPE
    return b.bound[j] if b.bound[j] >= 0 else t


@part
def spread(b: SearchState, count: int, t: int, draw: float) -> None:
    """Let the first `count` of the jobs noted grow, one worker at a time, while any gains."""
    step = 0.0
    while True:
        best, most = -1, 0.0
        for k in range(count):
            j = b.touched[k]
            if b.held[j] == b.most[j]:
                continue
            now = value(b, j)
            n = grow(b, j, home(b, j, t))
            if n == -1:
                continue
            gain = (value(b, j) - now) / max(1, b.each[j])
            give(b, j, n, -1)
            step += 0.618
            # Never quite greedy, or the same two nodes would always end in the same way.
            gain *= 0.7 + 0.6 * ((draw * 97.0 + step) % 1.0)
            if gain > most:
                best, most = j, gain
        if best == -1:
            return
        grow(b, best, home(b, best, t))


@part
def grow(b: SearchState, j: int, t: int) -> int:
    """Give job j one worker more, beside its others if possible; the node, or −1."""
    best, most = -1, 0
    for n in range(b.free.size):
        here = room(b, j, n, t)
        if here > 0 and b.share[j, n] > 0:
            here += 1 << 30
        if here > most:
            best, most = n, here
    if best >= 0:
        give(b, j, best, 1)
    return best


@kernel
def search(b: SearchState, queue: Ints, draws: Floats) -> int:
    """Try a move per row of `draws` (E, 7) and keep those that gain; returns the number kept.

    The first moves are for the jobs of `queue`, in that order; the others are for any job.
    """
    J, types = b.held.size, 0
    for n in range(b.free.size):
        types = max(types, b.type[n] + 1)
    for j in range(J):
        b.worth[j] = value(b, j)
    accepted = 0
    for m in range(draws.shape[0]):
        j = queue[m] if m < queue.size else int(draws[m, 0] * J / SINGLE)
        if j >= J:
            count = rebuild(b, draws[m])
        elif b.fixed[j]:
            continue
        else:
            count = attempt(b, j, draws[m], types)
        gain = -1.0
        if count > 0:
            gain = 0.0
            for k in range(count):
                gain += value(b, b.touched[k]) - b.worth[b.touched[k]]
        for k in range(count if count >= 0 else -1 - count):
            i = b.touched[k]
            b.is_touched[i] = False
            if gain > LEAST_GAIN:
                b.worth[i] = value(b, i)
            else:
                for n in range(b.free.size):
                    give(b, i, n, b.kept[i, n] - b.share[i, n])
        accepted += gain > LEAST_GAIN
    return accepted
