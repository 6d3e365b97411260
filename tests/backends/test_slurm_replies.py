"""What squeue and sinfo answer: recorded answers, other versions, and what is no answer at all."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.backends.slurm.node_lists import expanded, natural
from rota.backends.slurm.replies import (
    array_tasks,
    gpus,
    number,
    read_jobs,
    read_nodes,
)
from rota.errors import BackendError

RECORDED = Path(__file__).parents[1] / "fixtures" / "slurm"
JOB = {"job_id": 7, "array_job_id": 0, "job_state": "PENDING"}


def jobs(**fields: Any) -> Any:
    return read_jobs(json.dumps({"jobs": [{**JOB, **fields}]}))[0]


def test_the_recorded_answers_are_understood() -> None:
    found = read_jobs((RECORDED / "squeue-22.05.json").read_text())
    nodes = read_nodes((RECORDED / "sinfo-22.05.json").read_text())
    assert [node.name for node in nodes] == [f"n{k}" for k in range(1, 9)]
    assert {(node.gpus, node.gpu_type, node.cpus) for node in nodes} == {(4, "a100", 32)}
    assert all(node.partitions >= {"rota", "free"} for node in nodes)
    assert {job.state for job in found} <= {"PENDING", "RUNNING", "COMPLETED", "CANCELLED"}
    assert all(job.submit_s > 1e9 for job in found)
    running = [job for job in found if job.state == "RUNNING"]
    assert running
    assert all(job.nodes and job.start_s >= job.submit_s for job in running)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()), ("n1", ("n1",)), ("n[1-3]", ("n1", "n2", "n3")),
        ("n[1-2,5],m7", ("n1", "n2", "n5", "m7")), ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("rack1-n[1-2]x", ("rack1-n1x", "rack1-n2x")),
        ("r[1-2]n[3,05]x,a", ("r1n3x", "r1n05x", "r2n3x", "r2n05x", "a")), ("n[2-1]m[1-2]", ()),
        ("n1 n2\tn3", ("n1", "n2", "n3")), (",n1,,n2,", ("n1", "n2")), ("n[1-,3]", ("n1", "n3")),
    ],
)  # fmt: skip
def test_lists_of_nodes_are_expanded(text: str, names: tuple[str, ...]) -> None:
    assert expanded(text) == names


@pytest.mark.parametrize(
    "text", ["n[0-99999999999]", "r[1-9999]n[1-9999]", "a[1-600000],b[1-600000]"]
)
def test_a_list_that_names_too_many_nodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too many nodes"):
        expanded(text)


@pytest.mark.parametrize("text", ["n[1-3", "n]1[", "n[]", "n[a-b]", "n[1-2-3]", "n[1,]", "n[[1]]"])
def test_a_list_with_odd_brackets_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no list of nodes"):
        expanded(text)


def test_a_list_that_a_user_has_written_oddly_hides_no_other_job() -> None:
    rows = [{**JOB, "required_nodes": "n[1", "excluded_nodes": "n[2"}, {**JOB, "job_id": 8}]
    odd, other = read_jobs(json.dumps({"jobs": rows}))
    assert (odd.required, odd.excluded, other.job_id) == (("n[1",), ("n[2",), 8)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}), ("gpu:4", {"": 4}), ("gpu", {"": 1}), ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gres:gpu:2", {"": 2}), ("gres/gpu:v100:2,gres/gpu:a100:1", {"v100": 2, "a100": 1}),
        ("gpu:a100:3(IDX:0-2),craynetwork:4", {"a100": 3}), ("shard:8", {}),
        ("gpu:a100", {"a100": 1}),
    ],
)  # fmt: skip
def test_gpus_are_counted_by_type(text: str, found: dict[str, int]) -> None:
    assert gpus(text) == found


@given(st.text(max_size=60))
def test_no_text_that_slurm_could_print_makes_a_reader_fail_oddly(text: str) -> None:
    gpus(text)
    natural(text)
    list(islice(array_tasks(text), 10))
    with suppress(ValueError):
        expanded(text)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("0-3", [0, 1, 2, 3]), ("1,4-8:2%2", [1, 4, 6, 8]), ("3,5,...", [3, 5]), ("", []),
     ("0-9:0", range(10))],
)  # fmt: skip
def test_tasks_of_arrays_are_listed(text: str, tasks: Any) -> None:
    assert list(array_tasks(text)) == list(tasks)


def test_a_huge_array_costs_nothing() -> None:
    assert list(islice(array_tasks("0-4000000000"), 3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, -1.0), (5, 5.0), (0xFFFFFFFE, -1.0), ({"set": True, "number": 3}, 3.0),
        ({"set": False, "number": 0}, -1.0), ({"infinite": True, "number": 0}, -1.0),
        (float("nan"), -1.0), (inf, -1.0),
    ],
)  # fmt: skip
def test_numbers_of_all_versions_are_read(value: Any, found: float) -> None:
    assert number(value, -1.0) == found


def test_newer_versions_name_states_in_lists() -> None:
    assert jobs(job_state=["RUNNING"]).state == "RUNNING"
    assert jobs(job_state=["RUNNING", "COMPLETING"]).state == "COMPLETING"
    row = {"name": "n1", "state": ["MIXED", "DRAIN"], "gres": "gpu:2", "partitions": ["rota"]}
    (node,) = read_nodes(json.dumps({"nodes": [row]}))
    assert (node.state, node.flags) == ("mixed", ("drain",))


def test_memory_is_that_of_one_node_however_it_was_asked_for() -> None:
    assert jobs(memory_per_node=4096, node_count=2, cpus=8).memory_mb == 4096
    assert jobs(memory_per_cpu=512, node_count=2, cpus=8).memory_mb == 2048
    assert jobs().memory_mb == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"jobs": 3}', '{"errors": ["no"]}', "1e999"]
)
def test_what_is_no_answer_is_said_to_be_none(text: str) -> None:
    with pytest.raises(BackendError, match="squeue --json"):
        read_jobs(text)


def test_an_answer_without_a_controller_does_not_say_that_there_is_nothing() -> None:
    """What squeue and sinfo of 22.05 print, with exit code 0, when slurmctld does not answer."""
    errors = '"errors": [{"error": "Unspecified error", "error_number": -1}]'
    with pytest.raises(BackendError, match=r"listed no jobs.*Unspecified error"):
        read_jobs(f'{{{errors}, "jobs": []}}')
    with pytest.raises(BackendError, match=r"listed no nodes.*Unspecified error"):
        read_nodes(f'{{{errors}, "nodes": []}}')


def test_a_job_that_is_described_strangely_is_named() -> None:
    for wrong in ({"nodes": "n[1-"}, {"cpus": "many"}, {"job_state": None, "gres_detail": 3}):
        with pytest.raises(BackendError, match="job 7"):
            jobs(**wrong)


@pytest.mark.parametrize(
    "text", ['{"jobs":[5]}', '{"jobs":[null]}', '{"jobs":[[]]}', '{"jobs":[{}]}', "[" * 100_000]
)
def test_odd_answers_are_errors_of_the_cluster_and_not_ours(text: str) -> None:
    with pytest.raises(BackendError, match="squeue --json"):
        read_jobs(text)


@pytest.mark.parametrize(
    "value", [{"a": 1}, ["a"], 5, [[]], {}, -1, "strange", None, "", [], 1e400]
)
@pytest.mark.parametrize("field", sorted(JOB | dict.fromkeys((
    "comment", "features", "nodes", "name", "partition", "priority", "time_limit", "node_count",
    "cpus", "tres_per_node", "gres_detail", "user_name", "user_id", "submit_time",
    "array_task_string", "array_max_tasks", "memory_per_node", "admin_comment", "shared",
))))  # fmt: skip
def test_a_field_of_another_kind_is_read_or_named(field: str, value: Any) -> None:
    with suppress(BackendError):
        (job,) = read_jobs(json.dumps({"jobs": [{**JOB, field: value}]}))
        assert hash(job) == hash(job)
        assert job.least_nodes >= 1


@pytest.mark.parametrize("field", ["name", "state", "gres", "cpus", "partitions", "real_memory"])
@pytest.mark.parametrize("value", [{"a": 1}, [], 5, None, "", "odd"])
def test_so_is_one_of_a_node(field: str, value: Any) -> None:
    with suppress(BackendError):
        (node,) = read_nodes(json.dumps({"nodes": [{"name": "n1", field: value}]}))
        assert hash(node) == hash(node)


def test_states_in_small_letters_are_states() -> None:
    assert [jobs(job_state=state).state for state in ("running", ["pending", "requeued"])] == [
        "RUNNING", "PENDING",
    ]  # fmt: skip
