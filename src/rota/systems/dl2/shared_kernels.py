"""A slot in one call with weights that all jobs share: an edit changes one row and the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.jit import part, wide_kernel
from rota.systems.dl2.player_kernels import ALL, OVER, act_greedily, refresh
from rota.systems.dl2.product_kernels import ZERO, add_product
from rota.systems.dl2.step_kernels import ROLES

if TYPE_CHECKING:
    from rota.core.types import Floats
    from rota.envs.book import Book
    from rota.envs.view import View
    from rota.systems.dl2.player_kernels import Observed, Rules


class Scorer(NamedTuple):
    """The weights of a shared network, inputs first, with scratch memory; H wide, float32."""

    job: Any  # (F, H)
    job_bias: Any  # (H,)
    mean: Any  # (H, H): from the mean of the jobs to `around`
    cluster: Any  # (GLOBALS, H): from the cluster's numbers to `around`
    around_bias: Any  # (H,)
    hidden: Any  # (H, H)
    score: Any  # (3, H)
    score_bias: Any  # (3,)
    end: Any  # (H,)
    end_bias: Any  # (1,)
    own: Any  # (W, H): each job by itself
    inner: Any  # (H, W): `own` through `hidden`; jobs last, to do several at a time
    around: Any  # (H,)
    line: Any  # (H,) scratch
    index: Any  # (largest input,) scratch
    scores: Any  # (3, W)
    logits: Any  # (3 W + 1,)


@part
def score_job(scorer: Scorer, i: int, row: Floats) -> None:
    """Compute the part of row i that does not depend on other rows."""
    own, line = scorer.own[i], scorer.line
    for h in range(own.size):
        own[h], line[h] = scorer.job_bias[h], ZERO
    add_product(row, scorer.index, scorer.job, own)
    for h in range(own.size):
        own[h] = max(own[h], ZERO)
    add_product(own, scorer.index, scorer.hidden, line)
    for h in range(own.size):
        scorer.inner[h, i] = line[h]


@part
def update_around(scorer: Scorer, cluster: Floats, shown: int) -> None:
    """Fill scorer.around from the mean of the jobs and the state of the cluster."""
    line, around = scorer.line, scorer.around
    line[:] = ZERO
    for i in range(shown):
        for h in range(line.size):
            line[h] += scorer.own[i, h]
    for h in range(line.size):
        line[h] /= max(shown, 1)
        around[h] = scorer.around_bias[h]
    add_product(line, scorer.index, scorer.mean, around)
    add_product(cluster, scorer.index, scorer.cluster, around)


@part
def score_all(scorer: Scorer) -> None:
    """Fill scorer.logits; those of rows without a job mean nothing."""
    scores, around, logits = scorer.scores, scorer.around, scorer.logits
    window = scores.shape[1]
    worker, server, both = scores[0], scores[1], scores[2]
    for i in range(window):
        worker[i], server[i], both[i] = (
            scorer.score_bias[0], scorer.score_bias[1], scorer.score_bias[2]
        )  # fmt: skip
    end = scorer.end_bias[0]
    for h in range(around.size):
        inner, more = scorer.inner[h], around[h]
        to_worker, to_server, to_both = scorer.score[0, h], scorer.score[1, h], scorer.score[2, h]
        for i in range(window):
            out = max(inner[i] + more, ZERO)
            worker[i] += out * to_worker
            server[i] += out * to_server
            both[i] += out * to_both
        end += max(more, ZERO) * scorer.end[h]
    for i in range(window):
        for role in range(ROLES):
            logits[ROLES * i + role] = scores[role, i]
    logits[ROLES * window] = end


@wide_kernel
def play_shared(
    view: View, book: Book, rules: Rules, scorer: Scorer, observed: Observed, most_edits: int
) -> bool:
    """Write the first cluster's opened round by the likeliest actions; False: it did not end."""
    at = ALL
    while at != OVER and book.edits[0] < most_edits:
        refresh(view, book, rules, observed, at)
        for i in range(book.shown[0]):
            if at in (i, ALL):
                score_job(scorer, i, observed.jobs[i])
        update_around(scorer, observed.cluster, book.shown[0])
        score_all(scorer)
        at = act_greedily(view, book, rules, scorer.logits, observed.mask)
    return at == OVER
