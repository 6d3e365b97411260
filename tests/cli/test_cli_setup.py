"""`rota setup` writes what a Slurm cluster needs, and refuses what could not work."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from rota.backends.slurm.hook import render_hook
from rota.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"job_submit.lua", "failopen.sh", "rota-slurm.service", "rota-failopen.service",
         "rota-failopen.timer"}  # fmt: skip


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["setup", *map(str, words)])
    return done.exit_code, done.stdout, f"{done.stderr}{done.exception or ''}"


def test_the_files_name_the_partitions_and_paths(tmp_path: Path) -> None:
    words = ("--partition", "gpu", "--partition", "long", "--user", "sched", "--operator", "64030",
             "--heartbeat", "/run/rota/beat", "--timeout", "2m", "-p", "srtf:error=1")  # fmt: skip
    code, out, _ = run(*words, "--out", tmp_path / "made")
    made = {path.name: path.read_text() for path in (tmp_path / "made").iterdir()}
    assert (code, set(made), len(out.split())) == (0, NAMES, 5)
    service = made["rota-slurm.service"]
    assert "User=sched\nGroup=sched\n" in service
    (start,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    assert "run --backend slurm --partition gpu --partition long --policy srtf:error=1" in start
    assert start.endswith("--state /var/lib/rota/state --heartbeat /run/rota/beat")
    check = made["rota-failopen.service"]
    assert "ExecStart=/bin/sh /usr/local/lib/rota/failopen.sh /run/rota/beat 120 gpu,long" in check
    assert 'MANAGED = { "gpu", "long" }' in made["job_submit.lua"]
    assert "OPERATORS = { 0, 64030 }" in made["job_submit.lua"]
    assert (
        subprocess.run(["sh", "-n", tmp_path / "made" / "failopen.sh"], check=False).returncode == 0
    )


def test_the_command_of_the_unit_is_one_that_rota_knows(tmp_path: Path) -> None:
    run("--partition", "gpu", "--out", tmp_path)
    text = (tmp_path / "rota-slurm.service").read_text()
    (start,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    words = start.partition("=")[2].split()
    told = CliRunner().invoke(app, [*words[words.index("run") :], "--every", "0"])
    # All else was understood.
    assert "--interval 0 is too short" in f"{told.stderr}{told.exception}"


def test_the_check_that_it_prints_is_of_the_daemon_that_it_has_set_up(tmp_path: Path) -> None:
    words = ("--partition", "gpu", "--state", "/srv/rota/state", "--heartbeat", "/srv/rota/beat")
    _, _, err = run(*words, "--out", tmp_path)
    (check,) = [line for line in err.splitlines() if "rota doctor" in line]
    assert check.endswith("--partition gpu --state /srv/rota/state --heartbeat /srv/rota/beat")


def test_files_that_are_there_are_kept(tmp_path: Path) -> None:
    (tmp_path / "job_submit.lua").write_text("-- mine")
    code, _, err = run("--partition", "gpu", "--out", tmp_path)
    assert code != 0
    assert "--force" in err
    assert (tmp_path / "job_submit.lua").read_text() == "-- mine"
    code, out, _ = run("--partition", "gpu", "--out", tmp_path, "--force", "--json")
    assert (code, len(json.loads(out)["files"])) == (0, 5)
    assert "MANAGED" in (tmp_path / "job_submit.lua").read_text()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "--partition"), (("--partition", "a,b"), "a,b"), (("--partition", ""), "''"),
        (("--partition", "g", "--user", "a b"), "'a b'"),
        (("--partition", "g", "--user", "root;x"), "root;x"),
        (("--partition", "g", "--state", "here"), "'here'"),
        (("--partition", "g", "--heartbeat", "beat"), "'beat'"),
        (("--partition", "g", "--heartbeat", "/var/lib/rota/state/beat"), "beside"),
        (("--partition", "g", "--policy", "a b"), "'a b'"),
        (("--partition", "g", "--policy", "%h"), "'%h'"),
        (("--partition", "g", "--policy", "srft"), "Did you mean 'srtf'?"),
        (("--partition", "g", "--fallback", "srft"), "Did you mean 'srtf'?"),
        (("--partition", "g", "--timeout", "0"), "0 s"),
    ],
)  # fmt: skip
def test_what_could_not_work_is_refused_and_nothing_is_written(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    code, _, err = run(*words, "--out", tmp_path / "made")
    assert code != 0
    assert why in err
    assert not (tmp_path / "made").exists()


def test_a_partition_of_any_name_is_quoted_for_lua(tmp_path: Path) -> None:
    text = render_hook(['a"]] os.execute("x")--'.replace(" ", "")], tmp_path / "beat", 60)
    assert 'a\\"]]os.execute(\\"x\\")--' in text


@pytest.mark.parametrize("name", ["", "gpu,long", "a b", "a\nb"])
@pytest.mark.parametrize("words", [("run", "--backend", "slurm"), ("doctor",)])
def test_commands_refuse_what_is_no_name_of_one_partition(
    tmp_path: Path, words: tuple[str, ...], name: str
) -> None:
    where = ("--partition", name, "--state", str(tmp_path / "state"))
    told = CliRunner().invoke(app, [*words, *where])
    assert "is no name of a partition: give one name" in f"{told.stderr}{told.exception}"
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", ["nowhere/beat", "folder", "file/beat"])
def test_a_daemon_that_could_give_no_sign_of_life_does_not_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    where = ("--state", str(tmp_path / "state"), "--heartbeat", str(tmp_path / name))
    told = CliRunner().invoke(app, ["run", "--backend", "slurm", "--partition", "gpu", *where])
    assert f"{name} cannot be written" in f"{told.stderr}{told.exception}"
