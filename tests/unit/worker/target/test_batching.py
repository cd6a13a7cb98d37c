"""Many requests in one pass: every text is the one that its request gets alone."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.messages import Cancel, Finish
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.fakes import VOCABULARY
from tests.unit.worker.pair import PASS_SECONDS, Pair

SAMPLINGS = (
    SamplingParams(),
    SamplingParams(temperature=0.8, seed=7),
    SamplingParams(temperature=1.0, top_k=12, top_p=0.9, min_p=0.02, seed=2**63 + 5),
)


@dataclass(frozen=True)
class Request:
    """One request of a schedule."""

    number: int
    prompt: list[int]
    count: int
    sampling: SamplingParams
    arrives: int
    """Turn."""
    priority: int = 0
    leaves: int | None = None
    """Turns after its arrival at which its client goes away."""


requests = st.builds(
    Request,
    number=st.just(0),
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=150),
    count=st.integers(1, 60),
    sampling=st.sampled_from(SAMPLINGS),
    arrives=st.integers(0, 30),
    priority=st.sampled_from([0, 0, 0, 5, -5]),
    leaves=st.one_of(st.none(), st.none(), st.integers(0, 40)),
)


def play(pair: Pair, schedule: list[Request], most: int = 3000) -> None:
    """Run a schedule until nothing is left."""
    for turn in range(most):
        for request in schedule:
            if request.arrives == turn:
                pair.submit(
                    request.prompt,
                    request.count,
                    request.number,
                    sampling=request.sampling,
                    priority=request.priority,
                )
            if request.leaves is not None and request.arrives + request.leaves == turn:
                pair.target.receive(Cancel(request.number), pair.now)
        if all(pair.finished(request.number) for request in schedule):
            return
        pair.turn()
    raise AssertionError("not every request ended")


def assert_texts(pair: Pair, schedule: list[Request]) -> None:
    """All that finished is solo text, all that was cancelled its beginning."""
    for request in schedule:
        text = pair.text(request.number)
        alone = pair.target_model.text(
            request.prompt, Sampler(VOCABULARY), request.sampling, request.count
        )
        finish = pair.finished(request.number)
        assert finish is not None
        if finish.finish is Finish.CANCELLED:
            assert request.leaves is not None
            assert text == alone[: len(text)]
        else:
            assert finish.finish is Finish.LENGTH
            assert text == alone


@settings(max_examples=30, deadline=None)
@given(
    schedule=st.lists(requests, min_size=1, max_size=16),
    running=st.integers(1, 16),
    blocks=st.integers(0, 40),
    noise=st.floats(0, 2),
    passes=st.integers(0, 8),
    lag=st.integers(0, 3),
)
def test_no_mixture_of_requests_changes_any_text(
    schedule: list[Request], running: int, blocks: int, noise: float, passes: int, lag: int
) -> None:
    numbered = [Request(**{**vars(r), "number": n}) for n, r in enumerate(schedule, start=1)]
    pair = Pair(noise=noise, draft_passes=passes, lag=lag, running=running, spare_blocks=blocks)
    play(pair, numbered)
    assert_texts(pair, numbered)
    assert pair.target_kv_cache.used == 0
    pair.settle_link()
    assert pair.draft_kv_cache.used == 0


@pytest.mark.parametrize("running", [2, 16])
def test_batches_of_any_size_are_speculated_for(running: int) -> None:
    schedule = [
        Request(n, [n, 2, 3 * n % VOCABULARY], 80, SAMPLINGS[n % 3], arrives=n % 5)
        for n in range(1, running + 1)
    ]
    pair = Pair(running=running, spare_blocks=8 * running)
    play(pair, schedule)
    assert_texts(pair, schedule)
    for request in schedule:
        end = pair.finished(request.number)
        assert end is not None
        assert end.usage.accepted_rows > 0
        assert (end.usage.completion_tokens - 1) / end.usage.passes > 1.3


def test_memory_that_runs_out_puts_requests_back_and_loses_none() -> None:
    schedule = [
        Request(n, [n] * 60, 300, SAMPLINGS[n % 3], arrives=0, priority=n % 2) for n in range(6)
    ]
    pair = Pair(running=6, spare_blocks=4)
    play(pair, schedule)
    assert_texts(pair, schedule)
    assert pair.target.report().counters.preemptions > 0
    assert pair.target_kv_cache.used == 0


def test_the_junior_gives_its_memory_back() -> None:
    pair = Pair(running=2, spare_blocks=0)
    pair.submit([1] * 60, 300, 1, arrived=1.0)
    pair.submit([2] * 60, 300, 2, arrived=0.5, priority=-1)
    while pair.target.report().counters.preemptions == 0:
        pair.turn()
    assert [s.submit.request for s in pair.target.admission.running] == [1]
    pair.run(1)
    pair.run(2)


def test_requests_start_by_priority_then_by_arrival() -> None:
    pair = Pair(running=1)
    pair.submit([1], 20, 1)
    pair.turn()
    for number, priority in ((2, 0), (3, 0), (4, 7)):
        pair.submit([number], 5, number, priority=priority)
    order = []
    while len(order) < 4:
        pair.turn()
        order += [n for n in range(1, 5) if pair.finished(n) and n not in order]
    assert order == [1, 4, 2, 3]


def test_a_request_that_waits_for_too_long_ends_unrun() -> None:
    pair = Pair(running=1)
    pair.submit([1], 200, 1)
    pair.submit([2], 5, 2, start_by=pair.now + 3 * PASS_SECONDS)
    end = pair.run(2)
    assert end.finish is Finish.EXPIRED
    assert pair.text(2) == []
    assert "no room" in end.detail
    assert pair.finished(1) is None


def test_a_request_that_gave_its_memory_back_waits_for_as_long_as_it_takes() -> None:
    pair = Pair(running=2, spare_blocks=0)
    for number in (1, 2):
        pair.submit([number] * 60, 300, number, start_by=pair.now + 5 * PASS_SECONDS)
    ends = [pair.run(number) for number in (1, 2)]
    assert pair.target.report().counters.preemptions > 0
    assert [end.finish for end in ends] == [Finish.LENGTH, Finish.LENGTH]
    assert pair.target.report().counters.prompt_tokens == 120


def test_prompts_run_in_chunks_beside_other_requests() -> None:
    pair = Pair(running=2, draft_passes=0)
    pair.submit([1, 2, 3], 200, 1)
    pair.turn()
    (first,) = pair.target.admission.running
    before = first.generated
    pair.submit([4] * 400, 1, 2)
    turns = 0
    while pair.finished(2) is None:
        pair.turn()
        turns += 1
    assert turns >= 400 // 64
    assert first.generated - before >= turns


def test_more_sequences_than_a_pass_has_rows_take_turns() -> None:
    pair = Pair(running=16, spare_blocks=32, row_capacity=6)
    schedule = [Request(n, [n, 1], 20, SAMPLINGS[0], arrives=0) for n in range(1, 17)]
    play(pair, schedule)
    assert_texts(pair, schedule)


def test_a_draft_runs_the_leaves_of_several_sessions_in_one_pass() -> None:
    pair = Pair(running=4, spare_blocks=16)
    for number in range(1, 5):
        pair.submit([number, 9], 60, number)
    for _ in range(20):
        pair.turn()
    assert pair.most_sessions == 4


def test_a_session_without_memory_is_closed_and_its_request_goes_on() -> None:
    schedule = [Request(n, [n] * 50, 200, SAMPLINGS[n % 3], arrives=0) for n in range(1, 5)]
    pair = Pair(running=4, spare_blocks=40, draft_blocks=14)
    play(pair, schedule)
    assert_texts(pair, schedule)


def test_a_second_request_finds_the_prompt_of_the_first() -> None:
    pair = Pair(running=2)
    shared = [t % VOCABULARY for t in range(200)]
    for number, tail in ((1, [1]), (2, [2])):
        pair.submit(shared + tail, 20, number)
        end = pair.run(number)
        assert end.usage.cached_prompt_tokens == (192 if number == 2 else 0)
        assert pair.text(number) == pair.expected(shared + tail, 20)
