"""A bare compiled loop: heap, queue, best-fit, and nothing else. What rota's speed is held against.

It has no policies, no preemption, no costs, no log. Its queue is a plain list that is scanned
from the front after every event, which is what one writes first.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
def best_fit(free, gpus, per_node, node, part):
    """Fill node, part; return on how many nodes the gang goes, 0 if it does not fit."""
    count, left = 0, gpus
    if gpus > per_node:
        for n in range(free.size):
            if free[n] == per_node and left >= per_node:
                node[count], part[count] = n, per_node
                count, left = count + 1, left - per_node
        if left >= per_node:
            return 0
    if left == 0:
        return count
    best = -1
    for n in range(free.size):
        if free[n] >= left and (best == -1 or free[n] < free[best]):
            taken = False
            for k in range(count):
                taken |= node[k] == n
            if not taken:
                best = n
    if best == -1:
        return 0
    node[count], part[count] = best, left
    return count + 1


@numba.njit(cache=True)
def push(heap, size, end, j):
    k = size
    while k > 0 and end[j] < end[heap[(k - 1) >> 1]]:
        heap[k] = heap[(k - 1) >> 1]
        k = (k - 1) >> 1
    heap[k] = j


@numba.njit(cache=True)
def pop(heap, size, end):
    j, k = heap[size - 1], 0
    while 2 * k + 1 < size - 1:
        c = 2 * k + 1
        if c + 1 < size - 1 and end[heap[c + 1]] < end[heap[c]]:
            c += 1
        if end[heap[c]] >= end[j]:
            break
        heap[k] = heap[c]
        k = c
    heap[k] = j


@numba.njit(cache=True)
def bare_loop(submit, duration, gpus, nodes, per_node, shortest):
    """Completion times under first come (or shortest) first, who does not fit is passed over."""
    J = submit.size
    free = np.full(nodes, per_node)
    end = np.full(J, np.inf)
    heap, queue = np.empty(J, np.int64), np.empty(J, np.int64)
    at, length = np.zeros(J, np.int64), np.zeros(J, np.int64)
    held_node, held_part = np.empty((2, nodes * per_node * 4), np.int64)
    spare_node, spare_part = np.empty((2, nodes * per_node), np.int64)
    node, part = np.empty((2, nodes), np.int64)
    running, waiting, arrived, used = 0, 0, 0, 0
    while arrived < J or running > 0:
        now = submit[arrived] if arrived < J else np.inf
        if running > 0:
            now = min(now, end[heap[0]])
        while running > 0 and end[heap[0]] <= now:
            j = heap[0]
            pop(heap, running, end)
            running -= 1
            for k in range(at[j], at[j] + length[j]):
                free[held_node[k]] += held_part[k]
        while arrived < J and submit[arrived] <= now:
            k = waiting
            if shortest:
                while k > 0 and duration[queue[k - 1]] > duration[arrived]:
                    queue[k] = queue[k - 1]
                    k -= 1
            queue[k] = arrived
            waiting, arrived = waiting + 1, arrived + 1
        kept = 0
        for q in range(waiting):
            j = queue[q]
            count = best_fit(free, gpus[j], per_node, node, part)
            if count == 0:
                queue[kept] = j
                kept += 1
                continue
            if used + count > held_node.size:  # forget what has ended
                used = 0
                for r in range(running):
                    i = heap[r]
                    for k in range(length[i]):
                        spare_node[used + k] = held_node[at[i] + k]
                        spare_part[used + k] = held_part[at[i] + k]
                    at[i] = used
                    used += length[i]
                held_node[:used], held_part[:used] = spare_node[:used], spare_part[:used]
            at[j], length[j] = used, count
            for k in range(count):
                held_node[used], held_part[used] = node[k], part[k]
                free[node[k]] -= part[k]
                used += 1
            end[j] = now + duration[j]
            push(heap, running, end, j)
            running += 1
        waiting = kept
    return end
