"""The driver of Slurm over made-up answers: what it sees, and which commands it gives."""

from __future__ import annotations

import json
import os
from math import inf, isnan
from time import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.backends.slurm import said_once
from rota.backends.slurm.forgotten_runs import TOLD_S
from rota.backends.slurm.hook import HELD, USER_HELD
from rota.backends.slurm.replies import read_jobs, read_nodes
from rota.backends.slurm.slurm_driver import MOST_TASKS, SlurmDriver
from rota.backends.slurm.tools import Said, SlurmTools
from rota.core import Job, JobTable
from rota.errors import BackendError

if TYPE_CHECKING:
    from pathlib import Path

if TYPE_CHECKING:
    from pathlib import Path

NOW_S = 2_000_000_000.0
JOB: dict[str, Any] = {
    "job_id": 7, "array_job_id": 0, "job_state": "PENDING", "priority": 0, "partition": "rota",
    "user_name": "ann", "user_id": 1000, "submit_time": NOW_S - 100, "node_count": 1, "cpus": 2,
    "tres_per_node": "gres:gpu:2", "admin_comment": HELD, "batch_flag": True, "requeue": True,
    "time_limit": 10,
}  # fmt: skip
NODE = {"name": "n1", "state": "idle", "gres": "gpu:a100:4", "cpus": 32, "partitions": ["rota"],
        "active_features": "a100,big", "real_memory": 65536}  # fmt: skip


class ToldTools(SlurmTools):
    """Answers what it was told to, and keeps the commands."""

    def __init__(
        self, jobs: list[dict[str, Any]], nodes: list[dict[str, Any]], select: str
    ) -> None:
        super().__init__()
        self.jobs, self.nodes, self.select = jobs, nodes, select
        self.topology = ""
        self.given: list[tuple[str, ...]] = []
        self.answer = Said(0, "", "")

    def run(self, *words: str) -> Said:
        if words[0] == "squeue":
            return Said(0, json.dumps({"jobs": self.jobs}), "")
        if words[0] == "sinfo":
            return Said(0, json.dumps({"nodes": self.nodes}), "")
        if words[:3] == ("scontrol", "show", "config"):
            return Said(0, f"SelectTypeParameters    = {self.select}\n", "")
        if words[:3] == ("scontrol", "show", "topology"):
            return Said(0, self.topology, "")
        self.given.append(words)
        return self.answer


def made(
    *jobs: dict[str, Any], nodes: Any = 3, select: str = "CR_CORE", **more: Any
) -> tuple[SlurmDriver, ToldTools]:
    rows = (
        [{**NODE, "name": f"n{k + 1}"} for k in range(nodes)] if isinstance(nodes, int) else nodes
    )
    tools = ToldTools([{**JOB, **job} for job in jobs], rows, select)
    return SlurmDriver(tools, frozenset({"rota"}), **more), tools


def seen(*jobs: dict[str, Any], **more: Any) -> Any:
    driver, _ = made(*jobs, **more)
    return driver.observe().jobs


def test_a_held_job_waits_with_what_it_asks_for() -> None:
    (job,) = seen({"comment": "rota:model=m,estimate=5m"})
    request = job.request
    assert (job.name, job.phase, job.managed, job.waits_for) == ("7", "waiting", True, "")
    assert (request.gpus_per_worker, request.workers, request.model) == (2, 1, "m")
    assert (request.estimate_s, request.stoppable, request.apart) == (300.0, False, True)


def test_partitions_without_nodes_are_told_from_others() -> None:
    driver, _ = made()
    assert driver.demands.populated == set()
    driver.demands.partitions |= {"gpuu"}
    driver.observe()
    assert driver.demands.populated == {"rota"}


def test_without_an_estimate_the_time_limit_counts_and_none_is_none() -> None:
    assert seen({})[0].request.estimate_s == 600.0
    assert isnan(seen({"time_limit": None})[0].request.estimate_s)
    backfilled = {"time_limit": 525_600, "job_state": "RUNNING", "nodes": "n1"}
    assert isnan(seen(backfilled)[0].request.estimate_s)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"dependency": "afterok:3(unfulfilled)"}, "it depends on afterok:3(unfulfilled)"),
        ({"eligible_time": 2 * NOW_S}, "its begin time has not come"),
        ({"comment": f"{USER_HELD} mine"}, "its user holds it"),
        ({"admin_comment": ""}, "it is held, and not by rota"),
        ({"state_reason": "JobHeldAdmin"}, "an administrator holds it"),
        ({"admin_comment": "", "state_reason": "JobHeldAdmin"}, "an administrator holds it"),
    ],
)  # fmt: skip
def test_what_a_job_waits_for_beside_room_is_said(fields: dict[str, Any], why: str) -> None:
    assert seen(fields)[0].waits_for == why


