"""Table files that are damaged, foreign, shared or read-only."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rota.adapt import table_file
from rota.adapt.table_build import make
from rota.adapt.table_file import TableFile, TableSpec
from rota.errors import ConfigError, InputError

SPEC = TableSpec(starts=("spirals-even",), decisions=1, seeds=1, epochs=(16,))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "begun.db"
    with TableFile.open(path, SPEC) as table:
        for run, curve in make(SPEC, list(SPEC.runs())[:1]):
            table.add(run, curve)
    return path


def changed(begun: Path, path: Path, statement: str, *values: object) -> Path:
    """A copy of a table after an SQL statement."""
    shutil.copy(begun, path)
    with closing(sqlite3.connect(path)) as link:
        link.execute(statement, values)
        link.commit()
    return path


@pytest.mark.parametrize("facts", ["[]", "null", "7", '"x"', '{"format": 1, "spec": null}'])
def test_a_table_that_describes_itself_by_something_else_is_refused(
    facts: str, begun: Path, tmp_path: Path
) -> None:
    path = changed(begun, tmp_path / "x.db", "UPDATE rota_adapt SET facts = ?", facts)
    for spec in (None, SPEC):
        with pytest.raises(InputError, match=r"x\.db: "):
            TableFile.open(path, spec)


def test_a_table_of_a_fraction_of_a_seed_is_refused(begun: Path, tmp_path: Path) -> None:
    statement = "UPDATE rota_adapt SET facts = json_set(facts, '$.spec.seeds', 2.5)"
    with pytest.raises(InputError, match=r"seeds=2\.5"):
        TableFile.open(changed(begun, tmp_path / "x.db", statement))


@pytest.mark.parametrize(
    "facts",
    [
        "{}",
        "[5, 6]",
        "[[], []]",
        '[["a"], ["b"]]',
        "[[-1.0], [9]]",
        "[[1.0], [9, 9]]",
        "[[1.0], [null]]",
        "[[1.0], [-9]]",
    ],
)
def test_work_that_no_training_has_is_damage(facts: str, begun: Path, tmp_path: Path) -> None:
    path = changed(begun, tmp_path / "x.db", "UPDATE runs SET facts = ?", facts)
    with TableFile.open(path) as table, pytest.raises(InputError, match="damaged"):
        table.curves()


@pytest.mark.parametrize("value", [np.nan, 0.0, -0.5])
def test_a_learning_rate_that_is_none_is_damage(value: float, begun: Path, tmp_path: Path) -> None:
    numbers = np.full((4, 20), 0.5, "<f4")
    numbers[3, 7] = value
    path = changed(begun, tmp_path / "x.db", "UPDATE runs SET numbers = ?", numbers.tobytes())
    with TableFile.open(path) as table, pytest.raises(InputError, match=r"damaged .*learning rate"):
        table.curves()


@pytest.mark.parametrize("value", [np.nan, 7e8, -0.5])
def test_an_accuracy_that_is_none_is_damage(value: float, begun: Path, tmp_path: Path) -> None:
    numbers = np.full((4, 20), value, "<f4").tobytes()
    path = changed(begun, tmp_path / "x.db", "UPDATE runs SET numbers = ?", numbers)
    with TableFile.open(path) as table, pytest.raises(InputError, match=r"damaged .*accuracy"):
        table.curves()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET numbers = x''",
        "UPDATE runs SET numbers = zeroblob(16)",
        "DROP TABLE runs",
    ],
)
def test_a_damaged_table_is_not_taken_for_a_whole_one(
    statement: str, begun: Path, tmp_path: Path
) -> None:
    path = changed(begun, tmp_path / "x.db", statement)
    with TableFile.open(path, SPEC) as table, pytest.raises(InputError, match="damaged"):
        table.done()


def test_a_database_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path)) as link:
        link.execute("CREATE TABLE mine (a)")
    before = path.read_bytes()
    for spec in (None, SPEC):
        with pytest.raises(InputError, match="no table of"):
            TableFile.open(path, spec)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["mine.db"]


def test_of_two_that_make_a_table_at_once_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, names, seen = tmp_path / "both.db", table_file._names, []

    def overtaken(link: sqlite3.Connection) -> set[str]:
        found = names(link)
        seen.append(found)
        if len(seen) == 1:  # the other one is faster
            TableFile.open(path, SPEC).close()
        return found

    monkeypatch.setattr(table_file, "_names", overtaken)
    with TableFile.open(path, SPEC) as table:
        assert table.spec == SPEC
        assert table.done() == set()
    assert seen[0] == set()


def test_a_table_that_may_only_be_read_is_read(begun: Path) -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        path = Path(shutil.copy(begun, name))
        path.chmod(0o444)
        Path(name).chmod(0o555)
        try:
            if user == 0:  # who may write everywhere
                os.seteuid(65534)
            with TableFile.open(path) as table:
                assert len(table.curves()) == 1
        finally:
            os.seteuid(user)
            Path(name).chmod(0o755)


def test_a_table_has_no_start_network_twice() -> None:
    with pytest.raises(ConfigError, match="'spirals-even' is given twice"):
        TableSpec(starts=("spirals-even", "spirals-even"))
