"""The file in which the runs of a table are kept, one row each; what is written stays written.

It is an SQLite file. A table that was interrupted, or killed, goes on with the runs it lacks.
"""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from rota import __version__
from rota.adapt.clock import BUDGET, EPOCHS, FASTEST
from rota.adapt.network_training import RunCurve, TrainingRules
from rota.adapt.starts import STARTS, growths, start
from rota.errors import ConfigError, InputError, RotaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from rota.adapt.starts import Menu

FORMAT: Final = 1
"""Raised when what a run means has changed, so that old tables would mislead."""
_READ_ONLY: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
CONTROLS: Final = ("none", "restart")
"""Runs beside the sequences: no growth with normal decay, and with one restart of the rate."""


class TableRun(NamedTuple):
    """One training of a table."""

    start: str
    epoch: int
    """After which the resources change."""
    sequence: str
    """Choices by their numbers in the menu, such as "0,3", or one of the controls."""
    seed: int


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """Which trainings a table consists of."""

    starts: tuple[str, ...]
    menu: Menu = "all"
    decisions: int = 2
    """Epochs after the change of resources before which the agent is asked."""
    seeds: int = 5
    epochs: tuple[int, ...] = tuple(EPOCHS.values())
    """After which resources change."""
    speedup: float = FASTEST
    """For how many times as fast resources the runs go on to the deadline."""
    rules: TrainingRules = field(default_factory=TrainingRules)

    def __post_init__(self) -> None:
        if not self.starts:
            raise ConfigError("A table needs at least one start network.")
        for name in self.starts:
            growths(start(name), self.menu)
        if twice := [name for name in self.starts if self.starts.count(name) > 1]:
            raise ConfigError(f"{twice[0]!r} is given twice; a table has each start network once.")
        whole = all(isinstance(x, int) for x in (self.decisions, self.seeds, *self.epochs))
        if not (whole and 1 <= self.decisions <= 4 and 1 <= self.seeds <= 1000):
            raise ConfigError(
                f"decisions={self.decisions} must be from 1 to 4, seeds={self.seeds} from 1 to "
                "1000."
            )
        if not 0 < self.speedup < math.inf:
            raise ConfigError(f"speedup={self.speedup} must be above 0.")
        if wrong := [epoch for epoch in self.epochs if not 1 <= epoch < BUDGET]:
            raise ConfigError(
                f"Resources cannot change after epoch {wrong[0]}: the deadline is after epoch "
                f"{BUDGET}; give epochs from 1 to {BUDGET - 1}."
            )

    @property
    def choices(self) -> int:
        """Choices of each decision."""
        return len(growths(STARTS[self.starts[0]], self.menu))

    def sequences(self) -> Iterator[tuple[int, ...]]:
        """Every sequence of choices."""
        for flat in range(self.choices**self.decisions):
            yield tuple(int(k) for k in np.unravel_index(flat, (self.choices,) * self.decisions))

    def runs(self) -> Iterator[TableRun]:
        """Every training, those of one start network, epoch and seed together."""
        labels = [*CONTROLS, *(",".join(map(str, sequence)) for sequence in self.sequences())]
        for name in self.starts:
            for seed in range(self.seeds):
                for epoch in self.epochs:
                    for label in labels:
                        yield TableRun(name, epoch, label, seed)

    @property
    def size(self) -> int:
        """The number of trainings."""
        each: int = self.choices**self.decisions + len(CONTROLS)
        return len(self.starts) * len(self.epochs) * self.seeds * each

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> TableSpec:
        """Read what `asdict` gave, after JSON."""
        plain = {**facts, "starts": tuple(facts["starts"]), "epochs": tuple(facts["epochs"])}
        return cls(**{**plain, "rules": TrainingRules(**facts["rules"])})


class TableFile:
    """An open table."""

    def __init__(self, path: Path, link: sqlite3.Connection, spec: TableSpec) -> None:
        self.path, self.spec, self._link = path, spec, link

    @classmethod
    def open(cls, path: Path, spec: TableSpec | None = None) -> Self:
        """Open a table; with a `spec`, make it or go on with one of the same spec."""
        if spec is None and not path.is_file():
            raise InputError(f"{path}: There is no such table; `rota adapt table` makes one.")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            link = _linked(path)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: The table cannot be opened: {error}.") from None
        try:
            found = _settle(path, link, spec)
        except BaseException:
            link.close()
            raise
        return cls(path, link, found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._link.close()

    def done(self) -> set[TableRun]:
        """The runs that are there."""
        return set(self.curves())  # so that a table is not taken for whole that cannot be read

    def add(self, run: TableRun, curve: RunCurve) -> None:
        """Keep a run; it is on disk when this returns."""
        columns = np.stack([curve.validation, curve.test, curve.loss, curve.rate])
        numbers = columns.astype("<f4").tobytes()
        facts = json.dumps([list(curve.work), list(curve.parameters)])
        try:
            self._link.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", (*run, facts, numbers)
            )
        except sqlite3.Error as error:
            raise RotaError(
                f"{self.path}: A run cannot be written: {error}. What was written before is kept; "
                "make room and call the same command again."
            ) from None

    def curves(self) -> dict[TableRun, RunCurve]:
        """All runs."""
        found = {}
        try:
            for *run, facts, numbers in self._link.execute("SELECT * FROM runs"):
                found[TableRun(*run)] = _curve(TableRun(*run), facts, numbers)
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise InputError(
                f"{self.path}: The table is damaged ({error}); remove it and make it again."
            ) from None
        return found


