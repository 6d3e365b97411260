"""Checks of a Slurm cluster, on facts made by hand and on answers of pretended commands."""

from __future__ import annotations

import os
from dataclasses import replace
from time import localtime, strftime, time
from typing import TYPE_CHECKING, Any

import pytest

from rota.backends.slurm.check_config import check_config
from rota.backends.slurm.check_hold import check_hook, check_life, check_rights, heartbeat_age_s
from rota.backends.slurm.checkup import checkup
from rota.backends.slurm.cluster_facts import ClusterFacts, gather, read_config, read_partitions
from rota.backends.slurm.hook import render_hook
from rota.backends.slurm.replies import SlurmJob, SlurmNode
from rota.backends.slurm.tools import SlurmTools

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rota.backends.check_result import CheckResult

CONFIG = {
    "SLURM_VERSION": "22.05.8", "SelectType": "select/cons_tres", "JobRequeue": "1",
    "PreemptType": "preempt/none", "PreemptMode": "OFF", "KillWait": "30 sec",
    "ReturnToService": "1", "AccountingStorageType": "accounting_storage/slurmdbd",
    "JobSubmitPlugins": "lua", "GresTypes": "gpu", "SlurmUser": "slurm(64030)",
    "SelectTypeParameters": "CR_CORE",
}  # fmt: skip
NODE = SlurmNode(name="n1", gpus=4, gpu_type="a100", partitions=frozenset({"rota"}))
SOUND = ClusterFacts(
    partitions_wanted=("rota",), config=CONFIG, nodes=[NODE, replace(NODE, name="n2")],
    partitions={"rota": {"State": "UP", "PreemptMode": "OFF", "OverSubscribe": "NO"}},
    account="rota", uid=990, is_operator=True, may_why="it is an operator",
)  # fmt: skip


def job(**facts: Any) -> SlurmJob:
    usual = {"job_id": 7, "partition": "rota", "state": "PENDING", "mark": "rota:held"}
    return SlurmJob(**{**usual, **facts})


def levels(found: Iterable[CheckResult]) -> dict[str, str]:
    """By what was checked; the worst where there are several."""
    order, worst = ("ok", "warn", "bad"), dict[str, str]()
    for one in found:
        assert one.fix or one.level == "ok", one
        worst[one.check] = max(worst.get(one.check, "ok"), one.level, key=order.index)
    return worst


def odd(found: Iterable[CheckResult]) -> dict[str, str]:
    """The same without what is all right."""
    return {check: level for check, level in levels(found).items() if level != "ok"}


def test_nothing_is_odd_about_a_sound_cluster() -> None:
    assert odd(check_config(SOUND)) == {}
    assert odd(check_rights(SOUND)) == {}


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"SLURM_VERSION": "21.08.5"}, {"version": "warn"}),
        ({"SLURM_VERSION": ""}, {"version": "warn"}),
        ({"SLURM_VERSION": "23.11.4"}, {}),
        ({"SelectType": "select/linear"}, {"SelectType": "bad"}),
        ({"SelectType": ""}, {"SelectType": "bad"}),
        ({"JobRequeue": "0"}, {"JobRequeue": "bad"}),
        ({"PreemptType": "preempt/qos"}, {"preemption": "warn"}),
        ({"PreemptMode": "GANG,SUSPEND"}, {"preemption": "warn"}),
        ({"KillWait": ""}, {"KillWait": "warn"}),
        ({"ReturnToService": "0"}, {"ReturnToService": "warn"}),
        ({"AccountingStorageType": "accounting_storage/none", "MinJobAge": "2 sec"},
         {"accounting": "warn"}),
        ({"AccountingStorageType": "accounting_storage/none", "MinJobAge": "300 sec"}, {}),
    ],
)  # fmt: skip
def test_a_setting_that_is_wrong_is_found(change: dict[str, str], finding: dict[str, str]) -> None:
    assert odd(check_config(replace(SOUND, config={**CONFIG, **change}))) == finding


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"unreadable": "squeue --json gave no JSON"}, {"version": "bad"}),
        ({"ahead_s": 7.0}, {"clock": "warn"}),
        ({"ahead_s": -100.0}, {"clock": "bad"}),
        ({"partitions_wanted": ()}, {"partitions": "bad", "GPUs": "warn"}),
        ({"partitions": {"rota": {"State": "DOWN"}}}, {"partitions": "bad"}),
        ({"partitions": {"rota": {"State": "UP", "OverSubscribe": "FORCE:4"}}},
         {"partitions": "bad"}),
        ({"nodes": [replace(NODE, gpus=0)]}, {"GPUs": "warn"}),
        ({"nodes": [NODE, replace(NODE, name="n2", state="down")]}, {"nodes": "warn"}),
        ({"nodes": [replace(NODE, state="idle", flags=("drain",))]}, {"nodes": "bad"}),
        ({"nodes": [replace(NODE, flags=("invalid_reg",)), NODE]}, {"nodes": "bad"}),
        ({"nodes": [replace(NODE, partitions=frozenset({"rota", "free"}))]},
         {"other jobs": "warn"}),
        ({"jobs": [job(comment="rota:checkpointable=yes,grace=31")]}, {"KillWait": "warn"}),
        ({"jobs": [job(comment="rota:checkpointable=yes,grace=31,signal=USR1")]}, {}),
        ({"jobs": [job(comment="rota:checkpointable=yes,grace=31", partition="other")]}, {}),
        ({"jobs": [job(comment="rota:checkpointable=yes,grace=31", state="COMPLETED")]}, {}),
    ],
)  # fmt: skip
def test_what_is_wrong_beside_settings_is_found(
    change: dict[str, Any], finding: dict[str, str]
) -> None:
    assert odd(check_config(replace(SOUND, **change))) == finding


