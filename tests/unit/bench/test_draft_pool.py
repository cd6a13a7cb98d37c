import argparse

import pytest

from bench.draft_pool import (
    EXAMPLE,
    OWN,
    PLAIN,
    Found,
    Group,
    cheapest,
    described,
    fleet_price,
    mean,
)

POOL = Group(8, 2)
FOUND = {
    PLAIN: Found(100.0, 0.0, 1.0, 4.0, 0.0),
    OWN: Found(200.0, 0.5, 2.0, 5.0, 0.0),
    POOL: Found(195.0, 0.9, 1.9, 4.25, 0.0),
}


def test_gpus_that_are_left_over_are_paid_for() -> None:
    per_million = 1e6 / 3600
    assert fleet_price(OWN, FOUND[OWN], 10) == pytest.approx(10 * per_million / 400)
    assert fleet_price(OWN, FOUND[OWN], 14) == pytest.approx(14 * per_million / 400)
    assert fleet_price(POOL, FOUND[POOL], 30) == float("inf")


def test_a_small_fleet_takes_a_draft_each_and_a_large_one_shares() -> None:
    assert cheapest(FOUND, 10)["best"] == OWN.name
    large = cheapest(FOUND, 3400)
    assert (large["targets"], large["drafts"]) == (800, 200)
    assert large["own_by_best"] == pytest.approx((5 / 200) / (4.25 / 195))


def test_runs_with_several_seeds_have_a_mean_and_its_error() -> None:
    runs = [Found(rate, 0.5, 2.0, 5.0, 1.0) for rate in (90.0, 100.0, 110.0)]
    found = mean(runs)
    assert found.tokens_per_second == pytest.approx(100)
    assert found.relative_error == pytest.approx(10 / 3**0.5 / 100)
    assert mean(runs[:1]).relative_error == 0
    assert described(OWN, 4, argparse.Namespace(file=EXAMPLE, seconds=3.0), 2).seed == (
        described(OWN, 4, argparse.Namespace(file=EXAMPLE, seconds=3.0)).seed + 2
    )
