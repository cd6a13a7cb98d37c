"""What is learnt of waits under one load says nothing at another, and every wait is booked once."""

from typing import Any

import pytest

from outrider.worker.messages import Cancel
from outrider.worker.speculation.wait import WaitPolicy
from outrider.worker.speculation.wait_by_batch import WaitPolicyByBatch
from outrider.worker.target.scheduler import TargetScheduler
from tests.unit.worker.one_process import OneProcess
from tests.unit.worker.pair import DRAFT_SECONDS

RATE = 100.0
"""Tokens a second."""
PROMPT = [1, 2, 3, 4, 5]


def wait_once(
    patience: WaitPolicy, now: float, seconds: float = 0.001, brings: float = 1.0
) -> None:
    """One wait at a root, and what it brings in tokens."""
    begin(patience, now)
    patience.saw_growth(1, seconds, now + seconds)
    patience.stop(brings, RATE, now + seconds)


def begin(patience: WaitPolicy, now: float) -> None:
    """Begins a wait, whatever is believed."""
    patience.resting, patience.probing = 0, 1
    assert patience.should_wait([(False, 0)], 0.0, RATE, 0.0, now)


def learn_that_waits_lose(by_load: WaitPolicyByBatch, sequences: int) -> None:
    """A busy time in which growth takes for ever and is worth nothing."""
    for root in range(10_000):
        now, patience = float(root), by_load.of(sequences, float(root))
        patience.saw_value(False, 0, 0.0)
        if patience.should_wait([(False, 0)] * sequences, 0.0, RATE, 0.0, now):
            assert patience.going_on is not None
            patience.should_wait([(False, 0)] * sequences, 0.0, RATE, 0.1, patience.going_on.until)


def waits(patience: WaitPolicy, roots: int) -> list[bool]:
    """At which of so many roots a sequence waits, if the first growth brings a token."""
    found = []
    for root in range(roots):
        now = 20_000.0 + root
        found.append(patience.should_wait([(False, 0)], 0.0, RATE, 0.0, now))
        patience.saw_growth(1, 0.001, now + 0.001)
        patience.saw_value(False, 1, 1.0)
        patience.stop(1.0, RATE, now + 0.001)
    return found


@pytest.mark.parametrize("start", [WaitPolicy, WaitPolicy.serial])
def test_after_a_busy_time_a_sequence_alone_waits_as_if_there_had_been_none(start: Any) -> None:
    by_load = WaitPolicyByBatch(start)
    learn_that_waits_lose(by_load, 16)
    assert by_load.realised_gain < -10 * RATE * 0.001, "waits did lose"
    assert not any(waits(by_load.of(16, 0.0), 100)), "and are not tried for a while"
    alone = waits(by_load.of(1, 0.0), 1000)
    assert alone == waits(start(), 1000)
    assert all(alone[-100:])


def test_numbers_of_sequences_between_two_powers_of_two_share_their_experience() -> None:
    by_load = WaitPolicyByBatch()
    loads = [{id(by_load.of(n, 0.0)) for n in one} for one in ((1,), (2,), (3, 4), (5, 6, 7, 8))]
    assert [len(one) for one in loads] == [1, 1, 1, 1]
    assert len(set.union(*loads)) == 4
    assert by_load.of(9, 0.0) is by_load.of(16, 0.0) is not by_load.of(17, 0.0)


def test_what_waits_took_and_brought_adds_up_over_loads() -> None:
    by_load = WaitPolicyByBatch()
    assert (by_load.seconds, by_load.predicted_gain, by_load.realised_gain) == (0.0, 0.0, 0.0)
    predicted = 0.0
    for count, sequences in enumerate((1, 4, 16), start=1):
        patience = by_load.of(sequences, float(count))
        patience.fresh.value[1] = 0.5 * count
        wait_once(patience, float(count), seconds=0.001 * count, brings=float(count))
        predicted += patience.predicted_gain
    assert by_load.seconds == pytest.approx(0.006)
    assert by_load.realised_gain == pytest.approx(6.0 - RATE * 0.006)
    assert by_load.predicted_gain == pytest.approx(predicted)
    assert predicted > by_load.of(1, 9.0).predicted_gain > 0


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 4), (16, 1)])
def test_a_wait_ends_and_is_booked_where_it_began_when_sequences_come_or_go(
    before: int, after: int
) -> None:
    by_load = WaitPolicyByBatch(WaitPolicy.serial)
    began = by_load.of(before, 1.0)
    roots = [(False, 0)] * before
    assert began.should_wait(roots, 0.25, RATE, 0.0, 1.0)
    assert by_load.going_on is not None
    assert by_load.of(before, 1.001) is began, "the same sequences still wait"
    assert by_load.going_on is not None
    assert began.should_wait(roots, 1.25, RATE, 0.001, 1.001), "for more; a token has come"
    by_load.of(after, 1.002)
    assert by_load.going_on is began.going_on is None
    assert began.seconds == by_load.seconds == pytest.approx(0.002)
    assert began.realised_gain == pytest.approx(1.0 - RATE * 0.002)


