"""What users write into comments of their jobs; whatever it is, it does no harm."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.backends.slurm.hints import LONGEST, MOST_S, Hints, read_hints
from rota.backends.slurm.hook import USER_HELD, USER_RELEASED


def test_hints_are_read() -> None:
    text = ("rota:model=resnet50,min_nodes=1,max_nodes=4,checkpointable=yes,signal=SIGUSR1,"
            "grace=2m,estimate=1.5h,restart=30,heartbeat=yes,elastic=yes")  # fmt: skip
    hints, ignored = read_hints(text)
    assert ignored == []
    assert hints == Hints(
        model="resnet50", min_nodes=1, max_nodes=4, checkpointable=True, signal="USR1",
        grace_s=120.0, estimate_s=5400.0, restart_s=30.0, heartbeat=True,
        elastic=True,
    )  # fmt: skip


def test_nobody_keeps_others_waiting_for_nodes_by_a_grace_without_end() -> None:
    hints, ignored = read_hints("rota:signal=USR1,grace=3000d,heartbeat=yes")
    assert (hints.grace_s, hints.signal, hints.heartbeat) == (600.0, "USR1", True)
    assert ignored == ["its grace is cut to 600 s: others wait for its nodes"]
    assert read_hints("rota:signal=USR1,grace=10m")[1] == []


@pytest.mark.parametrize("text", ["", "my job", "rotax:model=a", "Rota:model=a"])
def test_a_comment_that_is_not_for_rota_says_nothing(text: str) -> None:
    hints, ignored = read_hints(text)
    assert (hints.model, hints.checkpointable, isnan(hints.estimate_s), ignored) == (
        "",
        False,
        True,
        [],
    )


@pytest.mark.parametrize("word", [USER_HELD, USER_RELEASED])
def test_words_of_the_hook_do_not_hide_hints(word: str) -> None:
    assert read_hints(f"{word} rota:model=a")[0].model == "a"


def test_hints_may_stand_within_a_comment() -> None:
    assert read_hints("night run rota:model=a,heartbeat=yes and more")[0].heartbeat


@pytest.mark.parametrize(
    "part",
    ["model=$(reboot)", "model=a;b", "model=", "min_nodes=0", "min_nodes=-1", "min_nodes=1e3",
     "max_nodes=999999999999999999999", "max_nodes=٣", "grace=nan", "grace=-1s", "grace=inf",
     "estimate=1e400", "estimate=99999d", "signal=KILL", "signal=9", "checkpointable=maybe",
     "unknown=1", "=", "model=\x1b[31mred"],
)  # fmt: skip
def test_a_wrong_hint_is_ignored_with_a_word_about_it_and_the_others_count(part: str) -> None:
    hints, ignored = read_hints(f"rota:{part},heartbeat=yes")
    assert hints.heartbeat
    assert len(ignored) == 1
    assert "\x1b" not in ignored[0]


def test_a_range_the_wrong_way_round_is_ignored() -> None:
    hints, ignored = read_hints("rota:min_nodes=4,max_nodes=2,model=a")
    assert (hints.min_nodes, hints.max_nodes, hints.model, len(ignored)) == (0, 0, "a", 1)


def test_a_comment_of_any_length_is_read_quickly_or_not_at_all() -> None:
    hints, ignored = read_hints("rota:" + "model=a," * 100_000)
    assert (hints.model, ignored) == ("", [f"its comment is longer than {LONGEST} characters"])


@given(st.text(max_size=200))
def test_no_comment_breaks_anything(text: str) -> None:
    hints, ignored = read_hints(f"rota:{text}")
    assert 0 <= hints.grace_s <= MOST_S
    assert 0 <= hints.min_nodes <= 65536
    assert 0 <= hints.max_nodes <= 65536
    assert hints.signal in ("", "USR1", "USR2", "HUP", "INT")
    assert all(word.isprintable() for word in ignored)


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("0", 0), ("-1", 0), ("12_3", 0), ("1" * 11, 0), ("", 0), ("\u0661", 0)],
)
def test_a_satellite_names_the_number_of_a_job(text: str, number: int) -> None:
    hints, ignored = read_hints(f"rota:satellite-of={text}")
    assert (hints.satellite_of, bool(ignored)) == (number, not number)