def _curve(run: TableRun, facts: str, numbers: bytes) -> RunCurve:
    """A run as it was kept; a ValueError or TypeError where no training can have been like that."""
    columns = np.frombuffer(numbers, "<f4").reshape(4, -1).astype(np.float32)
    validation, test, loss, rate = columns
    work, parameters = json.loads(facts)
    if not (validation.size > run.epoch + 1 and work and len(work) == len(parameters)):
        raise ValueError("a run without the epochs or the work that it should have")
    if not ((columns[:2] >= 0.0) & (columns[:2] <= 1.0)).all():
        raise ValueError("an accuracy that is not between 0 and 1")
    if not all(0.0 < share < math.inf for share in work):
        raise ValueError("work that is not above 0")
    if not all(isinstance(count, int) and count > 0 for count in parameters):
        raise ValueError("a network without parameters")
    if not (rate > 0.0).all():
        raise ValueError("a learning rate that is not above 0")
    return RunCurve(validation, test, loss, rate, tuple(work), tuple(parameters))


def _linked(path: Path) -> sqlite3.Connection:
    link = sqlite3.connect(path, isolation_level=None, timeout=60.0)
    try:
        link.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.OperationalError as error:
        link.close()
        if error.sqlite_errorcode & 0xFF not in _READ_ONLY or not path.is_file():
            raise
        # SQLite puts a file beside a table to read it; where it cannot, nobody else is writing.
        only = f"{path.absolute().as_uri()}?immutable=1"
        return sqlite3.connect(only, uri=True, isolation_level=None)
    except sqlite3.DatabaseError:
        pass  # no such file, or a damaged one: what is done with it next says so
    return link


def _settle(path: Path, link: sqlite3.Connection, spec: TableSpec | None) -> TableSpec:
    """What the table is of; refuse a file of another kind, version or spec."""
    try:
        if spec is not None:
            _create(link, spec)
        names = _names(link)
        if "rota_adapt" not in names:
            raise InputError(f"{path}: This is no table of `rota adapt table`.")
        facts = dict(json.loads(link.execute("SELECT facts FROM rota_adapt").fetchone()[0]))
        if spec is not None:  # not before, since the file may be of something else
            with suppress(sqlite3.OperationalError):  # another builder is using the file
                link.execute("PRAGMA journal_mode=WAL")
            link.execute("PRAGMA synchronous=NORMAL")
    except sqlite3.OperationalError as error:
        raise InputError(
            f"{path}: This cannot be read as a table of `rota adapt table`: {error}."
        ) from None
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise InputError(
            f"{path}: This is no table of `rota adapt table`, or a damaged one ({error}); give "
            "another file, or remove it and make it again."
        ) from None
    if facts.get("format") != FORMAT:
        raise InputError(
            f"{path}: The table has format {facts.get('format')!r} (rota {facts.get('rota')}); "
            f"this rota {__version__} reads format {FORMAT}. Make it again, in another file."
        )
    try:
        found = TableSpec.of(facts["spec"])
    except (KeyError, TypeError, RotaError) as error:
        raise InputError(f"{path}: What the table says of itself is wrong: {error}.") from None
    if spec is not None and found != spec:
        changed = [key for key, value in asdict(spec).items() if asdict(found)[key] != value]
        raise InputError(
            f"{path}: There is a table of other trainings already ({', '.join(changed)} differ); "
            "give another file, or remove this one."
        )
    return found


def _names(link: sqlite3.Connection) -> set[str]:
    return {row[0] for row in link.execute("SELECT name FROM sqlite_master")}


def _create(link: sqlite3.Connection, spec: TableSpec) -> None:
    """Make the table, unless something is in the file; of two builders one does."""
    if _names(link):
        return
    facts = json.dumps({"format": FORMAT, "rota": __version__, "spec": asdict(spec)})
    link.execute("BEGIN IMMEDIATE")
    if not _names(link):  # in the meantime
        link.execute("CREATE TABLE rota_adapt (facts TEXT NOT NULL)")
        link.execute("INSERT INTO rota_adapt VALUES (?)", (facts,))
        link.execute(
            "CREATE TABLE runs (start TEXT, epoch INTEGER, sequence TEXT, seed INTEGER, "
            "facts TEXT, numbers BLOB, PRIMARY KEY (start, epoch, sequence, seed)) WITHOUT ROWID"
        )
    link.execute("COMMIT")