def test_a_load_starts_with_the_times_of_the_nearest_lighter_one_that_has_waited() -> None:
    by_load = WaitPolicyByBatch()
    by_load.of(4, 0.0)  # has never waited
    for sequences, latency in ((1, 0.004), (2, 0.006), (16, 0.030)):
        patience = by_load.of(sequences, 1.0)
        wait_once(patience, 1.0)
        patience.latency, patience.period = latency, latency / 2
    met = by_load.of(8, 2.0)
    assert (met.latency, met.period) == (0.006, 0.003)


def test_a_lighter_load_does_not_start_with_the_times_of_a_heavier_one() -> None:
    by_load = WaitPolicyByBatch()
    heavy = by_load.of(16, 1.0)
    wait_once(heavy, 1.0)
    heavy.latency = heavy.period = 0.1
    alone, fresh = by_load.of(1, 2.0), WaitPolicy()
    assert (alone.latency, alone.period) == (fresh.latency, fresh.period)


class Slow(OneProcess):
    """A draft that is worth a wait for one sequence, and not for eight."""

    def turn(self, seconds: float = 0.010, draft_seconds: float = 2 * DRAFT_SECONDS) -> None:
        """As `OneProcess.turn`."""
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
def test_a_draft_in_the_same_process_is_probed_at_once_at_every_load(sequences: int) -> None:
    pair = OneProcess(running=8)
    for request in range(1, sequences + 1):
        pair.submit([request, 2, 3], 30, request)
    while min((s.generated for s in pair.target.running), default=0) == 0:
        pair.turn()
    present = pair.target.row_selector.patience.of(sequences, pair.now)
    assert present.probe_length == WaitPolicy.serial().probe_length != WaitPolicy().probe_length
    assert present.resting == 0


def test_time_and_hopes_that_are_reported_never_fall_as_requests_come_and_go() -> None:
    pair = Slow(running=4)
    for request in range(1, 9):
        pair.submit([request, 2, 3], 10 * request, request)
    reported = [(0.0, 0.0)]
    while pair.target.running or pair.target.waiting:
        pair.turn()
        counters = pair.target.report().counters
        reported.append((counters.draft_wait_seconds, counters.wait_gain_predicted))
    for values in zip(*reported, strict=True):
        assert list(values) == sorted(values)
        assert values[-1] > 0


def waiting(pair: OneProcess, sequences: int) -> TargetScheduler:
    """Submits so many requests and runs until their target waits for growth."""
    for request in range(1, sequences + 1):
        pair.submit([request, 2, 3], 200, request)
    target = pair.target
    for _ in range(100):
        pair.turn()
        decoding = [s for s in target.running if s.generated > 0]
        if len(decoding) == sequences and target.row_selector.patience.going_on is not None:
            return target
    raise AssertionError("the target never waits")


def test_a_wait_of_two_sequences_is_booked_when_one_of_them_leaves() -> None:
    pair = OneProcess(running=2)
    target = waiting(pair, 2)
    patience = target.row_selector.patience
    since = patience.going_on.since  # type: ignore[union-attr]
    of_two, before = patience.present, patience.present.seconds
    target.receive(Cancel(1), pair.now)
    target.next(pair.now)
    assert of_two.going_on is None
    assert patience.present is not of_two
    assert of_two.seconds == pytest.approx(before + pair.now - since)
    assert target.report().counters.draft_wait_seconds == patience.seconds >= of_two.seconds > 0


def test_a_wait_is_booked_when_only_a_sequence_in_its_prompt_is_left() -> None:
    pair = OneProcess(running=2)
    target = waiting(pair, 1)
    patience = target.row_selector.patience
    since, before = patience.going_on.since, patience.seconds  # type: ignore[union-attr]
    pair.submit(list(range(40)), 20, request=2)
    target.admission.admit(pair.now)
    target.receive(Cancel(1), pair.now)
    step = target.next(pair.now)
    assert step is not None
    assert step.decoding_count == 0
    assert target.patience(pair.now) is None, "nothing is waited for"
    assert patience.seconds == pytest.approx(before + pair.now - since)


def test_a_wait_is_booked_when_the_last_sequence_leaves() -> None:
    pair = OneProcess(running=2)
    target = waiting(pair, 1)
    patience = target.row_selector.patience
    since, before = patience.going_on.since, patience.seconds  # type: ignore[union-attr]
    target.receive(Cancel(1), pair.now)
    assert patience.going_on is None
    assert patience.seconds == pytest.approx(before + pair.now - since)
