"""Streaming to a client: tokens go at once, or those of several passes together."""

import dataclasses
import math
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contract.inference import MAX_STREAM_INTERVAL_MS, STREAM_INTERVAL_MS
from outrider.worker.messages import Cancel, Finish, Finished, TokenLogprob, Tokens
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.speculation.test_speculation import PROMPT, Pair

STREAM_SECONDS = STREAM_INTERVAL_MS / 1000
START = 100.0
FAST = STREAM_SECONDS / 3.5
SLOW = STREAM_SECONDS * 1.25
TOGETHER = math.ceil(STREAM_SECONDS / FAST)
"""Fast passes in one message."""


def started(
    count: int,
    draft_passes: int = 0,
    prompt: Sequence[int] = PROMPT,
    **changes: Any,
) -> Pair:
    """A pair with one request, and a clock that has run for a while; without a draft's help."""
    pair = Pair(draft_passes=draft_passes, sampling=SamplingParams(temperature=0.5, seed=3))
    pair.now = START
    pair.submit(list(prompt), count, **changes)
    return pair


def turn(pair: Pair, seconds: float) -> None:
    """One pass of the target that takes so long, and the draft's passes, which take no time."""
    pair.turn(seconds, 0.0)


def finish(pair: Pair, seconds: float) -> Finished:
    """Turn until the request ends."""
    for _ in range(1000):
        if (end := pair.finished()) is not None:
            return end
        turn(pair, seconds)
    raise AssertionError("the request did not end")


def messages(pair: Pair, request: int = 1) -> list[Tokens]:
    """Return the messages that the client was sent."""
    return [m for m in pair.outbox if isinstance(m, Tokens) and m.request == request]


def test_the_first_token_goes_at_once_whatever_passes_take() -> None:
    pair = started(20)
    turn(pair, FAST)
    (first,) = messages(pair)
    assert (len(first.ids), first.passes) == (1, 1)
    assert first.ids == tuple(pair.expected(PROMPT, 1))


def test_a_long_prompt_s_passes_bring_no_message_and_count_for_none() -> None:
    prompt = [1 + i % 50 for i in range(150)]
    pair = started(20, prompt=prompt)
    turn(pair, FAST)
    turn(pair, FAST)
    assert messages(pair) == []
    turn(pair, FAST)
    assert [(len(m.ids), m.passes) for m in messages(pair)] == [(1, 1)]


def test_fast_passes_travel_together_and_are_counted() -> None:
    pair = started(1 + 3 * TOGETHER)
    finish(pair, FAST)
    sent = messages(pair)
    assert [m.passes for m in sent] == [1, TOGETHER, TOGETHER, TOGETHER]
    assert [len(m.ids) for m in sent] == [m.passes for m in sent], "plain decoding"
    assert pair.text() == pair.expected(PROMPT, 1 + 3 * TOGETHER)


def test_slow_passes_are_told_one_by_one() -> None:
    pair = started(20)
    for passes in range(1, 21):
        turn(pair, SLOW)
        assert [m.passes for m in messages(pair)] == [1] * passes
    assert pair.text() == pair.expected(PROMPT, 20)


def test_a_slow_pass_takes_the_fast_ones_before_it_along() -> None:
    pair = started(20)
    for seconds in (FAST, FAST, FAST, SLOW, SLOW):
        turn(pair, seconds)
    assert [m.passes for m in messages(pair)] == [1, 3, 1]


def test_passes_that_accept_nodes_count_as_passes_not_as_tokens() -> None:
    pair = started(100, draft_passes=6)
    end = finish(pair, FAST)
    sent = messages(pair)
    assert sum(m.passes for m in sent) == end.usage.passes + 1, "the prompt's own pass is none"
    assert {m.passes for m in sent[1:-1]} == {TOGETHER}
    assert sum(len(m.ids) for m in sent) > 1.3 * sum(m.passes for m in sent)
    assert pair.text() == pair.expected(PROMPT, 100)


@pytest.mark.parametrize("left", range(1, TOGETHER + 1))
def test_what_is_unsent_at_the_last_token_goes_before_the_end(left: int) -> None:
    pair = started(1 + TOGETHER + left)
    end = finish(pair, FAST)
    assert end.finish is Finish.LENGTH
    assert [m.passes for m in messages(pair)] == [1, TOGETHER, left]
    assert pair.text() == pair.expected(PROMPT, 1 + TOGETHER + left)
    assert pair.outbox[-1] is end


