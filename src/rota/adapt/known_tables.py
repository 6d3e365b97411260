"""The tables of trainings that rota's results rest on, by name."""

from __future__ import annotations

from typing import Final

from rota.adapt.clock import EPOCHS, HELD_OUT
from rota.adapt.network_training import TrainingRules
from rota.adapt.starts import STARTS
from rota.adapt.table_file import TableSpec
from rota.errors import UnknownNameError

_OWN: Final = tuple(name for name, s in STARTS.items() if not (s.held_out or s.published))
_OTHERS: Final = tuple(name for name, s in STARTS.items() if s.held_out)

TABLES: Final = {
    "learn": TableSpec(
        starts=_OWN, epochs=tuple(e for name, e in EPOCHS.items() if name not in HELD_OUT)
    ),
    "held-out": TableSpec(starts=_OTHERS, epochs=tuple(EPOCHS[name] for name in HELD_OUT)),
    "deepen": TableSpec(
        starts=("cnn1", "spirals-even"), menu="deepen", decisions=3
    ),
    "published": TableSpec(
        starts=("cnn1-clamped",), menu="published", decisions=3,
        rules=TrainingRules(reset="always", calibrated=False),
    ),
    "tiny": TableSpec(
        starts=("spirals-even",), epochs=(3, 15), decisions=1, seeds=2
    ),
}  # fmt: skip
ABOUT: Final = {
    "learn": "what agents learn on: growth of every kind, two decisions",
    "held-out": "start networks and times that no agent learns on",
    "deepen": "the published choices, three decisions, without the published defects",
    "published": "the same with them: B1, B2 and B3",
    "tiny": "a table of a minute, to try things out",
}


def table(name: str) -> TableSpec:
    """The table called so."""
    if name not in TABLES:
        raise UnknownNameError("table", name, TABLES)
    return TABLES[name]
