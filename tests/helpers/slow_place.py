"""Placements as anybody would write them first: lists, loops, no index."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

SLACK = 1e-9


@dataclass
class Node:
    """What a node has and what is free."""

    gpus: int
    free: int
    type: int = 0
    rack: int = 0
    cpus: float = float("inf")
    memory_gb: float = float("inf")


@dataclass
class Ask:
    """What a gang asks for."""

    gpus: int
    each: int = 1
    type: int = -1
    cpus: float = 0.0
    memory_gb: float = 0.0


def suits(node: Node, ask: Ask, gpus: int) -> bool:
    """Whether type, CPUs and memory of the node are right for so many GPUs' workers."""
    workers = gpus // ask.each
    return (
        ask.type in (-1, node.type)
        and workers * ask.cpus <= node.cpus + SLACK
        and workers * ask.memory_gb <= node.memory_gb + SLACK
    )


def on_one(
    place: str, nodes: list[Node], ask: Ask, gpus: int, but: list[int], typical: list[float]
) -> int | None:
    """The node, other than `but`, that a rule puts `gpus` GPUs on."""
    rooms = [
        (n, node)
        for n, node in enumerate(nodes)
        if n not in but and node.free >= gpus and suits(node, ask, gpus)
    ]
    if not rooms:
        return None

    def stranded(free: int) -> float:
        return free * sum(share for size, share in enumerate(typical) if size > free)

    def fragmentation(node: Node) -> float:
        return round(stranded(node.free - gpus) - stranded(node.free), 6)

    key = {
        "first-fit": lambda n, _: (n,),
        "best-fit": lambda n, node: (node.free, n),
        "worst-fit": lambda n, node: (-node.free, n),
        "consolidate": lambda n, node: (node.free, n),
        "fgd": lambda n, node: (fragmentation(node), n),
    }[place]
    return min(rooms, key=lambda room: key(*room))[0]


def whole_and_rest(
    place: str, nodes: list[Node], ask: Ask, typical: list[float]
) -> list[tuple[int, int]] | None:
    """Whole free nodes, lowest first, and what is left on one further node."""
    found: list[tuple[int, int]] = []
    left = ask.gpus
    for n, node in enumerate(nodes):
        use = node.gpus // ask.each * ask.each
        if node.free == node.gpus and 0 < use <= left and suits(node, ask, use):
            found.append((n, use))
            left -= use
    if left:
        n = on_one(place, nodes, ask, left, [n for n, _ in found], typical)
        if n is None:
            return None
        found.append((n, left))
    return sorted(found)


def fewest(nodes: list[Node], ask: Ask, rack: int | None) -> list[tuple[int, int]] | None:
    """Again and again: the tightest node that holds all the rest, or else the emptiest one."""
    found: dict[int, int] = {}
    left = ask.gpus
    while left:
        rooms = []
        for n, node in enumerate(nodes):
            use = min(node.free // ask.each * ask.each, left)
            if n not in found and use and rack in (None, node.rack) and suits(node, ask, use):
                rooms.append((n, node, use))
        if not rooms:
            return None
        enough = [room for room in rooms if room[2] == left]
        if enough:
            n, _, use = min(enough, key=lambda room: (room[1].free, room[0]))
        else:
            n, _, use = min(rooms, key=lambda room: (-room[1].free, room[0]))
        found[n] = use
        left -= use
    return sorted(found.items())


def worker_by_worker(nodes: list[Node], ask: Ask) -> list[tuple[int, int]] | None:
    """Each worker on the node that then has most free GPUs."""
    found: dict[int, int] = {}
    for _ in range(ask.gpus // ask.each):
        rooms = []
        for n, node in enumerate(nodes):
            free = node.free - found.get(n, 0)
            if free >= ask.each and suits(node, ask, found.get(n, 0) + ask.each):
                rooms.append((-free, n))
        if not rooms:
            return None
        n = min(rooms)[1]
        found[n] = found.get(n, 0) + ask.each
    return sorted(found.items())


def in_a_rack(nodes: list[Node], ask: Ask) -> list[tuple[int, int]] | None:
    """The fullest rack that holds the gang; failing that, anywhere."""
    room: dict[int, int] = {}
    for node in nodes:
        room[node.rack] = room.get(node.rack, 0) + node.free
    for rack in sorted(room, key=lambda rack: (room[rack], rack)):
        found = fewest(nodes, ask, rack) if room[rack] >= ask.gpus else None
        if found:
            return found
    return fewest(nodes, ask, None)


def find(
    place: str, nodes: list[Node], ask: Ask, typical: list[float] | None = None
) -> list[tuple[int, int]] | None:
    """Where the gang goes, as (node, GPUs) by node; None if it does not fit."""
    if place == "spread":
        return worker_by_worker(nodes, ask)
    if place == "topology":
        return in_a_rack(nodes, ask)
    if ask.gpus <= max(node.gpus for node in nodes):
        n = on_one(place, nodes, ask, ask.gpus, [], typical or [])
        if n is not None:
            return [(n, ask.gpus)]
        return fewest(nodes, ask, None) if place == "consolidate" else None
    if place == "consolidate":
        return fewest(nodes, ask, None)
    return whole_and_rest(place, nodes, ask, typical or [])


def fewest_possible(nodes: list[Node], ask: Ask) -> int | None:
    """The least number of nodes that hold the gang, by trying all sets of nodes."""

    def room(node: Node) -> int:
        use = node.free // ask.each * ask.each
        while use and not suits(node, ask, use):
            use -= ask.each
        return use

    rooms = [room(node) for node in nodes]
    for count in range(1, len(nodes) + 1):
        if any(sum(some) >= ask.gpus for some in combinations(rooms, count)):
            return count
    return None
