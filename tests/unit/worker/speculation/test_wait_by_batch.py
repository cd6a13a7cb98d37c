"""Wait policies by batch size: each learns alone, and every wait is counted once."""

from typing import Any

import pytest

from outrider.worker.messages import Cancel
from outrider.worker.speculation.wait import WaitPolicy, WaitPolicyByBatch
from outrider.worker.target.scheduler import TargetScheduler
from tests.unit.worker.one_process import OneProcess
from tests.unit.worker.pair import DRAFT_SECONDS

RATE = 100.0
"""Tokens a second."""
PROMPT = [1, 2, 3, 4, 5]


def wait_once(policy: WaitPolicy, now: float, seconds: float = 0.001, brings: float = 1.0) -> None:
    """One wait at a root, and what it brings in tokens."""
    begin(policy, now)
    policy.saw_latency(seconds)
    policy.stop(brings, RATE, now + seconds)


def begin(policy: WaitPolicy, now: float) -> None:
    """Begin a wait, whatever the policy expects."""
    policy.trials = 1
    assert policy.should_wait([(False, 0)], 0.0, RATE, 0.0, now)


def learn_that_waits_lose(by_batch: WaitPolicyByBatch, sequences: int) -> None:
    """A busy time in which growth takes for ever and is worth nothing."""
    for root in range(10_000):
        now, policy = float(root), by_batch.of(sequences, float(root))
        policy.saw_value(False, 0, 0.0)
        if policy.should_wait([(False, 0)] * sequences, 0.0, RATE, 0.0, now):
            assert policy.ongoing is not None
            policy.should_wait([(False, 0)] * sequences, 0.0, RATE, 0.1, policy.ongoing.until)


def waits(policy: WaitPolicy, roots: int) -> list[bool]:
    """Return at which of so many roots a sequence waits, if the first growth brings a token."""
    found = []
    for root in range(roots):
        now = 20_000.0 + root
        found.append(policy.should_wait([(False, 0)], 0.0, RATE, 0.0, now))
        policy.saw_latency(0.001)
        policy.saw_value(False, 1, 1.0)
        policy.stop(1.0, RATE, now + 0.001)
    return found


@pytest.mark.parametrize("start", [WaitPolicy, WaitPolicy.serial])
def test_after_a_busy_time_a_sequence_alone_waits_as_if_there_had_been_none(start: Any) -> None:
    by_batch = WaitPolicyByBatch(start)
    learn_that_waits_lose(by_batch, 16)
    assert by_batch.realised_gain < -10 * RATE * 0.001, "waits did lose"
    assert not any(waits(by_batch.of(16, 0.0), 100)), "and are not tried for a while"
    alone = waits(by_batch.of(1, 0.0), 1000)
    assert alone == waits(start(), 1000)
    assert all(alone[-100:])


def test_numbers_of_sequences_between_two_powers_of_two_share_their_experience() -> None:
    by_batch = WaitPolicyByBatch()
    sizes = ((1,), (2,), (3, 4), (5, 6, 7, 8))
    policies = [{id(by_batch.of(n, 0.0)) for n in one} for one in sizes]
    assert [len(one) for one in policies] == [1, 1, 1, 1]
    assert len(set.union(*policies)) == 4
    assert by_batch.of(9, 0.0) is by_batch.of(16, 0.0) is not by_batch.of(17, 0.0)


