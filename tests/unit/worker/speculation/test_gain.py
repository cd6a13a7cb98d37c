"""The gain account: the price of time, what loads know of each other, and budgets."""

import numpy as np
import pytest

from outrider.worker.speculation.gain import (
    ADVANCE_SECONDS,
    LOSS_SHARE,
    MEMORY_SECONDS,
    TRUSTED,
    Arm,
    Budget,
    GainAccount,
)

STEP = 0.01


def run(account: GainAccount, seconds: float, gain: float) -> None:
    """Let steps bring so many times their seconds."""
    for _ in range(round(seconds / STEP)):
        account.learn(gain * STEP, STEP)


def test_the_price_of_time_is_what_is_written_in_the_long_run() -> None:
    account = GainAccount()
    assert account.pace == 1.0
    run(account, 5 * MEMORY_SECONDS, 1.5)
    assert account.pace == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize("sequences", [1, 2, 4])
def test_a_request_that_starts_has_its_share_in_the_price(sequences: int) -> None:
    account = GainAccount()
    account.enter(sequences)
    run(account, 5 * MEMORY_SECONDS, 5.0)
    account.start()
    if sequences == 1:
        assert account.pace == 1.0, "chats after edits of code would get no draft at all"
    else:
        assert 1.0 < account.pace <= 5.0


def test_loads_are_known_apart() -> None:
    account = GainAccount()
    found = []
    for sequences in (1, 2, 3, 4, 8, 9, 16):
        account.enter(sequences)
        found.append(account.present)
    assert len({id(load) for load in found}) == 6, "8 and 9 are about as many"
    assert not account.enter(16)
    account.enter(1)
    assert account.present is found[0]


def test_a_new_load_begins_with_the_times_of_the_one_before_and_its_predicted_gain() -> None:
    account = GainAccount(predict=lambda sequences: 2.0 / sequences)
    account.enter(1)
    account.present.add(False, STEP, 2 * STEP, 1.0)
    account.saw_latency(0.002, 1.0)
    before = account.present
    account.enter(4)
    assert account.present.scale == before.scale == pytest.approx(2.0)
    assert account.present.latency == before.latency
    assert account.present.gain == 0.5


def test_the_standard_error_of_a_gain_is_that_of_its_steps() -> None:
    random, found = np.random.default_rng(0), []
    for _ in range(200):
        arm = Arm()
        for step, tokens in enumerate(random.poisson(1.0, 200), 1):
            arm.add(STEP * tokens, STEP, step * STEP)
        found.append((arm.ratio, arm.error))
    ratios, errors = np.array(found).T
    assert ratios.mean() == pytest.approx(1.0, abs=0.02)
    assert errors.mean() == pytest.approx(ratios.std(), rel=0.2)


def test_what_was_measured_is_forgotten_with_time() -> None:
    arm = Arm()
    arm.add(1.0, 1.0, 0.0)
    arm.add(2.0, 1.0, 3 * MEMORY_SECONDS)
    assert arm.ratio == pytest.approx(1.95, abs=0.01)
    assert arm.is_fresh(3.9 * MEMORY_SECONDS)
    assert not arm.is_fresh(4.1 * MEMORY_SECONDS)


def test_a_budget_lends_no_more_than_its_advance_and_what_it_earned() -> None:
    budget = Budget()
    assert budget.affords(5.0)
    budget.add(0.0, -0.8 * ADVANCE_SECONDS)
    assert not budget.affords(0.5 * ADVANCE_SECONDS)
    budget.add(ADVANCE_SECONDS / LOSS_SHARE, 1.0)
    assert budget.spare == ADVANCE_SECONDS


def test_a_budget_that_is_used_up_rests_until_half_of_it_is_earned_back() -> None:
    budget = Budget()
    budget.add(0.0, -ADVANCE_SECONDS)
    for _ in range(49):
        assert budget.rests
        budget.add(0.01 * ADVANCE_SECONDS / LOSS_SHARE)
    budget.add(0.02 * ADVANCE_SECONDS / LOSS_SHARE)
    assert not budget.rests


@pytest.mark.parametrize("first", [True, False])
def test_known_step_costs_are_the_first_times_of_growth_and_bound_later_ones(
    first: bool,
) -> None:
    account = GainAccount(growth_costs=lambda sequences: 0.001 * sequences)
    account.enter(4)
    assert account.growth_seconds(first) == 0.004
    for _ in range(50):
        account.saw_latency(1.0, 0.0)  # prompts were computed in these passes
        account.saw_period(1.0)
    assert account.growth_seconds(first) == pytest.approx(TRUSTED * 0.004)
    for _ in range(1000):
        account.learn_pass(account.slowdown * 0.010, 0.015)
    assert account.growth_seconds(first) == pytest.approx(TRUSTED * 1.5 * 0.004, rel=0.01)


def test_a_stall_says_little_of_the_next_growth() -> None:
    account = GainAccount()
    account.saw_latency(0.004, 0.0)
    before = account.present.latency
    account.saw_latency(10.0, 0.0)
    assert account.present.latency < 1.5 * before
