"""Prefill is shared fairly: who gets the rows of a pass, and how many there are."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.worker.costs.step_costs import Seconds, StepCosts
from outrider.worker.target.prefill import (
    NEWCOMER_SECONDS,
    NEWCOMER_SHARE,
    OLDEST_SHARE,
    STREAM_SLOWDOWN,
    WORTHWHILE,
    ChunkPrefill,
    FairPrefill,
    PrefillPlanner,
    Prompt,
    Streams,
    rows_alone,
    rows_beside,
    shares,
)
from tests.unit.worker.pair import Pair

prompts = st.lists(
    st.builds(Prompt, st.integers(1, 3000), st.integers(0, 3000), st.sampled_from([0, 0, 1])),
    min_size=1,
    max_size=12,
).map(lambda found: sorted(found, key=lambda prompt: -prompt.priority))
curves = st.lists(st.floats(1e-4, 0.05), min_size=2, max_size=130).map(np.cumsum)

LONG, SHORT, ANSWER = 1500, 32, 16
MEASURED = StepCosts(
    rows=(1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64),
    contexts=(128, 512),
    measured=1e-3
    * np.array(
        [
            [
                [3.9, 3.9, 4.1, 4.1, 4.2, 4.6, 5.3, 6.1, 7.4, 7.8, 8.3, 10.6, 14.8, 20.0],
                [4.2, 4.2, 4.4, 4.4, 4.6, 4.9, 5.7, 6.4, 7.8, 8.8, 9.8, 12.2, 16.4, 24.0],
            ]
        ]
    ),
)
"""Costs of SmolLM2-135M in int8 on two Zen 5 processors (bench/results/batching.json)."""


@given(prompts, st.integers(1, 200))
def test_every_row_is_given_once(waiting: list[Prompt], rows: int) -> None:
    counts = shares(waiting, rows)
    assert sum(counts) == min(rows, sum(prompt.rest for prompt in waiting))
    assert all(0 <= count <= prompt.rest for count, prompt in zip(counts, waiting, strict=True))


@given(prompts, st.integers(1, 200))
def test_the_shortest_goes_first_beside_the_oldest(waiting: list[Prompt], rows: int) -> None:
    first, *others = zip(waiting, shares(waiting, rows), strict=True)
    assert first[1] >= min(first[0].rest, rows / OLDEST_SHARE)
    left_over = [prompt for prompt, count in others if count < prompt.rest]
    served = [prompt for prompt, count in others if count > 0]
    for short in left_over:
        assert all(
            prompt.priority > short.priority
            or (prompt.priority == short.priority and prompt.rest <= short.rest)
            for prompt in served
        )


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(4, 128), st.integers(1, 60))
def test_no_prompt_starves_behind_an_endless_stream_of_short_ones(
    first: int, second: int, rows: int, short: int
) -> None:
    rests = [first, second]
    for _ in range((first + second) * OLDEST_SHARE // rows + 2):
        newcomers = [short] * (1 + rows // short)  # enough to fill the pass
        waiting = [Prompt(rest, 0) for rest in (*rests, *newcomers)]
        rests = [rest - count for rest, count in zip(rests, shares(waiting, rows), strict=False)]
        rests = [rest for rest in rests if rest > 0]
        if not rests:
            return
    raise AssertionError(f"{rests} rows are left")


@given(curves)
def test_a_pass_beside_streams_is_bounded_by_its_cost(seconds: Seconds) -> None:
    rows = rows_beside(seconds)
    assert 1 <= rows < len(seconds)
    assert rows == 1 or seconds[rows] <= STREAM_SLOWDOWN * seconds[0]


@given(curves, st.integers(1, 4000))
def test_a_pass_of_prefill_alone_is_short_or_no_longer_than_pays(
    seconds: Seconds, longest: int
) -> None:
    rows = rows_alone(seconds, longest)
    rates = np.arange(1, len(seconds) + 1) / seconds
    pays = rates >= WORTHWHILE * rates.max()
    assert pays[rows - 1]
    brief = seconds[rows - 1] <= NEWCOMER_SECONDS or rows <= longest / NEWCOMER_SHARE
    assert brief or not pays[: rows - 1].any()


def test_a_pass_ends_before_a_row_that_costs_much_more() -> None:
    """A tile of 16 rows takes as long as one row; 17 take twice as long."""
    tiled = 0.004 * (1 + (np.arange(1, 65) - 1) // 16).astype(np.float64)
    assert rows_beside(tiled) == 31  # and the stream's own
    assert rows_alone(tiled, longest=400) == 64


def test_a_machine_whose_rows_cost_more_together_runs_few_at_a_time() -> None:
    """Measured on a processor with AVX2 only: 4 rows are the most for their time."""
    rows = np.array([1, 2, 4, 8, 16, 64])
    seconds = np.interp(np.arange(1, 65), rows, [0.0083, 0.0098, 0.0147, 0.0358, 0.077, 0.335])
    assert rows_alone(seconds, longest=1500) in (4, 5)


def test_a_pass_has_one_chunk_of_the_library() -> None:
    planner, streams = ChunkPrefill(), Streams(3, 100)
    waiting = [Prompt(900, 100, 1, 28), Prompt(700, 0, 1, 128), Prompt(5, 0, 0, 5)]
    plans = [planner.plan(waiting, streams, 0) for _ in range(8)]
    shortest, oldest = [0, 128, 0], [28, 0, 0]
    assert plans == 2 * [*(OLDEST_SHARE - 1) * [shortest], oldest]
    assert planner.plan([], streams, 125) == []


def test_what_the_kernels_compute_again_is_bounded_by_the_pass() -> None:
    planner, answer = ChunkPrefill(), Prompt(300, 200)
    assert planner.plan([answer], Streams(3, 100), 125) == [125]
    assert planner.plan([answer], Streams(3, 100), -1) == [0]


@dataclass
class Clocked:
    """A target whose passes take what its step costs say."""

    planner: PrefillPlanner
    pair: Pair = field(
        default_factory=lambda: Pair(
            running=8, draft_passes=0, costs=MEASURED, context=2048, row_capacity=128
        )
    )
    gaps: list[float] = field(default_factory=list)
    """Ratio of each pass's time beside streams to its time without prefill."""

    def __post_init__(self) -> None:
        self.pair.target.prefill_planner = self.planner

    def play(self, arrivals: dict[int, tuple[float, int, int]]) -> float:
        """Run requests of (arrival, prompt tokens, answer tokens); return when all have ended."""
        pair, coming = self.pair, dict(arrivals)
        while not all(pair.finished(number) for number in arrivals):
            for number in [n for n, (at, _, _) in coming.items() if at <= pair.now]:
                _, prompt, answer = coming.pop(number)
                tokens = [(number + 5 * t) % 61 for t in range(prompt)]
                pair.submit(tokens, answer, number, speculate=False)
            self.step()
        return pair.now

    def step(self) -> None:
        """Run one step, and put the clock forward by its cost."""
        pair = self.pair
        step = pair.target.next(pair.now, may_wait=False)
        if step is None:
            pair.now += 0.001
            return
        streams = max(1, step.decoding_count)
        context = int(step.rows.prefix.mean())
        seconds = MEASURED.seconds(step.rows.count, context, streams)
        if step.decoding_count and step.prefill_rows:
            self.gaps.append(seconds / MEASURED.seconds(streams, context, streams))
        pair.now += seconds
        pair.target.settle(step, pair.target_runner.run(step), pair.now)

    def first_token(self, request: int) -> float:
        end = self.pair.finished(request)
        assert end is not None
        return end.timing.first_token_seconds


