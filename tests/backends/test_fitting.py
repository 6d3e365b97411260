"""Shares that policies decide, made to fit what jobs demand of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rota.backends.driver import JobRequest, NodeSight
from rota.backends.fitting import KEEP_S, Fitter, Room
from rota.backends.node_table import NodeTable

if TYPE_CHECKING:
    from rota.core.plan import Share

ONE: Share = ((0, 1, 0),)


def table(count: int = 3, gpus: int = 4, **more: Any) -> NodeTable:
    made = NodeTable(())
    made.see([NodeSight(name=f"n{k + 1}", gpus=gpus, **more) for k in range(count)])
    return made


def request(gpus: int = 2, **more: Any) -> JobRequest:
    return JobRequest(gpus_per_worker=gpus, **more)


def test_a_share_that_is_moved_takes_no_room_that_was_decided_for_another_job() -> None:
    nodes = table(2)
    wanted: dict[int, tuple[JobRequest, Share]] = {
        1: (request(workers=2, apart=True), ((1, 2, 0),)),
        2: (request(), ONE),
        3: (request(), ONE),
    }
    found = Fitter(nodes).lay_out(wanted, Room(nodes), 0.0)
    assert found == {1: None, 2: ONE, 3: ONE}


@pytest.mark.parametrize(
    ("needs", "has"),
    [({"cpus_per_worker": 8.0}, {"cpus": 8.0}),
     ({"memory_gb_per_worker": 60.0}, {"memory_gb": 64.0})],
)  # fmt: skip
def test_cpus_and_memory_are_room_too(needs: dict[str, float], has: dict[str, float]) -> None:
    nodes = table(2, **has)
    asked = request(0, only_on=frozenset({"n2"}), **needs)
    wanted: dict[int, tuple[JobRequest, Share]] = {1: (asked, ONE), 2: (asked, ONE)}
    found = Fitter(nodes).lay_out(wanted, Room(nodes), 0.0)
    assert found == {1: ((1, 1, 0),), 2: None}


def test_a_job_that_has_waited_long_for_its_node_is_started_before_others_there() -> None:
    nodes = table(2)
    fitter, picky = Fitter(nodes), request(4, only_on=frozenset({"n2"}))
    held, there = request(2), ((1, 1, 0),)

    def turn(now_s: float, more: tuple[JobRequest, Share], *, freed: bool) -> dict[int, Any]:
        room = Room(nodes)
        if not freed:
            room.take(held, there)
        return fitter.lay_out({9: more, 1: (picky, ONE)}, room, now_s)

    other = (request(2), there)
    assert turn(0.0, other, freed=False) == {9: there, 1: None}
    # Now the node is kept: the other job is put elsewhere.
    assert turn(KEEP_S + 1, other, freed=False) == {1: None, 9: ONE}
    assert turn(KEEP_S + 2, other, freed=True) == {1: there, 9: ONE}
    assert turn(KEEP_S + 3, other, freed=True) == {9: there, 1: None}


def test_nodes_are_kept_only_while_the_policy_wants_the_job_to_run() -> None:
    nodes = table(1)
    fitter, full = Fitter(nodes), Room(nodes)
    full.take(request(2), ONE)
    picky = (request(4), ONE)
    for now_s in (0.0, KEEP_S + 1):
        assert fitter.lay_out({1: picky}, full, now_s) == {1: None}
    assert fitter.lay_out({2: (request(2), ONE)}, full, KEEP_S + 2) == {2: ONE}


def test_a_job_that_must_have_a_node_can_be_stopped() -> None:
    nodes = table(1)
    wanted = {1: (request(must_have=frozenset({"n1"})), ())}
    assert Fitter(nodes).lay_out(wanted, Room(nodes), 0.0) == {1: ()}


RUNS = {"in_place": True, "apart": True, "must_have": frozenset({"n1"}), "fixed": frozenset({"n1"})}
"""What binds a job that runs on n1, and on satellites."""


def test_a_job_that_grows_in_place_keeps_what_it_cannot_give_up_and_gets_less_if_need_be() -> None:
    nodes = table(3)
    wanted: dict[int, tuple[JobRequest, Share]] = {
        1: (request(1, **RUNS), ((2, 3, 0),)),
        2: (request(4, apart=True), ((0, 1, 0), (1, 1, 0))),
    }
    found = Fitter(nodes).lay_out(wanted, Room(nodes), 0.0)
    assert found == {1: ONE, 2: ((1, 1, 0), (2, 1, 0))}


@pytest.mark.parametrize(("stoppable", "left"), [(False, ONE), (True, ())])
def test_a_job_that_cannot_be_stopped_shrinks_to_what_it_cannot_give_up(
    stoppable: bool, left: Share
) -> None:
    nodes = table(2)
    wanted: dict[int, tuple[JobRequest, Share]] = {
        1: (request(4, stoppable=stoppable, **RUNS), ()),
        2: (request(4), ONE),
    }
    other = ONE if stoppable else ((1, 1, 0),)
    assert Fitter(nodes).lay_out(wanted, Room(nodes), 0.0) == {1: left, 2: other}


def test_where_other_nodes_are_taken_those_come_first_that_a_job_has() -> None:
    nodes = table(4)
    room = Room(nodes)
    room.take(request(1), ((1, 1, 0),))  # a full node would come first otherwise
    wanted = {1: (request(1, **RUNS), ((0, 2, 0),))}
    held = {1: ((0, 1, 0), (3, 1, 0))}
    assert Fitter(nodes).lay_out(wanted, room, 0.0, held) == held


def test_a_job_that_cannot_be_resized_keeps_what_it_has() -> None:
    nodes = table(2)
    room = Room(nodes)
    room.take(request(1), ((1, 1, 0),))
    wanted: dict[int, tuple[JobRequest, Share]] = {
        1: (request(4, apart=True, min_workers=1, max_workers=2), ((0, 1, 0), (1, 1, 0))),
        2: (request(4, only_on=frozenset({"n1"})), ((1, 1, 0),)),
    }
    held = {1: ONE}
    assert Fitter(nodes).lay_out(wanted, room, 0.0, held) == {1: None, 2: None}
