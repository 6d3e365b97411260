"""The last round of a live loop: kept, played on, and what follows for jobs that wait."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.damage import flipped
from helpers.worlds import examples
from rota.core import Cluster, Draft, Job, JobTable, Snapshot
from rota.core.layout import JOB
from rota.policies.catalogue import make_policy
from rota.run.expected_start import GUESS_S, expected_start, work_left
from rota.run.last_round import (
    LAST_ROUND,
    Deciders,
    LastRound,
    LastRoundFile,
    read_last_round,
)
from rota.run.loop import Round
from rota.run.play_on import PlayOn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rota.core import Decision, Policy
    from rota.run.expected_start import ExpectedStart

TWO = Cluster.uniform(2, 4)
NOW_S = 1000.0
FIRST = 10


def scene(
    jobs: Sequence[Job], held: Mapping[int, Sequence[tuple[int, ...]]], cluster: Cluster = TWO
) -> Snapshot:
    """Jobs with the uids 10, 11, …: a uid is never an index."""
    made = Snapshot.of(cluster, jobs, held, time_s=NOW_S)
    rows = made.jobs.rows.copy()
    rows["uid"] += FIRST
    return replace(made, jobs=JobTable(rows))


def last(snapshot: Snapshot, decision: Decision | None = None) -> LastRound:
    """The round in which `decision` was taken; nothing changed if that is left out."""
    found = decision or Draft(snapshot).commit()
    return LastRound(1, 5e8, "fifo", Deciders("fifo"), snapshot, found.diff(snapshot))


def start(
    snapshot: Snapshot, job: int, policy: str | Policy = "fifo", typical_s: float = nan, **more: Any
) -> ExpectedStart:
    """What is expected of the job with this index."""
    made = make_policy(policy) if isinstance(policy, str) else policy
    return expected_start(last(snapshot), FIRST + job, made, None, typical_s, **more)


RUN_100, RUN_50 = Job(workers=4, estimate_s=100.0), Job(workers=4, estimate_s=50.0)
LARGE = Job(workers=8, estimate_s=10.0, submit_s=1.0)
SMALL = Job(workers=4, estimate_s=5.0, submit_s=2.0)
FULL = scene([RUN_100, RUN_50, LARGE, SMALL], {0: [(0, 4)], 1: [(1, 4)]})


@pytest.mark.parametrize(
    ("policy", "job", "start_s", "before"),
    [
        # The large one gets everything at 100, and the small one is behind it.
        ("fifo", 2, 100, ()), ("fifo", 3, 110, (2,)),
        # The small one passes at 50.
        ("fifo-skip", 2, 100, (3,)), ("fifo-skip", 3, 50, ()),
        # It ends at 55; then the large one, with 10 s, stops the one that has 45 s to go.
        ("srtf", 2, 55, (3,)), ("srtf", 3, 50, ()),
    ],
)  # fmt: skip
def test_a_start_is_expected_as_by_hand(
    policy: str, job: int, start_s: float, before: tuple[int, ...]
) -> None:
    found = start(FULL, job, policy)
    assert found.start_s == NOW_S + start_s
    assert found.before == tuple(FIRST + one for one in before)
    assert (found.waiting, found.why_not) == (2, "")


def test_what_the_last_round_decided_is_done_first() -> None:
    snapshot = scene([RUN_100, SMALL, SMALL], {0: [(0, 4)]})
    draft = Draft(snapshot)
    draft.place(1, [(1, 4)])
    found = expected_start(last(snapshot, draft.commit()), 12, make_policy("fifo"), None, nan)
    assert (found.start_s, found.waiting, found.before) == (NOW_S + 5, 1, ())


def test_a_job_that_never_gets_a_turn_says_so() -> None:
    found = start(scene([Job(workers=9)], {}), 0)
    assert (found.start_s, found.until_s) == (None, NOW_S)
    assert "would still wait" in found.why_not


def test_playing_on_ends_in_time() -> None:
    found = start(FULL, 3, "fifo", most_s=1e-9)
    assert found.start_s is None
    assert "took too long" in found.why_not


class Fails:
    """A policy that raises."""

    name = "fails"

    def decide(self, snapshot: Snapshot) -> Decision:
        raise RuntimeError(f"at {snapshot.time_s}")


def test_a_policy_that_fails_leaves_the_start_unknown_or_to_its_fallback() -> None:
    assert "RuntimeError" in start(FULL, 2, Fails()).why_not
    made = expected_start(last(FULL), FIRST + 2, Fails(), make_policy("fifo"), nan)
    assert made.start_s == NOW_S + 100


def test_lengths_that_nobody_knows_are_assumed_and_that_is_said() -> None:
    unknown = Job(workers=8)
    snapshot = scene([unknown, SMALL], {0: [(0, 4), (1, 4)]})
    found = start(snapshot, 1, typical_s=70.0)
    assert found.start_s == NOW_S + 70
    assert any("1 job is not known" in text and "70 s" in text for text in found.assumed)
    assert start(snapshot, 1).start_s == NOW_S + GUESS_S
    rows = snapshot.jobs.rows.copy()
    rows["progress_s"][0] = 30.0
    ran = replace(snapshot, jobs=JobTable(rows))
    assert start(ran, 1, typical_s=70.0).start_s == NOW_S + 40
    assert start(ran, 1).start_s == NOW_S + 30  # as long again as it has run
    rows = ran.jobs.rows.copy()
    rows["remaining_s"][0], rows["progress_s"][0] = 0.0, 200.0  # it has outlived its estimate
    work_s, guessed = work_left(replace(snapshot, jobs=JobTable(rows)), nan)
    assert (work_s.tolist(), guessed.tolist()) == ([20.0, 5.0], [False, False])


def test_jobs_go_on_at_the_pace_they_had_and_pay_for_restarts() -> None:
    slow = scene([Job(workers=4, estimate_s=100.0, restart_s=7.0), SMALL], {0: [(0, 4)]})
    rows = slow.jobs.rows.copy()
    rows["pace"][0] = 0.5
    backend = PlayOn(replace(slow, jobs=JobTable(rows)), np.array([100.0, 5.0]))
    assert backend.wait(NOW_S + 50)
    seen = backend.observe()
    assert (seen.jobs.progress_s[0], seen.jobs.remaining_s[0]) == (25.0, 75.0)
    draft = Draft(seen)
    draft.stop(0)
    backend.apply(draft.commit().diff(seen))
    again = Draft(seen := backend.observe())
    assert (seen.jobs.preemptions[0], seen.nodes["free"].tolist()) == (1, [4, 4])
    again.place(0, [(1, 4)])
    backend.apply(again.commit().diff(seen))
    assert backend.wait(np.inf)
    assert backend.now_s == NOW_S + 50 + 7 + 75 / 0.5
    assert backend.observe().jobs.uid.tolist() == [FIRST + 1]
    assert [backend.wait(np.inf) for _ in range(2)] == [True, False]  # nothing runs any more


def test_a_drained_node_is_not_free_when_its_job_has_ended() -> None:
    snapshot = scene([SMALL, Job(workers=8, estimate_s=1.0)], {0: [(0, 4)]})
    nodes = snapshot.nodes.copy()
    nodes["up"][0], nodes["free"][0] = False, 0
    backend = PlayOn(replace(snapshot, nodes=nodes), np.array([5.0, 1.0]))
    assert backend.wait(np.inf)
    assert backend.observe().nodes["free"].tolist() == [0, 4]


JOBS = st.builds(
    Job, workers=st.integers(1, 4), estimate_s=st.floats(1, 1e4), submit_s=st.floats(0, 900),
    restart_s=st.floats(0, 60),
)  # fmt: skip


@examples(30)
@given(
    st.lists(JOBS, min_size=1, max_size=8), st.sampled_from(["fifo", "srtf", "las", "fifo-skip"])
)
def test_every_job_that_fits_starts(jobs: list[Job], name: str) -> None:
    snapshot = scene(sorted(jobs, key=lambda job: job.submit_s), {})
    for job in range(len(jobs)):
        found = start(snapshot, job, name)
        assert found.start_s is not None, found.why_not
        assert found.start_s >= NOW_S
        assert FIRST + job not in found.before


# The file.


def kept(tmp_path: Path, snapshot: Snapshot, decision: Decision) -> LastRound | None:
    turn = Round(7, snapshot, decision.diff(snapshot), 0.0, 0.0, "srtf")
    deciders = Deciders("srtf", "fifo", "past.csv")
    LastRoundFile(tmp_path, deciders).write(turn)
    return read_last_round(tmp_path)


def test_a_round_is_read_back_as_it_was(tmp_path: Path) -> None:
    decision = make_policy("srtf").decide(FULL)
    found = kept(tmp_path, FULL, decision)
    assert found is not None
    assert (found.number, found.by) == (7, "srtf")
    assert found.deciders == Deciders("srtf", "fifo", "past.csv")
    for name in ("nodes", "shares"):
        np.testing.assert_array_equal(getattr(found.snapshot, name), getattr(FULL, name))
    for name in JOB.names or ():
        np.testing.assert_array_equal(found.snapshot.jobs.rows[name], FULL.jobs.rows[name])
    assert found.snapshot.cluster.names == TWO.names
    assert list(found.plan) == list(decision.diff(FULL))


def test_a_round_with_curves_is_read_back(tmp_path: Path) -> None:
    from rota.run.speeds import Speeds

    able = Job(workers=2, max_workers=4, estimate_s=9.0)
    seen = Speeds(tmp_path / "speeds.npz").see(scene([able], {0: [(0, 2)]}), by_nodes=True)
    found = kept(tmp_path, seen, Draft(seen).commit())
    assert found is not None
    assert found.snapshot.curves is not None
    assert seen.curves is not None
    np.testing.assert_array_equal(found.snapshot.curves.speed, seen.curves.speed)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_damaged_or_missing_file_is_no_round(tmp_path: Path, part: float) -> None:
    assert read_last_round(tmp_path) is None
    assert kept(tmp_path, FULL, Draft(FULL).commit()) is not None
    file = tmp_path / LAST_ROUND
    whole = file.read_bytes()
    file.write_bytes(whole[: int(part * len(whole))])
    assert read_last_round(tmp_path) is None
    file.write_bytes(whole.replace(b'"format": 1', b'"format": 9'))
    assert read_last_round(tmp_path) is None
    for bad in flipped(whole, whole.index(b"PK\x01\x02")):
        file.write_bytes(bad)
        read_last_round(tmp_path)  # some bits matter to nobody
