"""The pace of a simulated machine."""

import statistics

import pytest

from outrider.simulator.pace import PACE_SECONDS, Pace

STRETCHES = 5000


def test_a_pace_has_the_variation_asked_for_and_a_mean_of_one() -> None:
    pace = Pace(0.1, 1, 7, 0)
    factors = [pace.at(PACE_SECONDS * stretch) for stretch in range(STRETCHES)]
    assert statistics.fmean(factors) == pytest.approx(1.0, abs=0.005)
    assert statistics.pstdev(factors) == pytest.approx(0.1, rel=0.05)


def test_a_pace_is_kept_for_a_stretch_and_follows_from_seed_and_time() -> None:
    pace, again, other = Pace(0.1, 1), Pace(0.1, 1), Pace(0.1, 2)
    first = pace.at(0.0)
    assert pace.at(0.99 * PACE_SECONDS) == first
    assert pace.at(1.01 * PACE_SECONDS) != first
    again.at(5 * PACE_SECONDS)  # whatever was asked before
    assert again.at(0.0) == first != other.at(0.0)


def test_without_variation_nothing_is_slower() -> None:
    assert Pace(0.0, 1).at(123.0) == 1.0
