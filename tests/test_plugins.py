"""What other packages add by entry points: found, used in every command, and harmless if broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from plugged import install

from rota.backends.plugged import make_backend
from rota.cli.app import run
from rota.errors import CheckpointError, ConfigError, InputError, TraceError, UnknownNameError
from rota.plugins import Registry
from rota.policies import make_policy
from rota.policies.catalogue import CATALOGUE
from rota.scenarios import load, names
from rota.traces import load_trace
from rota.traces.formats import LOG_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[1] / "examples" / "plugin"
TICKETS = "ticket,opened_h,hours,cards\na,0,1,2\nb,1,0,2\nc,1,2,4\n"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example package, as pip would have installed it into a folder."""
    about = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = install(tmp_path / "site", about["name"], about["entry-points"])
    shutil.copytree(EXAMPLE / "rota_example", folder / "rota_example")
    return folder


@pytest.fixture
def plugged(example: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same in this process."""
    monkeypatch.syspath_prepend(example)
    yield example
    for name in [name for name in sys.modules if name.partition(".")[0] == "rota_example"]:
        del sys.modules[name]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to install packages into."""
    monkeypatch.syspath_prepend(tmp_path / "others")
    return tmp_path / "others"


def checkpoint_of(package: str, path: Path) -> None:
    """A checkpoint of the example's system, with weights that nobody trained."""
    from rota.learn import checkpoint
    from rota.systems.registry import system

    kind = system("example-onepass")
    lens = kind.make_lens(kind.lens_settings())
    network = kind.make_network(kind.network_settings(), lens)
    about = checkpoint.About(
        system=kind.name, lens={"name": kind.name}, network={"width": 16}, package=package
    )
    checkpoint.save(path, about, checkpoint.weights_of(network))


# -- all commands, in processes of their own -----------------------------------------------------


def test_every_command_knows_what_an_installed_package_adds(plugged: Path, tmp_path: Path) -> None:
    checkpoint_of("rota-example", tmp_path / "my.ckpt")
    (tmp_path / "tickets.csv").write_text(TICKETS)

    def rota(*words: str) -> str:
        script = "from rota.cli import main; raise SystemExit(main())"
        done = subprocess.run(
            [sys.executable, "-c", script, *words], cwd=tmp_path, text=True, timeout=900,
            capture_output=True, env={**os.environ, "PYTHONPATH": str(plugged)}, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "widest" in (shown := rota("policies"))
    assert "rota-example" in shown
    shown = rota("simulate", "tickets.csv", "-p", "widest:most=1", "--nodes", "1", "--gpus", "4")
    assert "tickets: 2 jobs" in shown
    assert "widest:most=1" in shown
    shown = rota("simulate", "--scenario", "example-world", "--head", "9", "-p", "widest")
    assert "example-world: 9 jobs on 4 nodes" in shown
    both = ("-p", "my.ckpt", "-p", "widest")
    assert "my.ckpt" in rota("simulate", "--scenario", "dl2-busy", "--head", "4", *both)
    tiny = "version = 1\nabout = 'Tiny'\nbase = 'dl2-busy'\n[workload]\njobs = 4\n"
    (tmp_path / "tiny.toml").write_text(tiny)
    words = ("--scenario", "tiny.toml", "--seeds", "2000", "--against", "widest")
    assert "my.ckpt" in rota("evaluate", "my.ckpt", *words)
    assert "0 failures" in rota("fuzz", "--worlds", "1", "--workers", "1", "-p", "widest")


# -- each kind ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("plugged")
def test_listings_name_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["policies"], ["traces"], ["scenarios"], ["train", "--list"]):
        assert run(words) == 0
        shown = capsys.readouterr()
        assert "rota-example" in shown.out
        assert not shown.err


@pytest.mark.usefixtures("plugged")
def test_a_policy_takes_settings_as_ours_do() -> None:
    policy: Any = make_policy("widest:first=narrow,most=3")
    assert (policy.first, policy.most) == ("narrow", 3)
    with pytest.raises(ConfigError, match="'widest' has no setting 'x'; it takes: first, most"):
        make_policy("widest:x=1")
    with pytest.raises(ConfigError, match="'widest' places jobs itself"):
        make_policy("widest+best-fit")
    with pytest.raises(ConfigError, match="'widest' has no field 'oracle'"):
        make_policy("widest@oracle")
    with pytest.raises(UnknownNameError, match="Did you mean 'widest'"):
        make_policy("widst")


@pytest.mark.usefixtures("plugged")
def test_a_learner_has_a_table_of_its_own(tmp_path: Path) -> None:
    from rota.learn.recipe_file import load_recipe

    file = tmp_path / "mine.toml"
    file.write_text('base = "dl2"\nabout = "slow"\n[run]\nlearner = "slow-ppo"\n')
    recipe = load_recipe(file, ["slow_ppo.clip=0.3"])
    assert (recipe.learner.name, recipe.learning.clip) == ("slow-ppo", 0.3)
    assert recipe.facts()["slow_ppo"]["learning_rate"] == 1e-4
    assert "learners" not in recipe.facts()  # what is kept of a training is a recipe again
    with pytest.raises(ConfigError, match="slow_ppo"):  # its table belongs to it alone
        load_recipe(file, ["slow_ppo.clip=0.3", "run.learner='ppo'"])


@pytest.mark.usefixtures("plugged")
def test_a_format_is_recognised_by_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "tickets.csv"
    file.write_text(TICKETS)
    for format_name in (None, "ticket"):
        trace = load_trace(file, format=format_name)
        assert trace.duration_s.tolist() == [3600.0, 7200.0]
        assert trace.left_out == {"not approved": 1}
    with pytest.raises(UnknownNameError, match="No trace format is called 'tickt'"):
        load_trace(file, format="tickt")


@pytest.mark.usefixtures("plugged")
def test_a_scenario_stands_on_a_speed_model_of_the_same_package() -> None:
    assert "example-world" in names()
    scenario = load("example-world")
    laws = scenario.physics()
    assert laws.curves is not None
    assert laws.curves.names == ("ResNet-50", "LM")
    # LM over one node: 1 / (0.1 + 0.9 / 4).
    assert laws.curves.speed[1, 0, 1, 4] == pytest.approx(1 / 0.325)
    assert load("example-world", ["speed.sight=observed"]).settings["speed"]["sight"] == "observed"
    with pytest.raises(ConfigError, match=r"max_tasks means nothing where family = 'amdahl'"):
        load("example-world", ["speed.max_tasks=4"])
    with pytest.raises(ConfigError, match=r"must be one of 'trace', 'ps', .*'amdahl'"):
        load("example-world", ["speed.family=nosuch"])


@pytest.mark.usefixtures("plugged")
def test_a_speed_model_must_suit_the_jobs() -> None:
    changes = ["workload.kind=busy", "workload.jobs=4"]
    with pytest.raises(ConfigError, match=r"'amdahl' of package 'rota-example' does not give spe"):
        load("example-world", changes).draw(0)


@pytest.mark.usefixtures("plugged")
def test_a_backend_takes_settings() -> None:
    backend: Any = make_backend("rehearsal:nodes=3,jobs=2")
    assert len(backend.cluster) == 3
    with pytest.raises(ConfigError, match="Backend 'rehearsal' has no setting 'x'; it takes: nod"):
        make_backend("rehearsal:x=1")
    with pytest.raises(UnknownNameError, match=r"No backend is called 'rehearsel'. Did you mean"):
        make_backend("rehearsel")


@pytest.mark.usefixtures("plugged")
def test_a_backend_is_run_until_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "--backend", "rehearsal:jobs=2", "-p", "widest"]) == 0
    assert capsys.readouterr().err.count("start") == 2


