"""Waits for growth: when a target waits, and how much it may lose by that."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.worker.speculation.wait import (
    FIRST_REST,
    MAX_LOSS,
    MAX_OVERTIME,
    MAX_REST,
    MAX_SECONDS,
    PROBE_LENGTH,
    REST_GROWTH,
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
    now: float = 100.0

    def root(self) -> float:
        """One root and its step; seconds that were waited before it."""
        committed, growths = self.now, 0
        while self._waits(committed, growths):
            wait = self.policy.ongoing
            assert wait is not None
            assert self.now < wait.until, "a wait is given up at its deadline"
            if self.now + self.growth_seconds >= wait.until:
                self.now = wait.until
            else:
                self.now += self.growth_seconds
                growths += 1
                self.policy.saw_growth(growths, self.now - committed, self.now)
        waited = self.now - committed
        self.now += STEP_SECONDS
        return waited

    def roots(self, count: int) -> list[bool]:
        """Which of so many roots were waited at."""
        return [self.root() > 0 for _ in range(count)]

    def _waits(self, committed: float, growths: int) -> bool:
        value = self.worth(growths)
        self.policy.saw_value(False, growths, value)
        since = self.now - committed
        return self.policy.should_wait([(False, growths)], value, self.rate, since, self.now)


def pays(growths: int) -> float:
    """A draft whose first growth is worth a token."""
    return float(growths > 0)


def rests_within(roots: int) -> int:
    """Count the losses beyond the maximum that fit among so many roots: each begins a rest."""
    rest, count, left = float(FIRST_REST), 0, roots - FIRST_REST
    while left > 0:
        count, left, rest = count + 1, left - int(rest), min(MAX_REST, REST_GROWTH * rest)
    return count


def most_lost(roots: int, rate: float) -> float:
    """Tokens: with each rest, and once after the last one, the maximum and one wait beyond it."""
    return (rests_within(roots) + 1) * (MAX_LOSS + rate * MAX_SECONDS)


def test_a_start_rests_then_probes_then_believes_what_it_saw() -> None:
    target = Target(rate=DEAR, growth_seconds=0.0001)
    assert target.roots(FIRST_REST) == [False] * FIRST_REST
    assert target.roots(PROBE_LENGTH) == [True] * PROBE_LENGTH
    assert target.policy.realised_gain > -MAX_LOSS, "the probe cost too little for a rest"
    assert target.roots(FIRST_REST - 1) == [False] * (FIRST_REST - 1)


def test_a_probe_comes_back_after_ever_longer() -> None:
    target = Target(rate=DEAR, growth_seconds=0.00005)  # all probes cost less than the allowance
    waited = np.flatnonzero(target.roots(5000))
    probes = waited.reshape(-1, PROBE_LENGTH)
    assert probes.tolist() == [list(range(p[0], p[0] + PROBE_LENGTH)) for p in probes]
    gaps = np.diff(probes[:, 0]) - PROBE_LENGTH
    assert gaps.tolist() == [FIRST_REST * REST_GROWTH**i for i in range(5)]


def test_a_wait_is_given_up_at_its_deadline() -> None:
    target = Target(WaitPolicy.serial(), growth_seconds=NEVER)
    expected = target.policy.latency
    assert target.root() == pytest.approx(MAX_OVERTIME * expected)
    assert target.policy.ongoing is None
    assert target.policy.realised_gain == pytest.approx(-RATE * MAX_OVERTIME * expected)
    assert target.policy.latency > expected, "growth takes at least as long as was waited"


def test_no_wait_is_longer_than_the_longest() -> None:
    target = Target(WaitPolicy.serial(), growth_seconds=NEVER)
    target.policy.latency = 10.0
    assert target.root() == pytest.approx(MAX_SECONDS)


def test_a_wait_counts_its_time_and_what_it_brought() -> None:
    target = Target(WaitPolicy.serial(), growth_seconds=0.001, worth=pays)
    target.policy.period = 0.020  # so that a second growth is not worth its time
    assert target.root() == pytest.approx(0.001)
    assert target.policy.seconds == pytest.approx(0.001)
    assert target.policy.realised_gain == pytest.approx(1.0 - RATE * 0.001)


def test_losses_beyond_the_maximum_lead_to_rests_that_double() -> None:
    target = Target(growth_seconds=NEVER)
    target.policy.latency = 0.020  # a wait that is given up loses more than the maximum
    waited = np.flatnonzero(target.roots(4000))
    gaps = np.diff(waited, prepend=-1) - 1
    doubling = [FIRST_REST * REST_GROWTH**i for i in range(len(gaps) - 1)]
    assert len(gaps) >= 5
    assert gaps.tolist() == [FIRST_REST, *doubling]


@pytest.mark.parametrize("growth_seconds", [0.0005, 0.003, 0.020, NEVER])
def test_a_draft_that_never_helps_costs_a_bounded_number_of_tokens(growth_seconds: float) -> None:
    target = Target(growth_seconds=growth_seconds)
    waited = np.flatnonzero(target.roots(10_000))
    assert 0 < -target.policy.realised_gain < most_lost(10_000, RATE) < 120
    assert np.diff(waited).max() > MAX_REST / 2, "rests have grown long"


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


def test_a_draft_whose_growth_pays_is_waited_for_at_every_root() -> None:
    target = Target(worth=pays)
    target.roots(FIRST_REST)
    assert all(target.roots(2000))
    assert target.policy.realised_gain > 1000


def test_a_draft_that_has_caught_up_is_found_out() -> None:
    target = Target()
    target.roots(600)
    assert not any(target.roots(50)), "it has not helped so far"
    target.worth = pays
    target.roots(2000)
    assert all(target.roots(100))


def test_credit_for_what_waits_brought_ends_at_the_maximum() -> None:
    target = Target(worth=pays)
    target.roots(1000)
    target.growth_seconds = NEVER
    gained = target.policy.realised_gain
    for _ in range(100):
        if target.policy.resting > 0:
            break
        target.root()
    lost = gained - target.policy.realised_gain
    assert 2 * MAX_LOSS < lost <= 2 * MAX_LOSS + RATE * MAX_SECONDS


def test_a_serial_draft_is_probed_at_once_whatever_is_expected() -> None:
    target = Target(WaitPolicy.serial(), rate=DEAR, growth_seconds=0.0001)
    probe = target.policy.probe_length
    assert target.roots(probe + 10) == [True] * probe + [False] * 10


def test_stopping_where_nothing_is_waited_for_counts_nothing() -> None:
    policy = WaitPolicy()
    policy.stop(5.0, RATE, 1.0)
    assert (policy.seconds, policy.realised_gain, policy.resting) == (0.0, 0.0, FIRST_REST)


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


def test_what_trees_are_worth_is_learnt_by_growths_apart_for_fall_ins_and_fall_outs() -> None:
    policy = WaitPolicy()
    survived, beyond = policy.survived.value.copy(), float(policy.fresh.value[4])
    for _ in range(300):
        policy.saw_value(False, 1, 0.7)
        policy.saw_value(False, 3, 2.0)
    assert policy.fresh.value[[1, 3]] == pytest.approx([0.7, 2.0], abs=1e-3)
    assert policy.fresh.value[4] > beyond, "what was not seen yet follows what was"
    assert policy.survived.value.tolist() == survived.tolist()
