"""The recorder: the journal of a live loop, whatever interrupts it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.live import FIRST_UID, Queue, Task, ToyCluster
from helpers.worlds import examples
from rota.core import Cluster, Draft
from rota.core.layout import ARRIVE, FINISH, GIVE_UP, KILL, MOVE, RESIZE, SHARE, START, STOP
from rota.dash.compare_page import render
from rota.errors import JournalError
from rota.run.guard import Guard
from rota.run.job_facts import Measured
from rota.run.journal import Journal
from rota.run.lengths import lengths
from rota.run.loop import Round, rounds
from rota.run.metrics import Times, cdf, series, summarise
from rota.run.outcome import Outcome
from rota.run.reader import read_journal
from rota.run.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.core import Decision, Policy, Snapshot
    from rota.run.job_facts import Listing

META = {"policy": "queue", "total_gpus": 8}
A, B, C = FIRST_UID, FIRST_UID + 1, FIRST_UID + 2


@dataclass
class Scripted:
    """Gives out what a table says: at a time, (job, share) pairs; else nothing changes."""

    script: dict[float, list[tuple[int, list[tuple[int, int]]]]]
    name: str = "scripted"

    def decide(self, snapshot: Snapshot) -> Decision:
        draft = Draft(snapshot)
        uids = snapshot.jobs.uid.tolist()
        for uid, share in self.script.get(snapshot.time_s, []):
            if share:
                draft.place(uids.index(uid), share)
            else:
                draft.stop(uids.index(uid))
            draft.reason(uids.index(uid), "so it is written")
        return draft.commit()


def live(path: Path, backend: ToyCluster, policy: Policy, guard: Guard | None = None) -> Path:
    """A whole run, written down."""
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(policy, backend, guard=guard):
            recorder.write(turn)
        recorder.close(backend.now_s)
        journal.finish()
    return path


def events(path: Path) -> list[tuple[float, str, int, list[Any]]]:
    """(time, job, kind, share) of every event."""
    with read_journal(path) as view:
        job_id, (found, shares, offsets) = view.jobs.job_id, view.events()
    return [
        (
            float(found["time_s"][e]),
            str(job_id[found["job"][e]]),
            int(found["kind"][e]),
            shares[offsets[e] : offsets[e + 1]].tolist(),
        )
        for e in range(len(found))
    ]


def rounds_of(path: Path) -> list[tuple[Any, ...]]:
    with read_journal(path) as view:
        return view.rounds().tolist()  # type: ignore[no-any-return]


def notes_of(path: Path) -> list[Any]:
    with read_journal(path) as view:
        return list(view.notes().values())


def outcome_of(path: Path) -> Outcome:
    with read_journal(path) as view:
        return view.outcome()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "live.journal"


# -- what is written ---------------------------------------------------------------------------


def test_a_run_by_hand(path: Path) -> None:
    # On 2 × 4 GPUs, looked at every second. A runs from 0 for 2.5 s. B comes at 0.5 and wants
    # all: seen at 1, it starts at 3, when A's end at 2.5 is seen, and is killed at 4.25.
    backend = ToyCluster([Task(0, 2.5, 2, "ann"), Task(0.5, 1.25, 8, ends=KILL)])
    live(path, backend, Queue())
    assert events(path) == [
        (0.0, str(A), ARRIVE, []),
        (0.0, str(A), START, [(0, 2, 0)]),
        (0.5, str(B), ARRIVE, []),
        (2.5, str(A), FINISH, []),
        (3.0, str(B), START, [(0, 4, 0), (1, 4, 0)]),
        (4.25, str(B), KILL, []),
        (4.25, str(B), GIVE_UP, []),
    ]
    assert rounds_of(path) == [
        (0.0, 0, 1, 2, 8, 2),
        (1.0, 1, 1, 2, 8, 2),
        (3.0, 0, 1, 8, 8, 0),
    ]
    got = outcome_of(path)
    assert (got.user.tolist(), got.users, got.num_gpus.tolist()) == ([0, -1], ("ann",), [2, 8])
    assert (got.started_s.tolist(), got.done_s.tolist()) == ([0.0, 3.0], [2.5, 4.25])
    assert (got.gave_up.tolist(), got.kills) == ([False, True], 1)
    assert got.submit_s.tolist() == [0.0, 0.5]
    assert np.isnan(got.duration_s).all()


def test_every_change_is_told_from_the_others_and_those_that_free_come_first(path: Path) -> None:
    backend = ToyCluster([Task(0, 3, 2), Task(0, 2, 2), Task(0, 9, 2)])
    script = {
        0.0: [(A, [(0, 2)]), (C, [(1, 2)])],
        1.0: [(A, [(1, 2)]), (B, [(0, 2)])],
        2.0: [(A, []), (B, [(0, 1), (1, 1)])],
        3.0: [(A, [(0, 2)])],
    }
    live(path, backend, Scripted(script))  # type: ignore[arg-type]
    assert events(path)[3:] == [
        (0.0, str(A), START, [(0, 2, 0)]),
        (0.0, str(C), START, [(1, 2, 0)]),
        (1.0, str(A), MOVE, [(1, 2, 0)]),
        (1.0, str(B), START, [(0, 2, 0)]),
        (2.0, str(A), STOP, []),
        (2.0, str(B), MOVE, [(0, 1, 0), (1, 1, 0)]),
        (3.0, str(B), FINISH, []),
        (3.0, str(A), START, [(0, 2, 0)]),
        (4.0, str(A), FINISH, []),
        (9.0, str(C), FINISH, []),
    ]
    assert notes_of(path)[0]["reasons"] == {str(A): "so it is written", str(C): "so it is written"}
    assert (outcome_of(path).moves, outcome_of(path).preemptions.tolist()) == (2, [1, 0, 0])


def test_a_resize_is_another_size(path: Path) -> None:
    backend = ToyCluster([Task(0, 3, 2)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        backend.wait(np.inf)
        for share in ((0, 2, 0), (0, 2, 1), (0, 1, 1), (1, 1, 1)):
            snapshot = backend.observe()
            decision = replace(
                Draft(snapshot).commit(), at=np.zeros(1, np.int64), untouched=None,
                length=np.ones(1, np.int64), shares=np.array([share], SHARE),
            )  # fmt: skip
            recorder.write(Round(1, snapshot, decision.diff(snapshot), 0.1, 0.1, "hand"))
    assert [kind for _, _, kind, _ in events(path)] == [ARRIVE, START, RESIZE, RESIZE, MOVE]


def test_quiet_rounds_are_written_once_a_minute(path: Path) -> None:
    live(path, ToyCluster([Task(0, 150, 2)]), Queue())
    assert [row[0] for row in rounds_of(path)] == [0.0, 60.0, 120.0]
    assert outcome_of(path).held_gpu_s == 300


def test_a_node_that_goes_down_and_comes_back_is_a_change(path: Path) -> None:
    live(path, ToyCluster([Task(0, 9, 2)], down={1: (3, 6)}), Queue())
    assert [(row[0], row[4]) for row in rounds_of(path)] == [(0, 8), (3, 4), (6, 8)]


def test_what_lingers_on_a_node_that_is_down_counts_as_up(path: Path) -> None:
    live(path, ToyCluster([Task(0, 9, 3)], Cluster.uniform(1, 4), down={0: (3, 6)}), Queue())
    assert [row[3:] for row in rounds_of(path)] == [(3, 4, 1), (3, 3, 0), (3, 4, 1)]


def test_notes_say_who_decided_and_what_went_wrong(path: Path) -> None:
    class Fails:
        name = "fails"

        def decide(self, snapshot: Snapshot) -> Decision:
            raise ValueError(f"at {snapshot.time_s:g}")

    live(path, ToyCluster([Task(0, 3, 2)]), Fails(), Guard(Queue()))
    notes = notes_of(path)
    assert len(notes) == 3  # each of them has something to say
    assert [note["by"] for note in notes] == ["queue"] * 3
    assert "raised ValueError in round 2 at 1 s: at 1." in notes[1]["trouble"]
    assert notes[0].keys() == {"by", "decide_s", "apply_s", "trouble"}


def test_notes_say_what_a_shadow_would_have_done(path: Path) -> None:
    backend = ToyCluster([Task(0, 3, 2), Task(0, 3, 8)])
    script = {0.0: [(A, [(1, 2)])], 1.0: [(A, [])], 2.0: [(A, [(1, 2)])]}
    live(path, backend, Scripted(script), Guard(Queue(), shadow=True))  # type: ignore[arg-type]
    notes = notes_of(path)
    assert [note.get("shadow") for note in notes] == [
        [{"uid": A, "do": "start", "share": [[1, 2, 0]]}],
        [{"uid": A, "do": "stop", "share": []}],
        [{"uid": A, "do": "move", "share": [[1, 2, 0]]}],
        None,
    ]
    assert [note["by"] for note in notes] == ["queue"] * 4
    assert events(path)[2] == (0.0, str(A), START, [(0, 2, 0)])


# -- times ---------------------------------------------------------------------------------------


class Belated(ToyCluster):
    """Tells of submissions and endings with times that it cannot have meant."""

    def listing(self, uid: int) -> Listing:
        return replace(super().listing(uid), submit_s=-5.0 if uid == A else 1e9)

    def ending(self, uid: int) -> tuple[int, float]:
        kind, _ = super().ending(uid)
        return kind, {A: 0.5, B: np.nan}.get(uid, 1e9)


def test_event_times_never_run_backwards_nor_ahead(path: Path) -> None:
    backend = Belated([Task(0, 2, 2), Task(0, 2.5, 2), Task(2, 2, 8)])
    with Journal.create(path, meta=META) as journal:
        for turn in rounds(Queue(), backend):
            Recorder(journal, backend).write(turn)  # each knows only what the journal tells it
        Recorder(journal, backend).close(backend.now_s)
    assert [(time_s, job, kind) for time_s, job, kind, _ in events(path)] == [
        (-5.0, str(A), ARRIVE),
        (0.0, str(B), ARRIVE),
        (0.0, str(A), START),
        (0.0, str(B), START),
        (0.5, str(A), FINISH),
        (2.0, str(C), ARRIVE),
        (2.0, str(B), FINISH),
        (3.0, str(C), START),
        (5.0, str(C), FINISH),
    ]


def test_a_clock_that_is_set_back_does_not_set_back_the_journal(path: Path) -> None:
    backend = ToyCluster([Task(0, 9, 2), Task(2, 9, 2)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(Queue(), backend):
            recorder.write(turn)
            if turn.number == 4:
                backend.now_s = 0.0
            if turn.number == 9:
                break
    times_s = [time_s for time_s, *_ in events(path)]
    assert times_s == sorted(times_s)
    starts_s = [row[0] for row in rounds_of(path)]
    assert starts_s == sorted(starts_s)


# -- interruptions -------------------------------------------------------------------------------

tasks = st.lists(
    st.builds(
        Task,
        submit_s=st.integers(0, 40).map(lambda k: k / 4),
        work_s=st.integers(1, 60).map(lambda k: k / 4),
        gpus=st.integers(1, 8),
        user=st.sampled_from(["", "ann", "bob"]),
        ends=st.sampled_from([FINISH, FINISH, GIVE_UP, KILL]),
    ),
    min_size=1,
    max_size=8,
).map(lambda found: sorted(found, key=lambda task: task.submit_s))


def fresh(found: Sequence[Task]) -> ToyCluster:
    return ToyCluster([Task(t.submit_s, t.work_s, t.gpus, t.user, t.ends) for t in found])


def assert_same(a: Outcome, b: Outcome) -> None:
    for field in fields(Outcome):
        np.testing.assert_array_equal(
            getattr(a, field.name), getattr(b, field.name), err_msg=field.name
        )


class KilledError(Exception):
    """Stands for the end of a process."""


class Dying(Journal):
    """Dies in the middle of a round's transaction."""

    def add_rounds(self, *_: Any) -> None:
        raise KilledError


