"""Makes decided shares fit what jobs demand of nodes, which policies know nothing about.

A policy knows GPU types, but not that a job names its nodes, excludes some, or wants its workers on
different nodes. Where its share will not do, other nodes with room are taken instead; where there
are none, the job goes on waiting.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.backends.driver import JobRequest
    from rota.core.plan import Share


def suits(request: JobRequest, share: Share, names: Sequence[str]) -> bool:
    """Whether a job may hold `share`; `names` are those of the nodes."""
    here = {names[node] for node, _, _ in share}
    if request.only_on is not None and not here <= request.only_on:
        return False
    if not request.must_have <= here:
        return False
    return not request.apart or all(workers == 1 for _, workers, _ in share)


def fitted(
    request: JobRequest, share: Share, names: Sequence[str], room: Mapping[int, float]
) -> Share | None:
    """A share of the same size that the job may hold, or None.

    `room` is the number of workers of this job that each node has room for, beside all that is
    decided about others. As many of the decided nodes as possible stay, then full nodes come first.
    """
    if suits(request, share, names):
        return share
    wanted = sum(workers for _, workers, _ in share)
    decided = {node for node, _, _ in share}
    may = [
        node
        for node, places in room.items()
        if places >= 1 and (request.only_on is None or names[node] in request.only_on)
    ]
    must = [node for node in may if names[node] in request.must_have]
    if len(must) < len(request.must_have) or len(must) > wanted:
        return None
    first = {node: k for k, node in enumerate(must)}
    may.sort(key=lambda n: (first.get(n, len(first)), n not in decided, room[n], n))
    count: Counter[int] = Counter(must)
    for node in may:
        most = 1 if request.apart else int(room[node])
        count[node] += min(most - count[node], wanted - count.total())
        if count.total() == wanted:
            return tuple((n, workers, 0) for n, workers in sorted(count.items()) if workers)
    return None