def test_a_job_whose_failed_dependency_was_dropped_is_not_taken_for_held_by_somebody() -> None:
    failed = {"state_reason": "JobHeldAdmin", "dependency": "afterok:3(failed)"}
    driver, tools = made(failed)
    assert "it depends on" in driver.observe().jobs[0].waits_for
    tools.jobs[0]["dependency"] = ""
    for _ in range(2):
        assert driver.observe().jobs[0].waits_for == ""
    tools.jobs[0]["state_reason"] = "JobHeldUser"
    driver.observe()
    tools.jobs[0]["state_reason"] = "JobHeldAdmin"
    assert driver.observe().jobs[0].waits_for == "an administrator holds it"


@pytest.mark.parametrize(
    "hold", [{"state_reason": "JobHeldAdmin"}, {"comment": USER_HELD}, {"admin_comment": ""}]
)
def test_a_start_decided_before_somebody_else_held_the_job_does_not_release_it(
    hold: dict[str, Any],
) -> None:
    driver, tools = made({"state_reason": "JobHeldUser"})
    driver.observe()
    tools.jobs[0] |= hold
    (job,) = driver.observe().jobs
    assert driver.carry_out("start", job, (("n1", 1, 0),)).outcome == "refused"
    assert tools.given == []


def test_a_job_that_an_administrator_holds_is_not_given_back_to_slurm() -> None:
    driver, tools = made({"exclusive": "1", "resv_name": "maint", "state_reason": "JobHeldAdmin"})
    driver.observe()
    assert tools.given == []


@pytest.mark.parametrize("mark", ["", "rota:let-go", HELD])
@pytest.mark.parametrize("said", ["launch failed requeued held", "launch_failed_requeued_held"])
def test_a_job_that_slurm_holds_since_it_could_not_launch_it_is_started_again(
    mark: str, said: str
) -> None:
    driver, tools = made(
        {"admin_comment": mark, "state_reason": "JobHeldUser", "state_description": said}
    )
    (job,) = driver.observe().jobs
    assert (job.phase, job.waits_for) == ("waiting", "")
    assert driver.carry_out("start", job, (("n1", 1, 0),)).outcome == "done"
    assert f"AdminComment={HELD} nodelist=" in tools.given[0]


@pytest.mark.parametrize(
    "fields",
    [{"het_job_id": 7}, {"resv_name": "maint"}, {"licenses": "matlab:1"}, {"shared": "none"},
     {"shared": "user"}, {"shared": ["mcs"]},
     {"batch_flag": False}, {"tres_per_task": "gres:gpu:1"}, {"features": "a100*2"},
     {"tres_per_node": "gres:gpu:a100:1,gres:gpu:v100:1"}, {"contiguous": True}],
)  # fmt: skip
def test_what_rota_cannot_place_is_given_back_to_slurm(fields: dict[str, Any]) -> None:
    driver, tools = made(fields)
    assert driver.observe().jobs == []
    verbs = [words[1] for words in tools.given]
    assert verbs == ["update", "release", "update"]
    assert tools.given[-1][-1] == "AdminComment=rota:let-go"
    tools.given.clear()
    tools.answer = Said(1, "", "Requested partition configuration not available now")
    driver.observe()
    assert not [words for words in tools.given if "let-go" in words[-1]]  # tried again later


def test_jobs_of_other_partitions_are_not_touched_but_take_their_room() -> None:
    running = {"partition": "free", "job_state": "RUNNING", "nodes": "n1", "start_time": NOW_S,
               "gres_detail": ["gpu:a100:3(IDX:0-2)"]}  # fmt: skip
    driver, tools = made({"partition": "free"}, running)
    (job,) = driver.observe().jobs
    assert (job.managed, job.place, job.request.gpus_per_worker) == (False, (("n1", 3, 0),), 1)
    assert tools.given == []


@pytest.mark.parametrize("partition", ["rota", "free"])
def test_nothing_is_started_beside_a_job_that_wants_no_others_on_its_nodes(partition: str) -> None:
    fields = {"job_state": "RUNNING", "nodes": "n2", "start_time": NOW_S, "partition": partition}
    driver, tools = made({**fields, "shared": "user"})
    assert [node.up for node in driver.observe().nodes] == [True, False, True]
    tools.jobs[0]["shared"] = None
    assert all(node.up for node in driver.observe().nodes)
    tools.jobs[0] |= {"shared": "none", "job_state": "COMPLETED"}
    assert all(node.up for node in driver.observe().nodes)