def test_preemption_by_slurm_in_a_managed_partition_is_bad() -> None:
    facts = replace(
        SOUND, config={**CONFIG, "PreemptType": "preempt/partition_prio"},
        partitions={"rota": {"State": "UP", "PreemptMode": "REQUEUE"}},
    )  # fmt: skip
    (found,) = [one for one in check_config(facts) if one.check == "preemption"]
    assert (found.level, "rota (REQUEUE)" in found.found) == ("bad", True)


@pytest.mark.parametrize(("may", "level"), [(True, "ok"), (None, "warn"), (False, "bad")])
def test_rights_are_told_with_what_works_without_accounting(may: bool | None, level: str) -> None:
    (found,) = check_rights(replace(SOUND, is_operator=may))
    assert found.level == level
    assert level == "ok" or "adminlevel=operator" in found.fix
    bare = {**CONFIG, "AccountingStorageType": "accounting_storage/none"}
    (found,) = check_rights(replace(SOUND, is_operator=may, config=bare))
    assert level == "ok" or "as slurm(64030)" in found.fix


# The hook.


@pytest.fixture
def beat(tmp_path: Path) -> Path:
    """A heartbeat that is fresh."""
    path = tmp_path / "heartbeat"
    path.write_text(f"{int(time())}\n")
    return path


def hooked(beat: Path, *partitions: str, operators: tuple[int, ...] = (990,)) -> ClusterFacts:
    return replace(SOUND, hook=render_hook(partitions or ("rota",), beat, 300, operators))


def test_a_hook_that_is_not_rotas_or_not_set_up_is_bad(beat: Path) -> None:
    assert odd(check_hook(hooked(beat), beat, beats=True)) == {}
    assert odd(check_hook(hooked(beat, "rota", "more"), beat, beats=True)) == {}
    assert odd(check_hook(hooked(beat, "other"), beat, beats=True)) == {"hold hook": "bad"}
    assert odd(check_hook(hooked(beat), beat.with_name("b"), beats=True)) == {"hold hook": "bad"}
    assert odd(check_hook(hooked(beat, operators=()), beat, beats=True)) == {"hold hook": "warn"}
    theirs = replace(SOUND, hook="return slurm.SUCCESS")
    assert odd(check_hook(theirs, beat, beats=True)) == {"hold hook": "bad"}
    assert odd(check_hook(SOUND, beat, beats=True)) == {}  # it cannot be read
    none = replace(SOUND, config={**CONFIG, "JobSubmitPlugins": "require_timelimit"})
    assert odd(check_hook(none, beat, beats=True)) == {"hold hook": "bad"}


@pytest.mark.parametrize(
    ("waits", "level"),
    [
        (job(), "ok"),
        (job(priority=5.0, mark=""), "bad"),
        (job(priority=5.0, mark="", submit_s=2e10), "ok"),  # it may still be looked at
        (job(priority=5.0, mark="rota:held nodelist="), "ok"),  # rota is starting it
        (job(priority=5.0, mark="rota:let-go"), "ok"),
        (job(priority=5.0, mark="", partition="other"), "ok"),
        (job(priority=0.0, mark=""), "warn"),
    ],
)  # fmt: skip
def test_jobs_that_wait_show_whether_the_hook_works(
    beat: Path, waits: SlurmJob, level: str
) -> None:
    facts = replace(hooked(beat), jobs=[waits])
    assert levels(check_hook(facts, beat, beats=True))["held jobs"] == level


