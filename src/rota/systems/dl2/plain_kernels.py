"""A slot in one call with a plain network, computing again only what an edit changed.

An edit changes a few inputs, and most units of the first layer stay on or off. While they do, the
sums of the second layer are linear in the inputs. So for every input that an edit changes a line
is kept: the derivative of those sums with respect to it. When a unit turns on or off, the sums are
corrected at once, and a line when it is next used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rota.jit import part, wide_kernel
from rota.systems.dl2.player_kernels import ALL, OVER, act_greedily, refresh
from rota.systems.dl2.product_kernels import ZERO, add_lines, add_product, copy

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.systems.dl2.player_kernels import Observed, Rules

PATIENCE: Final = 4
"""Work that may go into lines before they have saved as much, in passes of the second layer."""
FEW: Final = 8
"""With at most this many units on, sums are computed from scratch: it is cheap, and where all
units are off, equal logits stay equal."""
EIGHT: Final = 8
"""Units in a word of memory."""


class Stack(NamedTuple):
    """Layers, each but the last followed by a ReLU, with scratch memory; float32."""

    weights: Any  # a tuple of (in, out) arrays
    bias: Any  # a tuple of (out,) arrays
    out: Any  # a tuple of (out,) arrays, all but the last after their ReLU
    logits: Any  # (A,) of the last
    index: Any  # (largest out,) scratch
    seen: Any  # (I,) the inputs that `first` is of
    first: Any  # (H,) float64: the first layer before its ReLU
    second: Any  # (H2,) float64: the same of the second
    on: Any  # (H,) bool: the units of the first layer that `second` counts as on
    on_words: Any  # the same memory, eight units to a word
    now: Any  # (H,) bool: those that are
    now_words: Any
    lines: Any  # (I, H2): what one more of an input adds to `second`
    lines_on: Any  # (I, H) bool: the units that the line counts as on
    lines_words: Any
    has_line: Any  # (I,) bool
    change: Any  # (H,) scratch
    spent: Any  # (1,) units worked on for lines, less those that lines have saved


@part
def clear(stack: Stack) -> None:
    """Begin with inputs of 0."""
    stack.seen[:] = ZERO
    copy(stack.bias[0], stack.first)
    stack.has_line[:] = False
    stack.spent[0] = 0


@part
def differing(words: Any, others: Any, units: Any, theirs: Any, index: Any) -> int:
    """Fill index with the units that are on in one of the two only; returns how many."""
    count = 0
    for k in range(words.size):
        if words[k] != others[k]:
            for u in range(EIGHT * k, EIGHT * k + EIGHT):
                if units[u] != theirs[u]:
                    index[count] = u
                    count += 1
    return count


@part
def bring_line(stack: Stack, i: int) -> int:
    """Correct the line of input i for the units that are on now; returns how many differed."""
    line, units = stack.lines[i], stack.lines_on[i]
    weights, change = stack.weights[0][i], stack.change
    if not stack.has_line[i]:
        stack.has_line[i] = True
        line[:] = ZERO
        units[:] = False
    count = differing(stack.on_words, stack.lines_words[i], stack.on, units, stack.index)
    for k in range(count):
        u = stack.index[k]
        units[u] = stack.on[u]
        change[u] = weights[u] if units[u] else -weights[u]
    add_lines(change, stack.index, count, stack.weights[1], line)
    return count


@part
def take_in(stack: Stack, row: Floats, begin: int, end: int, by_line: bool) -> None:
    """Bring `first` up to date with some inputs; with `by_line`, `second` too."""
    first, second = stack.first, stack.second
    for i in range(begin, min(end, stack.seen.size)):
        if row[i] != stack.seen[i]:
            more, weights = float(row[i]) - float(stack.seen[i]), stack.weights[0][i]
            stack.seen[i] = row[i]
            for h in range(first.size):
                first[h] += more * weights[h]
            if by_line:
                stack.spent[0] += bring_line(stack, i)
                line = stack.lines[i]
                for o in range(second.size):
                    second[o] += more * line[o]


@part
def count_on(stack: Stack) -> int:
    """Fill `now`; returns how many units are on."""
    many = 0
    for h in range(stack.first.size):
        stack.now[h] = stack.first[h] > 0.0
        many += stack.now[h]
    return many


@part
def turn(stack: Stack) -> int:
    """Correct `second` for units that turned on or off; returns how many."""
    count = differing(stack.on_words, stack.now_words, stack.on, stack.now, stack.index)
    for k in range(count):
        u = stack.index[k]
        stack.on[u] = stack.now[u]
        stack.change[u] = stack.first[u] if stack.now[u] else -stack.first[u]
    add_lines(stack.change, stack.index, count, stack.weights[1], stack.second)
    return count


@part
def recompute_second(stack: Stack) -> None:
    """Compute `second` from `first` from scratch."""
    change, sums = stack.change, stack.out[1]
    copy(stack.now, stack.on)
    for h in range(change.size):
        change[h] = max(stack.first[h], 0.0)
    copy(stack.bias[1], sums)
    add_product(change, stack.index, stack.weights[1], sums)
    copy(sums, stack.second)


@part
def propagate(stack: Stack, observed: Observed, at: int) -> None:
    """Compute stack.out after one job's inputs have changed, or ALL."""
    jobs, by_line = observed.jobs.size, at != ALL and stack.spent[0] <= PATIENCE * stack.first.size
    if at == ALL:
        take_in(stack, observed.row, 0, jobs, False)
    else:
        features = observed.jobs.shape[1]
        take_in(stack, observed.row, at * features, (at + 1) * features, by_line)
    take_in(stack, observed.row, jobs, observed.row.size, by_line)  # nothing, if it sees no cluster
    many = count_on(stack)
    if by_line and many > FEW:
        stack.spent[0] += turn(stack) - many
    else:
        recompute_second(stack)
    copy(stack.second, stack.out[1])
    for k in range(2, len(stack.weights)):
        source, out = stack.out[k - 1], stack.out[k]
        for i in range(source.size):
            source[i] = max(source[i], ZERO)
        copy(stack.bias[k], out)
        add_product(source, stack.index, stack.weights[k], out)


@wide_kernel
def play_plain(
    view: View, book: Book, rules: Rules, stack: Stack, observed: Observed, most_edits: int
) -> bool:
    """Write the first cluster's opened round by the likeliest actions; False: it did not end."""
    at = ALL
    clear(stack)  # so that no round depends on earlier ones
    while at != OVER and book.edits[0] < most_edits:
        refresh(view, book, rules, observed, at)
        propagate(stack, observed, at)
        at = act_greedily(view, book, rules, stack.logits, observed.mask)
    return at == OVER