def test_a_checkpoint_says_which_package_it_needs(
    plugged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my.ckpt"
    checkpoint_of("rota-example", file)
    assert make_policy(str(file)) is not None
    checkpoint_of("other-package", tmp_path / "other.ckpt")
    with pytest.raises(CheckpointError, match="of the package 'other-package', but 'example-onep"):
        make_policy(str(tmp_path / "other.ckpt"))
    checkpoint_of("Rota_Example", tmp_path / "same.ckpt")
    assert make_policy(str(tmp_path / "same.ckpt")) is not None
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(plugged)])
    with pytest.raises(CheckpointError, match="comes from the package 'rota-example': pip install"):
        make_policy(str(file))


# -- packages that are broken, or claim what others have -------------------------------------------


def test_a_broken_package_breaks_only_what_uses_it(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {
        "rota.policies": {"torn": "torn_of_test:Policy", "lost": "nosuch_of_test:Policy",
                          "bare": "bare_of_test:NUMBER", "od:d": "bare_of_test:NUMBER"},
        "rota.trace_formats": {"torn-log": "torn_of_test:FORMAT",
                               "bare-log": "bare_of_test:FORMAT"},
        "rota.scenarios": {"torn-world": "bare_of_test:FOLDER"},
        "rota.systems": {"torn-system": "bare_of_test:NUMBER"},
        "rota.backends": {"torn-backend": "bare_of_test:NUMBER",
                          "bare-backend": "bare_of_test:make"},
        "rota.speed_models": {"torn-speed": "bare_of_test:NUMBER"},
        "rota.learners": {"torn-learner": "bare_of_test:NUMBER"},
    }  # fmt: skip
    bare = "NUMBER = 5\nFOLDER = '/no/such/folder'\ndef make():\n    return 5\n"
    install(site, "torn-package", points, torn_of_test="raise OSError('torn')", bare_of_test=bare)
    assert make_policy("fifo") is not None
    assert len(load_trace("poisson:jobs=3")) == 3
    with pytest.raises(
        InputError, match=r"The policy 'torn' of package 'torn-package' .* OSError: t"
    ):
        make_policy("torn")
    with pytest.raises(
        InputError, match=r"'lost' of package 'torn-package' .* ModuleNotFoundError"
    ):
        make_policy("lost")
    with pytest.raises(InputError, match=r"'bare' of package 'torn-package' .* is no policy"):
        make_policy("bare")
    with pytest.raises(InputError, match=r"'bare-log' of package 'torn-package' .* AttributeError"):
        LOG_FORMATS.get("bare-log")
    with pytest.raises(InputError, match=r"'torn-world' of package .* no file torn-world.toml"):
        load("torn-world")
    with pytest.raises(InputError, match=r"'torn-backend' of package .* is no class or function"):
        make_backend("torn-backend")
    with pytest.raises(
        InputError, match=r"'bare-backend' of package 'torn-package' has no method o"
    ):
        make_backend("bare-backend")
    from rota.learn.learners import LEARNING

    with pytest.raises(InputError, match=r"'torn-learner' of package .* is no rota\.learn"):
        LEARNING.get("torn-learner")
    for words, troubles in ((["policies"], 4), (["traces"], 2), (["scenarios"], 2),
                            (["train", "--list"], 1)):  # fmt: skip
        assert run(words) == 0
        shown = capsys.readouterr()
        assert shown.err.count("of package 'torn-package'") == troubles, shown.err
        assert shown.out


def test_a_name_that_is_taken_is_refused_when_it_is_used(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "from rota.policies import make_policy\ndef make():\n    return make_policy('fifo')\n"
    one = {"rota.policies": {"fifo": "claims_of_test:make", "mine": "claims_of_test:make"}}
    install(site, "claims-one", one, claims_of_test=text)
    install(site, "claims-two", {"rota.policies": {"mine": "claims_of_test:make"}})
    assert make_policy("srtf") is not None
    with pytest.raises(
        InputError, match="policy 'fifo' is registered by 'rota' and by 'claims-one'"
    ):
        make_policy("fifo")
    with pytest.raises(
        InputError, match="'mine' is registered by 'claims-one' and by 'claims-two'"
    ):
        make_policy("mine")
    assert run(["policies"]) == 0
    assert capsys.readouterr().err.count("is registered by") == 2


def test_a_damaged_list_of_entry_points_hides_no_other(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, "good-package", {"rota.policies": {"good": "good_of_test:make"}},
            good_of_test="def make():\n    raise KeyError('x')\n")  # fmt: skip
    install(site, "damaged", {})
    (site / "damaged-1.0.dist-info" / "entry_points.txt").write_text("[rota.policies]\nnonsense\n")
    assert "good" in CATALOGUE.names()
    assert make_policy("fifo") is not None
    with pytest.raises(InputError, match="Cannot make policy 'good': KeyError"):
        make_policy("good")
    assert run(["policies"]) == 0
    assert "damaged-1.0.dist-info cannot be read" in capsys.readouterr().err


def test_of_a_package_that_is_installed_twice_the_first_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: Registry[int] = Registry("rota.of_test", "number", [], lambda thing, _: thing)
    for folder in ("later", "sooner"):
        points = {"rota.of_test": {folder: "twice_of_test:NUMBER [fast]"}}
        package = "Twice_Package" if folder == "later" else "twice-package"
        install(tmp_path / folder, package, points, twice_of_test="NUMBER = 5\n")
        monkeypatch.syspath_prepend(tmp_path / folder)
    assert kinds.names() == ["sooner"]
    assert kinds.get("sooner") == 5
    assert kinds.package("sooner") == "twice-package"
    del sys.modules["twice_of_test"]


LOGS = """
from rota.traces.formats import Format

def parse(sheet):
    return {name: sheet.cells["job_id"] if name == "job_id" else sheet.numbers(name)
            for name in ("job_id", "submit_s", "duration_s", "num_gpus")}

WIDE = Format("wide", "more than ours", ("job_id", "submit_s", "duration_s", "num_gpus", "zone"),
              parse)
FEW = Format("few", "less than ours", ("job_id",), lambda sheet: 1 / 0)
NONE = Format("none", "told by nothing", (), parse)
PIPED = Format("piped", "pipes", ("id", "from", "to", "cards"), lambda sheet: {}, layout="pipes")
"""


def test_of_two_formats_the_one_that_asks_for_more_columns_is_taken(
    site: Path, tmp_path: Path
) -> None:
    points = {"wide": "logs_of_test:WIDE", "few": "logs_of_test:FEW", "none": "logs_of_test:NONE",
              "piped": "logs_of_test:PIPED"}  # fmt: skip
    install(site, "logs-package", {"rota.trace_formats": points}, logs_of_test=LOGS)
    file = tmp_path / "log.csv"
    file.write_text("job_id,submit_s,duration_s,num_gpus\na,0,9,1\n")
    assert load_trace(file).duration_s.tolist() == [9.0]  # ours asks for more than `few`
    file.write_text("job_id,submit_s,duration_s,num_gpus,zone\na,0,9,1,x\n")
    assert load_trace(file).duration_s.tolist() == [9.0]
    file.write_text("job_id,other\na,0\n")
    with pytest.raises(TraceError, match=r"format 'few' of package 'logs-package' .*ZeroDivision"):
        load_trace(file)
    file.write_text("id|from|to|cards\na|0|9|1\n")
    with pytest.raises(TraceError, match="'piped' of package 'logs-package' does not give job_id"):
        load_trace(file)
    del sys.modules["logs_of_test"]


SPEEDS = """
import numpy as np
from rota.core.speed import Curves

def few(cluster, most):
    return Curves(("LM",), ("any",), np.ones((1, 1, 2, 2)), True, np.ones((1, 2), int))

def text(cluster, most):
    return "fast"

def fails(cluster, most):
    raise KeyError("LM")
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [("few", r"ends at \(1, 1\); jobs here may have \(4, 16\)"), ("text", "gave str in place of"),
     ("fails", "failed: KeyError: 'LM'")],
)  # fmt: skip
def test_a_speed_model_that_will_not_do_is_named(site: Path, name: str, says: str) -> None:
    points = {"rota.speed_models": {name: f"speeds_of_test:{name}"}}
    install(site, "speeds-package", points, speeds_of_test=SPEEDS)
    text = (EXAMPLE / "rota_example" / "example-world.toml").read_text()
    file = site / "world.toml"
    file.write_text(text.replace("amdahl", name).replace("largest_gang = 8\n", ""))
    with pytest.raises(ConfigError, match=f"'{name}' of package 'speeds-package' {says}"):
        load(file).draw(0)
    del sys.modules["speeds_of_test"]


def test_the_example_policy_keeps_the_rules(plugged: Path) -> None:
    from rota.testing import check_policy

    assert plugged
    check_policy(lambda: make_policy("widest"))
