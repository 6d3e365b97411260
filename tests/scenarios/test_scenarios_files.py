"""Scenario files: every mistake is refused with file, line and key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.errors import ConfigError, InputError, UnknownNameError
from rota.scenarios import load, names
from rota.scenarios.reading import Lines

if TYPE_CHECKING:
    from pathlib import Path

    from rota.scenarios import Scenario

GOOD = """\
version = 3
about = "a test"

[workload]
kind = "preset"
preset = "poisson"
jobs = 50

[cluster]
nodes = 2
gpus = 8

[when]
restart_s = 30
"""


def made(folder: Path, text: str, name: str = "mine.toml") -> Scenario:
    path = folder / name
    path.write_text(text)
    return load(path)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    scenario = made(tmp_path, GOOD)
    assert (scenario.name, scenario.version, scenario.about) == ("mine", 3, "a test")
    assert scenario.cluster.total_gpus == 16
    assert scenario.when.restart_s == 30
    world = scenario.draw(4)
    assert len(world.trace) == 50
    assert world.trace.duration_s.tolist() == scenario.draw(4).trace.duration_s.tolist()
    assert world.trace.duration_s.tolist() != scenario.draw(5).trace.duration_s.tolist()


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("jobs = 50", "jbos = 50", 7, "no key 'jbos'. Did you mean 'jobs'?"),
        ("[when]", "[wehn]", 13, "no key 'wehn'. Did you mean 'when'?"),
        ('about = "a test"', 'aboot = "a test"', 2, "no key 'aboot'. Did you mean 'about'?"),
        ("restart_s = 30", "restart_s = -1", 14, "[when] restart_s = -1 must be a number from 0"),
        ("restart_s = 30", "restart_s = inf", 14, "restart_s = inf must be a number"),
        ("restart_s = 30", "restart_s = nan", 14, "restart_s = nan must be a number"),
        ("restart_s = 30", "restart_s = true", 14, "restart_s = True must be a number"),
        ("restart_s = 30", 'restart_s = "30"', 14, "restart_s = '30' must be a number"),
        ("jobs = 50", "jobs = 0", 7, "jobs = 0 must be a whole number from 1 to"),
        ("jobs = 50", "jobs = 50.0", 7, "jobs = 50.0 must be a whole number"),
        ("jobs = 50", "", 4, "[workload] jobs is missing"),
        ('kind = "preset"', 'kind = "perset"', 5, "kind = 'perset' must be one of 'dl2', 'busy'"),
        ('preset = "poisson"', 'preset = "poison"', 6, "preset = 'poison' must be one of"),
        ('preset = "poisson"', "", 5, "[workload] preset is missing"),
        ("jobs = 50", "jobs = 50\nper_hour = 2", 8, "per_hour means nothing where kind = 'preset'"),
        ("gpus = 8", "gpus = 8\ncores = 3", 12, "no key 'cores'"),
        ("gpus = 8", "gpus = 99999", 11, "gpus = 99999 must be a whole number from 1 to"),
        ("gpus = 8", "", 9, "give [cluster] nodes and gpus, or [[node]] entries"),
        ("[when]", '[speed]\nfamily = "pss"\n[when]', 14, "family = 'pss' must be one of"),
        ("[when]", "[drift]\nsd = 3\n[when]", 14, "sd = 3 must be a number from 0 to 2"),
        ("[when]", "[drift]\nsd = 0.1\nstep_s = 0\n[when]", 15, "step_s = 0 must be"),
        ("[when]", '[aliases]\nfifo = 3\n[when]', 14, "fifo = 3 must be a text"),
        ("version = 3", "version = 0", 1, "version = 0 must be a whole number from 1"),
        ("[when]", '[contention]\nmodel = "pairs"\n[when]', 14, "needs the ratios that come with"),
        ("[when]", '[contention]\nmodel = "ranks"\n[when]', 14, "needs speeds by nodes"),
        ("[when]", "[[node]]\ngpus = 4\n[when]", 10, "does not go with [[node]] entries"),
        ("[when]", "[[node]]\ngpsu = 4\n[when]", 14, "no key 'gpsu'. Did you mean 'gpus'?"),
        ("[when]", "[[node]]\ngpus = 4\n[[node]]\ngpus = -1\n[when]", 16, "gpus = -1 must be"),
        ("[when]", "[[node]]\ncount = 4\n[when]", 13, "number of GPUs is missing"),
        ("[when]", "[node]\ngpus = 4\n[when]", 13, "in double brackets"),
        ("[when]", '[policies]\nplacement = "sprad"\n[when]', 14, "placement = 'sprad' must be"),
        ("[when]", '[policies]\nplace = "spread"\n[when]', 14, "no key 'place'"),
        ("[cluster]\n", "cluster = 4\n[x]\n", 9, "cluster"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_with_their_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    text = GOOD.replace(old, new, 1)
    with pytest.raises(ConfigError) as error:
        made(tmp_path, text)
    assert f"mine.toml:{line}: " in str(error.value), error.value
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'version' is missing"),
        (GOOD.replace("version = 3\n", ""), "'version' is missing"),
        (GOOD.replace('about = "a test"\n', ""), "'about' is missing"),
        (GOOD + "x = = 3", "no valid TOML: Invalid value (at line 15"),
        (GOOD + "restart_s = 2\n", "no valid TOML: Cannot overwrite a value (at line 15"),
    ],
)
def test_files_that_are_no_scenario(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"mine\.toml: ") as error:
        made(tmp_path, text).draw(0)
    assert says in str(error.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(UnknownNameError, match="Did you mean 'dl2-small'"):
        load("dl2-smal")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "bytes.toml")


def test_a_scenario_does_not_remember_a_cluster_that_was_asked_for_once(tmp_path: Path) -> None:
    links = GOOD.replace("[when]", '[contention]\nmodel = "links"\n[when]')
    scenario = made(tmp_path, links)
    for link_gbps in (100.0, 10.0, 100.0):
        cluster = replace(scenario.cluster, link_gbps=np.full(2, link_gbps))
        laws = scenario.physics(cluster=cluster).contention
        assert laws is not None
        assert laws.link_gbps.tolist() == [link_gbps] * 2
        assert scenario.draw(0, cluster=cluster).physics.contention is laws  # kept: not made anew
    faster = replace(scenario, settings={**scenario.settings, "contention": {
        **scenario.settings["contention"], "spine_gbps": 7.0}})  # fmt: skip
    laws = faster.physics(cluster=scenario.cluster).contention
    assert laws is not None
    assert laws.spine_gbps == 7.0
    racks = replace(scenario.cluster, rack=np.array([0, 1]))
    laws = scenario.physics(cluster=racks).contention
    assert laws is not None
    assert laws.uplink_gbps.size == 2


def test_a_variant_changes_what_it_names(tmp_path: Path) -> None:
    made(tmp_path, GOOD)
    text = 'version = 1\nabout = "more"\nbase = "mine.toml"\n[cluster]\nnodes = 5\n'
    variant = made(tmp_path, text, "more.toml")
    assert variant.about == "more"
    assert variant.cluster.total_gpus == 40
    assert variant.settings["workload"]["jobs"] == 50
    # Another kind of workload begins afresh: what the base said means nothing to it.
    other = made(
        tmp_path,
        text + '[workload]\nkind = "busy"\njobs = 3\n[speed]\nfamily = "ps"\n',
        "other.toml",
    )
    assert "preset" not in other.settings["workload"]
    assert other.settings["workload"]["per_hour"] == 14
    # Kinds of nodes replace a uniform cluster, and the other way round.
    mixed = made(
        tmp_path,
        'version = 1\nabout = "x"\nbase = "mine.toml"\n[[node]]\ngpus = 4\ncount = 3\n',
        "mixed.toml",
    )
    assert mixed.cluster.gpus.tolist() == [4, 4, 4]
    even = made(
        tmp_path,
        'version = 1\nabout = "x"\nbase = "mixed.toml"\n[cluster]\nnodes = 1\ngpus = 2\n',
        "even.toml",
    )
    assert even.cluster.gpus.tolist() == [2]


def test_a_variant_of_something_wrong_names_the_file_where_it_stands(tmp_path: Path) -> None:
    made(tmp_path, GOOD)
    for base, says in (("self.toml", "in a circle"), ("none.toml", "no such file"),
                       ("vnus", "Did you mean 'venus'")):  # fmt: skip
        with pytest.raises(ConfigError, match=says):
            made(tmp_path, f'version = 1\nabout = "x"\nbase = "{base}"\n', "self.toml")
    text = 'version = 1\nabout = "x"\nbase = "mine.toml"\n[workload]\nkind = "busy"\njobs = 1\n'
    with pytest.raises(ConfigError, match=r"knows nothing of the jobs of \[workload\]"):
        made(tmp_path, text, "kinds.toml")


def test_lines_are_found_through_comments_and_dots() -> None:
    text = (
        '# a = 1\nworkload.jobs = 3\n\n[ cluster ]  # here\n"gpus" = 2\n[[node]]\n[[node]]\na=1\n'
    )
    lines = Lines.of("f", text)
    assert lines.where("workload", "jobs") == "f:2"
    assert lines.where("cluster", "gpus") == "f:5"
    assert lines.where("cluster", "nodes") == "f:4"
    assert lines.where("node", "1", "a") == "f:8"
    assert lines.where("nothing") == "f"


VERSIONS = {
    "contention-arrivals": (2, "057db7f941e4"),
    "contention-arrivals-055": (2, "802d0a5000c4"),
    "contention-arrivals-080": (2, "ca5d7b4cbdea"),
    "contention-large": (1, "100f2476c4be"),
    "contention-racks": (1, "9b1f2be1f86b"),
    "das-large": (3, "2d8914022dc0"),
    "das-medium": (3, "de59b788b2f9"),
    "das-small": (3, "ee437065a590"),
    "deepshare": (2, "cd8072cf003e"),
    "deepshare-published": (2, "4d9d5044fcf5"),
    "dl2-busy": (1, "12e2a988de7c"),
    "dl2-busy-heavy": (1, "649060eb34d3"),
    "dl2-busy-uni": (1, "0886fe20bde3"),
    "dl2-large": (1, "84cb3fb28513"),
    "dl2-large-published": (1, "a9bc8ea0c08e"),
    "dl2-small": (1, "97fc81c08fc6"),
    "dl2-small-published": (1, "c5d458fa5556"),
    "dl2-small-uniform-published": (1, "fde497cb9180"),
    "dl2-template": (1, "f65a62804bb1"),
    "dl2-template-published": (1, "f42553df210b"),
    "dl2-testbed": (1, "a9030f711707"),
    "dl2-testbed-published": (1, "a630a1546c40"),
    "elastic-unknown": (1, "a75df0809ac7"),
    "gang-nonpreemptive": (1, "f7b67472a6e3"),
    "growing": (1, "663c22cb5165"),
    "pai": (1, "dfe89efbd854"),
    "philly": (1, "77514ece4130"),
    "rigid-blind": (1, "f6b77ae05291"),
    "rigid-blind-philly": (2, "0d9314770e37"),
    "venus": (1, "533e760d4e8a"),
}
"""Name: version and digest. Who changes what a scenario means gives it a new version too."""


@pytest.mark.parametrize("name", names())
def test_shipped_scenarios_are_sound_and_their_meaning_is_versioned(name: str) -> None:
    scenario = load(name)
    assert len(scenario.about) > 20
    assert scenario.cluster.total_gpus > 0
    assert scenario.digest == load(name).digest
    assert (scenario.version, scenario.digest) == VERSIONS[name]


def test_the_digest_follows_every_setting(tmp_path: Path) -> None:
    digest = made(tmp_path, GOOD).digest
    assert made(tmp_path, GOOD.replace("a test", "a trial")).digest == digest  # words do not count
    for old, new in (("= 50", "= 51"), ("= 30", "= 31"), ("nodes = 2", "nodes = 3"),
                     ("version = 3", "version = 4")):  # fmt: skip
        assert made(tmp_path, GOOD.replace(old, new)).digest != digest


def test_published_scenarios_differ_from_the_mended_ones_only_where_they_must() -> None:
    for size in ("small", "large", "template", "testbed"):
        mended, published = load(f"dl2-{size}"), load(f"dl2-{size}-published")
        assert mended.settings["cluster"] == published.settings["cluster"]
        differ = {
            key
            for key, value in mended.settings["workload"].items()
            if published.settings["workload"][key] != value
        }
        assert differ == {"units"}
        assert published.when.slot_s == published.settings["workload"]["slot_s"]
        assert published.policy("drf") == "dl2-drf"
        assert published.policy("optimus:x=1") == "dl2-optimus:x=1"
        assert published.policy("drf2") == "drf2"
        assert mended.policy("drf") == "drf"


def test_measured_tables_that_are_absent_are_named(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    for name, lacks, public in (
        ("dl2-small-published", "dl2_ps_worker_speed.csv.gz", "github.com/pengyanghua/DL2"),
        ("deepshare-published", "isolated_throughput.csv", "github.com/gajagajago/deepshare"),
    ):
        with pytest.raises(InputError, match="--data DIR") as error:
            load(name).draw(0, tmp_path)
        assert lacks in str(error.value)
        assert public in str(error.value)


def test_negative_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed=-1"):
        made(tmp_path, GOOD).draw(-1)


def test_changes_lie_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    scenario = load(tmp_path / "mine.toml", ["workload.jobs=20", "when.restart_s=5"])
    assert (len(scenario.draw(0).trace), scenario.when.restart_s, scenario.version) == (20, 5, 3)
    assert scenario.when.resize_s is None
    scenario = load(tmp_path / "mine.toml", ["when.resize_s=0.5"])
    assert (scenario.when.restart_s, scenario.when.resize_s) == (30, 0.5)
    assert scenario.digest != load(tmp_path / "mine.toml").digest


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("workload.jbos=20", "no key 'jbos'. Did you mean 'jobs'?"),
        ("work.jobs=20", "no key 'work'"),
        ("jobs=20", "must look like table.key=value"),
        ("workload.jobs", "must look like table.key=value"),
        ("workload.jobs=many", "jobs = 'many' must be a whole number"),
        ("workload.arrivals=google", "arrivals means nothing where kind = 'preset'"),
    ],
)
def test_refuses_changes_that_make_no_sense(tmp_path: Path, change: str, says: str) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "mine.toml", [change])
    assert says in str(error.value)