@examples(25)
@given(tasks, st.lists(st.sampled_from(["", "", "killed", "in the middle", "late"]), max_size=60))
def test_an_interrupted_run_leaves_the_journal_of_an_undisturbed_one(
    found: list[Task], fates: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, many = Path(folder) / "one", Path(folder) / "many"
        live(one, fresh(found), Queue())
        backend = fresh(found)
        journal = Journal.create(many, meta=META)
        recorder = Recorder(journal, backend)
        for turn, fate in zip(rounds(Queue(), backend), fates + [""] * 999, strict=False):
            if fate == "in the middle":
                journal.close()
                dying = Dying.reopen(many)
                with dying, pytest.raises(KilledError):
                    Recorder(dying, backend).write(replace(turn, trouble="so that it is written"))
            if fate:  # a killed writer closes nothing
                left, journal = journal, Journal.reopen(many)
                recorder = Recorder(journal, backend)
                left.close()
            recorder.write(turn)
            if fate == "late":  # the same round once more adds nothing
                Recorder(journal, backend).write(turn)
        recorder.close(backend.now_s)
        recorder.close(backend.now_s)
        journal.finish()
        assert events(one) == events(many)
        assert_same(outcome_of(one), outcome_of(many))


@examples(25)
@given(tasks, st.sets(st.integers(0, 40)))
def test_a_round_that_was_carried_out_but_not_written_is_made_good_for(
    found: list[Task], lost: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, many = Path(folder) / "one", Path(folder) / "many"
        live(one, fresh(found), Queue())
        backend = fresh(found)
        with Journal.create(many, meta=META) as journal:
            recorder = Recorder(journal, backend)
            for turn in rounds(Queue(), backend):
                if turn.number in lost:
                    recorder = Recorder(journal, backend)
                else:
                    recorder.write(turn)
            recorder.close(backend.now_s)
        whole, partial = outcome_of(one), outcome_of(many)
        # Who came and went unseen is missing; of the others all is there, starts perhaps later.
        both = np.isin(whole.job_id, partial.job_id)
        order = np.argsort(partial.job_id)[
            np.searchsorted(np.sort(partial.job_id), whole.job_id[both])
        ]
        np.testing.assert_array_equal(partial.done_s[order] >= whole.done_s[both], True)
        assert (partial.gave_up[order] == whole.gave_up[both]).all()
        times_s = [time_s for time_s, *_ in events(many)]
        assert times_s == sorted(times_s)
        kinds = [(job, kind) for _, job, kind, _ in events(many) if kind in (ARRIVE, START)]
        assert len(kinds) == len(set(kinds))


def test_a_full_disk_is_made_good_for_by_the_next_round(path: Path) -> None:
    backend = ToyCluster([Task(0, 3, 2), Task(1, 3, 2)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        assert journal._db is not None
        for turn in rounds(Queue(), backend):
            if turn.number == 2:
                journal._db.execute("PRAGMA query_only = 1")
                with pytest.raises(JournalError, match="1 jobs, 2 events, 1 rounds"):
                    recorder.write(turn)
                journal._db.execute("PRAGMA query_only = 0")
            else:
                recorder.write(turn)
        recorder.close(backend.now_s)
    assert events(path)[2:4] == [(1.0, str(B), ARRIVE, []), (2.0, str(B), START, [(0, 2, 0)])]


class Measuring(ToyCluster):
    """The same, and it has measured its jobs."""

    def measured(self, uid: int) -> Measured:
        return Measured(work_s=7.0, restart_s=2.0 + uid - A)


def test_what_was_measured_of_jobs_that_end_after_the_last_round_is_kept(path: Path) -> None:
    backend = Measuring([Task(0, 3, 2), Task(0, 60, 2)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(Queue(), backend):
            recorder.write(turn)
            break
        for _ in range(5):  # so that the first ends
            backend.wait(np.inf)
        recorder.close(backend.now_s)
    with read_journal(path) as view:
        seen, last = lengths(view), view.rounds()[-1]
    assert seen.restart_s[0] == 2.0
    assert np.isnan(seen.restart_s[1])
    assert last["time_s"] == backend.now_s


def test_jobs_that_end_while_nobody_looks_end_when_they_did(path: Path) -> None:
    backend = ToyCluster([Task(0, 2.5, 2), Task(0, 60, 2)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(Queue(), backend):
            recorder.write(turn)
            break
        recorder.close(backend.now_s)  # nobody has ended: nothing is said
        assert len(events(path)) == 4
    for _ in range(30):
        backend.wait(np.inf)
    with Journal.reopen(path) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(Queue(), backend):
            recorder.write(turn)
            break
    assert events(path)[4:] == [(2.5, str(A), FINISH, [])]
    assert [row[0] for row in rounds_of(path)] == [0.0, 31.0]


def test_who_is_gone_but_not_accounted_for_is_asked_about_again(path: Path) -> None:
    class Slow(ToyCluster):
        known = False

        def ending(self, uid: int) -> tuple[int, float]:
            if not self.known:
                raise LookupError(uid)
            return super().ending(uid)

    backend = Slow([Task(0, 1.5, 2), Task(0, 5, 2)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        for turn in rounds(Queue(), backend):
            backend.known = turn.number > 4
            recorder.write(turn)
    assert events(path)[4:] == [(1.5, str(A), FINISH, [])]
    assert [row[:4] for row in rounds_of(path)] == [(0, 0, 2, 4), (2, 0, 1, 2), (4, 0, 1, 2)]


# -- what is refused -----------------------------------------------------------------------------


def test_what_a_backend_must_not_say_is_named(path: Path) -> None:
    class Renames(ToyCluster):
        def listing(self, uid: int) -> Listing:
            return replace(super().listing(uid), job_id=f"job-{uid}")

    backend = Renames([Task(0, 1, 1)])
    with Journal.create(path, meta=META) as journal:
        turn = next(iter(rounds(Queue(), backend)))
        with pytest.raises(JournalError, match="Job 100 is listed as 'job-100'"):
            Recorder(journal, backend).write(turn)
    strange = ToyCluster([Task(0, 1, 1, ends=START), Task(0, 2, 1)])
    with pytest.raises(JournalError, match="Job 100 ended by an event of kind 1"):
        live(path.with_name("other"), strange, Queue())


def test_a_journal_of_a_simulation_is_not_gone_on_with(path: Path) -> None:
    with Journal.create(path, meta=META) as journal:
        journal.add_jobs(["application_17"], [-1], [], [1], [0.0], [1.0])
        with pytest.raises(JournalError, match="names a job 'application_17'"):
            Recorder(journal, ToyCluster([]))


# -- who reads it --------------------------------------------------------------------------------


def results(outcome: Outcome) -> dict[str, Any]:
    """What a report of one run is made from."""
    summary, over_time = summarise(outcome), series(outcome, 20)
    curve = {
        "trace": "live", "policy": "queue", "jct_cdf": cdf(Times.of(outcome).jct_s),
        "utilisation": {"time_s": over_time["time_s"], "share": over_time["utilisation"]},
    }  # fmt: skip
    return {
        "name": "live", "made_at": "now", "versions": {}, "cluster": {"about": "2 × 4", "gpus": 8},
        "seeds": [0], "conditions": {}, "baseline": "queue", "policies": ["queue"],
        "traces": ["live"], "resamples": 1, "notes": [], "comparisons": [], "runs": [{}],
        "table": [{"trace": "live", "runs": 1, **summary}], "curves": [curve],
    }  # fmt: skip


def test_metrics_and_report_read_it_while_it_grows_and_after(path: Path) -> None:
    backend = ToyCluster([Task(0, 2.5, 2, "ann"), Task(0.5, 2, 8), Task(1, 3, 1, ends=KILL)])
    with Journal.create(path, meta=META) as journal:
        recorder = Recorder(journal, backend)
        json.dumps(summarise(outcome_of(path)), allow_nan=False)
        for turn in rounds(Queue(), backend):
            recorder.write(turn)
            found = results(outcome_of(path))
            json.dumps(found, allow_nan=False)
            render(found)
        recorder.close(backend.now_s)
        journal.finish()
    got = summarise(outcome_of(path))
    assert (got["jobs"], got["finished"], got["gave_up"]) == (3, 2, 1)
    assert (got["mean_jct_s"], got["mean_slowdown"], got["mean_rho"]) == (3.5, None, None)
    assert got["utilisation"] == pytest.approx((2 * 3 + 8 * 2 + 1 * 3) / (8 * 8))
    assert "queue" in render(results(outcome_of(path)))
