"""A slot in one call with a plain network: an edit changes a few inputs, and little else.

Most units of the first layer stay on or off from one edit to the next. While they do, the sums
of the second layer are linear in the inputs, so every input that an edit changes keeps a line:
what one more of it adds to those sums. A unit that turns on or off is made up for, in the sums
at once and in a line when it is next used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rota.jit import part, wide_kernel
from rota.systems.dl2.player_kernels import ALL, OVER, see, settle
from rota.systems.dl2.product_kernels import ZERO, add_lines, add_product, copy

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.systems.dl2.player_kernels import Rules, Sight

PATIENCE: Final = 4
"""So many second layers' work may go into lines before they must have saved as much."""
FEW: Final = 8
"""So few units on are added up anew: it is cheap, and where all are off, ties stay ties."""
EIGHT: Final = 8
"""Units in a word of memory."""


class Stack(NamedTuple):
    """Layers, each but the last followed by a ReLU, with room to work in; float32."""

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
def forget(stack: Stack) -> None:
    """Begin with inputs of zero."""
    stack.seen[:] = ZERO
    copy(stack.bias[0], stack.first)
    stack.has_line[:] = False
    stack.spent[0] = 0


@part
def differing(words: Any, others: Any, units: Any, theirs: Any, index: Any) -> int:
    """Fill index with the units of which only one is on; how many."""
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
    """Make the line of input i true for the units that are on; how many it took."""
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
    """Bring `first` up to date with some inputs, and `second` too, if so wished."""
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
    """Fill `now`; how many are on."""
    many = 0
    for h in range(stack.first.size):
        stack.now[h] = stack.first[h] > 0.0
        many += stack.now[h]
    return many


@part
def turn(stack: Stack) -> int:
    """Let `second` count those units as on that are; how many turned."""
    count = differing(stack.on_words, stack.now_words, stack.on, stack.now, stack.index)
    for k in range(count):
        u = stack.index[k]
        stack.on[u] = stack.now[u]
        stack.change[u] = stack.first[u] if stack.now[u] else -stack.first[u]
    add_lines(stack.change, stack.index, count, stack.weights[1], stack.second)
    return count


@part
def begin_anew(stack: Stack) -> None:
    """Fill `second` from `first`, whatever it was before."""
    change, sums = stack.change, stack.out[1]
    copy(stack.now, stack.on)
    for h in range(change.size):
        change[h] = max(stack.first[h], 0.0)
    copy(stack.bias[1], sums)
    add_product(change, stack.index, stack.weights[1], sums)
    copy(sums, stack.second)


@part
def think(stack: Stack, sight: Sight, at: int) -> None:
    """Fill stack.out with what follows from a row that changed at one job, or at ALL."""
    jobs, by_line = sight.jobs.size, at != ALL and stack.spent[0] <= PATIENCE * stack.first.size
    if at == ALL:
        take_in(stack, sight.row, 0, jobs, False)
    else:
        features = sight.jobs.shape[1]
        take_in(stack, sight.row, at * features, (at + 1) * features, by_line)
    take_in(stack, sight.row, jobs, sight.row.size, by_line)  # nothing, if it sees no cluster
    many = count_on(stack)
    if by_line and many > FEW:
        stack.spent[0] += turn(stack) - many
    else:
        begin_anew(stack)
    copy(stack.second, stack.out[1])
    for k in range(2, len(stack.weights)):
        source, out = stack.out[k - 1], stack.out[k]
        for i in range(source.size):
            source[i] = max(source[i], ZERO)
        copy(stack.bias[k], out)
        add_product(source, stack.index, stack.weights[k], out)


@wide_kernel
def play_plain(
    view: View, book: Book, rules: Rules, stack: Stack, sight: Sight, most_edits: int
) -> bool:
    """Write the first cluster's round, opened before, by the likeliest actions; False: no end."""
    at = ALL
    forget(stack)  # so that no round depends on those before it
    while at != OVER and book.edits[0] < most_edits:
        see(view, book, rules, sight, at)
        think(stack, sight, at)
        at = settle(view, book, rules, stack.logits, sight.mask)
    return at == OVER