def test_without_a_heartbeat_jobs_are_not_held_and_that_is_right(beat: Path) -> None:
    facts = replace(hooked(beat), jobs=[job(priority=5.0, mark="")])
    assert odd(check_hook(facts, beat, beats=False)) == {}


# Signs of life.


def test_a_running_rota_with_a_watchdog_is_sound(tmp_path: Path, beat: Path) -> None:
    facts = replace(SOUND, timer="rota-failopen.timer is active",
                    config={**CONFIG, "SlurmUser": f"me({os.getuid()})"})  # fmt: skip
    assert odd(check_life(facts, tmp_path / "state", beat, {"pid": 5})) == {}
    assert odd(check_life(replace(facts, timer=""), tmp_path / "state", beat, None)) == {
        "daemon": "warn", "watchdog": "warn"
    }  # fmt: skip


def test_a_heartbeat_that_slurm_cannot_see_is_bad(tmp_path: Path, beat: Path) -> None:
    def level(path: Path, root: Path = tmp_path / "state", user: str = "s(1)") -> str:
        facts = replace(SOUND, config={**CONFIG, "SlurmUser": user})
        return levels(check_life(facts, root, path, None))["heartbeat"]

    assert level(beat, root=tmp_path) == "bad"
    tmp_path.chmod(0o700)
    assert level(beat) == "bad"
    assert level(beat, user="root(0)") == "ok"
    assert level(tmp_path / "none") == "warn"
    beat.write_text("garbage")
    assert level(beat) == "warn"
    beat.write_text("5\n")
    assert level(beat, user="root(0)") == "warn"


# What Slurm says.


def test_settings_and_partitions_are_read() -> None:
    text = "Configuration data as of 2026-01-01T00:00:00\nKillWait   = 5 sec\nProlog = (null)\n\nup"
    assert read_config(text) == {"KillWait": "5 sec", "Prolog": ""}
    line = "PartitionName=a State=UP JobDefaults=(null) Nodes=n[1-2]\nnonsense\n"
    assert read_partitions(line)["a"]["State"] == "UP"


def pretended(folder: Path, **scripts: str) -> SlurmTools:
    """Commands that are shell scripts."""
    for name in ("squeue", "sinfo", "scontrol", "scancel", "systemctl"):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{scripts.get(name, 'exit 1')}\n")
        file.chmod(0o755)
    return SlurmTools({"PATH": f"{folder}:/usr/bin:/bin"})


def test_a_controller_that_is_away_is_bad_and_the_rest_is_still_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beat: Path
) -> None:
    tools = pretended(tmp_path, scontrol="echo Unable to contact slurm controller >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = list(checkup(tools, ["rota"], tmp_path / "state", beat))
    assert odd(found)["slurmctld"] == "bad"
    assert "Unable to contact" in next(one.found for one in found if one.check == "slurmctld")
    assert "watchdog" in levels(found)


def test_commands_that_are_not_there_are_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beat: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = list(checkup(SlurmTools(), ["rota"], tmp_path / "state", beat))
    assert odd(found)["commands"] == "bad"
    assert "squeue, sinfo, scontrol, scancel, sacct" in found[0].found


@pytest.mark.parametrize(
    ("answer", "may"),
    [("Requested reservation is invalid", True), ("Invalid user id", False),
     ("Access/permission denied", False), ("Unable to contact slurm controller", None)],
)  # fmt: skip
def test_rights_and_the_clock_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, may: bool | None
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    as_of = strftime("%Y-%m-%dT%H:%M:%S", localtime(time() + 500))
    tools = pretended(
        tmp_path, squeue="echo nonsense",
        scontrol=f"case $1 in delete) echo 'delete_reservation x: {answer}' >&2; exit 1;; esac\n"
        f"echo 'Configuration data as of {as_of}'; echo 'SlurmUser = slurm(64030)'",
    )  # fmt: skip
    facts = gather(tools, ["rota"], 990)
    assert facts.is_operator is may
    assert 490 < facts.ahead_s < 510
    assert facts.unreadable
    assert gather(tools, ["rota"], 64030).may_why == "it is SlurmUser"


@pytest.mark.parametrize("text", ["", "nan", "inf", "-inf", "1e400", "garbage", "\xff"])
def test_a_heartbeat_that_is_no_time_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "beat").write_text(text)
    assert heartbeat_age_s(tmp_path / "beat") is None
    (tmp_path / "beat").write_text(f"{time() - 5}\n")
    assert heartbeat_age_s(tmp_path / "beat") == pytest.approx(5, abs=60)
