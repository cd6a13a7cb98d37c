"""Latencies, goodput and wrong texts follow from what came and when."""

import json
import os
from collections.abc import Sequence

import pytest

from outrider.cli.failures import BadInput
from outrider.cli.load.answer import Broken, StreamedAnswer
from outrider.cli.load.exchange import retry_after
from outrider.cli.load.memory import MemoryWatch, growth, watch
from outrider.cli.load.outcome import Outcome, Status
from outrider.cli.load.plot import throughput
from outrider.cli.load.prompts import Turn
from outrider.cli.load.slo import goodput, objectives
from outrider.cli.load.summary import summary
from outrider.cli.load.texts import compare
from outrider.cli.load.workload import Job


def data(event: object) -> str:
    return f"data: {json.dumps(event)}"


def chunk(text: str | None, reason: str | None = None, tokens: int | None = None) -> str:
    choices = [{"delta": {"content": text}, "finish_reason": reason}]
    reported = {} if tokens is None else {"usage": {"completion_tokens": tokens}}
    return data({"choices": choices, **reported})


def outcome(
    pieces: Sequence[tuple[float, str]] = (),
    *,
    tokens: int | None = None,
    status: Status = Status.COMPLETED,
    sent: float = 0.0,
    pair: int | None = None,
    reason: str = "stop",
) -> Outcome:
    answer = StreamedAnswer()
    for at, text in pieces:
        answer.take(chunk(text), at)
    answer.take(chunk(None, reason if status is Status.COMPLETED else None, tokens), 0)
    job = Job(turns=(Turn("user", "Hi"),), max_tokens=9, seed=3, temperature=0, pair=pair)
    ended = pieces[-1][0] if pieces else sent
    return Outcome(job=job, status=status, due=sent, sent=sent, ended=ended, answer=answer)


def test_an_answer_is_read_from_its_events() -> None:
    answer = StreamedAnswer()
    answer.take(": ping", 0)
    answer.take("", 0)
    answer.take(data({"choices": [{"delta": {"role": "assistant", "content": ""}}]}), 1)
    answer.take(chunk("Grü"), 2)
    answer.take(chunk("ße", "stop"), 3)
    assert (answer.text, answer.finish_reason) == ("Grüße", "stop")
    assert [one.at for one in answer.chunks] == [2, 3]
    assert answer.tokens == 2
    answer.take(data({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 5}}), 4)
    answer.take("data: [DONE]", 4)
    assert (answer.tokens, answer.done) == (5, True)


@pytest.mark.parametrize("line", ["data: {", "data: 5", 'data: {"choices": [7]}', "data:"])
def test_what_is_no_event_is_named(line: str) -> None:
    with pytest.raises(Broken, match="no chat completion chunk"):
        StreamedAnswer().take(line, 0)


def test_an_error_in_the_stream_is_named() -> None:
    with pytest.raises(Broken, match="error in the stream: worker lost"):
        StreamedAnswer().take(data({"error": {"message": "worker lost"}}), 0)


def test_latencies_count_tokens_not_chunks() -> None:
    one = outcome([(1.5, "a"), (2.5, "b"), (3.5, "c")], tokens=6, sent=1.0)
    assert one.ttft == 0.5
    assert one.tpot == pytest.approx(2 / 5)
    assert one.gaps == [1, 1]
    assert one.token_gaps == [(0.5, 2), (0.5, 2)]
    assert one.latency == 2.5


def test_usage_in_every_chunk_gives_the_tokens_of_each() -> None:
    answer = StreamedAnswer()
    for at, tokens in ((1.0, 1), (2.0, 5), (4.0, 6)):
        answer.take(chunk("x", None, tokens), at)
    assert [one.tokens for one in answer.chunks] == [1, 4, 1]


def test_an_answer_without_text_has_no_latencies() -> None:
    one = outcome()
    assert (one.ttft, one.tpot, one.slowest_tokens, one.token_gaps) == (None, None, None, [])