def test_what_waits_took_and_brought_adds_up_over_batch_sizes() -> None:
    by_batch = WaitPolicyByBatch()
    assert (by_batch.seconds, by_batch.predicted_gain, by_batch.realised_gain) == (0.0, 0.0, 0.0)
    predicted = 0.0
    for count, sequences in enumerate((1, 4, 16), start=1):
        policy = by_batch.of(sequences, float(count))
        policy.fresh.value[1] = 0.5 * count
        wait_once(policy, float(count), seconds=0.001 * count, brings=float(count))
        predicted += policy.predicted_gain
    assert by_batch.seconds == pytest.approx(0.006)
    assert by_batch.realised_gain == pytest.approx(6.0 - RATE * 0.006)
    assert by_batch.predicted_gain == pytest.approx(predicted)
    assert predicted > by_batch.of(1, 9.0).predicted_gain > 0


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 4), (16, 1)])
def test_a_wait_ends_and_is_counted_where_it_began_when_sequences_come_or_go(
    before: int, after: int
) -> None:
    by_batch = WaitPolicyByBatch(WaitPolicy.serial)
    began = by_batch.of(before, 1.0)
    roots = [(False, 0)] * before
    assert began.should_wait(roots, 0.25, RATE, 0.0, 1.0)
    assert by_batch.ongoing is not None
    assert by_batch.of(before, 1.001) is began, "the same sequences still wait"
    assert by_batch.ongoing is not None
    assert began.should_wait(roots, 1.25, RATE, 0.001, 1.001), "for more; a token has come"
    by_batch.of(after, 1.002)
    assert by_batch.ongoing is began.ongoing is None
    assert began.seconds == by_batch.seconds == pytest.approx(0.002)
    assert began.realised_gain == pytest.approx(1.0 - RATE * 0.002)


def test_a_batch_size_starts_with_the_times_of_the_nearest_smaller_one_that_knows_any() -> None:
    by_batch = WaitPolicyByBatch()
    by_batch.of(4, 0.0)  # has seen no growth
    for sequences, latency in ((1, 0.004), (2, 0.006), (16, 0.030)):
        policy = by_batch.of(sequences, 1.0)
        wait_once(policy, 1.0)
        policy.latency, policy.period = latency, latency / 2
    met = by_batch.of(8, 2.0)
    assert (met.latency, met.period) == (0.006, 0.003)


def test_a_smaller_batch_does_not_start_with_the_times_of_a_larger_one() -> None:
    by_batch = WaitPolicyByBatch()
    heavy = by_batch.of(16, 1.0)
    wait_once(heavy, 1.0)
    heavy.latency = heavy.period = 0.1
    alone, fresh = by_batch.of(1, 2.0), WaitPolicy()
    assert (alone.latency, alone.period) == (fresh.latency, fresh.period)


def test_a_larger_batch_begins_with_what_growth_has_brought_and_without_trials() -> None:
    by_batch = WaitPolicyByBatch(WaitPolicy.serial)
    alone = by_batch.of(1, 1.0)
    for _ in range(50):
        alone.saw_value(False, 1, 0.25)
    alone.timed = True
    more = by_batch.of(8, 2.0)
    assert more.fresh.value.tolist() == alone.fresh.value.tolist()
    assert alone.fresh.seen[1] == 50 > more.fresh.seen[1] > 0
    assert more.trials == 0 < alone.trials


def test_known_step_costs_are_the_first_times_and_bound_later_ones() -> None:
    by_batch = WaitPolicyByBatch(WaitPolicy.serial, growth_seconds=lambda count: 0.01 * count)
    policy = by_batch.of(4, 1.0)
    policy.trials = 0
    assert (policy.latency, policy.period) == (0.04, 0.04)
    for _ in range(50):
        policy.saw_latency(1.0)  # prompts were computed in these passes
    roots, value = [(False, 0)] * 4, 0.0
    assert policy.should_wait(roots, value, rate=15.0, since_commit=0.0, now=2.0)
    policy.stop(0.0, 15.0, 3.0)
    assert policy.realised_gain > -1.0, "and what they took is no loss by the wait"


class Slow(OneProcess):
    """A draft that is worth a wait for one sequence, and not for eight."""

    def turn(self, seconds: float = 0.010, draft_seconds: float = 2 * DRAFT_SECONDS) -> None:
        super().turn(seconds, draft_seconds)


def tokens_a_pass(pair: OneProcess, request: int) -> float:
    """Of one request that ends."""
    usage = pair.run(request).usage
    return (usage.completion_tokens - 1) / usage.passes