def one_long_prompt(streams: int) -> dict[int, tuple[float, int, int]]:
    """Running streams, a long prompt, and short ones that come while it is computed."""
    long = {1: (0.05, LONG, ANSWER)}
    shorts = {2 + n: (0.13 + 0.1 * n, SHORT, ANSWER) for n in range(3)}
    return long | shorts | {10 + n: (0.0, SHORT, 300) for n in range(streams)}


class FirstCome:
    """Prompts in the order of their arrival, 64 rows of a pass."""

    def plan(self, prompts: Sequence[Prompt], streams: Streams, most: int) -> list[int]:
        left, counts = min(64, most), []
        for prompt in prompts:
            counts.append(min(left, prompt.rest))
            left -= counts[-1]
        return counts


@pytest.mark.parametrize(("streams", "most_time"), [(0, 1.06), (2, 1.03)])
def test_a_short_prompt_does_not_wait_for_a_long_one(streams: int, most_time: float) -> None:
    """Short answers that end early share fewer passes, which costs time where nothing else runs."""
    fair, first_come = Clocked(FairPrefill(MEASURED)), Clocked(FirstCome())
    requests = one_long_prompt(streams)
    assert fair.play(requests) <= most_time * first_come.play(requests)
    for short in (2, 3, 4):
        assert fair.first_token(short) <= 0.1 * fair.first_token(1)
        assert first_come.first_token(short) > 0.3 * first_come.first_token(1)
    assert max(fair.gaps) <= 1.05 * STREAM_SLOWDOWN  # contexts differ a little from those planned
    assert max(first_come.gaps) > 4.0
    for request in requests:
        assert fair.pair.text(request) == first_come.pair.text(request)
