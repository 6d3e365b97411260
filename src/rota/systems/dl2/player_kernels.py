"""What every compiled player of a slot does beside thinking: see, choose and edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rota.jit import part
from rota.systems.choice_kernels import likeliest
from rota.systems.dl2.lens_kernels import ROLES, act_on, allow, show_job, show_window
from rota.systems.dl2.window_kernels import show_cluster

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats
    from rota.envs.book import Book
    from rota.envs.view import View

ALL: Final = -1
"""Instead of a row: any of them may have changed."""
OVER: Final = -2
"""Instead of a row: the round has ended."""


class Rules(NamedTuple):
    """The settings of the lens."""

    types: int
    ordinal: bool
    rescale: bool
    one_hot: bool
    lengths: bool
    slot_s: float
    most: int
    mask_room: bool
    bundle: bool
    keep_capped: bool
    least_first: bool


class Sight(NamedTuple):
    """What is seen of one cluster, in one row of memory, and what is allowed."""

    row: Any  # (W · F + GLOBALS,) float32: `jobs`, then `cluster`
    jobs: Any  # (W, F)
    cluster: Any  # (GLOBALS,)
    present: Any  # (W,)
    mask: Any  # (3 W + 1,) bool


@part
def see(view: View, book: Book, rules: Rules, sight: Sight, at: int) -> None:
    """Look at the first cluster again after an edit that changed row `at`, or ALL."""
    show_cluster(view, book, 0, sight.cluster)
    if at == ALL:
        show_window(
            view, book, 0, rules.types, rules.ordinal, rules.rescale, rules.one_hot, rules.lengths,
            rules.slot_s, rules.most, sight.jobs, sight.present,
        )  # fmt: skip
    else:
        show_job(
            view, book, 0, at, rules.types, rules.ordinal, rules.rescale, rules.one_hot,
            rules.lengths, rules.slot_s, rules.most, sight.jobs[at], sight.present,
        )  # fmt: skip
    allow(view, book, 0, rules.mask_room, rules.bundle, rules.least_first, sight.mask)


@part
def settle(view: View, book: Book, rules: Rules, logits: Floats, mask: Bools) -> int:
    """Take the likeliest action: the row that it changed, ALL if jobs moved up, or OVER."""
    action = likeliest(logits, mask)
    at = min(action // ROLES, book.rows.shape[1] - 1)
    j = book.rows[0, at]
    if act_on(view, book, 0, rules.keep_capped, rules.bundle, rules.least_first, action):
        return OVER
    return at if book.rows[0, at] == j else ALL
