"""DL2's own actions: one worker, one server or one of each for a job, or the end of the slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.core.layout import SLACK
from rota.envs.book_kernels import dominant_share, fewest_workers, has_room, open_book, take
from rota.jit import inline, kernel, part
from rota.systems.dl2.window_kernels import (
    LONG_STAY,
    clear_row,
    fill_window,
    part_left,
    scaled_left,
    show_cluster,
)

if TYPE_CHECKING:
    from rota.core.types import Bools, Floats, Ints
    from rota.envs.book import Book
    from rota.envs.view import View

WORKER = 0
SERVER = 1
BUNDLE = 2
ROLES = 3
OWN = 3
"""Features of a job apart from its model and the counts of its tasks."""


@inline
def next_workers(book: Book, b: int, j: int, job: Any) -> int:
    """The workers that job j gets next: one, or at first the fewest it runs with."""
    return 1 if book.workers[b, j] > 0 else fewest_workers(job)


@inline
def next_servers(book: Book, b: int, j: int, job: Any) -> int:
    """The servers that job j gets next: one, or at first the fewest it runs with."""
    return 1 if book.servers[b, j] > 0 else max(1, job["min_servers"])


@inline
def granted(
    book: Book, b: int, j: int, job: Any, role: int, least_first: bool
) -> tuple[int, int]:  # fmt: skip
    """Workers and servers that an action gives job j; none: the action has no meaning now.

    Where jobs do not begin with their minimum, the first action for a worker gives all of it, and
    the job's other actions come after that: with less it would hold room and not run.
    """
    if not least_first and book.workers[b, j] == 0:
        return (fewest_workers(job), job["min_servers"]) if role == WORKER else (0, 0)
    w = next_workers(book, b, j, job) if role != SERVER else 0
    s = next_servers(book, b, j, job) if role != WORKER else 0
    return w, s


@kernel
def open_rounds(
    view: View, book: Book, which: Bools, keep_capped: bool, least_first: bool
) -> None:  # fmt: skip
    """Begin the rounds flagged in `which`."""
    for b in range(which.size):
        if which[b]:
            open_book(view, book, b, least_first)
            fill_window(view, book, b, keep_capped)


@part
def show_job(
    view: View, book: Book, b: int, i: int, types: int, ordinal: bool, rescale: bool,
    one_hot: bool, lengths: bool, slot_s: float, most: int, row: Floats, present: Floats,
) -> None:  # fmt: skip
    """Fill row (F,) of the i-th job of one cluster's window, and present[i].

    F is OWN + types + 2. A model as a number takes one place, a one-hot count most + 1, and the
    time that a job still needs one more.
    """
    j = book.rows[b, i]
    if j < 0:
        clear_row(row, present, i)
        return
    stay_s = slot_s * LONG_STAY if rescale else slot_s
    tasks, kinds = (most, types) if rescale else (1, 1)
    first = 1 if ordinal else types
    now_s = view.now_s[b]
    job, fresh = view.jobs[b, j], present[i] == 0.0
    present[i] = 1.0
    model = job["model"]
    if ordinal:
        row[0] = (model + 1) / kinds
    elif fresh or not 0 <= model < types or row[model] != 1.0:
        for k in range(types):
            row[k] = 1.0 if k == model else 0.0
    workers, servers = book.workers[b, j], book.servers[b, j]
    row[first] = (now_s - job["submit_s"]) / stay_s
    row[first + 1] = part_left(job, now_s)
    row[first + 2] = dominant_share(book, b, job, workers, servers)
    if one_hot:
        for k in range(2 * (most + 1)):
            row[first + OWN + k] = 0.0
        row[first + OWN + min(workers, most)] = 1.0
        row[first + OWN + most + 1 + min(servers, most)] = 1.0
    else:
        row[first + OWN] = workers / tasks
        row[first + OWN + 1] = servers / tasks
    if lengths:
        row[row.size - 1] = scaled_left(job, now_s, slot_s)


@part
def show_window(
    view: View, book: Book, b: int, types: int, ordinal: bool, rescale: bool, one_hot: bool,
    lengths: bool, slot_s: float, most: int, jobs: Floats, present: Floats,
) -> None:  # fmt: skip
    """Fill jobs (W, F) and present (W,) of one cluster."""
    for i in range(jobs.shape[0]):
        show_job(
            view, book, b, i, types, ordinal, rescale, one_hot, lengths, slot_s, most, jobs[i],
            present,
        )  # fmt: skip


@kernel
def encode(
    view: View, book: Book, types: int, ordinal: bool, rescale: bool, one_hot: bool, lengths: bool,
    slot_s: float, most: int, jobs: Floats, cluster: Floats, present: Floats,
) -> None:  # fmt: skip
    """Fill jobs (B, W, F), cluster (B, GLOBALS) and present (B, W)."""
    for b in range(jobs.shape[0]):
        show_cluster(view, book, b, cluster[b])
        show_window(
            view, book, b, types, ordinal, rescale, one_hot, lengths, slot_s, most, jobs[b],
            present[b],
        )  # fmt: skip


@part
def none_runs(view: View, book: Book, b: int) -> bool:
    """Whether no job of the cluster would run if the round ended now."""
    for i in range(view.live[b]):
        if book.workers[b, view.order[b, i]] > 0:
            return False
    return True


@part
def allow(
    view: View, book: Book, b: int, mask_room: bool, bundles: bool, least_first: bool, out: Bools
) -> None:
    """out (3 W + 1,): what each job of one cluster may still be given, and the end.

    The end is always allowed, except where jobs do not begin with their minimum: there it is not
    while no job runs and one could.
    """
    window, some = book.rows.shape[1], False
    shown = book.shown[b]
    free_gpus, free_cpus = book.free_gpus[b], book.free_cpus[b] + SLACK
    free_gb = book.free_memory_gb[b] + SLACK
    for i in range(shown):
        j = book.rows[b, i]
        job = view.jobs[b, j]
        w, s = next_workers(book, b, j, job), next_servers(book, b, j, job)
        if not least_first and book.workers[b, j] == 0:
            least = not mask_room or has_room(book, b, job, w, job["min_servers"])
            out[ROLES * i], out[ROLES * i + 1], out[ROLES * i + 2] = least, False, False
            some = some or least
            continue
        worker = book.workers[b, j] + w <= job["max_workers"]
        server = book.servers[b, j] + s <= job["max_servers"]
        bundle = bundles and worker and server
        if mask_room:
            w_cpus, s_cpus = w * job["cpus_per_worker"], s * job["cpus_per_server"]
            w_gb, s_gb = w * job["memory_gb_per_worker"], s * job["memory_gb_per_server"]
            gpus = w * job["gpus_per_worker"] <= free_gpus
            worker = worker and gpus and w_cpus <= free_cpus and w_gb <= free_gb
            server = server and s_cpus <= free_cpus and s_gb <= free_gb
            bundle = bundle and gpus and w_cpus + s_cpus <= free_cpus and w_gb + s_gb <= free_gb
        out[ROLES * i], out[ROLES * i + 1], out[ROLES * i + 2] = worker, server, bundle
    for k in range(ROLES * shown, ROLES * window):
        out[k] = False
    out[ROLES * window] = least_first or not some or not none_runs(view, book, b)


@kernel
def mask(
    view: View, book: Book, mask_room: bool, bundles: bool, least_first: bool, out: Bools
) -> None:
    """out (B, 3 W + 1): what each job may still be given, and whether the round may end."""
    for b in range(out.shape[0]):
        allow(view, book, b, mask_room, bundles, least_first, out[b])


@part
def edit(view: View, book: Book, b: int, action: int, bundles: bool, least_first: bool) -> bool:
    """Give one job what the action says; False if there is no such action, or no room."""
    if action < 0 or action >= ROLES * book.shown[b]:
        return False
    j, role = book.rows[b, action // ROLES], action % ROLES
    job = view.jobs[b, j]
    w, s = granted(book, b, j, job, role, least_first)
    if (role == BUNDLE and not bundles) or w + s == 0:
        return False
    if book.workers[b, j] + w > job["max_workers"] or book.servers[b, j] + s > job["max_servers"]:
        return False
    if not has_room(book, b, job, w, s):
        return False
    take(book, b, j, job, w, s)
    return True


@inline
def is_full(book: Book, b: int, j: int, job: Any) -> bool:
    """Whether job j has the most that it may have."""
    return book.workers[b, j] >= job["max_workers"] and book.servers[b, j] >= job["max_servers"]


@part
def act_on(
    view: View, book: Book, b: int, keep_capped: bool, bundles: bool, least_first: bool, action: int
) -> bool:
    """One edit in one cluster; whether its round is over."""
    book.edits[b] += 1
    if not edit(view, book, b, action, bundles, least_first):
        return True
    j = book.rows[b, action // ROLES]
    if not keep_capped and is_full(book, b, j, view.jobs[b, j]):
        fill_window(view, book, b, False)
        return book.shown[b] == 0
    return False


@kernel
def act(
    view: View, book: Book, keep_capped: bool, bundles: bool, least_first: bool, actions: Ints,
    ended: Bools,
) -> None:  # fmt: skip
    """One edit per cluster; the end, a failing action or an empty window ends the round."""
    for b in range(actions.size):
        ended[b] = act_on(view, book, b, keep_capped, bundles, least_first, actions[b])


@part
def leads(
    view: View, book: Book, b: int, i: int, role: int, least_first: bool, workers: Ints,
    servers: Ints,
) -> bool:  # fmt: skip
    """Whether an action for row i leads towards the wanted counts (J,) and not beyond them."""
    j = book.rows[b, i]
    job = view.jobs[b, j]
    w, s = granted(book, b, j, job, role, least_first)
    return (
        w + s > 0
        and book.workers[b, j] + w <= min(workers[j], job["max_workers"])
        and book.servers[b, j] + s <= min(servers[j], job["max_servers"])
        and has_room(book, b, job, w, s)
    )


@part
def next_step(
    view: View, book: Book, b: int, least_first: bool, workers: Ints, servers: Ints, role: int
) -> int:
    """The first action of a role that leads towards the wanted counts (J,), −1 if none does."""
    for i in range(book.shown[b]):
        if leads(view, book, b, i, role, least_first, workers, servers):
            return ROLES * i + role
    return -1


@part
def first_start(view: View, book: Book, b: int) -> int:
    """The action that starts the first job of the window whose minimum fits; −1: none fits."""
    for i in range(book.shown[b]):
        j = book.rows[b, i]
        job = view.jobs[b, j]
        if has_room(book, b, job, fewest_workers(job), job["min_servers"]):
            return ROLES * i + WORKER
    return -1


@kernel
def script(
    view: View, book: Book, bundles: bool, least_first: bool, workers: Ints, servers: Ints,
    out: Ints,
) -> None:  # fmt: skip
    """out (B,): the next action towards a teacher's counts (B, J), bundles first; at last the end.

    Where the lens does not allow the end although the teacher runs no job of the window, the
    oldest job that fits is started.
    """
    for b in range(out.size):
        w, s, step = workers[b], servers[b], -1
        if bundles:
            step = next_step(view, book, b, least_first, w, s, BUNDLE)
        if step < 0:
            step = next_step(view, book, b, least_first, w, s, WORKER)
        if step < 0:
            step = next_step(view, book, b, least_first, w, s, SERVER)
        if step < 0 and not least_first and none_runs(view, book, b):
            step = first_start(view, book, b)
        out[b] = step if step >= 0 else ROLES * book.rows.shape[1]


@kernel
def towards(
    view: View, book: Book, bundles: bool, least_first: bool, workers: Ints, servers: Ints,
    out: Bools,
) -> None:  # fmt: skip
    """out (B, 3 W + 1), all False: every action that leads towards a teacher's counts (B, J)."""
    for b in range(out.shape[0]):
        some = False
        for i in range(book.shown[b]):
            for role in range(ROLES):
                if role == BUNDLE and not bundles:
                    continue
                right = leads(view, book, b, i, role, least_first, workers[b], servers[b])
                out[b, ROLES * i + role] = right
                some = some or right
        step = -1
        if not some and not least_first and none_runs(view, book, b):
            step = first_start(view, book, b)
        if not some:
            out[b, step if step >= 0 else ROLES * book.rows.shape[1]] = True


@kernel
def sample(mask: Bools, uniform: Floats, out: Ints) -> None:
    """out (B,): a random action, each allowed one equally likely."""
    for b in range(out.size):
        allowed = 0
        for a in range(mask.shape[1]):
            allowed += mask[b, a]
        pick = int(uniform[b] * allowed)
        for a in range(mask.shape[1]):
            if mask[b, a]:
                if pick == 0:
                    out[b] = a
                    break
                pick -= 1
