"""What happens in chaos, and when: all of it follows from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["rota", "node", "ctld", "disk"]
WEIGHTS: Final[dict[Kind, int]] = {"rota": 4, "node": 4, "ctld": 3, "disk": 2}
AWAY_S: Final[dict[Kind, tuple[float, float]]] = {
    "rota": (0.0, 20.0), "node": (0.0, 40.0), "ctld": (0.0, 8.0), "disk": (0.5, 18.0),
}  # fmt: skip
NODES_DOWN: Final = 3
"""At most so many at a time."""


@dataclass(frozen=True)
class Event:
    """Something is killed, or filled, and comes back after a while."""

    at_s: float
    kind: Kind
    away_s: float
    node: str = ""


@dataclass(frozen=True)
class Work:
    """One job to be submitted."""

    at_s: float
    name: str
    nodes: int
    gpus: int
    steps: int
    most_nodes: int


@dataclass(frozen=True)
class Story:
    """All that will happen, and whether rota is dead for good at the end."""

    events: list[Event]
    works: list[Work]
    dies: bool


def told_by(seed: int, events: int, names: tuple[str, ...]) -> Story:
    """The story of a seed."""
    dice = random.Random(seed)
    back_s = dict.fromkeys(("rota", "ctld", "disk", *names), 0.0)
    at_s, found, works = 8.0, list[Event](), list[Work]()
    while len(found) < events:
        at_s += dice.uniform(0.5, 9.0)
        down = sum(back_s[name] > at_s for name in names)
        free = [k for k in WEIGHTS if k != "node" and back_s[k] <= at_s]
        up = [name for name in names if back_s[name] <= at_s]
        free += ["node"] * (down < NODES_DOWN)
        if not free:
            continue
        (kind,) = dice.choices(free, [WEIGHTS[k] for k in free])
        event = Event(at_s, kind, dice.uniform(*AWAY_S[kind]),
                      dice.choice(up) if kind == "node" else "")  # fmt: skip
        back_s[event.node or kind] = at_s + event.away_s
        found.append(event)
    count = max(8, round(1.2 * events))
    for k in range(count):
        nodes = dice.choice((1, 1, 1, 2, 2, 3))
        works.append(Work(
            0.0 if k < 8 else at_s * k / count, f"c{k}", nodes, dice.choice((1, 2, 4, 4)),
            dice.randint(10, 120) * nodes, nodes + dice.choice((0, 0, 2)),
        ))  # fmt: skip
    return Story(found, works, dice.random() < 0.4)
