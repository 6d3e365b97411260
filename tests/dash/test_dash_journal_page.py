"""The page of `rota report`: what a journal tells, drawn."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hand_journals import event_arrays
from pages import Strict

from rota.core import Cluster
from rota.core.layout import (
    ARRIVE,
    FINISH,
    GIVE_UP,
    KILL,
    MOVE,
    NODE_DOWN,
    NODE_UP,
    RESIZE,
    ROUND,
    START,
    STOP,
)
from rota.dash import journal_page, node_chart
from rota.dash.journal_page import SECTIONS, chosen_jobs, course, render
from rota.dash.past_run import PastRun, summary
from rota.dash.user_chart import demand
from rota.errors import InputError
from rota.run.journal import Journal
from rota.run.metrics import series
from rota.run.reader import read_journal

if TYPE_CHECKING:
    from pathlib import Path

NASTY = '<script>alert("x")</script>'
HELD = (
    (0.0, 0, ARRIVE, ()), (0.0, 0, START, ((0, 1, 0),)), (10.0, 1, ARRIVE, ()),
    (20.0, 0, RESIZE, ((0, 2, 0), (1, 1, 0))), (40.0, 0, STOP, ()), (40.0, 1, START, ((1, 2, 0),)),
    (50.0, 1, MOVE, ((0, 2, 0),)), (60.0, 0, START, ((1, 1, 0),)), (70.0, 1, KILL, ()),
    (70.0, 1, GIVE_UP, ()), (75.0, 1, NODE_DOWN, ()), (80.0, 1, NODE_UP, ()),
    (100.0, 0, FINISH, ()),
)  # fmt: skip
"""Two jobs on two nodes of 2 GPUs: job 0 grows, is preempted and ends; job 1 moves and fails."""


def written(
    path: Path, rows: Any = HELD, *, jobs: int = 2, users: tuple[str, ...] = ("ann", NASTY),
    finish: bool = True, **meta: Any,
) -> Path:  # fmt: skip
    """A journal of these events."""
    facts = {"policy": "srtf", "total_gpus": 4, "cluster": Cluster.uniform(2, 2), **meta}
    first: dict[int, float] = {}
    for t, job, kind, _ in rows:
        if kind < NODE_DOWN:
            first.setdefault(job, t)
    with Journal.create(path, meta=facts) as journal:
        numbers = range(jobs)
        journal.add_jobs(
            [f"job-{k}" for k in numbers], [k % len(users) if users else -1 for k in numbers],
            users, [2] * jobs, [first.get(k, 0.0) for k in numbers], [30.0] * jobs,
        )  # fmt: skip
        journal.add_events(*event_arrays(rows))
        journal.add_rounds(np.array([(0, 0, 1, 1, 4, 1), (40, 1, 1, 2, 4, 0)], ROUND))
        if finish:
            journal.finish()
    return path


def read(path: Path) -> PastRun:
    with read_journal(path) as view:
        return PastRun.read(view)


def drawn(run: PastRun) -> str:
    return render(run, summary(run), series(run.outcome, 50))


def figures(text: str) -> list[ElementTree.Element]:
    found = re.findall(r'(<svg class="chart.*?</svg>)</figure>', text, re.DOTALL)
    return [ElementTree.fromstring(one) for one in found]


def boxes(figure: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [one for one in figure.iter("rect") if kind in one.get("class", "").split()]


def test_the_page_is_well_formed_asks_for_nothing_and_escapes_names(tmp_path: Path) -> None:
    text = drawn(read(written(tmp_path / "run.db")))
    page = Strict()
    page.feed(text)
    page.close()
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(page.seen)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=|href=", text)
    for heading in ("Summary", "Over time", "By node", "By user", "Jobs", "By size"):
        assert f"<h2>{heading}</h2>" in text
    for figure in figures(text):
        assert [child.tag for child in figure[:2]] == ["title", "desc"]


def test_a_row_of_a_job_shows_workers_waiting_and_what_happened(tmp_path: Path) -> None:
    run = read(written(tmp_path / "run.db"))
    one, two = course(run, 0, 0), course(run, 1, 1)
    assert [(bar.begin_s, bar.end_s, bar.workers) for bar in one.bars] == [
        (0, 20, 1), (20, 40, 3), (60, 100, 1),
    ]  # fmt: skip
    assert (one.most_workers, one.elastic, one.marks) == (3, True, [(40, "preempted")])
    assert (two.submit_s, two.end_s, two.elastic) == (10, 70, False)
    assert two.marks == [(50, "moved"), (70, "failed or killed"), (70, "gave up")]
    figure = figures(drawn(run))[-1]
    heights = [float(box.get("height", "")) for box in boxes(figure, "held")]
    assert heights[:3] == [8.0, 24.0, 8.0]  # of 24 pixels, by workers
    waits = [(box.get("x"), box.get("width")) for box in boxes(figure, "wait")]
    assert waits == [("40%", "20%"), ("10%", "30%")]
    texts = [one.text for one in figure.iter("text") if "count" in one.get("class", "")]
    assert texts == ["1", "3", "1"]  # of the elastic job alone
    marks = [one for one in figure.iter("text") if "mark" in one.get("class", "").split()]
    assert [one.get("x") for one in marks] == ["40%", "50%", "70%", "70%"]


def test_a_node_has_a_row_in_which_each_job_is_as_tall_as_its_gpus(tmp_path: Path) -> None:
    figure = next(f for f in figures(drawn(read(written(tmp_path / "run.db")))) if boxes(f, "lane"))
    assert len(boxes(figure, "lane")) == 2
    held = [
        (box.get("x"), box.get("width"), float(box.get("height", "")))
        for box in boxes(figure, "held")
    ]
    # Node 0: job 0 with 1 GPU, then 2, then job 1 with 2; node 1: job 0, job 1, job 0 again.
    assert held == [
        ("0%", "20%", 14), ("20%", "20%", 28), ("50%", "20%", 28),
        ("20%", "20%", 14), ("40%", "10%", 28), ("60%", "40%", 14),
    ]  # fmt: skip
    down = boxes(figure, "down")
    assert [(box.get("x"), box.get("width")) for box in down] == [("75%", "5%")]


def test_users_hold_and_wait_for_what_their_jobs_do(tmp_path: Path) -> None:
    run = read(written(tmp_path / "run.db"))
    users, rank = run.user
    assert (users, rank.tolist()) == (["ann", NASTY], [0, 1])  # 120 and 60 GPU-seconds
    held, waits = demand(run, rank, 2, np.linspace(0, 100, 11))
    assert held.tolist() == [[1, 1, 3, 3, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 2, 2, 2, 0, 0, 0]]
    assert waits.tolist() == [[0, 0, 0, 0, 2, 2, 0, 0, 0, 0], [0, 2, 2, 2, 0, 0, 0, 0, 0, 0]]
    rows = {row["user"]: row for row in summary(run)["by_user"]}
    assert (rows["ann"]["held_gpu_h"], rows["ann"]["preemptions"]) == (120 / 3600, 1)


def test_too_many_jobs_are_thinned_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        row
        for k in range(200)
        for row in (
            (k * 10.0, k, ARRIVE, ()), (k * 10.0, k, START, ((k % 2, 2, 0),)),
            *([(k * 10.0 + 5, k, MOVE, (((k + 1) % 2, 2, 0),))] if k == 150 else []),
            (k * 10.0 + 9, k, FINISH, ()),
        )
    ]  # fmt: skip
    path = written(tmp_path / "run.db", rows, jobs=200, users=tuple(f"u{k}" for k in range(50)))
    run = read(path)
    chosen = chosen_jobs(run)
    assert len(chosen) == journal_page.MOST_JOBS
    assert 150 in chosen  # the only one that was moved
    text = drawn(run)
    assert "60 of 200 jobs are drawn" in text
    assert "31 users who held least share the last row" in text
    assert "Not shown: 35 further users" in text
    assert "Jobs by user (2 of " in text
    monkeypatch.setattr(node_chart, "MOST_PIECES", 100)
    assert "201 pieces of jobs on 2 nodes are too many to draw one by one" in drawn(run)


def test_a_large_cluster_shares_rows(tmp_path: Path) -> None:
    rows = [(0.0, 0, ARRIVE, ()), (0.0, 0, START, ((99, 1, 0),)), (8.0, 0, FINISH, ())]
    run = read(written(tmp_path / "a.db", rows, jobs=1, cluster=Cluster.uniform(100, 2)))
    text = drawn(run)
    assert "a row is 3 nodes, named after the first" in text
    labels = [one.text for f in figures(text) for one in f.iter("text")]
    assert "node-99" in labels
    assert "node-98" not in labels


@pytest.mark.parametrize("facts", [{"scenario": "x"}, {"began_at": "x"}, {"cluster": "x"}])
def test_odd_facts_of_another_writer_are_passed_over(tmp_path: Path, facts: Any) -> None:
    assert "<h2>Jobs</h2>" in drawn(read(written(tmp_path / "run.db", **facts)))


@pytest.mark.parametrize("rows", [(), HELD[:2], HELD[:7]])
def test_a_journal_that_is_not_finished_has_a_report(tmp_path: Path, rows: Any) -> None:
    run = read(written(tmp_path / "run.db", rows, finish=False))
    assert "The run has not ended, or its writer was stopped." in drawn(run)


def test_a_journal_without_jobs_says_so(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "a.db", meta={"policy": "fifo", "total_gpus": 4}):
        pass
    run = read(tmp_path / "a.db")
    assert "The journal holds no jobs yet." in drawn(run)
    json.dumps(summary(run), allow_nan=False)


def test_jobs_without_gpus_or_users_and_nodes_without_a_description_are_drawn(
    tmp_path: Path,
) -> None:
    with Journal.create(tmp_path / "a.db", meta={"policy": "fifo", "total_gpus": 0}) as journal:
        journal.add_jobs(["0"], [-1], [], [0], [0.0], [np.nan])
        rows = [(0, 0, ARRIVE, ()), (1, 0, START, [(3, 2, 1)]), (9, 0, FINISH, ())]
        journal.add_events(*event_arrays(rows))
        journal.add_rounds(np.array([(1, 0, 1, 0, 0, 0)], ROUND))
    run = read(tmp_path / "a.db")
    assert run.nodes[0] == ["node 0", "node 1", "node 2", "node 3"]
    text = drawn(run)
    assert "(no user)" in text
    held = [box for f in figures(text) if boxes(f, "lane") for box in boxes(f, "held")]
    assert len(held) == 1
    json.dumps(summary(run), allow_nan=False)


def test_changes_too_short_to_be_seen_share_a_bar(tmp_path: Path) -> None:
    # Every 0.01 s of 100 s the job gets another number of workers, until it keeps 2.
    changes = [(0.01 * k, 0, RESIZE, ((0, 1 + k % 2, 0),)) for k in range(1, 1000)]
    rows = [
        (0.0, 0, ARRIVE, ()), (0.0, 0, START, ((0, 1, 0),)), *changes,
        (20.0, 0, RESIZE, ((0, 2, 1),)), (100.0, 0, FINISH, ()),
    ]  # fmt: skip
    run = read(written(tmp_path / "a.db", rows, jobs=1, users=()))
    held = boxes(figures(drawn(run))[-1], "held")
    assert 50 <= len(held) <= 60  # of 0.2 s each, and the last one
    assert (held[0].get("height"), held[-1].get("height")) == ("18.0", "24.0")
    assert held[-1].get("width") == "90.01%"


def test_names_that_no_file_can_hold_are_drawn_with_question_marks(tmp_path: Path) -> None:
    text = drawn(read(written(tmp_path / "a.db", users=("a\ud800b",))))
    assert "a?b" in text
    text.encode()


def test_a_journal_can_be_drawn_while_it_is_written(tmp_path: Path) -> None:
    meta = {"policy": "fifo", "total_gpus": 4}
    with Journal.create(tmp_path / "a.db", meta=meta) as journal:
        journal.add_jobs(["0"], [-1], [], [2], [0.0], [9.0])
        with read_journal(tmp_path / "a.db") as view, view.frozen():
            assert len(view.jobs.submit_s) == 1
            journal.add_jobs(["1"], [-1], [], [2], [0.0], [9.0])
            journal.add_events(*event_arrays([(1, 1, START, [(0, 2)])]))
            run = PastRun.read(view)
        assert (len(run), len(run.events)) == (1, 0)  # not the job that came meanwhile
        assert "<h2>Jobs</h2>" in drawn(read(tmp_path / "a.db"))


def test_everything_at_one_moment_is_drawn(tmp_path: Path) -> None:
    rows = [(5.0, 0, ARRIVE, ()), (5.0, 0, START, ((0, 1, 0),)), (5.0, 0, FINISH, ())]
    assert "<h2>Jobs</h2>" in drawn(read(written(tmp_path / "a.db", rows, jobs=1)))


def test_a_node_below_zero_is_refused(tmp_path: Path) -> None:
    rows = [(0.0, 0, START, ((-3, 1, 0),))]
    path = written(tmp_path / "a.db", rows, jobs=1)
    with pytest.raises(InputError, match="names node -3"):
        read(path)


def test_what_was_left_out_and_gpu_types_are_told(tmp_path: Path) -> None:
    mixed = Cluster(gpus=np.array([2, 4]), gpu_types=("v100", "a100"), type=np.array([0, 1]))
    path = written(
        tmp_path / "a.db", skipped=1, left_out={"still queued": 2}, oversized=3, cluster=mixed
    )
    text = drawn(read(path))
    for words in (
        "1 broken line skipped.", "2 jobs left out: still queued.",
        "3 jobs left out that the empty cluster cannot hold.", "2 × v100, 4 × a100", "node-1 a100",
    ):  # fmt: skip
        assert words in text


def test_each_section_is_reported(tmp_path: Path) -> None:
    run, told = read(written(tmp_path / "run.db")), []
    render(run, summary(run), series(run.outcome), told.append)
    assert told == list(range(1, SECTIONS + 1))