def test_what_is_unsent_at_an_end_token_goes_before_the_end() -> None:
    text = started(50).expected(PROMPT, 50)
    stop = next(i for i in range(TOGETHER, 50) if text.index(text[i]) == i and i % TOGETHER)
    pair = started(50, end_ids=(text[stop],))
    end = finish(pair, FAST)
    assert end.finish is Finish.STOP
    assert pair.text() == text[: stop + 1]
    assert pair.outbox[-1] is end


def test_what_is_unsent_at_a_cancel_goes_before_the_end() -> None:
    pair = started(50)
    for _ in range(3):
        turn(pair, FAST)
    assert [m.passes for m in messages(pair)] == [1], "two passes are held back"
    pair.target.receive(Cancel(1), pair.now)
    assert [m.passes for m in messages(pair)] == [1, 2]
    assert pair.text() == pair.expected(PROMPT, 3)
    assert isinstance(pair.outbox[-1], Finished)


def test_what_is_unsent_at_a_failed_pass_goes_before_the_end() -> None:
    pair = started(50)
    for _ in range(3):
        turn(pair, FAST)
    step = pair.target.next(pair.now, may_wait=False)
    assert step is not None
    pair.target.fail(step, "it broke", pair.now)
    assert pair.text() == pair.expected(PROMPT, 3)
    assert isinstance(pair.outbox[-1], Finished)
    assert pair.outbox[-1].finish is Finish.FAILED


def test_an_end_with_nothing_unsent_sends_no_empty_message() -> None:
    pair = started(50)
    for _ in range(3):
        turn(pair, SLOW)
    pair.target.receive(Cancel(1), pair.now)
    assert [m.passes for m in messages(pair)] == [1, 1, 1]


def test_a_request_that_wants_each_token_at_once_is_sent_a_message_a_pass() -> None:
    pair = started(20, stream_seconds=0.0)
    finish(pair, FAST)
    assert [m.passes for m in messages(pair)] == [1] * 20


def test_an_answer_that_is_read_at_its_end_comes_in_few_messages_and_whole() -> None:
    seconds = MAX_STREAM_INTERVAL_MS / 1000
    pair = started(120, stream_seconds=seconds)
    finish(pair, 1.01 * seconds / 50)
    assert [m.passes for m in messages(pair)] == [1, 50, 50, 19]
    assert pair.text() == pair.expected(PROMPT, 120)


def test_answers_that_began_apart_soon_have_their_messages_in_the_same_passes() -> None:
    pair = started(200)
    turn(pair, FAST)
    turn(pair, FAST)
    pair.submit(list(reversed(PROMPT)), 200, request=2)
    passes_with_messages: list[set[int]] = []
    for _ in range(40):
        before = len(pair.outbox)
        turn(pair, FAST)
        sent = {m.request for m in pair.outbox[before:] if isinstance(m, Tokens)}
        passes_with_messages += [sent] if sent else []
    assert passes_with_messages[4:] == [{1, 2}] * len(passes_with_messages[4:])
    assert {m.passes for m in messages(pair, 2)[3:]} == {TOGETHER}, "none goes sooner than it must"


def test_what_waits_for_long_goes_along_and_what_has_just_gone_does_not() -> None:
    pair = started(200, stream_seconds=7.5 * FAST)
    pair.submit(list(reversed(PROMPT)), 200, request=2, stream_seconds=0.9 * FAST)
    for _ in range(9):
        turn(pair, FAST)
    assert [m.passes for m in messages(pair, 2)] == [1] * 9
    assert [m.passes for m in messages(pair)] == [1, 4, 4]


def test_tokens_are_pickled_with_all_that_they_hold() -> None:
    tokens = Tokens(7, (1, 2), (1, 1), (TokenLogprob(-0.5, ((1, -0.5),)), TokenLogprob(-1.0, ())))
    assert pickle.loads(pickle.dumps(tokens)) == tokens
    fields = (f.name for f in dataclasses.fields(Tokens))
    assert tokens.__reduce__()[1] == tuple(getattr(tokens, name) for name in fields)


@settings(max_examples=40, deadline=None)
@given(
    seconds=st.lists(st.floats(0.0, 2 * STREAM_SECONDS), min_size=1, max_size=40),
    draft_passes=st.integers(0, 4),
    count=st.integers(1, 40),
)
def test_no_timing_loses_a_token_or_a_pass(
    seconds: list[float], draft_passes: int, count: int
) -> None:
    pair = started(count, draft_passes)
    for length in seconds:
        turn(pair, length)
    end = finish(pair, seconds[-1])
    sent = messages(pair)
    assert pair.text() == pair.expected(PROMPT, count)
    assert sum(m.passes for m in sent) == end.usage.passes + 1
    assert all(m.ids and 1 <= m.passes <= len(m.ids) for m in sent)
