"""Satellites of elastic jobs: which belong to whom, and what brings a job to the nodes wanted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.backends.slurm.hook import HELD, USER_HELD
from rota.backends.slurm.replies import SlurmJob
from rota.backends.slurm.satellite_jobs import satellite_words
from rota.backends.slurm.satellites import NO_MAIN, nodes_of, sort_out, steps_to

MAIN = SlurmJob(job_id=1, user_id=7, state="RUNNING", nodes=("n1",))


def satellite(job_id: int, state: str = "PENDING", *nodes: str, **facts: Any) -> SlurmJob:
    """One that is held, on its way to a node, or there."""
    where = {"required": nodes} if state == "PENDING" else {"nodes": nodes}
    usual = {"user_id": 7, "mark": HELD, "priority": float(bool(nodes))}
    return SlurmJob(job_id=job_id, state=state, **{**usual, **where, **facts})


def sorted_out(*jobs: SlurmJob, main: int = 1) -> tuple[list[int], dict[int, list[int]], Any, Any]:
    said: list[str] = []
    found = sort_out(
        jobs,
        lambda job: main if job.job_id >= 10 else 0,
        lambda _job, main: "" if main.job_id == 1 else NO_MAIN,
        lambda _job, text: said.append(text),
    )
    numbers = {key: [one.job_id for one in own] for key, own in found.by_main.items()}
    rest = [one.job_id for one in found.orphans], [one.job_id for one in found.strays]
    return [one.job_id for one in found.jobs], numbers, rest, said


def test_satellites_of_a_running_job_are_no_jobs_of_their_own() -> None:
    jobs = (satellite(10), MAIN, satellite(11, "RUNNING", "n2"), satellite(12, "FAILED"))
    assert sorted_out(*jobs) == ([1], {1: [10, 11]}, ([], []), [])


def test_those_of_a_job_that_is_over_are_orphans_and_may_hold_nodes_for_a_while() -> None:
    over = SlurmJob(job_id=1, user_id=7, state="COMPLETED")
    jobs = (over, satellite(10), satellite(11, "COMPLETING", "n2"))
    assert sorted_out(*jobs) == ([1], {}, ([10, 11], [11]), [])
    assert sorted_out(satellite(10), main=99) == ([], {}, ([10], []), [])


def test_those_of_a_job_that_waits_again_are_left_alone() -> None:
    waits = SlurmJob(job_id=1, user_id=7)
    jobs = (waits, satellite(10), satellite(11, "RUNNING", "n2"))
    assert sorted_out(*jobs) == ([1], {}, ([], [11]), [])


@pytest.mark.parametrize("main", [1, 2])
def test_one_that_names_another_users_job_or_no_elastic_one_is_a_job_like_others(main: int) -> None:
    other = SlurmJob(job_id=2, user_id=8, state="RUNNING", nodes=("n1",))
    stranger = satellite(10, user_id=8)
    jobs, by_main, rest, said = sorted_out(MAIN, other, stranger, main=main)
    assert (jobs, by_main, rest) == ([1, 2, 10], {}, ([], []))
    assert f"satellite-of={main} is ignored" in said[0]


def test_one_that_follows_itself_or_another_satellite_is_a_job_like_others() -> None:
    said: list[str] = []
    follows = {1: 1, 10: 1}
    found = sort_out(
        [MAIN, satellite(10)],
        lambda job: follows[job.job_id],
        lambda _job, _main: "",
        lambda _job, text: said.append(text),
    )
    assert [job.job_id for job in found.jobs] == [1, 10]
    assert len(said) == 2


def test_growing_starts_idle_satellites_and_shrinking_puts_them_back() -> None:
    idle, there, coming = (
        satellite(10),
        satellite(11, "RUNNING", "n2"),
        satellite(12, "PENDING", "n3"),
    )
    steps, lacking = steps_to(["n1"], [idle, there, coming], ["n1", "n3", "n4", "n5"])
    assert [(one.action, one.satellite.job_id, one.node) for one in steps] == [
        ("stop", 11, ""), ("start", 10, "n4"),
    ]  # fmt: skip
    assert lacking == 1
    steps, _ = steps_to(["n1"], [idle, there, coming], ["n1"])
    assert [(one.action, one.satellite.job_id) for one in steps] == [("stop", 11), ("withdraw", 12)]


def test_what_ends_or_is_held_by_its_user_is_not_used() -> None:
    ends, strange = satellite(10, "COMPLETING", "n2"), satellite(11, mark="")
    held = satellite(12, comment=f"{USER_HELD} rota:satellite-of=1")
    assert steps_to(["n1"], [ends, strange, held], ["n1", "n2"]) == ([], 1)
    assert nodes_of([ends, strange, held]) == ["n2"]


NODES = [f"n{k}" for k in range(2, 7)]


@given(st.lists(st.sampled_from([None, *NODES]), max_size=5), st.sets(st.sampled_from(NODES)))
def test_whatever_there_is_the_steps_bring_what_is_wanted_and_a_second_time_do_nothing(
    there: list[str | None], wanted: set[str]
) -> None:
    satellites = {
        10 + k: satellite(10 + k) if node is None else satellite(10 + k, "RUNNING", node)
        for k, node in enumerate(there)
    }
    for _ in range(2):  # one that is stopped can be used again
        steps, _ = steps_to(["n1"], list(satellites.values()), ["n1", *sorted(wanted)])
        for step in steps:
            number = step.satellite.job_id
            begins = step.action == "start"
            satellites[number] = (
                satellite(number, "RUNNING", step.node) if begins else satellite(number)
            )
    assert len(nodes_of(satellites.values())) == min(len(wanted), len(there))
    assert set(nodes_of(satellites.values())) <= wanted
    assert steps_to(["n1"], list(satellites.values()), ["n1", *sorted(wanted)])[0] == []


def test_a_satellite_asks_for_what_each_node_of_its_job_has_and_inherits_nothing_of_the_run() -> (
    None
):
    job = SlurmJob(
        job_id=5, nodes=("n1", "n2"), excluded=("n9",), cpus=8, partition="rota", memory_mb=2048,
        gpus_held=("gpu:a100:2(IDX:0-1)", "gpu:a100:2(IDX:0-1)"), work_dir="/home/a b",
        time_limit_s=90.0, features="big&new",
    )  # fmt: skip
    environ = {"SLURM_JOB_ID": "5", "SLURM_CONF": "/c", "SBATCH_X": "1", "PATH": "/bin",
               "CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_ACCOUNT": "lab"}  # fmt: skip
    words = satellite_words(job, environ, ["satellite.sh", "python", "a;b"])
    sbatch = words.index("sbatch")
    assert words[:sbatch] == ["env", "-u", "SLURM_JOB_ID", "-u", "SBATCH_X", "-u",
                              "CUDA_VISIBLE_DEVICES", "-u", "SLURM_JOB_ACCOUNT"]  # fmt: skip
    assert words[-3:] == ["satellite.sh", "python", "a;b"]
    assert {
        "--comment=rota:satellite-of=5", "--nodes=1", "--cpus-per-task=4", "--gres=gpu:a100:2",
        "--mem=2048M", "--exclude=n1,n2,n9", "--time=2", "--constraint=big&new", "--account=lab",
        "--chdir=/home/a b", "--requeue",
    } <= set(words)  # fmt: skip
