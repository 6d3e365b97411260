"""Why jobs of a cluster wait: the backend, its files, and what explains them afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.backends.fake_cluster import FakeCluster, nodes

from rota.backends.cluster_backend import ClusterBackend
from rota.backends.cluster_explainer import ClusterExplainer, asks_for
from rota.backends.driver import ClusterSight
from rota.backends.explanation import LEVELS
from rota.backends.job_book import JobBook
from rota.backends.waits_file import WAITS
from rota.cli.daemon_loop import Speaker, drive
from rota.errors import ConfigError, JournalError
from rota.policies.catalogue import make_policy
from rota.run.guard import Guard
from rota.run.journal import Journal
from rota.run.last_round import LAST_ROUND, Deciders
from rota.run.reader import read_journal
from rota.run.recorder import Recorder
from rota.run.speeds import Speeds

if TYPE_CHECKING:
    from pathlib import Path

    from rota.backends.explanation import Explanation
    from rota.core import Decision, Policy, Snapshot

META = {"policy": "fifo", "total_gpus": 8}


class SomeRounds:
    """A policy that has its backend stop after some rounds."""

    def __init__(self, name: str, backend: ClusterBackend, rounds: int) -> None:
        self._policy, self._backend, self._left = make_policy(name), backend, rounds
        self.name, self.rule = name, getattr(self._policy, "rule", None)

    def decide(self, snapshot: Snapshot) -> Decision:
        self._left -= 1
        if self._left <= 0:
            self._backend.stop()
        return self._policy.decide(snapshot)


def play(
    root: Path,
    cluster: FakeCluster,
    policy: str = "fifo",
    rounds: int = 2,
    *,
    watches: bool = False,
    passive: bool = False,
) -> None:
    """Some rounds of a daemon, which then stops."""
    path = root / "journal.db"
    journal = Journal.reopen(path) if path.exists() else Journal.create(path, meta=META)
    with journal, closing(JobBook(path, 1000.0)) as book:
        speeds = Speeds(root / "speeds.npz")
        backend = ClusterBackend(
            cluster, book, speeds, look_s=0.02, every_s=0.1, root=root, passive=passive
        )
        with closing(backend):
            stops = SomeRounds(policy, backend, rounds)
            recorder = Recorder(journal, backend.roll.facts)
            drive(
                stops, backend, Guard(), recorder, Speaker(True), Deciders(policy, watches=watches)
            )


def policies(deciders: Deciders) -> tuple[Policy, None]:
    return make_policy(deciders.policy), None


def explained(root: Path, job: str) -> Explanation:
    found = ClusterExplainer.of(root, policies)
    assert found is not None
    return found.explain(job)


def tier(found: Explanation) -> tuple[str, int]:
    return found.reasons[0].tier, found.reasons[0].level


@pytest.fixture
def full(tmp_path: Path) -> FakeCluster:
    """Two nodes of four GPUs; job 17 holds six of these for 100 s, and others wait."""
    cluster = FakeCluster(nodes())
    cluster.submit("17", workers=2, min_workers=2, max_workers=2, gpus_per_worker=3, apart=True,
                   estimate_s=100.0)  # fmt: skip
    play(tmp_path, cluster)
    return cluster


def test_a_job_that_never_fits_says_what_it_asks_and_what_there_is(
    tmp_path: Path, full: FakeCluster
) -> None:
    full.submit("wide", workers=3, min_workers=3, max_workers=3, gpus_per_worker=1, apart=True)
    full.submit("fat", gpus_per_worker=5)
    full.nodes = [replace(node, cpus=32.0) for node in full.nodes]
    full.submit("cores", cpus_per_worker=64.0, apart=True)
    full.submit("tasks", workers=3, min_workers=3, max_workers=3, cpus_per_worker=30.0, apart=True)
    full.submit("picky", gpus_per_worker=1, must_have=frozenset({"n9"}))
    full.submit("kind", gpus_per_worker=1, gpu_type="h100")
    full.submit("shut", gpus_per_worker=1, only_on=frozenset({"n1"}), must_have=frozenset({"n2"}))
    play(tmp_path, full)
    said = {
        "wide": "it asks for 3 nodes with 1 GPU each; 2 of 2 nodes have that and may be used",
        "fat": "it asks for 1 worker with 5 GPUs; 0 of 2 nodes have that and may be used, the "
        "largest has 4 GPUs",
        "picky": "it names node n9, which is not among the nodes that rota schedules",
        "cores": "it asks for 1 node with 64 CPUs; 0 of 2 nodes have that and may be used, the "
        "largest has 32 CPUs",
        "tasks": "it asks for 3 nodes with 30 CPUs each; 2 of 2 nodes have that and may be used",
        "kind": "it asks for 1 worker with 1 h100 GPU; 0 of 2 nodes have that and may be used, the "
        "largest has 4 GPUs",
        "shut": "it names node n2, which it may not use or which is too small for it",
    }
    for name, text in said.items():
        found = explained(tmp_path, name)
        assert found.text == f"never fits: {text}"
        assert tier(found) == ("never", 1)
        assert found.expected is None


def test_a_job_for_which_there_is_no_room_names_who_holds_it(
    tmp_path: Path, full: FakeCluster
) -> None:
    full.submit("next", gpus_per_worker=4, estimate_s=10.0)
    full.submit("last", gpus_per_worker=1, estimate_s=10.0)
    play(tmp_path, full)
    found = explained(tmp_path, "next")
    assert tier(found) == ("full", 2)
    assert "job 17 holds 6" in found.text
    assert found.reasons[0].holders == (("17", 6.0),)
    assert found.expected is not None
    assert found.expected.start_at is not None
    assert found.as_of is not None
    assert 95 < found.expected.start_at - found.as_of <= 100  # when job 17 ends
    assert (found.expected.position, found.expected.before) == (1, ())

    found = explained(tmp_path, "last")
    assert tier(found) == ("passed", 3)
    assert "job next is ahead of it" in found.text
    assert found.expected is not None
    assert (found.expected.position, found.expected.waiting) == (2, 2)
    assert found.expected.before == ("next",)


def test_a_job_whose_nodes_are_taken_names_them(tmp_path: Path, full: FakeCluster) -> None:
    full.submit("tied", gpus_per_worker=1, only_on=frozenset({"n1"}))
    full.submit("theirs", gpus_per_worker=1)
    full.see("theirs", managed=False, phase="running", place=(("n1", 1, 0),))
    play(tmp_path, full, rounds=3)
    found = explained(tmp_path, "tied")
    assert tier(found) == ("unplaced", 2)
    assert "(n1); job 17 holds 3, job theirs holds 1" in found.text


@pytest.mark.parametrize("why", ["its user holds it", "it depends on afterok:17"])
def test_a_job_that_waits_for_somebody_else_says_for_what(
    tmp_path: Path, full: FakeCluster, why: str
) -> None:
    full.submit("kept", gpus_per_worker=1)
    full.see("kept", waits_for=why)
    play(tmp_path, full)
    found = explained(tmp_path, "kept")
    assert (tier(found), found.text, found.expected) == (("outside", 4), why, None)


def test_a_job_that_is_left_to_its_cluster_says_why(tmp_path: Path, full: FakeCluster) -> None:
    look = full.observe

    def observe() -> ClusterSight:
        seen = look()
        return ClusterSight(seen.time_s, seen.jobs, seen.nodes, {"30": "it has a reservation"})

    full.observe = observe  # type: ignore[method-assign]
    play(tmp_path, full)
    found = explained(tmp_path, "30")
    assert (found.state, found.uid, tier(found)) == ("left", None, ("left", 4))
    assert "it has a reservation" in found.text


@pytest.mark.parametrize("passive", [False, True])
def test_what_others_have_started_is_not_said_to_be_started_by_a_policy(
    tmp_path: Path, full: FakeCluster, *, passive: bool
) -> None:
    root = tmp_path / "state"
    root.mkdir()
    full.submit("theirs", gpus_per_worker=1)
    full.see("theirs", managed=passive, phase="running", place=(("n1", 1, 0),), start_s=time())
    play(root, full, rounds=3, passive=passive, watches=passive)
    found = explained(root, "theirs")
    assert found.state == "running"
    assert [(step.what, step.by) for step in found.steps] == [("submitted", ""), ("started", "")]
    assert " by " not in found.text


def test_a_start_that_was_taken_back_is_not_taken_for_a_run(
    tmp_path: Path, full: FakeCluster
) -> None:
    full.jobs["17"].length_s = 0.0
    play(tmp_path, full, rounds=3)
    full.lazy = True
    full.submit("late", gpus_per_worker=4)
    play(tmp_path, full)
    assert explained(tmp_path, "late").state == "starting"
    full.submit("theirs", gpus_per_worker=4)  # takes the node before the job is there
    full.see("theirs", managed=False, phase="running", place=(("n1", 1, 0),), start_s=time())
    full.nodes = nodes(1)
    full.see("late", phase="waiting", place=())
    play(tmp_path, full, rounds=4)
    found = explained(tmp_path, "late")
    assert found.state == "waiting"
    assert [step.what for step in found.steps] == ["submitted", "started", "taken back"]
    assert [why.tier for why in found.reasons] == ["full"]
    assert (found.waited_s, found.ran_s) == (None, None)


def test_a_stopped_job_says_by_whom_and_for_which(tmp_path: Path, full: FakeCluster) -> None:
    full.jobs["17"].length_s = 0.0
    play(tmp_path, full, rounds=3)
    full.submit("long", gpus_per_worker=4, stoppable=True, estimate_s=1000.0, min_workers=2,
                workers=2, max_workers=2, apart=True)  # fmt: skip
    play(tmp_path, full, "srtf", rounds=3)
    found = explained(tmp_path, "long")
    assert found.state in ("starting", "running")
    assert "started at" in found.text
    assert "by srtf on n1:1, n2:1" in found.text
    full.submit("short", gpus_per_worker=4, estimate_s=1.0)
    play(tmp_path, full, "srtf", rounds=3)
    found = explained(tmp_path, "long")
    assert found.state == "waiting"
    assert found.reasons[-1].tier == "preempted"
    assert "by srtf, for job short" in found.reasons[-1].text
    assert explained(tmp_path, "17").text.startswith("done at ")
    assert explained(tmp_path, "17").ran_s is not None


@pytest.mark.parametrize("name", ["a b", "'; drop table names; --", "x\n\x1b[31my", "%s", "-1", ""])
def test_names_with_odd_characters_are_names(tmp_path: Path, full: FakeCluster, name: str) -> None:
    full.submit(name, gpus_per_worker=1)
    play(tmp_path, full)
    assert explained(tmp_path, name).job == name


def test_a_job_that_nobody_knows_is_refused_with_a_hint(tmp_path: Path, full: FakeCluster) -> None:
    full.submit("11_0", gpus_per_worker=1)
    full.submit("11_1", gpus_per_worker=1)
    play(tmp_path, full)
    for job, said in {
        "11_2": "Did you mean '11_", "11": "is an array; name one of its tasks: 11_0, 11_1",
        "zzz": "knows no job 'zzz'", "uid:99": "knows no job 'uid:99'",
    }.items():  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            explained(tmp_path, job)
        assert said in str(caught.value)
    assert explained(tmp_path, "uid:1").job == "17"


def test_of_several_jobs_of_one_name_the_living_one_is_meant(
    tmp_path: Path, full: FakeCluster
) -> None:
    full.jobs["17"].length_s = 0.0
    play(tmp_path, full, rounds=3)
    full.submit("17", gpus_per_worker=4)
    play(tmp_path, full)
    assert explained(tmp_path, "17").uid == 2
    full.see("17", end="done", end_s=2e9)
    play(tmp_path, full)
    with pytest.raises(ConfigError, match=r"name one of uid:1 .* uid:2"):
        explained(tmp_path, "17")
    assert explained(tmp_path, "uid:1").uid == 1


def test_without_the_last_round_or_its_policy_the_rest_is_told(
    tmp_path: Path, full: FakeCluster
) -> None:
    full.submit("next", gpus_per_worker=4)
    play(tmp_path, full)

    def missing(deciders: Deciders) -> tuple[Policy, None]:
        return make_policy(f"{deciders.policy}-that-is-gone"), None

    found = ClusterExplainer.of(tmp_path, missing)
    assert found is not None
    expected = found.explain("next").expected
    assert expected is not None
    assert "its policy cannot be made here" in expected.why_not
    (tmp_path / LAST_ROUND).write_bytes(b"nonsense")
    expected = explained(tmp_path, "next").expected
    assert expected is not None
    assert "there is no last round" in expected.why_not
    (tmp_path / WAITS).write_bytes(b"nonsense")
    assert tier(explained(tmp_path, "next")) == ("pending", 0)


def test_a_journal_that_is_missing_or_damaged_is_said_to_be(
    tmp_path: Path, full: FakeCluster
) -> None:
    assert full.jobs
    assert ClusterExplainer.of(tmp_path / "nowhere", policies) is None
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE names SET facts = '{'")
    with pytest.raises(JournalError, match="damaged"):
        ClusterExplainer.of(tmp_path, policies)
    for wal in tmp_path.glob("journal.db-*"):
        wal.unlink()
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(JournalError, match="Cannot read"):
        ClusterExplainer.of(tmp_path, policies)


def test_events_that_cannot_be_read_leave_the_reasons(tmp_path: Path, full: FakeCluster) -> None:
    full.submit("next", gpus_per_worker=4)
    play(tmp_path, full)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db, db:
        db.execute("DROP TABLE events")
    found = explained(tmp_path, "next")
    assert tier(found) == ("full", 2)
    assert "what happened to it is not known" in found.notes[0]


def test_where_rota_only_watches_it_says_so(tmp_path: Path, full: FakeCluster) -> None:
    assert explained(tmp_path, "17").notes == ()
    play(tmp_path, full, watches=True)
    assert "only watches" in explained(tmp_path, "17").notes[0]


def test_all_of_it_can_be_written_as_json(tmp_path: Path, full: FakeCluster) -> None:
    full.submit("next", gpus_per_worker=4)
    play(tmp_path, full)
    told: dict[str, Any] = explained(tmp_path, "next").as_json()
    assert told["reasons"][0]["holders"] == [{"job": "17", "holds": 6.0}]
    assert told["reasons"][0]["level"] == LEVELS["full"]
    assert told["steps"][0]["what"] == "submitted"


def test_what_a_job_asks_for_is_told_in_words() -> None:
    asks = {"num_gpus": 8, "gpus_per_worker": 4, "min_workers": 1, "max_workers": 2}
    assert asks_for(asks) == "2 workers (1 to 2) with 4 GPUs each"
    assert asks_for({"num_gpus": 1, "gpus_per_worker": 1, "estimate_s": 60.0}) == (
        "1 worker (0 to 0) with 1 GPU, for about 60 s"
    ).replace(" (0 to 0)", "")


@pytest.mark.parametrize(
    "job", [f"uid:{'9' * 30}", f"uid:{'9' * 9999}", "9" * 9999, "\udcff", "\0"]
)
def test_what_no_table_could_hold_is_unknown(tmp_path: Path, full: FakeCluster, job: str) -> None:
    assert explained(tmp_path, "uid:1").job == "17"
    assert full.jobs
    with pytest.raises(ConfigError, match="knows no job"):
        explained(tmp_path, job)


def test_in_shadow_wishes_are_on_nodes_that_the_jobs_may_use(
    tmp_path: Path, full: FakeCluster
) -> None:
    full.nodes = nodes(4)
    full.submit("fourth", gpus_per_worker=2, only_on=frozenset({"n4"}))
    full.submit("pair", workers=2, min_workers=2, max_workers=2, gpus_per_worker=1, apart=True,
                only_on=frozenset({"n3", "n4"}))  # fmt: skip
    full.submit("tied", gpus_per_worker=2, only_on=frozenset({"n1"}))  # which is taken
    done = len(full.done)
    play(tmp_path, full, "fifo-skip", 3, watches=True, passive=True)
    assert len(full.done) == done
    with read_journal(tmp_path / "journal.db") as view:
        told = [note["shadow"] for note in view.notes().values() if "shadow" in note]
    wishes = {wish["uid"]: (wish["do"], wish["share"]) for wish in told[-1]}
    assert wishes == {2: ("start", [[3, 1, 0]]), 3: ("start", [[2, 1, 0], [3, 1, 0]])}
    assert tier(explained(tmp_path, "tied")) == ("unplaced", 2)
