"""Waits for growth: when a target waits, and how much it may lose by that."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.worker.speculation.wait import (
    FIRST_ROOTS,
    FURTHER_EVERY,
    MAX_LOSS,
    MAX_OVERTIME,
    MAX_ROOTS,
    MAX_SECONDS,
    SAMPLE_EVERY,
    SAMPLES,
    TRIAL_ROOTS,
    TRIAL_SHARE,
    WaitPolicy,
)

STEP_SECONDS = 0.010
RATE = 100.0
"""Tokens a second: a millisecond of waiting costs a tenth of a token."""
DEAR = 1000.0
"""A rate at which no prior belief makes a wait worth its time."""
NEVER = float("inf")


@dataclass
class Target:
    """A target that asks at each root, and after each growth that it has waited for."""

    policy: WaitPolicy = field(default_factory=WaitPolicy)
    rate: float = RATE
    growth_seconds: float = 0.001
    """Between two growths; NEVER: the draft is silent."""
    worth: Callable[[int], float] = lambda growths: 0.0
    """Value of a step, in tokens, after so many growths."""
    serial: bool = False
    """True: the draft grows only while the target waits."""
    catch_up_seconds: float = 0.0
    """More before the first growth, for each root at which the draft has not grown."""
    behind: int = 0
    """Roots at which it has not."""
    now: float = 100.0

    def root(self) -> float:
        """One root and its step; seconds that were waited before it."""
        committed, growths = self.now, 0
        while self._waits(committed, growths):
            wait = self.policy.ongoing
            assert wait is not None
            assert self.now < wait.until, "a wait is given up at its deadline"
            seconds = self.growth_seconds + self.behind * self.catch_up_seconds
            if self.now + seconds >= wait.until:
                self.now = wait.until
            else:
                self.now += seconds
                growths += 1
                self._grow(growths, seconds)
            self.behind = 0
        waited = self.now - committed
        if not waited and not self.serial and self.growth_seconds < STEP_SECONDS:
            self._grow(1, self.growth_seconds)  # while the step runs
        self.behind += not waited
        self.now += STEP_SECONDS
        return waited

    def roots(self, count: int) -> list[bool]:
        """Which of so many roots were waited at."""
        return [self.root() > 0 for _ in range(count)]

    def _grow(self, growths: int, seconds: float) -> None:
        if growths > 1:
            self.policy.saw_period(seconds)
            return
        self.policy.saw_latency(seconds)
        if self.policy.wants_value(False):
            self.policy.saw_value(False, 1, self.worth(1))

    def _waits(self, committed: float, growths: int) -> bool:
        value = self.worth(growths)
        self.policy.saw_value(False, growths, value)
        since = self.now - committed
        return self.policy.should_wait([(False, growths)], value, self.rate, since, self.now)


def serial(**changes: Any) -> Target:
    """Make a target with a serial draft."""
    return Target(WaitPolicy.serial(), serial=True, **changes)


def pays(growths: int) -> float:
    """A draft whose first growth is worth a token."""
    return float(growths > 0)


def most_lost(roots: int, rate: float, maximum: float = MAX_LOSS) -> float:
    """Tokens: the maximum, what is added to it over so many roots, and the waits of one trial."""
    added = sum(1 / (FIRST_ROOTS + min(root, MAX_ROOTS)) for root in range(roots))
    return maximum * (1 + added) + TRIAL_ROOTS * rate * MAX_SECONDS


def test_a_draft_whose_growth_pays_is_waited_for_from_the_first_roots_on() -> None:
    target = Target(worth=pays, growth_seconds=0.0015)
    assert all(target.roots(2000)[1:])
    assert target.policy.realised_gain > 1000


def test_growth_that_is_not_waited_for_teaches_its_time_and_its_worth() -> None:
    target = Target(worth=pays, rate=DEAR)  # a millisecond costs a token
    assert not any(target.roots(200))
    assert target.policy.latency == pytest.approx(target.growth_seconds)
    assert target.policy.fresh.value[1] == pytest.approx(1.0, abs=0.05)
    assert (target.policy.seconds, target.policy.realised_gain) == (0.0, 0.0)


def test_a_link_that_becomes_faster_is_noticed_without_a_wait() -> None:
    target = Target(worth=pays, rate=DEAR, growth_seconds=0.002)
    assert not any(target.roots(500))
    target.growth_seconds = 0.0003
    assert all(target.roots(30)[20:])


def test_first_growths_are_valued_at_first_and_now_and_then() -> None:
    policy = WaitPolicy()
    wanted = []
    for _ in range(SAMPLES + 10 * SAMPLE_EVERY):
        assert not policy.should_wait([(False, 0)], 0.0, DEAR, 0.0, 0.0)
        wanted.append(policy.wants_value(False))
        if wanted[-1]:
            policy.saw_value(False, 1, 0.0)
    assert all(wanted[:SAMPLES])
    assert sum(wanted[SAMPLES:]) == 10


def test_a_serial_draft_is_tried_the_more_often_the_less_a_trial_may_lose() -> None:
    gaps = []
    for rate in (50.0, 200.0, 800.0):
        target = serial(rate=rate)  # a growth that brings nothing takes a millisecond
        target.roots(2000)  # what it is worth has been learnt
        waited = np.flatnonzero(target.roots(2000))
        gaps.append(float(np.diff(waited).mean()))
        assert gaps[-1] == pytest.approx(rate * 0.001 / TRIAL_SHARE, rel=0.3)
    assert gaps == sorted(gaps)


def test_a_stall_of_a_serial_draft_does_not_end_its_waits() -> None:
    target = serial(worth=pays, rate=700.0, catch_up_seconds=0.0001)
    assert all(target.roots(50))
    target.growth_seconds = 0.050
    target.roots(3)
    target.growth_seconds = 0.001
    assert all(target.roots(400)[300:])


def test_a_serial_draft_that_gets_better_is_found_out() -> None:
    target = serial(rate=300.0)
    target.roots(1000)
    target.worth = pays
    assert all(target.roots(1000)[900:])


def test_a_draft_that_is_seen_anyway_is_not_tried() -> None:
    target = Target(rate=DEAR)
    assert not any(target.roots(2000))
    target.growth_seconds = NEVER
    assert any(target.roots(2000))


def test_a_wait_is_given_up_at_its_deadline() -> None:
    target = serial(growth_seconds=NEVER)
    expected = target.policy.latency
    assert target.root() == pytest.approx(MAX_OVERTIME * expected)
    assert target.policy.ongoing is None
    assert target.policy.realised_gain == pytest.approx(-RATE * MAX_OVERTIME * expected)
    assert target.policy.latency > expected, "growth takes at least as long as was waited"


def test_no_wait_is_longer_than_the_longest() -> None:
    target = serial(growth_seconds=NEVER)
    target.policy.latency = 10.0
    assert target.root() == pytest.approx(MAX_SECONDS)


def test_a_wait_counts_its_time_and_what_it_brought() -> None:
    target = serial(growth_seconds=0.001, worth=pays)
    target.policy.period = 0.020  # so that a second growth is not worth its time
    assert target.root() == pytest.approx(0.001)
    assert target.policy.seconds == pytest.approx(0.001)
    assert target.policy.realised_gain == pytest.approx(1.0 - RATE * 0.001)


def test_losses_beyond_the_maximum_make_waits_ever_rarer() -> None:
    target = serial(growth_seconds=NEVER)
    target.policy = policy = WaitPolicy(spare=0.0)
    waited = []
    for root in range(20_000):
        policy.latency = 0.0025  # a wait that is given up loses a token
        policy.fresh.value[1:] = 5.0  # and is hoped for again and again
        if target.root():
            waited.append(root)
    gaps = np.diff(waited)
    assert (np.diff(gaps[:8]) > 0).all()
    every = int(MAX_ROOTS / MAX_LOSS)
    assert every <= gaps[-1] <= 1.05 * every


@pytest.mark.parametrize("growth_seconds", [0.0005, 0.003, 0.020, NEVER])
@pytest.mark.parametrize("is_serial", [False, True])
def test_a_draft_that_never_helps_costs_a_bounded_number_of_tokens(
    growth_seconds: float, is_serial: bool
) -> None:
    target = Target(growth_seconds=growth_seconds, serial=is_serial)
    target.roots(2000)
    lost = -target.policy.realised_gain
    target.roots(8000)
    assert 0 < lost <= -target.policy.realised_gain < most_lost(10_000, RATE) < 60


def test_a_serial_draft_that_long_lost_costs_little_and_is_found_out() -> None:
    target = serial(rate=300.0, catch_up_seconds=0.0001)
    target.roots(12_000)
    lost = -target.policy.realised_gain
    target.roots(8000)
    later = -target.policy.realised_gain - lost
    assert 0 < later < 8000 * target.policy.max_loss / (FIRST_ROOTS + MAX_ROOTS) + 4
    assert lost + later < most_lost(20_000, 300.0, target.policy.max_loss)
    target.worth = pays
    assert all(target.roots(4000)[3000:])


def test_a_serial_draft_that_never_answers_costs_a_bounded_number_of_tokens() -> None:
    target = serial(rate=300.0, growth_seconds=NEVER)
    target.roots(20_000)
    lost = -target.policy.realised_gain
    assert 0 < lost < most_lost(20_000, 300.0, target.policy.max_loss) < 260


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rate=st.sampled_from([20.0, RATE, 500.0]))
def test_whatever_a_draft_does_waits_lose_no_more_than_the_bound(seed: int, rate: float) -> None:
    random = np.random.default_rng(seed)
    target = Target(rate=rate)
    for _ in range(40):  # a draft that changes its ways and tempts again and again
        values = np.cumsum(random.exponential(random.choice([0.0, 0.3]), 200)).tolist()
        target.worth = values.__getitem__
        target.growth_seconds = float(random.choice([0.001, 0.005, 0.050, NEVER]))
        target.roots(50)
    assert target.policy.realised_gain >= -most_lost(2000, rate)


def test_a_draft_that_has_caught_up_is_found_out_at_once() -> None:
    target = Target()
    target.roots(600)
    assert not any(target.roots(50)), "it has not helped so far"
    target.worth = pays
    assert all(target.roots(200)[150:])


def test_credit_for_what_waits_brought_ends_at_the_maximum() -> None:
    target = Target(worth=pays)
    target.roots(1000)
    assert target.policy.spare == MAX_LOSS
    target.growth_seconds = NEVER
    gained = target.policy.realised_gain
    assert not all(target.roots(100))
    assert MAX_LOSS < gained - target.policy.realised_gain <= 2 * MAX_LOSS + RATE * MAX_SECONDS


def test_a_serial_draft_is_tried_at_once_whatever_is_expected() -> None:
    target = serial(rate=DEAR, growth_seconds=0.0001)
    trials = target.policy.trials
    assert target.roots(trials + 10) == [True] * trials + [False] * 10


def test_stopping_where_nothing_is_waited_for_counts_nothing() -> None:
    policy = WaitPolicy()
    policy.stop(5.0, RATE, 1.0)
    assert (policy.seconds, policy.realised_gain, policy.spare) == (0.0, 0.0, MAX_LOSS)


def test_a_wait_that_is_broken_off_counts_what_was_seen_of_it_last() -> None:
    policy = WaitPolicy.serial()
    assert policy.should_wait([(False, 0)], 0.5, RATE, 0.0, 1.0)
    assert policy.should_wait([(False, 0)], 1.5, RATE, 0.001, 1.001)
    policy.break_off(1.003)
    assert policy.ongoing is None
    assert policy.seconds == pytest.approx(0.003)
    assert policy.realised_gain == pytest.approx(1.0 - RATE * 0.003)
    policy.break_off(1.004)
    assert policy.seconds == pytest.approx(0.003), "it is counted once"


def test_what_trees_are_worth_is_learnt_by_growths_apart_for_roots_without_rows_and_with() -> None:
    policy = WaitPolicy()
    supplied, beyond = policy.supplied.value.copy(), float(policy.fresh.value[4])
    for _ in range(300):
        policy.saw_value(False, 1, 0.7)
        policy.saw_value(False, 3, 2.0)
    assert policy.fresh.value[[1, 3]] == pytest.approx([0.7, 2.0], abs=1e-3)
    assert policy.fresh.value[4] > beyond, "what was not seen yet follows what was"
    assert policy.supplied.value.tolist() == supplied.tolist()


def test_a_serial_draft_is_waited_for_longer_once_that_was_seen_to_pay():
    """What a second growth brings is never seen unless it is waited for: the prior thinks little
    of it after a first growth that brought less than the prior had hoped for."""
    values = (0.0, 0.25, 0.75, 0.8)
    target = Target(
        policy=WaitPolicy.serial(),
        rate=150.0,
        worth=lambda growths: values[min(growths, 3)],
        serial=True,
    )
    target.roots(20 * FURTHER_EVERY)
    waited = [target.root() for _ in range(FURTHER_EVERY)]
    assert np.median(waited) == pytest.approx(0.002)
    assert max(waited) == pytest.approx(0.003), "and a third is still looked at now and then"
