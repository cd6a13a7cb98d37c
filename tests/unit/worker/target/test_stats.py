"""What a target counts: passes without nodes, passes without drafts, and how late growth is."""

import itertools

import pytest

from outrider.contract.counters import GROWTH_LATENCY_BOUNDS, Counters
from outrider.worker.speculation.switch import Drafting
from outrider.worker.target.stats import GrowthLatencies
from tests.unit.worker.pair import Pair

COUNT = 30


def counters(pair: Pair) -> Counters:
    return pair.target.report().counters


def test_a_pass_without_a_node_is_blind() -> None:
    pair = Pair(draft_passes=0)
    pair.submit([1, 2, 3], COUNT)
    pair.run()
    assert counters(pair).blind_passes == counters(pair).passes == COUNT - 1
    assert counters(pair).resting_passes == 0


def test_blind_passes_and_those_with_nodes_are_all() -> None:
    pair = Pair(lag=1)
    pair.submit([1, 2, 3], COUNT)
    usage = pair.run().usage
    assert 0 < counters(pair).blind_passes == usage.passes - usage.passes_with_nodes < usage.passes


def test_a_pass_while_the_switch_is_off_rests_and_is_not_blind() -> None:
    pair = Pair()
    pair.target.row_selector.switch.state = Drafting.OFF
    pair.target.row_selector.decide_drafting()
    pair.submit([1, 2, 3], COUNT)
    pair.run()
    assert counters(pair).resting_passes == COUNT - 1
    assert counters(pair).blind_passes == 0


def test_a_request_that_wants_no_draft_neither_rests_nor_is_blind() -> None:
    pair = Pair()
    pair.target.row_selector.switch.state = Drafting.OFF
    pair.target.row_selector.decide_drafting()
    pair.submit([1, 2, 3], COUNT, speculate=False)
    pair.run()
    assert counters(pair).passes == COUNT - 1
    assert counters(pair).resting_passes == counters(pair).blind_passes == 0


def test_the_last_pass_of_a_drafted_request_is_no_measure_of_plain_decoding() -> None:
    pair = Pair(noise=0.0)
    for request in range(20):
        pair.submit([1, 2, 3], 12, request=request)
        pair.run(request)
    assert counters(pair).accepted_rows > 100
    assert pair.target.row_selector.switch.scale == 1.0


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_growth_is_late_by_the_link_there_and_back(lag: int) -> None:
    """A message travels `lag` steps each way and comes before a step; commits follow one."""
    pair = Pair(lag=lag, noise=0.0)
    pair.submit([1, 2, 3], 200)
    pair.run()
    found = counters(pair)
    commits, step_seconds = sum(found.growth_latencies), pair.now / found.steps
    assert commits > 10
    steps = found.growth_latency_seconds / commits / step_seconds
    assert max(0, 2 * lag - 1) <= steps < max(0, 2 * lag - 1) + 0.5


def test_latencies_are_counted_in_their_buckets() -> None:
    latencies = GrowthLatencies()
    inside = [(a + b) / 2 for a, b in itertools.pairwise((0.0, *GROWTH_LATENCY_BOUNDS, 5.0))]
    for number, seconds in enumerate(inside):
        for _ in range(number):
            latencies.add(seconds)
    assert latencies.counts == list(range(len(inside)))
    assert latencies.seconds == pytest.approx(sum(n * s for n, s in enumerate(inside)))
