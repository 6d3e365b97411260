"""The simulated clock, and when resources change."""

from __future__ import annotations

import pytest

from rota.adapt.clock import OCCASIONS, Clock, Occasion, occasion
from rota.errors import ConfigError, UnknownNameError

CLOCK = Clock(epoch_s=10.0, fixed=0.3, overhead=0.2)


def test_an_epoch_of_the_start_network_on_one_gpu_takes_what_the_clock_says() -> None:
    assert CLOCK.epoch(1.0, 1.0) == pytest.approx(10.0)


def test_a_larger_network_is_slower_by_the_part_that_grows() -> None:
    # 3 s are fixed, 7 s double.
    assert CLOCK.epoch(2.0, 1.0) == pytest.approx(17.0)


def test_two_gpus_are_less_than_twice_as_fast() -> None:
    assert CLOCK.speedup(2.0) == pytest.approx(2 / 1.2)
    assert CLOCK.epoch(1.0, 2.0) == pytest.approx(6.0)


@pytest.mark.parametrize("speedup", [0.5, 1.0, 5 / 3, 2.5])
def test_the_gpus_for_a_speedup_have_it(speedup: float) -> None:
    assert CLOCK.speedup(CLOCK.gpus_for(speedup)) == pytest.approx(speedup)


def test_no_number_of_gpus_is_faster_than_the_overhead_allows() -> None:
    with pytest.raises(ConfigError, match="5 times as fast"):
        CLOCK.gpus_for(5.0)


def test_epochs_to_the_deadline_by_hand() -> None:
    # 24 − 12 epochs of 10 s are left: 120 s. On 2 GPUs an epoch takes 6 s, and with twice the
    # multiplications 10.2 s.
    half = Occasion("half", 12, 1.0, 2.0, 24)

    assert half.left_s(CLOCK) == pytest.approx(120.0)
    assert half.epochs(CLOCK, [1.0]) == 20
    assert half.epochs(CLOCK, [1.0, 2.0]) == 1 + 11  # (120 − 6) / 10.2 = 11.2
    assert half.epochs(CLOCK, [2.0]) == 11  # 120 / 10.2 = 11.8


def test_a_network_too_large_for_the_time_left_ends_no_epoch() -> None:
    late = Occasion("late", 17, 2.0, 1.0)  # 6 s are left

    assert late.epochs(CLOCK, [1.0, 1.0]) == 0
    assert late.epochs(CLOCK, [0.1, 50.0]) == 1  # 3.7 s, and then none


@pytest.mark.parametrize("epoch", [0, 18, 19, -1])
def test_a_change_at_the_deadline_or_after_it_is_refused(epoch: int) -> None:
    with pytest.raises(ConfigError, match="the deadline is after epoch 18"):
        Occasion("never", epoch, 1.0, 2.0)


def test_a_change_to_the_same_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing changes"):
        Occasion("same", 4, 2.0, 2.0)


@pytest.mark.parametrize("gpus", [0.0, -1.0, float("nan"), float("inf")])
def test_gpus_must_be_a_number_above_zero(gpus: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        Occasion("none", 4, 1.0, gpus)


@pytest.mark.parametrize("bad", [{"epoch_s": 0.0}, {"fixed": 1.0}, {"overhead": float("nan")}])
def test_a_clock_refuses_what_no_clock_does(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        Clock(**bad)


def test_occasions_have_their_names() -> None:
    assert occasion("early-2to4") == OCCASIONS["early-2to4"] == Occasion("early-2to4", 3, 2.0, 4.0)
    with pytest.raises(UnknownNameError, match="occasion"):
        occasion("never")