def test_features_exclusions_and_lists_of_nodes_bind_a_job() -> None:
    nodes = [{**NODE, "name": "n1"}, {**NODE, "name": "n2", "active_features": "v100"},
             {**NODE, "name": "n3"}]  # fmt: skip
    asks = {"features": "a100&big", "excluded_nodes": "n3"}
    assert seen(asks, nodes=nodes)[0].request.only_on == {"n1"}
    assert seen({"features": "a100|v100"}, nodes=nodes)[0].request.only_on is None
    assert seen({"required_nodes": "n2"}, nodes=nodes)[0].request.must_have == {"n2"}


def test_the_nodes_that_rota_has_chosen_are_not_taken_for_the_users_own() -> None:
    fields = {"required_nodes": "n3", "admin_comment": f"{HELD} nodelist="}
    assert seen(fields)[0].request.must_have == frozenset()
    fields["admin_comment"] = f"{HELD} nodelist=n1"
    assert seen(fields)[0].request.must_have == {"n1"}


def test_a_job_whose_list_of_nodes_is_odd_can_be_taken_back_all_the_same() -> None:
    driver, tools = made({"required_nodes": "n[1;", "admin_comment": "", "priority": 9})
    (job,) = driver.observe().jobs
    assert driver.carry_out("withdraw", job, ()).outcome == "done"
    assert tools.given[0][-1] == f"AdminComment={HELD} nodelist="


def test_no_job_is_shown_with_more_nodes_than_there_are_for_it() -> None:
    def sizes(more: str, **fields: Any) -> tuple[int, int, int]:
        request = seen({"comment": f"rota:{more},max_nodes=65536", **fields}, nodes=4)[0].request
        return request.workers, request.min_workers, request.max_workers

    assert sizes("checkpointable=yes") == (1, 1, 4)
    assert sizes("elastic=yes", excluded_nodes="n3") == (1, 1, 3)
    assert sizes("checkpointable=yes,min_nodes=2", node_count=6) == (6, 2, 6)


def test_memory_counts_only_where_slurm_counts_it() -> None:
    asks = {"memory_per_node": 2048}
    assert seen(asks)[0].request.memory_gb_per_worker == 0.0
    assert seen(asks, select="CR_CORE_MEMORY")[0].request.memory_gb_per_worker == 2.0
    assert seen({}, select="CR_CPU_Memory") == []  # it wants all memory: Slurm's own affair


@pytest.mark.parametrize(
    ("state", "flags", "up"),
    [("idle", [], True), ("mixed", [], True), ("allocated", [], True), ("idle", ["DRAIN"], False),
     ("down", [], False), ("idle", ["NOT_RESPONDING"], False), ("mixed", ["MAINT"], False),
     ("idle", ["RESERVED"], False), ("unknown", [], False), ("idle", ["POWERED_DOWN"], False)],
)  # fmt: skip
def test_jobs_are_started_on_nodes_that_can_be_used(state: str, flags: list[str], up: bool) -> None:
    driver, _ = made(nodes=[{**NODE, "state": state, "state_flags": flags}])
    assert driver.observe().nodes[0].up is up


