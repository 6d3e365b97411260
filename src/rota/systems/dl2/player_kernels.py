"""What the compiled players of a slot share: encode the state, choose an action, apply it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rota.jit import part
from rota.systems.choice_kernels import likeliest
from rota.systems.dl2.step_kernels import ROLES, act_on, allow, show_job, show_window
from rota.systems.dl2.window_kernels import show_cluster

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats
    from rota.envs.book import Book
    from rota.envs.view import View

ALL: Final = -1
"""In place of a row: any row may have changed."""
OVER: Final = -2
"""In place of a row: the round has ended."""


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


class Observed(NamedTuple):
    """The observation of one cluster, in one row of memory, and what is allowed."""

    row: Any  # (W · F + GLOBALS,) float32: `jobs`, then `cluster`
    jobs: Any  # (W, F)
    cluster: Any  # (GLOBALS,)
    present: Any  # (W,)
    mask: Any  # (3 W + 1,) bool


@part
def refresh(view: View, book: Book, rules: Rules, observed: Observed, at: int) -> None:
    """Encode the first cluster again after an edit that changed row `at`, or ALL."""
    show_cluster(view, book, 0, observed.cluster)
    if at == ALL:
        show_window(
            view, book, 0, rules.types, rules.ordinal, rules.rescale, rules.one_hot, rules.lengths,
            rules.slot_s, rules.most, observed.jobs, observed.present,
        )  # fmt: skip
    else:
        show_job(
            view, book, 0, at, rules.types, rules.ordinal, rules.rescale, rules.one_hot,
            rules.lengths, rules.slot_s, rules.most, observed.jobs[at], observed.present,
        )  # fmt: skip
    allow(view, book, 0, rules.mask_room, rules.bundle, rules.least_first, observed.mask)


@part
def act_greedily(view: View, book: Book, rules: Rules, logits: Floats, mask: Bools) -> int:
    """Take the likeliest action; returns the row it changed, ALL if jobs moved up, or OVER."""
    action = likeliest(logits, mask)
    at = min(action // ROLES, book.rows.shape[1] - 1)
    j = book.rows[0, at]
    if act_on(view, book, 0, rules.keep_capped, rules.bundle, rules.least_first, action):
        return OVER
    return at if book.rows[0, at] == j else ALL
