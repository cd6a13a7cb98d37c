"""Evidence: the mean gain by seconds, its error, and what is sure."""

import numpy as np
import pytest

from outrider.operator.control.evidence import HORIZON, Evidence, GainWindow


def of(*gains: float, seconds: float = 15.0) -> Evidence:
    return Evidence().add(GainWindow(0, 15, gain, seconds) for gain in gains)


def test_the_mean_is_weighted_by_the_seconds_that_targets_spent() -> None:
    both = of(1.6, seconds=10).add([GainWindow(15, 30, 1.0, 30)])
    assert both.mean == pytest.approx(1.15)
    assert (both.windows, both.seconds) == (2, 40)


@pytest.mark.parametrize("deviation", [0.01, 0.155, 0.25])
def test_the_error_is_the_one_that_windows_have_shown(deviation: float) -> None:
    numbers = np.random.default_rng(5).normal(1.1, deviation, 200)
    assert of(*numbers).error == pytest.approx(deviation / 200**0.5, rel=0.1)


def test_one_window_is_sure_of_nothing() -> None:
    for found in (of(), of(0.5), of(3.0)):
        assert not found.is_surely_under(100)
        assert not found.is_surely_over(100)


def test_what_is_sure_depends_on_the_spread() -> None:
    calm, wild = of(*[0.95, 0.97] * 4), of(*[0.5, 1.42] * 4)
    assert calm.is_surely_under(100)
    assert not wild.is_surely_under(100)
    assert calm.is_surely_over(94)
    assert not wild.is_surely_over(94)


def test_being_over_takes_more_than_being_under() -> None:
    found = of(*[0.8, 1.2] * 4)
    for errors, under, over in ((0.4, False, False), (0.6, True, False), (1.1, True, True)):
        away = 100 * errors * found.error
        assert found.is_surely_under(100 + away) is under
        assert found.is_surely_over(100 - away) is over


def test_windows_before_the_horizon_fade() -> None:
    long = of(*[1.6] * 10 * HORIZON)
    assert long.windows == HORIZON
    turned = long.add(GainWindow(0, 15, 0.9, 15.0) for _ in range(HORIZON))
    assert 1.2 < turned.mean < 1.3


def test_the_words_have_the_error_where_it_can_be_seen() -> None:
    assert of(0.96, 0.96).words == "gain 96 %"
    assert of(0.86, 1.06).words == "gain 96 % ± 10"
    assert of(0.96).words == "gain 96 %"
