"""What nodes are worth to a part of a waiting job, kept from scan to scan.

A row of `Scratch.part_ratio` and `part_loss` belongs to one spread. Nodes say when they last
changed (`Occupancy.changed`), so that a row is brought up to date without weighing all of them.
"""

from __future__ import annotations

from rota.jit import part
from rota.policies.contention.greedy_kernels import has_room
from rota.policies.contention.loss_kernels import loss_on
from rota.policies.contention.neighbour_kernels import Law, Occupancy, Options, Scratch, kept


@part
def weigh_part(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, least: float, p: int, j: int,
    held: int, row: int, n: int,
) -> None:  # fmt: skip
    """Work out what node n is worth to the largest part of job j, which holds `held` GPUs."""
    scratch.part_ratio[row, n] = -1.0
    if held <= room.free[n] and has_room(options, room, j, options.span[p], n):
        k = options.kind[p]
        scratch.part_ratio[row, n] = kept(law, room, k, n, -1)
        scratch.part_loss[row, n] = loss_on(law, options, room, scratch, n, k, held, least, False)


@part
def weigh_parts(
    law: Law, options: Options, room: Occupancy, scratch: Scratch, least: float, p: int, j: int,
    held: int, changes: int,
) -> int:  # fmt: skip
    """Bring a spread's row up to date; returns which row that is.

    scratch.order[:changes] are the nodes that have changed since the last scan.
    """
    rows, N = scratch.part_ratio.shape[0], room.free.size
    row = min(p, rows - 1)
    now, last_scan = room.changed[N] - 1, scratch.weighed[rows]
    scratch.seen[scratch.hit.size] += 1  # nothing is placed yet
    if row < rows - 1 and scratch.weighed[row] == last_scan:
        for i in range(changes):
            n = scratch.order[i]
            weigh_part(law, options, room, scratch, least, p, j, held, row, n)
    else:
        for n in range(N):
            if row == rows - 1 or room.changed[n] > scratch.weighed[row]:
                weigh_part(law, options, room, scratch, least, p, j, held, row, n)
    scratch.weighed[row] = now
    return int(row)


@part
def list_able(room: Occupancy, scratch: Scratch, row: int) -> int:
    """List the nodes that have room."""
    able = 0
    for n in range(room.free.size):
        if scratch.part_ratio[row, n] >= 0.0:
            scratch.able[able] = n
            able += 1
    return able


@part
def note_changes(room: Occupancy, scratch: Scratch) -> int:
    """List in scratch.order the nodes that have changed since the last scan; begin another."""
    rows, N, changes = scratch.part_ratio.shape[0], room.free.size, 0
    for n in range(N):
        if room.changed[n] > scratch.weighed[rows]:
            scratch.order[changes] = n
            changes += 1
    room.changed[N] += 1
    return changes


@part
def count_free(room: Occupancy, scratch: Scratch) -> None:
    """Count the nodes that have at least 0, 1, 2, … free GPUs."""
    scratch.with_free[:] = 0
    for n in range(room.free.size):
        if room.free[n] >= 0:
            scratch.with_free[min(room.free[n], scratch.with_free.size - 1)] += 1
    for gpus in range(scratch.with_free.size - 2, -1, -1):
        scratch.with_free[gpus] += scratch.with_free[gpus + 1]
