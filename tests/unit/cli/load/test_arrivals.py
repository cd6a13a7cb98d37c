"""Arrivals keep their rate, whatever their kind, and repeat with their seed."""

import random
from collections import Counter
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.load.arrivals import Arrivals, moments


def first(count: int, kind: Arrivals, rate: float, burst: int = 5, seed: int = 1) -> list[float]:
    return list(islice(moments(kind, rate, burst, random.Random(seed)), count))


@pytest.mark.parametrize("kind", list(Arrivals))
@given(rate=st.floats(0.01, 1000))
def test_the_rate_is_kept_in_the_long_run(kind: Arrivals, rate: float) -> None:
    arrived = first(4001, kind, rate)
    assert all(a <= b for a, b in pairwise(arrived))
    assert 4000 / arrived[-1] == pytest.approx(rate, rel=0.08)


def test_poisson_gaps_are_exponential() -> None:
    gaps = sorted(b - a for a, b in pairwise(first(20_001, Arrivals.POISSON, 2.0)))
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.05)
    assert gaps[len(gaps) // 2] == pytest.approx(0.3466, rel=0.05)


def test_constant_gaps_are_all_alike() -> None:
    assert first(4, Arrivals.CONSTANT, 4.0) == [0, 0.25, 0.5, 0.75]


def test_a_burst_arrives_at_once() -> None:
    arrived = Counter(first(15, Arrivals.BURST, 10.0, burst=5))
    assert arrived == {0.0: 5, 0.5: 5, 1.0: 5}


def test_the_same_seed_gives_the_same_arrivals() -> None:
    assert first(9, Arrivals.POISSON, 1, seed=3) == first(9, Arrivals.POISSON, 1, seed=3)
    assert first(9, Arrivals.POISSON, 1, seed=3) != first(9, Arrivals.POISSON, 1, seed=4)