def test_one_request_after_a_busy_time_writes_as_many_tokens_a_pass_as_in_a_fresh_pair() -> None:
    fresh = Slow(running=8)
    fresh.submit(PROMPT, 100)
    expected = tokens_a_pass(fresh, 1)
    pair = Slow(running=8)
    for request in range(2, 10):
        pair.submit([request, 2, 3], 80, request)
    busy = [tokens_a_pass(pair, request) for request in range(2, 10)]
    pair.submit(PROMPT, 100)
    assert tokens_a_pass(pair, 1) > 0.9 * expected > 1.6
    assert max(busy) < 1.3, "under load waiting loses"


@pytest.mark.parametrize("sequences", [1, 2, 3, 8])
def test_a_draft_in_the_same_process_is_tried_at_once_at_every_batch_size(sequences: int) -> None:
    pair = OneProcess(running=8)
    for request in range(1, sequences + 1):
        pair.submit([request, 2, 3], 30, request)
    while min((s.generated for s in pair.target.admission.running), default=0) == 0:
        pair.turn()
    present = pair.target.row_selector.wait_policy.of(sequences, pair.now)
    assert present.looks_further
    assert present.trials > 0


def test_time_and_hopes_that_are_reported_never_fall_as_requests_come_and_go() -> None:
    pair = Slow(running=4)
    for request in range(1, 9):
        pair.submit([request, 2, 3], 10 * request, request)
    reported = [(0.0, 0.0)]
    while pair.target.admission.running or pair.target.admission.waiting:
        pair.turn()
        counters = pair.target.report().counters
        reported.append((counters.draft_wait_seconds, counters.wait_gain_predicted))
    for values in zip(*reported, strict=True):
        assert list(values) == sorted(values)
        assert values[-1] > 0


def waiting(pair: OneProcess, sequences: int) -> TargetScheduler:
    """Submit so many requests and run until their target waits for growth."""
    for request in range(1, sequences + 1):
        pair.submit([request, 2, 3], 200, request)
    target = pair.target
    for _ in range(100):
        pair.turn()
        decoding = [s for s in target.admission.running if s.generated > 0]
        if len(decoding) == sequences and target.row_selector.wait_policy.ongoing is not None:
            return target
    raise AssertionError("the target never waits")


def test_a_wait_of_two_sequences_is_counted_when_one_of_them_leaves() -> None:
    pair = OneProcess(running=2)
    target = waiting(pair, 2)
    policy = target.row_selector.wait_policy
    since = policy.ongoing.since  # type: ignore[union-attr]
    of_two, before = policy.present, policy.present.seconds
    target.receive(Cancel(1), pair.now)
    target.next(pair.now)
    assert of_two.ongoing is None
    assert policy.present is not of_two
    assert of_two.seconds == pytest.approx(before + pair.now - since)
    assert target.report().counters.draft_wait_seconds == policy.seconds >= of_two.seconds > 0


def test_a_wait_is_counted_when_only_a_sequence_in_its_prompt_is_left() -> None:
    pair = OneProcess(running=2)
    target = waiting(pair, 1)
    policy = target.row_selector.wait_policy
    since, before = policy.ongoing.since, policy.seconds  # type: ignore[union-attr]
    pair.submit(list(range(40)), 20, request=2)
    target.admission.admit(pair.now)
    target.receive(Cancel(1), pair.now)
    step = target.next(pair.now)
    assert step is not None
    assert step.decoding_count == 0
    assert target.max_wait(pair.now) is None, "nothing is waited for"
    assert policy.seconds == pytest.approx(before + pair.now - since)


def test_a_wait_is_counted_when_the_last_sequence_leaves() -> None:
    pair = OneProcess(running=2)
    target = waiting(pair, 1)
    policy = target.row_selector.wait_policy
    since, before = policy.ongoing.since, policy.seconds  # type: ignore[union-attr]
    target.receive(Cancel(1), pair.now)
    assert policy.ongoing is None
    assert policy.seconds == pytest.approx(before + pair.now - since)