def test_goodput_counts_what_met_every_objective() -> None:
    fast = outcome([(0.1, "a"), (0.2, "b")])
    slow_start = outcome([(0.9, "a"), (1.0, "b")])
    stalls = outcome([(0.1, "a"), (0.9, "b")])
    rejected = outcome(status=Status.REJECTED)
    left = outcome([(9.0, "a")], status=Status.CANCELLED)
    outcomes = [fast, slow_start, stalls, rejected, left]
    assert goodput(outcomes, objectives("ttft=0.5")) == 2 / 4
    assert goodput(outcomes, objectives("ttft=0.5, itl=0.2")) == 1 / 4
    assert goodput(outcomes, objectives("latency=1")) == 3 / 4
    assert goodput([left], objectives("ttft=1")) is None


@pytest.mark.parametrize(
    "words", ["", "ttft", "ttft=", "ttft=x", "e2e=1", "itl=0", "ttft=nan", "a"]
)
def test_a_wrong_objective_is_refused(words: str) -> None:
    with pytest.raises(BadInput, match=r"--slo .* allowed: .*ttft"):
        objectives(words)


def test_a_sum_has_every_request_once() -> None:
    cut = outcome([(1, "a"), (3, "b")], status=Status.CANCELLED)
    run = summary([outcome([(1, "a"), (4, "b")], tokens=4), cut, outcome(status=Status.FAILED)])
    assert (run.sent, run.completed, run.cancelled, run.failed) == (3, 1, 1, 1)
    assert (run.duration, run.request_rate, run.token_rate) == (4, 1 / 4, 6 / 4)
    assert run.tokens_reported
    assert run.latency is not None
    assert run.latency.n == 1


def test_a_run_that_measured_nothing_has_a_summary() -> None:
    run = summary([])
    assert (run.sent, run.duration, run.token_rate, run.ttft) == (0, 0, 0, None)


def test_throughput_is_spread_over_the_run() -> None:
    rates, width = throughput([outcome([(0.5, "a"), (2.5, "b")], tokens=4)])
    assert (rates, width) == ([1.6, 1.6], 1.25)
    assert throughput([outcome()]) == ([0], 1)


def test_answers_to_the_same_question_must_be_the_same() -> None:
    first = outcome([(1, "one two three")], pair=1)
    same = outcome([(1, "one "), (2, "two three")], pair=1)
    cut = outcome([(1, "one tw")], pair=1, status=Status.CANCELLED)
    other = outcome([(1, "something else")], pair=2)
    unchecked = outcome([(1, "x")])
    found = compare([cut, first, same, other, unchecked])
    assert (found.pairs, found.compared, found.differences) == (2, 2, ())


@pytest.mark.parametrize(
    ("text", "status", "reason", "at"),
    [
        ("one twO three", Status.COMPLETED, "stop", 6),
        ("one two", Status.COMPLETED, "stop", 7),
        ("one two three", Status.COMPLETED, "length", 13),
        ("one tWo", Status.CANCELLED, "stop", 5),
        ("one two three four", Status.FAILED, "stop", 13),
    ],
)
def test_a_wrong_text_is_found(text: str, status: Status, reason: str, at: int) -> None:
    first = outcome([(1, "one two three")], pair=1)
    found = compare([first, outcome([(1, text)], pair=1, status=status, reason=reason)])
    assert [one.at for one in found.differences] == [at]


def test_growth_compares_the_first_fifth_with_the_last() -> None:
    mib = 2**20
    samples = [100 * mib] * 2 + [500 * mib] * 6 + [110 * mib] * 2
    grown = growth(7, samples, False)
    assert (grown.first_mib, grown.last_mib) == (100, 110)
    assert grown.percent == pytest.approx(10)


def test_the_memory_of_a_process_is_sampled_until_it_ends() -> None:
    memory = watch([os.getpid()])
    memory.sample()
    assert memory.growth()[0].first_mib > 5
    gone = MemoryWatch([2**22 + 1])
    gone.sample()
    assert (gone.ended, gone.growth()) == ({2**22 + 1}, [])
    with pytest.raises(BadInput, match="--watch-rss 4194305: no such process"):
        watch([2**22 + 1])


def test_a_retry_after_is_read_as_seconds() -> None:
    assert [retry_after(text) for text in ("3", "0.5", "-1", None, "Wed, 21 Oct")] == [
        3,
        0.5,
        0,
        1,
        1,
    ]
