"""`rota adapt`: a table, an agent, an evaluation and a page, and what they refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.adapt.apprentice import LEARNERS, apprentice, load_agent
from rota.adapt.cells import Cells, TableRuns
from rota.adapt.clock import occasion, occasions_at
from rota.adapt.evaluation import evaluate
from rota.adapt.surrogate import Surrogate, held_out_error
from rota.adapt.table_build import build
from rota.adapt.table_file import TableFile, TableRun, TableSpec
from rota.cli.app import run
from rota.errors import CheckpointError, ConfigError, InputError, UnknownNameError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.db"
    assert run(["adapt", "table", "tiny", "--out", str(path), "--processes", "1"]) == 0
    return path


@pytest.fixture(scope="module")
def runs(tiny: Path) -> TableRuns:
    with TableFile.open(tiny) as table:
        return TableRuns(table)


@pytest.fixture(scope="module")
def agent(tiny: Path) -> Path:
    path = tiny.with_name("agent.ckpt")
    words = ["adapt", "train", "--table", str(tiny), "--out", str(path), "--episodes", "320"]
    assert run(words) == 0
    assert not path.with_suffix(".state").exists()
    return path


def test_a_table_that_is_there_is_not_made_again(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["adapt", "table", "tiny", "--out", str(tiny), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)

    assert (facts["made"], facts["runs"]) == (0, 32)
    assert facts["spec"]["starts"] == ["spirals-even"]


def test_tables_and_start_networks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["adapt", "table"]) == 0
    shown = capsys.readouterr().out
    assert "held-out" in shown
    assert "digits-residual" in shown
    assert run(["adapt", "table", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["starts"]["waves-back"]["held_out"]


def test_an_evaluation_compares_the_agent_with_baselines(
    tiny: Path, agent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["adapt", "evaluate", str(agent), "--table", str(tiny), "--learned-on", str(tiny)]
    assert run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    standing = {one["name"]: one for one in found["standings"]}

    assert len(found["cases"]) == 6  # two times, three changes of resources
    assert standing["nothing"]["gain"] == 0.0
    assert standing["hindsight"]["accuracy"] >= standing["agent"]["accuracy"]
    assert {d["baseline"] for d in found["differences"]} == {
        "nothing", "restart", "random", "constant", "constant-same-network",
    }  # fmt: skip
    for difference in found["differences"]:
        assert difference["low"] <= difference["mean"] <= difference["high"]
    assert run(words) == 0
    assert "95 % interval" in capsys.readouterr().out


def test_agents_whose_files_are_called_alike_are_told_apart(
    tiny: Path, agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "a" / "x.ckpt", tmp_path / "b" / "x.ckpt", tmp_path / "random.ckpt"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(agent.read_bytes())
    words = ["adapt", "evaluate", *map(str, [*paths, agent, agent]), "--table", str(tiny)]
    assert run([*words, "--json", "--occasions", "early-1to2,early-1to2"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [one["name"] for one in found["standings"]]

    assert len(found["cases"]) == 1  # the same occasion twice is no more evidence
    assert names[3:7] == [*map(str, paths), "agent"]
    assert len(set(names)) == len(names)


def test_an_agent_replaces_nothing_else_and_is_refused_before_it_learns(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "copy.db"
    table.write_bytes(tiny.read_bytes())
    for out, message in [
        (table, "exists and is no agent"),
        (tmp_path, "is a folder"),
        (tmp_path / "agent.state", "state of the training is kept under this name"),
    ]:
        words = ["adapt", "train", "--table", str(table), "--out", str(out), "--episodes", "16"]
        assert run(words) == 2
        assert message in capsys.readouterr().err
    assert table.read_bytes() == tiny.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["copy.db"]


def test_constants_are_not_chosen_on_a_table_with_other_choices(
    tiny: Path, agent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.db"
    with TableFile.open(other, TableSpec(starts=("spirals-even",), menu="deepen", decisions=1)):
        pass
    words = ["adapt", "evaluate", str(agent), "--table", str(tiny), "--learned-on", str(other)]
    assert run(words) == 2
    assert "no constant can be chosen on it" in capsys.readouterr().err


def test_a_page_is_drawn_of_it(tiny: Path, agent: Path) -> None:
    page = tiny.with_name("report.html")
    assert run(["adapt", "plot", str(agent), "--table", str(tiny), "--out", str(page)]) == 0
    text = page.read_text()

    assert "spirals-even" in text
    assert text.count('<svg class="chart') == 1
    assert "NaN" not in text


def test_a_page_replaces_nothing_that_is_no_page(tiny: Path, agent: Path) -> None:
    other = tiny.with_name("precious.html")
    other.write_text("mine")
    words = ["adapt", "plot", str(agent), "--table", str(tiny), "--out", str(other)]
    assert run(words) == 2
    assert other.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table", "tinny"], "Did you mean 'tiny'"),
        (["table", "tiny", "--starts", "digit-wide"], "Did you mean 'digits-wide'"),
        (["table", "tiny", "--starts", ","], "names nothing"),
        (["train", "--table", "no.db"], "no such table"),
        (["train", "--learner", "theirs"], "No learner is called 'theirs'"),
        (["train", "--learner", "published"], "has 4 choices"),
        (["train", "--occasions", "never"], "No occasion is called 'never'"),
        (["train", "--occasions", "middle-1to2"], "after epoch 9"),
        (["train", "--resume"], "no training to go on with"),
        (["evaluate", "no.ckpt"], "no such checkpoint"),
        (["evaluate", "--starts", "waves-back"], "no runs of 'waves-back'"),
    ],
)
def test_what_cannot_be_done_is_said_clearly(
    words: list[str], message: str, tiny: Path, agent: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    given = ["adapt", *words]
    if words[0] == "table":
        given += ["--out", str(tmp_path / "out.db")]
    elif "no.db" not in words:
        given += ["--table", str(tiny)]
    if words[0] == "train":
        given += ["--out", str(tmp_path / "out.ckpt")]
    if words[:2] == ["evaluate", "--starts"]:
        given.insert(2, str(agent))
    assert run(given) == 2
    assert message in capsys.readouterr().err


def test_a_file_of_something_else_is_no_agent(tiny: Path, agent: Path) -> None:
    with pytest.raises(CheckpointError):
        load_agent(tiny)
    text = bytearray(agent.read_bytes())
    text[len(text) // 2 :] = b""
    torn = agent.with_name("torn.ckpt")
    torn.write_bytes(bytes(text))
    with pytest.raises(CheckpointError, match="truncated"):
        load_agent(torn)


@pytest.fixture(scope="module")
def deepened(tmp_path_factory: pytest.TempPathFactory) -> TableRuns:
    """A table with the published four choices."""
    spec = TableSpec(starts=("spirals-even",), menu="deepen", decisions=1, seeds=2, epochs=(15,))
    with TableFile.open(tmp_path_factory.mktemp("deep") / "deep.db", spec) as table:
        build(table, processes=1)
        return TableRuns(table)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_training_that_was_stopped_goes_on_to_the_same_agent(
    name: str, deepened: TableRuns, tmp_path: Path
) -> None:
    occasions = [occasion("late-1to2"), occasion("late-2to1")]
    cells = Cells(deepened, deepened.spec.starts, occasions)
    state = tmp_path / "agent.state"
    whole = apprentice(name, cells, seed=3, episodes=96, state=tmp_path / "other.state")
    whole.run()
    part = apprentice(name, cells, seed=3, episodes=96, state=state)
    while part.learner.episodes < 48:
        part.learner.advance()
    part.learner.save(state)
    again = apprentice(name, cells, seed=3, episodes=96, state=state, resume=True)
    again.run()
    for path, training in ((tmp_path / "a", whole), (tmp_path / "b", again)):
        training.save(path)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    choice = load_agent(tmp_path / "a").choose(cells.moment(0, 0, ()))
    assert choice == whole.learner.chooser.choose(cells.moment(0, 0, ()))
    other = apprentice(name, cells, seed=4, episodes=96, state=state)
    again.learner.save(state)
    with pytest.raises(CheckpointError, match="the seed 3, not 4"):
        other.learner.restore(state)


def test_the_model_of_a_table_follows_its_runs(runs: TableRuns) -> None:
    model = Surrogate(runs, noisy=False)

    assert model.epochs == tuple(range(3, 16))
    for label in ("none", "0", "3"):
        seeds = range(runs.spec.seeds)
        true = [runs.curve(TableRun("spirals-even", 3, label, seed)) for seed in seeds]
        own = [model.curve(TableRun("spirals-even", 3, label, seed)) for seed in seeds]
        for mine, theirs in zip(own, true, strict=True):
            assert len(mine.validation) == len(theirs.validation)
            np.testing.assert_array_equal(mine.validation[:4], theirs.validation[:4])
            np.testing.assert_allclose(mine.rate[:6], theirs.rate[:6], rtol=1e-5)
        off = np.mean([c.validation for c in own], 0) - np.mean([c.validation for c in true], 0)
        assert np.abs(off).mean() < 0.05


def test_the_model_answers_between_the_times_of_the_table_and_not_beyond(runs: TableRuns) -> None:
    model = Surrogate(runs)
    cells = Cells(model, runs.spec.starts, occasions_at(8))
    moment = cells.moment(0, 1, ())

    assert 0.0 < cells.accuracy(0, 0, (0,)) < 1.0
    assert moment.learning_rate == pytest.approx(0.01 * 0.9**8, rel=1e-5)
    assert np.isfinite([moment.accuracy, moment.slope, moment.loss]).all()
    with pytest.raises(InputError, match="after epoch 2"):
        Cells(model, runs.spec.starts, occasions_at(2))


def test_the_error_of_a_model_needs_a_third_time(runs: TableRuns) -> None:
    with pytest.raises(InputError, match="two epochs of change or more"):
        held_out_error(runs, 15)


def test_an_evaluation_needs_no_table_to_choose_constants_on(runs: TableRuns) -> None:
    cells = Cells(runs, runs.spec.starts, [occasion("early-1to2")])
    found = evaluate(cells, {}, None)

    assert [one.name for one in found.standings] == [
        "nothing", "restart", "random", "foresight", "hindsight",
    ]  # fmt: skip
    assert found.differences == ()


def test_learners_have_names(runs: TableRuns, tmp_path: Path) -> None:
    cells = Cells(runs, runs.spec.starts, [occasion("early-1to2")])
    with pytest.raises(UnknownNameError, match="Known: ours, published"):
        apprentice("", cells, seed=0, episodes=1, state=tmp_path / "s")
    with pytest.raises(ConfigError, match="no training to go on with"):
        apprentice("ours", cells, seed=0, episodes=1, state=tmp_path / "s", resume=True)
