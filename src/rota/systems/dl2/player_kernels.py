"""A whole slot in one call: see, think, choose and edit, without leaving compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.jit import part, wide_kernel
from rota.systems.choice_kernels import likeliest
from rota.systems.dl2.lens_kernels import act_on, allow, show_window
from rota.systems.dl2.window_kernels import show_cluster

if TYPE_CHECKING:
    from rota.envs.book import Book
    from rota.envs.view import View


class Stack(NamedTuple):
    """Layers, each but the last followed by a ReLU, with room to work in; float32."""

    weights: Any  # a tuple of (in, out) arrays
    bias: Any  # a tuple of (out,) arrays
    out: Any  # a tuple of (out,) arrays; the last are the logits
    seen: Any  # (in,) what the first layer's sums are of
    sums: Any  # (out,) float64: the first layer before its ReLU
    active: Any  # (largest out,) scratch: outputs above 0


class Sight(NamedTuple):
    """What is seen of one cluster, in one row of memory, and what is allowed."""

    row: Any  # (W · F + GLOBALS,) float32: `jobs`, then `cluster`
    jobs: Any  # (W, F)
    cluster: Any  # (GLOBALS,)
    present: Any  # (W,)
    mask: Any  # (3 W + 1,) bool


@part
def forget(stack: Stack) -> None:
    """Begin with a row of zeros."""
    for i in range(stack.seen.size):
        stack.seen[i] = 0.0
    for o in range(stack.sums.size):
        stack.sums[o] = stack.bias[0][o]


@part
def first_layer(stack: Stack, row: Any) -> None:
    """Fill stack.out[0] from a row, of which an edit changes a few numbers only."""
    weights, seen, sums, out = stack.weights[0], stack.seen, stack.sums, stack.out[0]
    for i in range(seen.size):
        if row[i] != seen[i]:
            more, line = float(row[i]) - float(seen[i]), weights[i]
            seen[i] = row[i]
            for o in range(sums.size):
                sums[o] += more * line[o]
    for o in range(out.size):
        out[o] = sums[o]


@part
def next_layer(source: Any, active: Any, weights: Any, bias: Any, out: Any) -> None:
    """out = bias + ReLU(source) · weights; four inputs at a time, to store less often."""
    count, k = 0, 0
    for i in range(source.size):
        if source[i] > 0.0:
            active[count] = i
            count += 1
    for o in range(out.size):
        out[o] = bias[o]
    while k + 4 <= count:
        p, q, r, s = active[k], active[k + 1], active[k + 2], active[k + 3]
        at_p, at_q, at_r, at_s = source[p], source[q], source[r], source[s]
        to_p, to_q, to_r, to_s = weights[p], weights[q], weights[r], weights[s]
        for o in range(out.size):
            out[o] += (at_p * to_p[o] + at_q * to_q[o]) + (at_r * to_r[o] + at_s * to_s[o])
        k += 4
    while k < count:
        p = active[k]
        at_p, to_p = source[p], weights[p]
        for o in range(out.size):
            out[o] += at_p * to_p[o]
        k += 1


@part
def through(stack: Stack, row: Any) -> None:
    """Fill stack.out; the first layer may read less than all of the row."""
    first_layer(stack, row)
    for k in range(1, len(stack.weights)):
        next_layer(stack.out[k - 1], stack.active, stack.weights[k], stack.bias[k], stack.out[k])


@wide_kernel
def play_round(
    view: View, book: Book, types: int, ordinal: bool, rescale: bool, one_hot: bool, slot_s: float,
    most: int, mask_room: bool, bundles: bool, keep_capped: bool, stack: Stack, sight: Sight,
    most_edits: int,
) -> bool:  # fmt: skip
    """Write the first cluster's round, opened before, by the likeliest actions; False: no end."""
    logits, over = stack.out[len(stack.out) - 1], False
    forget(stack)  # so that no round depends on those before it
    while not over and book.edits[0] < most_edits:
        show_cluster(view, book, 0, sight.cluster)
        show_window(
            view, book, 0, types, ordinal, rescale, one_hot, slot_s, most, sight.jobs,
            sight.present,
        )  # fmt: skip
        allow(view, book, 0, mask_room, bundles, sight.mask)
        through(stack, sight.row)
        over = act_on(view, book, 0, keep_capped, bundles, likeliest(logits, sight.mask))
    return over
