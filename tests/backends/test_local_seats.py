"""Who sits on which GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.backends.local.seating import Seat, reseat, share_of
from rota.errors import JobError

HAS = {0: 4, 1: 2}


def test_those_who_came_first_stay() -> None:
    seats, serial = reseat({}, ((0, 2, 0), (1, 1, 1)), 1, (), HAS, 0)
    assert seats == {
        "w0": Seat("worker", 0, (0,)),
        "w1": Seat("worker", 0, (1,)),
        "w2": Seat("worker", 1, (0,)),
        "s3": Seat("server", 1),
    }
    fewer, serial = reseat(seats, ((0, 1, 1),), 1, [Seat("worker", 0, (1, 2))], HAS, serial)
    assert fewer == {"w0": Seat("worker", 0, (0,)), "s4": Seat("server", 0)}
    more, serial = reseat(fewer, ((0, 2, 1),), 1, [Seat("worker", 0, (1, 2))], HAS, serial)
    assert more == {**fewer, "w5": Seat("worker", 0, (3,))}
    assert serial == 6


def test_a_full_node_is_refused() -> None:
    with pytest.raises(JobError, match="Node 1 has 1 GPUs left; a worker needs 2"):
        reseat({}, ((1, 1, 0),), 2, [Seat("worker", 1, (0,))], HAS, 0)


@st.composite
def courses(draw: st.DrawFn) -> list[dict[int, tuple[tuple[int, int, int], ...]]]:
    """Rounds in which three jobs are given what fits on two nodes of six and three GPUs."""
    rounds = []
    for _ in range(draw(st.integers(1, 6))):
        left = {0: 6, 1: 3}
        given_now = {}
        for job in range(3):
            share = []
            for node in left:
                workers = draw(st.integers(0, left[node]))
                servers = draw(st.integers(0, 2))
                left[node] -= workers
                if workers or servers:
                    share.append((node, workers, servers))
            given_now[job] = tuple(share)
        rounds.append(given_now)
    return rounds


@given(courses())
def test_seats_are_what_was_decided_and_nobody_shares_one(rounds: list) -> None:
    seats: dict[int, dict[str, Seat]] = {0: {}, 1: {}, 2: {}}
    serial = {0: 0, 1: 0, 2: 0}
    for wanted in rounds:
        before = {job: dict(own) for job, own in seats.items()}
        for job in seats:  # what they lose first, as a plan has it
            kept = tuple(
                (n, min(w, v), min(s, t))
                for n, w, s in share_of(seats[job])
                for m, v, t in wanted[job]
                if n == m and (min(w, v) or min(s, t))
            )
            seats[job], serial[job] = reseat(seats[job], kept, 1, (), {0: 6, 1: 3}, serial[job])
        for job in seats:
            others = [seat for other in seats if other != job for seat in seats[other].values()]
            seats[job], serial[job] = reseat(
                seats[job], wanted[job], 1, others, {0: 6, 1: 3}, serial[job]
            )
            assert share_of(seats[job]) == wanted[job]
            # As many stay as can: on each node the lesser of what it had and what it gets.
            for kind in ("worker", "server"):
                for node in (0, 1):
                    had = {n for n, s in before[job].items() if (s.node, s.kind) == (node, kind)}
                    has = {n for n, s in seats[job].items() if (s.node, s.kind) == (node, kind)}
                    assert len(had & has) == min(len(had), len(has))
        taken = [(s.node, g) for own in seats.values() for s in own.values() for g in s.gpus]
        assert len(taken) == len(set(taken))
        assert all(gpu < {0: 6, 1: 3}[node] for node, gpu in taken)
