"""Tables of trainings: built in any order, from where they stopped, and played by look-up."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.adapt.cells import Cells, TableRuns
from rota.adapt.clock import Clock, Occasion, occasion
from rota.adapt.known_tables import ABOUT, TABLES, table
from rota.adapt.network_training import TrainingRules
from rota.adapt.table_build import build, make
from rota.adapt.table_file import TableFile, TableRun, TableSpec
from rota.errors import ConfigError, InputError, UnknownNameError

if TYPE_CHECKING:
    from pathlib import Path

SPEC = TableSpec(starts=("spirals-even",), decisions=1, seeds=2, epochs=(15, 16))
LATE = Occasion("late", 15, 1.0, 2.0)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "late.db"
    with TableFile.open(path, SPEC) as table:
        assert build(table, processes=1) == SPEC.size
    return path


def test_a_table_has_every_sequence_and_the_controls_of_every_cell(built: Path) -> None:
    with TableFile.open(built) as table:
        curves = table.curves()

    assert curves.keys() == set(SPEC.runs())
    assert len(curves) == SPEC.size == 1 * 2 * 2 * (6 + 2)


def test_every_run_has_its_past_and_goes_on_to_the_deadline(built: Path) -> None:
    with TableFile.open(built) as table:
        curves = table.curves()
    for run, curve in curves.items():
        epochs = run.epoch + LATE.__class__("x", run.epoch, 1.0, 2.0).epochs(Clock(), curve.work)
        assert len(curve.validation) == len(curve.rate) == epochs + 1
        assert np.isnan(curve.loss[0])
        assert np.isfinite(curve.loss[1:]).all()
    same = [
        curves[TableRun("spirals-even", 15, label, 0)] for label in ("none", "restart", "0", "5")
    ]
    for curve in same:  # up to the change all that begin alike are alike
        np.testing.assert_array_equal(curve.validation[:16], same[0].validation[:16])


def test_growing_nothing_is_the_training_that_goes_on(built: Path) -> None:
    with TableFile.open(built) as table:
        curves = table.curves()
    none, nothing = (curves[TableRun("spirals-even", 15, label, 1)] for label in ("none", "5"))

    np.testing.assert_array_equal(none.test, nothing.test)
    # Adam's rate has fallen by a tenth an epoch; a restart begins with the first rate again.
    assert none.rate[15] == pytest.approx(0.01 * 0.9**15)
    assert none.rate[16] == pytest.approx(0.01 * 0.9**16)
    restart = curves[TableRun("spirals-even", 15, "restart", 1)]
    assert restart.rate[16] == pytest.approx(0.009)
    grown = curves[TableRun("spirals-even", 15, "0", 1)]
    assert grown.rate[16] == pytest.approx(0.009)
    assert grown.work[0] > 1.5
    assert none.work == (1.0,)


def test_a_growth_begins_with_the_accuracy_that_the_network_had(built: Path) -> None:
    """What is grown computes the same: an epoch of training is all that tells the two apart."""
    with TableFile.open(built) as table:
        curves = table.curves()
    for label in "01234":
        grown = curves[TableRun("spirals-even", 15, label, 0)]
        assert grown.validation[16] > grown.validation[15] - 0.2


def test_a_table_goes_on_where_it_stopped_and_comes_out_the_same(
    built: Path, tmp_path: Path
) -> None:
    path = tmp_path / "again.db"
    some = list(SPEC.runs())[3:9]
    with TableFile.open(path, SPEC) as table:
        for run, curve in make(SPEC, some[:4]):
            table.add(run, curve)
    seen: list[int] = []
    with TableFile.open(path, SPEC) as table:
        assert build(table, processes=2, watch=seen.append) == SPEC.size - 4
        assert build(table, processes=2) == 0
    assert seen[0] == 4
    assert seen[-1] == SPEC.size
    with TableFile.open(path) as table, TableFile.open(built) as other:
        mine, theirs = table.curves(), other.curves()
    for run, curve in theirs.items():
        np.testing.assert_array_equal(mine[run].test, curve.test)


def test_a_killed_build_keeps_what_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "killed.db"
    code = (
        "import torch\nfrom pathlib import Path\ntorch.set_num_threads(1)\n"
        "from rota.adapt.table_build import build\n"
        "from rota.adapt.table_file import TableFile, TableSpec\n"
        "spec = TableSpec(starts=('spirals-even',), decisions=1, seeds=2, epochs=(15, 16))"
        "\n"
        f"build(TableFile.open(Path({str(path)!r}), spec), processes=1, "
        "watch=lambda n: print(n, flush=True))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) > 0:
                os.kill(child.pid, signal.SIGKILL)
                break
    with TableFile.open(path, SPEC) as table:
        assert 0 < len(table.done()) < SPEC.size
        assert build(table, processes=1) < SPEC.size


def test_another_table_in_the_same_file_is_refused(built: Path) -> None:
    with pytest.raises(InputError, match="seeds differ"):
        TableFile.open(built, replace(SPEC, seeds=3))
    with pytest.raises(InputError, match="rules differ"):
        TableFile.open(built, replace(SPEC, rules=TrainingRules(batch=32)))


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "no table"), (b"x" * 9000, "no table"), (None, "no such table")]
)
def test_a_file_that_is_no_table_is_refused(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        TableFile.open(path)


def test_a_table_of_another_format_is_refused(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    path.write_bytes(built.read_bytes())
    with sqlite3.connect(path) as link:
        link.execute(
            "UPDATE rota_adapt SET facts = replace(facts, '\"format\": 1', '\"format\": 9')"
        )
    link.close()
    with pytest.raises(InputError, match="format 9"):
        TableFile.open(path)


def test_a_table_whose_rows_are_damaged_is_refused(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "torn.db"
    path.write_bytes(built.read_bytes())
    with sqlite3.connect(path) as link:
        link.execute("UPDATE runs SET numbers = substr(numbers, 1, 7) WHERE seed = 1")
    link.close()
    with TableFile.open(path) as table, pytest.raises(InputError, match="damaged"):
        table.curves()


def test_cells_say_what_a_network_reaches_by_the_deadline(built: Path) -> None:
    with TableFile.open(built) as table:
        curves = table.curves()
        cells = Cells(TableRuns(table), ["spirals-even"], [LATE], split="test")
    grown = curves[TableRun("spirals-even", 15, "0", 1)]
    left = int(30.0 / Clock().epoch(grown.work[0], 2.0))

    assert cells.names == ("spirals-even/late",)
    assert cells.accuracy(0, 1, (0,)) == grown.test[15 + left]
    none = curves[TableRun("spirals-even", 15, "none", 1)]
    assert cells.reference(0, 1) == none.test[15 + 5]  # 30 s at 6 s an epoch
    assert cells.restarted(0, 1) == curves[TableRun("spirals-even", 15, "restart", 1)].test[20]


def test_a_moment_says_what_is_known_when_the_agent_is_asked(built: Path) -> None:
    with TableFile.open(built) as table:
        cells = Cells(TableRuns(table), ["spirals-even"], [LATE])
        none = table.curves()[TableRun("spirals-even", 15, "none", 0)]
    moment = cells.moment(0, 0, ())

    assert moment is cells.moment(0, 0, ())
    assert (moment.left_s, moment.total_s) == (pytest.approx(30.0), pytest.approx(180.0))
    assert (moment.gpus_before, moment.gpus, moment.step) == (1.0, 2.0, 0)
    assert moment.accuracy == none.validation[15]
    assert moment.slope == pytest.approx((none.validation[15] - none.validation[12]) / 3)
    assert moment.learning_rate == pytest.approx(0.01 * 0.9**15)
    assert len(moment.choices) == 6
    assert moment.choices[-1].growth is None
    assert moment.choices[-1].epoch_s == moment.epoch_s == pytest.approx(6.0)
    assert moment.choices[0].epoch_s > moment.epoch_s
    assert [layer.name for layer in moment.layers] == ["0", "2", "4"]
    assert [choice.layer for choice in moment.choices] == [0, 1, 2, 0, 1, -1]


def test_what_a_table_has_no_runs_of_is_refused(built: Path) -> None:
    with TableFile.open(built) as table:
        with pytest.raises(InputError, match="after epoch 3"):
            Cells(TableRuns(table), ["spirals-even"], [occasion("early-1to2")])
        with pytest.raises(InputError, match="no runs of 'digits-even'"):
            Cells(TableRuns(table), ["digits-even"], [LATE])
        with pytest.raises(ConfigError, match="nothing to play"):
            Cells(TableRuns(table), [], [LATE])
        far = Cells(TableRuns(table), ["spirals-even"], [Occasion("fast", 15, 1.0, 64.0)])
        with pytest.raises(InputError, match="has time for"):
            far.reference(0, 0)


def test_an_unfinished_table_says_that_runs_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "begun.db"
    with TableFile.open(path, SPEC) as table:
        for run, curve in make(SPEC, list(SPEC.runs())[:1]):
            table.add(run, curve)
        cells = Cells(TableRuns(table), ["spirals-even"], [LATE])
        with pytest.raises(InputError, match="lacks the run '3'"):
            cells.accuracy(0, 0, (3,))


def test_tables_have_names_and_sizes() -> None:
    assert ABOUT.keys() == TABLES.keys()
    assert table("deepen").choices ** 3 == 64
    with pytest.raises(UnknownNameError, match="Did you mean 'deepen'"):
        table("deepn")
    for spec in TABLES.values():
        assert spec.size == sum(1 for _ in spec.runs())


@pytest.mark.parametrize(
    "bad",
    [{"starts": ()}, {"starts": ("digit-even",)}, {"decisions": 0}, {"seeds": 0},
     {"epochs": (0,)}, {"epochs": (24,)}, {"speedup": float("nan")}],
)  # fmt: skip
def test_a_table_of_nothing_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        TableSpec(**{"starts": ("digits-even",), **bad})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [{"batch": 0}, {"learning_rate": 0.0}, {"decay": 1.5}, {"reset": "never"}]
)
def test_rules_of_no_training_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        TrainingRules(**bad)  # type: ignore[arg-type]