TREE = """\
SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[1-2],x9
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[2-3]
SwitchName=empty Level=0 LinkSpeed=1 Nodes=(null)
SwitchName=odd Level=0 LinkSpeed=1 Nodes=n[1-]]
SwitchName=root Level=1 LinkSpeed=1 Nodes=n[1-4],x9 Switches=leaf[0-1]
"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (TREE, [1, 1, 2, 0]),
        ("BlockName=b1 BlockIndex=0 Nodes=n[3-4]\n", [0, 0, 1, 1]),
        ("No topology information available\n", [0, 0, 0, 0]),
        ("", [0, 0, 0, 0]),
    ],
)
def test_nodes_below_one_switch_are_one_rack(said: str, expected: list[int]) -> None:
    driver, tools = made(nodes=4)
    tools.topology = said
    assert [node.rack for node in driver.observe().nodes] == expected


def test_gpus_that_slurm_counts_as_used_without_a_job_are_not_used_and_that_is_said() -> None:
    said = list[str]()
    nodes = [
        {**NODE, "gres_used": "gpu:a100:3(IDX:0,2-3)", "alloc_cpus": 0},
        {**NODE, "name": "n2", "gres_used": "gpu:a100:3(IDX:0-2)", "alloc_cpus": 9},
    ]
    driver, _ = made(nodes=nodes, say=said.append)
    for _ in range(2):
        assert [node.gpus for node in driver.observe().nodes] == [1, 4]
    assert len(said) == 1
    assert "3 GPUs of n1" in said[0]


def test_a_job_that_was_requeued_is_no_interactive_one() -> None:
    assert seen({"batch_flag": False, "restart_cnt": 2})[0].managed


def test_a_long_array_is_shown_task_by_task_and_not_whole() -> None:
    array = {"array_job_id": 7, "array_task_string": "0-9999", "array_max_tasks": 0}
    assert len(seen(array)) == MOST_TASKS
    assert [job.name for job in seen({**array, "array_max_tasks": 2})] == ["7_0", "7_1"]
    running = {"job_id": 8, "array_job_id": 7, "array_task_id": 0, "job_state": "RUNNING",
               "nodes": "n1", "start_time": NOW_S}  # fmt: skip
    names = [
        job.name
        for job in seen({**array, "array_task_string": "1-9999", "array_max_tasks": 2}, running)
    ]
    assert names == ["7_1", "7_0"]


@pytest.mark.parametrize(
    "held", [{"comment": USER_HELD}, {"state_reason": "JobHeldAdmin"}, {"dependency": "after:3"}]
)
def test_a_task_that_is_held_does_not_keep_the_rest_of_its_array_waiting(
    held: dict[str, Any],
) -> None:
    rest = {"array_job_id": 7, "array_task_string": "1-9", "array_max_tasks": 1}
    task = {"job_id": 8, "array_job_id": 7, "array_task_id": 0}
    assert [job.name for job in seen(rest, task)] == ["7_0"]
    assert [(job.name, bool(job.waits_for)) for job in seen(rest, {**task, **held})] == [
        ("7_1", False), ("7_0", True)
    ]  # fmt: skip


def test_a_start_sets_the_size_which_running_jobs_refuse_then_nodes_and_then_releases() -> None:
    driver, tools = made(
        {"node_count": 2, "cpus": 8, "comment": "rota:checkpointable=yes,min_nodes=1,max_nodes=3"}
    )
    (job,) = driver.observe().jobs
    answer = driver.carry_out("start", job, (("n1", 1, 0), ("n3", 1, 0), ("n2", 1, 0)))
    size, where, release = tools.given
    assert answer.outcome == "done"
    assert size == ("scontrol", "update", "jobid=7", f"AdminComment={HELD} nodelist= nodes=2/3",
                    "NumNodes=3-3", "NumCPUs=12")  # fmt: skip
    assert where == ("scontrol", "update", "jobid=7", "ReqNodeList=n1,n3,n2", "StartTime=now")
    assert release == ("scontrol", "release", "7")


@pytest.mark.parametrize(("age_s", "when"), [(5.0, "now+2"), (500.0, "now")])
def test_a_job_starts_a_little_after_its_requeue(age_s: float, when: str) -> None:
    driver, tools = made({"restart_cnt": 1, "submit_time": time() - age_s})
    (job,) = driver.observe().jobs
    driver.carry_out("start", job, (("n1", 1, 0),))
    assert tools.given[1][-1] == f"StartTime={when}"


def test_a_start_that_is_too_late_changes_nothing() -> None:
    driver, tools = made({})
    (job,) = driver.observe().jobs
    tools.answer = Said(1, "", "Job is no longer pending execution for job 7")
    assert driver.carry_out("start", job, (("n1", 1, 0),)).outcome == "refused"
    assert len(tools.given) == 1
    assert not any(word.startswith("ReqNodeList") for word in tools.given[0])


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("withdraw", ("scontrol", "uhold", "7")),
        ("stop", ("scontrol", "requeuehold", "Incomplete", "7")),
        ("cancel", ("scancel", "7")),
        ("notice", ("scancel", "--signal=USR1", "7")),
    ],
)
def test_each_action_is_one_command_behind_its_mark(action: Any, words: tuple[str, ...]) -> None:
    driver, tools = made({"job_state": "RUNNING", "nodes": "n1", "start_time": NOW_S,
                          "comment": "rota:checkpointable=yes,signal=USR1"})  # fmt: skip
    (job,) = driver.observe().jobs
    assert driver.carry_out(action, job, ()).outcome == "done"
    assert tools.given[-1] == words
    marked = any(word.startswith(f"AdminComment={HELD}") for word in tools.given[0])
    assert marked is (action in ("withdraw", "stop"))


def test_a_command_that_is_refused_or_lost_is_told_apart() -> None:
    driver, tools = made({})
    (job,) = driver.observe().jobs
    tools.answer = Said(1, "", "slurm_update error: Access denied\n")
    assert driver.carry_out("cancel", job, ()).outcome == "refused"
    for lost in (
        Said(None, "", "scancel did not answer in 30 s"),
        Said(1, "", "slurm_update error: Socket timed out on send/recv operation"),
        Said(1, "", "slurm_update error: Zero Bytes were transmitted or received"),
        Said(1, "", "Unable to contact slurm controller (connect failure)"),
    ):
        tools.answer = lost
        assert driver.carry_out("cancel", job, ()).outcome == "unknown"


def test_without_accounting_a_job_that_is_gone_counts_as_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, tools = made({})
    tools.answer = Said(1, "", "Slurm accounting storage is disabled\n")
    assert driver.fate("7", NOW_S) == ("done", inf)
    tools.answer = Said(0, "CANCELLED by 0|2033-05-18T03:33:20|2033-05-18T03:00:00\n", "")
    assert driver.fate("7", NOW_S) == ("cancelled", inf)

    def missing(*_words: str) -> Said:
        raise BackendError("There is no command 'sacct' here.")

    monkeypatch.setattr(tools, "run", missing)
    assert driver.fate("7", NOW_S) == ("done", inf)


def test_nothing_is_done_to_a_job_that_has_changed_its_number() -> None:
    driver, tools = made({})
    (job,) = driver.observe().jobs
    tools.jobs[0]["submit_time"] = NOW_S
    driver.observe()
    assert driver.carry_out("stop", job, ()).outcome == "unknown"
    assert tools.given == []


def test_hints_of_users_are_told_once_when_they_are_ignored() -> None:
    said: list[str] = []
    driver, _ = made({"comment": "rota:gpus=8"}, say=said.append)
    for _ in range(3):
        driver.observe()
    assert len(said) == 1
    assert "'gpus' is no hint" in said[0]


def test_a_job_that_somebody_else_holds_is_named_once() -> None:
    said: list[str] = []
    driver, _ = made(
        {"job_id": 7, "admin_comment": ""}, {"job_id": 8},
        {"job_id": 9, "admin_comment": "", "comment": USER_HELD}, say=said.append,
    )  # fmt: skip
    driver.observe()
    driver.observe()
    assert [text.split(";")[0] for text in said] == [
        "job 7: it is held, and not by rota: `scontrol release` it"
    ]


def test_a_watcher_gives_no_command_whatever_there_is() -> None:
    driver, tools = made({"resv_name": "maint"}, {"job_id": 8, "priority": 1000}, passive=True)
    phases = {job.name: job.phase for job in driver.observe().jobs}
    assert (phases["8"], tools.given) == ("waiting", [])


ELASTIC = {"comment": "rota:elastic=yes,max_nodes=3"}
RUNNING = {"job_state": "RUNNING", "nodes": "n1", "start_time": NOW_S, "priority": 9}


def follower(number: int, **fields: Any) -> dict[str, Any]:
    """A satellite of job 7."""
    return {"job_id": number, "comment": "rota:satellite-of=7", **fields}


def test_an_elastic_job_starts_with_its_least_nodes_and_those_that_its_user_names() -> None:
    fields = {**ELASTIC, "admin_comment": f"{HELD} nodelist=n3"}
    driver, tools = made(fields, nodes=4)
    (job,) = driver.observe().jobs
    request = job.request
    assert (request.workers, request.min_workers, request.max_workers) == (1, 1, 3)
    assert (request.in_place, request.stoppable) == (True, False)
    driver.carry_out("start", job, (("n1", 1, 0), ("n2", 1, 0), ("n3", 1, 0)))
    assert "NumNodes=1-1" in tools.given[0]
    assert "ReqNodeList=n3" in tools.given[1]


def test_satellites_are_part_of_their_job_which_cannot_give_up_its_own_nodes() -> None:
    there = {"job_state": "RUNNING", "nodes": "n2", "start_time": NOW_S, "priority": 8}
    driver, _ = made({**ELASTIC, **RUNNING}, follower(8, **there), follower(9))
    (job,) = driver.observe().jobs
    assert job.place == (("n1", 1, 0), ("n2", 1, 0))
    assert (job.request.fixed, job.request.must_have) == ({"n1"}, {"n1"})


def test_a_job_that_has_submitted_its_satellites_cannot_grow_beyond_them(tmp_path: Path) -> None:
    where = {"current_working_directory": str(tmp_path), "user_id": os.getuid()}
    driver, _ = made({**ELASTIC, **RUNNING, **where}, follower(8, **where))
    assert driver.observe().jobs[0].request.max_workers == 3
    told = {"time": NOW_S + 1, "samples": 0}
    beat = tmp_path / "rota-heartbeat-7.json"
    beat.write_text(json.dumps(told))
    os.utime(beat, (NOW_S + 1, NOW_S + 1))
    assert driver.observe().jobs[0].request.max_workers == 2
    os.utime(beat, (NOW_S - 1, NOW_S - 1))  # of an earlier run
    assert driver.observe().jobs[0].request.max_workers == 3


def test_a_resize_starts_and_stops_satellites_and_never_touches_the_job_itself() -> None:
    there = {"job_state": "RUNNING", "nodes": "n2", "start_time": NOW_S, "priority": 8}
    driver, tools = made({**ELASTIC, **RUNNING}, follower(8, **there), follower(9))
    (job,) = driver.observe().jobs
    assert driver.carry_out("resize", job, (("n1", 1, 0), ("n3", 1, 0))).outcome == "done"
    verbs = [words[1] for words in tools.given]
    assert verbs == ["update", "requeuehold", "update", "update", "release"]
    assert tools.given[1][-1] == "8"
    assert {"jobid=9", "NumNodes=1-1"} <= set(tools.given[2])
    assert {"jobid=9", "ReqNodeList=n3"} <= set(tools.given[3])
    tools.given.clear()
    two = (("n1", 1, 0), ("n2", 1, 0), ("n3", 1, 0), ("n4", 1, 0))
    answer = driver.carry_out("resize", job, two)
    assert (answer.outcome, answer.said) == ("unknown", "1 of its satellites are not there")
    assert all("jobid=7" not in words for words in tools.given)


@pytest.mark.parametrize(
    "more",
    [{"tres_per_node": "gres:gpu:4"}, {"node_count": 2, "cpus": 4}, {"cpus": 3},
     {"memory_per_node": 4096}, {"array_job_id": 8, "array_task_string": "0-99"},
     {"array_job_id": 8, "array_task_id": 3}, {"tres_per_node": "gres:gpu:v100:1"}],
)  # fmt: skip
def test_one_that_takes_more_than_a_node_of_its_job_waits_in_line_like_any_job(
    more: dict[str, Any],
) -> None:
    said: list[str] = []
    main = {**ELASTIC, **RUNNING, "memory_per_node": 2048, "tres_per_node": "gres:gpu:a100:2"}
    own = {"memory_per_node": 2048, "tres_per_node": "gres:gpu:a100:2"}
    driver, tools = made(main, follower(8, **{**own, **more}), follower(9, **own),
                         select="CR_CORE_MEMORY", say=said.append)  # fmt: skip
    job, *others = driver.observe().jobs
    assert all(one.name.startswith("8") and one.managed for one in others)
    assert others
    assert said[0].startswith("job 8")
    assert "satellite-of=7 is ignored: it" in said[0]
    driver.carry_out("resize", job, (("n1", 1, 0), ("n2", 1, 0), ("n3", 1, 0)))
    assert {words[-1] for words in tools.given if words[1] == "release"} == {"9"}


def test_what_is_left_to_slurm_is_no_satellite_of_anything() -> None:
    driver, tools = made(follower(8, partition="free"), follower(9, shared="none"))
    assert driver.observe().jobs == []
    assert [words for words in tools.given if words[0] == "scancel"] == []


def test_satellites_whose_job_is_over_are_ended_and_take_their_room_until_then() -> None:
    over = {**ELASTIC, "job_state": "COMPLETED", "end_time": NOW_S}
    there = {"job_state": "RUNNING", "nodes": "n2", "start_time": NOW_S, "priority": 8,
             "gres_detail": ["gpu:a100:2(IDX:0-1)"]}  # fmt: skip
    driver, tools = made(over, follower(8), follower(9, **there))
    jobs = {job.name: job for job in driver.observe().jobs}
    assert set(jobs) == {"7", "9"}
    assert (jobs["9"].managed, jobs["9"].place) == (False, (("n2", 2, 0),))
    assert tools.given == [("scancel", "8"), ("scancel", "9")]


def test_what_a_job_told_last_is_read_once_when_it_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "rota-heartbeat-7.json"
    driver, tools = made({"job_state": "RUNNING", "nodes": "n1", "start_time": NOW_S,
                          "comment": "rota:heartbeat=yes", "user_id": os.getuid(),
                          "current_working_directory": str(tmp_path)})  # fmt: skip
    told = []
    for state, samples in (("RUNNING", 5), ("COMPLETED", 9), ("COMPLETED", 9)):
        file.write_text(json.dumps({"samples": samples}))
        tools.jobs[0]["job_state"] = state
        (job,) = driver.observe().jobs
        told.append(None if job.progress is None else job.progress.samples)
    assert told == [5, 9, None]


def test_what_was_said_of_jobs_that_are_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(said_once, "MOST_SAID", 3)
    said: list[str] = []
    jobs = [{"job_id": k, "comment": "rota:nonsense=1"} for k in range(1, 6)]
    driver, tools = made(*jobs, say=said.append)
    for _ in range(3):
        driver.observe()
    assert len(said) == 5
    tools.jobs = tools.jobs[:2]
    for _ in range(3):
        driver.observe()
    assert (len(said), len(driver._said._said)) == (5, 2)


@pytest.mark.parametrize(
    ("nodes", "hints", "sizes"),
    [
        (2, "checkpointable=yes,min_nodes=8", (8, 8, 8)),
        (4, "checkpointable=yes,max_nodes=1", (1, 1, 1)),
        (4, "checkpointable=yes,min_nodes=2", (4, 2, 4)),
        (4, "checkpointable=yes,max_nodes=8", (4, 4, 8)),
        (4, "checkpointable=yes,min_nodes=5,max_nodes=6", (5, 5, 6)),
        (4, "min_nodes=1,max_nodes=8", (4, 4, 4)), (2, "elastic=yes,max_nodes=1", (2, 2, 2)),
        (2, "elastic=yes,min_nodes=3", (3, 3, 3)), (2, "elastic=yes,max_nodes=5", (2, 2, 5)),
    ],
)  # fmt: skip
def test_hints_of_one_end_of_the_sizes_agree_with_what_was_submitted(
    nodes: int, hints: str, sizes: tuple[int, int, int]
) -> None:
    (job,) = seen({"comment": f"rota:{hints}", "node_count": nodes}, nodes=8)
    request = job.request
    assert (request.workers, request.min_workers, request.max_workers) == sizes


def test_a_job_that_was_resized_remembers_with_how_many_nodes_it_was_submitted() -> None:
    hints = {"comment": "rota:checkpointable=yes,max_nodes=8", "max_nodes": 2, "node_count": 2}
    driver, tools = made({**hints, "cpus": 8, "tasks": 4, "tasks_per_node": 2}, nodes=8)
    (job,) = driver.observe().jobs
    driver.carry_out("start", job, tuple((f"n{k}", 1, 0) for k in range(1, 7)))
    mark = f"{HELD} nodelist= nodes=2/6"
    assert tools.given[0] == (
        "scontrol", "update", "jobid=7", f"AdminComment={mark}", "NumNodes=6-6", "NumCPUs=24",
        "NumTasks=12",
    )  # fmt: skip
    grown = {**hints, "admin_comment": mark, "node_count": 6, "max_nodes": 6, "cpus": 24}
    running = {**grown, "job_state": "RUNNING", "nodes": "n[1-6]", "start_time": NOW_S}
    driver, tools = made(running, nodes=8)
    (job,) = driver.observe().jobs
    request = job.request
    assert (request.workers, request.min_workers, request.max_workers) == (2, 2, 8)
    assert request.cpus_per_worker == 4.0
    driver.carry_out("stop", job, ())
    assert tools.given[0] == ("scontrol", "update", "jobid=7", f"AdminComment={mark}")
    (job,) = seen({**grown, "node_count": 3, "max_nodes": 3})  # its user has changed it since
    assert (job.request.workers, job.request.min_workers) == (3, 3)


def test_a_job_whose_gpus_are_asked_for_in_all_keeps_its_size() -> None:
    said: list[str] = []
    asked = {"tres_per_node": "", "tres_per_job": "gres:gpu:8", "tasks": 1, "max_nodes": 0}
    hints = "rota:checkpointable=yes,min_nodes=1,max_nodes=4"
    (job,) = seen({**asked, "comment": hints}, say=said.append)
    request = job.request
    assert (request.workers, request.min_workers, request.max_workers) == (2, 2, 2)
    assert request.stoppable
    assert "its GPUs are asked for in all" in said[0]


@pytest.mark.parametrize(
    ("fields", "nodes", "cpus"),
    [
        ({"node_count": 2, "tasks": 1, "cpus": 2}, 1, 2.0),  # -c2
        ({"node_count": 2, "tasks": 4, "cpus": 16}, 1, 16.0),  # -n4 -c4
        ({"node_count": 3, "max_nodes": 2, "tasks": 3, "cpus": 24}, 2, 12.0),  # -n3 -c8 -N2
        ({"node_count": 2, "max_nodes": 4, "tasks": 4, "cpus": 16}, 2, 8.0),  # -N2-4
        ({"node_count": 2, "tasks": 4, "cpus": 64}, 2, 32.0),  # -n4 -c16 on nodes of 32
        ({"node_count": 2, "tasks": 3, "cpus": 60}, 3, 20.0),  # -n3 -c20: none has room for two
        ({"node_count": 2, "tasks": 40, "cpus": 40}, 2, 20.0),
        ({"node_count": 4, "tasks": 8, "cpus": 8, "tasks_per_node": 2}, 4, 2.0),
        ({"node_count": 4, "tasks": 4, "cpus": 4}, 4, 1.0),  # scontrol update NumNodes=4
        ({"node_count": 3, "tasks": 2, "cpus": 8, "memory_per_cpu": 12288}, 2, 4.0),
    ],
)  # fmt: skip
def test_a_job_of_tasks_gets_no_more_nodes_than_it_asks_for_whatever_slurm_guesses(
    fields: dict[str, Any], nodes: int, cpus: float
) -> None:
    """A waiting job's number of nodes is Slurm's guess, by how full nodes were at submission."""
    asked = {"max_nodes": 0, "memory_per_node": 1024, **fields}
    if "memory_per_cpu" in fields:
        del asked["memory_per_node"]
    (job,) = seen(asked, nodes=4, select="CR_CORE_MEMORY")
    request = job.request
    assert (request.workers, request.cpus_per_worker) == (nodes, cpus)


def test_gpus_in_all_are_laid_out_whatever_slurm_guesses() -> None:
    asked = {"tres_per_node": "", "tres_per_job": "gres:gpu:4", "tasks": 4, "cpus": 16}
    (job,) = seen({"node_count": 2, "max_nodes": 0, **asked})
    assert (job.managed, job.request.workers, job.request.gpus_per_worker) == (True, 1, 4)


YES, ENDS = st.sampled_from(["yes", "no"]), st.integers(0, 9)


@given(
    st.fixed_dictionaries({
        "node_count": st.integers(-5, 1 << 31), "cpus": st.integers(-5, 1 << 31),
        "time_limit": st.integers(-(1 << 31), 1 << 31),
        "tres_per_node": st.integers(0, 1 << 70).map("gres:gpu:{}".format),
        "comment": st.tuples(YES, YES, ENDS, ENDS).map(
            lambda h: "rota:checkpointable={},elastic={},min_nodes={},max_nodes={}".format(*h)
        ),
    }),
    st.booleans(),
)  # fmt: skip
def test_whatever_a_job_asks_for_fits_into_a_snapshot(job: dict[str, Any], whole: bool) -> None:
    if whole:
        job["tres_per_job"] = job.pop("tres_per_node")
    found = seen(job)  # none, if it is left to Slurm
    table = JobTable.of([
        Job(
            workers=one.request.workers, min_workers=one.request.min_workers,
            max_workers=one.request.max_workers, gpus_per_worker=one.request.gpus_per_worker,
            cpus_per_worker=one.request.cpus_per_worker, estimate_s=one.request.estimate_s,
        )
        for one in found
    ])  # fmt: skip
    assert len(table) == len(found)


def test_a_run_that_slurm_has_forgotten_is_over_before_the_job_is_started_again() -> None:
    """A controller that was killed lists a job as waiting, while a node may still run it."""
    driver, tools = made(
        {"job_state": "RUNNING", "nodes": "n1", "start_time": NOW_S, "priority": 9}
    )
    row = tools.jobs[0]

    def waits(at_s: float, **facts: Any) -> tuple[str, str]:
        answer = json.dumps({"jobs": [{**row, **facts}]})
        (job,) = driver.sight(
            read_jobs(answer), read_nodes(json.dumps({"nodes": [NODE]})), at_s
        ).jobs
        return job.phase, job.waits_for

    pending = {"job_state": "PENDING", "nodes": "", "start_time": 0, "priority": 0}
    assert waits(NOW_S) == ("running", "")
    phase, why = waits(NOW_S + 2.0, **pending)
    assert (phase, "forgotten" in why) == ("waiting", True)
    assert waits(NOW_S + TOLD_S + 1.0, **pending) == ("waiting", "")
    assert waits(NOW_S + 100.0) == ("running", "")
    assert waits(NOW_S + 102.0, **pending, restart_cnt=1) == ("waiting", "")  # put back in line
