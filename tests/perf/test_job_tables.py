"""Tables of measured jobs, and the laws fitted to them, from tables with known answers."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import DamagedError, InputError
from rota.perf.job_laws import fit_laws, read_laws
from rota.perf.job_tables import JobTables, PlacedModel, Throughput, window_rates
from rota.perf.laws import check_models
from rota.perf.shipped import shipped

if TYPE_CHECKING:
    from pathlib import Path

SIZES = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4))
ranks = st.floats(0.05, 0.95)


def tables_of(folder: Path, models: dict[str, tuple[float, float]]) -> JobTables:
    """Speed 100 · workers^.8 · nodes^−.1, pairs by (sensitivity, intensity), no noise."""
    tables = JobTables(folder)
    for name in models:
        for workers, nodes in SIZES:
            speed = 100 * workers**0.8 * nodes**-0.1
            tables.alone[PlacedModel(name, workers, nodes)] = Throughput(speed, 5, 0.01)
    for a, (hurt, _) in models.items():
        for b, (_, harm) in models.items():
            pair = PlacedModel(a, 2, 2), PlacedModel(b, 2, 2)
            left = (1 - hurt * harm) * tables.alone[pair[0]].value
            tables.beside[pair] = Throughput(left, 5, 0.01)
    return tables


# Throughput.


def test_the_speed_is_the_median_of_windows_so_that_a_pause_does_not_count() -> None:
    # 10 samples a second for 50 s, but 8 s without any after 20 s: one window of five is slow.
    points = [(10.0 * t, float(t)) for t in range(21)]
    points += [(10.0 * t, float(t) + 8) for t in range(21, 43)]
    found = Throughput.of(window_rates(points))
    assert found.value == pytest.approx(10)
    assert found.windows == 5


def test_slow_steps_make_fewer_windows() -> None:
    assert window_rates([(0, 0), (0, 0), (64, 8), (64, 8), (128, 16)]) == [8, 8]


@pytest.mark.parametrize(
    "points",
    [
        [], [(64, 1)], [(64, 1), (64, 1)], [(64, 1), (64, 2)], [(64, 1), (math.nan, 2)],
        [(64, 1), (0, 2)], [(64, 1), (math.inf, 2)], [(64, math.nan), (128, math.nan)],
    ],
)  # fmt: skip
def test_what_is_no_speed_is_not_taken_for_one(points: list[tuple[float, float]]) -> None:
    assert window_rates(points) == []


@given(st.floats(1e-3, 1e6), st.lists(st.floats(0.01, 10), min_size=1, max_size=60))
def test_a_steady_job_has_its_speed_however_long_its_steps_are(
    speed: float, steps_s: list[float]
) -> None:
    times = [0.0, *np.cumsum(steps_s).tolist()]
    found = Throughput.of(window_rates([(speed * t, t) for t in times]))
    assert found.value == pytest.approx(speed, rel=1e-6)
    assert found.spread < 1e-6
    assert 1 <= found.windows <= min(5, len(steps_s))


def test_what_is_left_has_the_spread_of_both() -> None:
    left = Throughput(50, 5, 0.03).against(Throughput(100, 4, 0.04))
    assert (left.value, left.windows, left.spread) == (0.5, 5, pytest.approx(0.05))


# Tables.


def test_tables_are_read_as_they_were_written(tmp_path: Path) -> None:
    tables, odd = JobTables(tmp_path), 'a, "b" × ü'
    one, two = PlacedModel(odd, 2, 1), PlacedModel("b", 4, 2)
    tables.add_alone(one, Throughput(12.5, 5, 0.25))
    tables.add_alone(two, Throughput(1e-9, 1, 0))
    tables.add_pair({(one, two): Throughput(0.5, 5, 0.1), (two, one): Throughput(0.25, 5, 0.1)})
    again = JobTables(tmp_path)
    assert again.alone == tables.alone
    assert again.beside == tables.beside
    assert again.models == [odd, "b"]


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("a,2,1,nan,5,0.1", "samples_per_s"), ("a,2,1,0,5,0.1", "above 0"),
        ("a,2,1,-3,5,0.1", "above 0"), ("a,0,1,3,5,0.1", "num_workers"),
        ("a,2,1,3,5", "is the file complete"), ("a,2,1,3,5,inf", "spread"), (",2,1,3,5,0", "empty"),
        ("a,2,1,3,5,0\na,2,1,4,5,0", "was measured in row 2 already"),
        ("b,1,1,3,5,0\na,1,2,4,5,0", "row 3: 1 workers cannot be on 2 nodes"),
        (f"a,{10**30},1,3,5,0", "num_workers"),
    ],
)  # fmt: skip
def test_a_damaged_table_is_refused_with_its_row(tmp_path: Path, row: str, word: str) -> None:
    head = "model,num_workers,num_nodes,samples_per_s,windows,spread"
    (tmp_path / "isolated.csv").write_text(f"{head}\n{row}\n")
    with pytest.raises(InputError, match=word) as error:
        JobTables(tmp_path)
    assert "isolated.csv, row" in str(error.value)


@pytest.mark.parametrize("text", ["", "model\n", "\x00\xff", "model,num_workers\na,1\n"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pairs.csv").write_text(text, encoding="latin-1")
    with pytest.raises(InputError, match=r"pairs\.csv"):
        JobTables(tmp_path)


def test_rows_of_another_command_do_not_pass_for_those_of_this_one(tmp_path: Path) -> None:
    tables = JobTables(tmp_path)
    tables.claim({"a": {"command": ["x"], "threads": 0}})
    tables.claim({"a": {"command": ["y"], "threads": 0}})  # nothing was measured yet
    tables.add_alone(PlacedModel("a", 1, 1), Throughput(1, 5, 0))
    again = JobTables(tmp_path)
    again.claim({"a": {"command": ["y"], "threads": 0}, "b": {"command": ["x"]}})
    with pytest.raises(InputError, match="was measured with threads = 0, and now has None"):
        again.check({"a": {"command": ["y"]}})
    with pytest.raises(InputError, match="was measured with threads = 0, and now has 4"):
        again.claim({"a": {"command": ["y"], "threads": 4}})
    for text in ("{", '{"a": 3}'):
        (tmp_path / "measured.json").write_text(text)
        with pytest.raises(DamagedError):
            JobTables(tmp_path).check({"a": {"command": ["y"]}})


def test_rows_of_pairs_are_held_to_their_command_too(tmp_path: Path) -> None:
    tables, one = JobTables(tmp_path), PlacedModel("a", 1, 1)
    tables.claim({"a": {"command": ["x"]}})
    tables.add_pair({(one, one): Throughput(50, 5, 0)})
    with pytest.raises(InputError, match="was measured with command"):
        JobTables(tmp_path).check({"a": {"command": ["y"]}})


def test_who_only_looks_does_not_say_what_was_measured(tmp_path: Path) -> None:
    first, second = JobTables(tmp_path), JobTables(tmp_path)
    first.claim({"a": {"command": ["x"]}})
    second.check({"a": {"command": ["y"]}})  # it would measure next, after a look for the lock
    first.add_alone(PlacedModel("a", 1, 1), Throughput(1, 5, 0))
    JobTables(tmp_path).check({"a": {"command": ["x"]}})
    with pytest.raises(InputError, match="was measured with command"):
        JobTables(tmp_path).claim({"a": {"command": ["y"]}})


def test_ratios_are_to_the_speed_alone_that_was_measured_last(tmp_path: Path) -> None:
    tables, a, b = JobTables(tmp_path), PlacedModel("a", 1, 1), PlacedModel("b", 1, 1)
    tables.add_alone(a, Throughput(100, 5, 0))
    tables.add_pair({(a, b): Throughput(50, 5, 0), (b, a): Throughput(20, 5, 0)})
    assert {pair: one.value for pair, one in tables.ratios.items()} == {(a, b): 0.5}
    tables.add_alone(a, Throughput(200, 5, 0))
    assert tables.ratios[a, b].value == 0.25


def test_a_table_whose_rows_were_all_deleted_is_empty(tmp_path: Path) -> None:
    tables, one = JobTables(tmp_path), PlacedModel("a", 1, 1)
    tables.add_alone(one, Throughput(100, 5, 0))
    tables.add_pair({(one, one): Throughput(50, 5, 0)})
    for path in tmp_path.glob("*.csv"):
        path.write_text(path.read_text().splitlines(keepends=True)[0])
    again = JobTables(tmp_path)
    assert (again.alone, again.beside) == ({}, {})


def test_laws_are_the_same_from_tables_as_measured_and_as_read(tmp_path: Path) -> None:
    tables, one = JobTables(tmp_path), PlacedModel("a", 1, 1)
    tables.add_alone(one, Throughput(123.456789, 5, 0.123456))
    tables.add_pair({(one, one): Throughput(81.23456789, 5, 0.1)})
    assert fit_laws(tables) == fit_laws(JobTables(tmp_path))


# Fits.


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(ranks, ranks), min_size=2, max_size=6))
def test_sensitivity_times_intensity_is_found_again(
    tmp_path_factory: pytest.TempPathFactory, models: list[tuple[float, float]]
) -> None:
    told = {f"m{k}": pair for k, pair in enumerate(models)}
    laws = fit_laws(tables_of(tmp_path_factory.mktemp("t"), told))
    for a, (hurt, _) in told.items():
        for b, (_, harm) in told.items():
            found = laws.models[a].across.sensitivity * laws.models[b].across.intensity
            assert found == pytest.approx(hurt * harm, abs=1e-6)
    lost = np.outer(*np.array(models).T)
    if np.ptp(lost) > 1e-3:
        assert laws.r2 == pytest.approx(1.0)
    for law in laws.models.values():
        assert law.by_workers == pytest.approx(0.8)
        assert law.by_nodes == pytest.approx(-0.1)
        assert law.one == pytest.approx(100)


def test_a_pair_that_was_not_measured_is_told_by_the_others(tmp_path: Path) -> None:
    told = {"a": (0.2, 0.9), "b": (0.8, 0.3), "c": (0.5, 0.6)}
    tables = tables_of(tmp_path, told)
    del tables.beside[PlacedModel("a", 2, 2), PlacedModel("b", 2, 2)]
    laws = fit_laws(tables)
    found = laws.models["a"].across.sensitivity * laws.models["b"].across.intensity
    assert found == pytest.approx(0.2 * 0.3, abs=1e-4)


def test_pairs_on_one_node_and_over_several_are_fitted_by_themselves(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, {"a": (0.4, 0.5), "b": (0.8, 0.9)})
    placed = [PlacedModel(model, 2, 1) for model in "ab"]
    for victim in placed:
        for other in placed:  # who shares a node loses nothing
            tables.beside[victim, other] = tables.alone[victim]
    laws = fit_laws(tables)
    assert laws.apart
    assert laws.r2 == pytest.approx(1.0)
    assert laws.models["a"].across.sensitivity * laws.models["b"].across.intensity == pytest.approx(
        0.36
    )
    assert laws.models["a"].on_one.sensitivity * laws.models["b"].on_one.intensity == 0
    found = laws.contention(["a", "b", "new"])
    check_models(found, 3)
    for nodes, lost in ((1, 0.0), (2, 0.36)):
        a, b = found.kind[:2, nodes, 1]
        assert found.hurt[a] * found.harm[b] == pytest.approx(lost)
    assert read_laws(laws.write(tmp_path)) == laws


def test_where_only_one_of_both_was_measured_it_holds_for_both(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, {"a": (0.4, 0.5), "b": (0.8, 0.9)})
    laws = fit_laws(tables)
    assert not laws.apart
    assert laws.models["a"].on_one == laws.models["a"].across
    assert laws.on_one == laws.across


def test_jobs_that_were_not_paired_are_average_jobs(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, {"a": (0.4, 0.4), "b": (0.8, 0.8)})
    tables.alone[PlacedModel("new", 2, 1)] = Throughput(7, 5, 0)
    laws = fit_laws(tables)
    new = laws.models["new"]
    assert not new.across.paired
    assert new.across == laws.across
    assert laws.across.sensitivity == pytest.approx(0.6, abs=1e-6)
    # One size says nothing of others: it scales as DeepShare's jobs do on average.
    usual = np.mean([job["by_gpus"] for job in shipped("deepshare").values()])
    assert new.by_workers == pytest.approx(usual, abs=1e-3)
    assert new.speed(np.array(1.0), np.array(2.0)) == pytest.approx(7)


def test_without_any_pair_jobs_are_like_those_that_ship(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, {"a": (0.4, 0.4)})
    tables.beside.clear()
    laws = fit_laws(tables)
    kinds = [kind for job in shipped("deepshare").values() for kind in job["kinds"]]
    assert laws.models["a"].across.sensitivity == pytest.approx(
        np.mean([kind[2] for kind in kinds])
    )
    assert laws.r2 is None


def test_a_job_that_gains_beside_others_counts_as_undisturbed(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, {"a": (0.0, 0.0)})
    tables.beside = {pair: Throughput(1e6, 5, 0) for pair in tables.beside}
    laws = fit_laws(tables)
    assert laws.models["a"].across.sensitivity * laws.models["a"].across.intensity == 0


def test_curves_are_as_measured_where_it_was_measured(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, {"a": (0.4, 0.4)})
    tables.alone[PlacedModel("a", 4, 2)] = Throughput(7.0, 5, 0)
    curves = fit_laws(tables).curves(3, 8)
    assert curves.speed[0, 0, 2, 4] == 7
    assert curves.speed[0, 0, 3, 8] > 0  # by the law
    assert curves.speed[0, 0, 3, 2] == 0  # a node without a worker
    assert curves.measured.tolist() == [[4, 8]]
    laws = fit_laws(tables).contention(["x", "a"])
    check_models(laws, 2)
    assert laws.kind[:, 2, 1].tolist() == [1, 0, 1]
    assert (laws.kind[:, 1] == -1).all()  # nothing was measured on one node


def test_laws_are_read_as_they_were_written(tmp_path: Path) -> None:
    laws = fit_laws(tables_of(tmp_path, {"a": (0.4, 0.4), "b": (0.8, 0.8)}))
    assert read_laws(laws.write(tmp_path)) == laws
    assert read_laws(tmp_path) == laws


def test_laws_know_how_many_gpus_a_worker_had(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, {"a": (0.4, 0.4), "b": (0.8, 0.8)})
    tables.claim({"a": {"gpus_per_worker": 4}})
    laws = fit_laws(tables)
    assert [law.gpus_per_worker for law in laws.models.values()] == [4, 1]
    assert read_laws(laws.write(tmp_path)) == laws
    (tmp_path / "measured.json").write_text('{"c": {"gpus_per_worker": -1}}')
    with pytest.raises(DamagedError, match="gpus_per_worker of 'c' is -1"):
        JobTables(tmp_path).gpus_per_worker("c")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1}, {"models": {}}, {"models": []}, {"models": {"a": {}}}, {"one_node": 1},
        {"on_one": {}}, {"across": 3}, {"r2": "good"},
        {"across": {"sensitivity": -1, "intensity": 1, "paired": True}},
        {"on_one": {"sensitivity": 1, "intensity": math.nan, "paired": True}},
    ],
)  # fmt: skip
def test_a_damaged_profile_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = fit_laws(tables_of(tmp_path, {"a": (0.4, 0.4)})).write(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match="rota profile"):
        read_laws(path)


@pytest.mark.parametrize("key", ["one", "by_workers", "placements", "across", "gpus_per_worker"])
@pytest.mark.parametrize("value", [None, "x", math.nan, -1e30, [[1, 2, 3]], []])
def test_a_damaged_law_of_a_model_is_refused(tmp_path: Path, key: str, value: object) -> None:
    path = fit_laws(tables_of(tmp_path, {"a": (0.4, 0.4)})).write(tmp_path)
    facts = json.loads(path.read_text())
    facts["models"]["a"][key] = value
    path.write_text(json.dumps(facts))
    if (key, value) == ("placements", []):
        assert read_laws(path).models["a"].placements == ()
        return
    with pytest.raises(InputError, match="rota profile"):
        read_laws(path)


@pytest.mark.parametrize(
    "text",
    [
        "[[Infinity, 1, 2]]", "[[1e999, 1, 2]]", f"[[1, 1, {'9' * 400}]]", "[[1e30, 1, 2]]",
        "[[2.7, 1.2, 3]]", '[["2", "1", "3"]]', "[[NaN, 1, 2]]", "[[2, 1]]", "[[true, 1, 2]]",
        "[3]",
    ],
)  # fmt: skip
def test_placements_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    path = fit_laws(tables_of(tmp_path, {"a": (0.4, 0.4)})).write(tmp_path)
    facts = json.loads(path.read_text())
    facts["models"]["a"]["placements"] = "@"
    path.write_text(json.dumps(facts).replace('"@"', text))
    with pytest.raises(InputError, match="make it again with `rota profile`"):
        read_laws(path)


@pytest.mark.parametrize("text", [None, "", "[]", "{", "\x00"])
def test_what_is_no_profile_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "profile.json").write_text(text)
    with pytest.raises(InputError, match="make it with `rota profile`"):
        read_laws(tmp_path)
