"""What a target counts: passes without nodes, passes without drafts, and how late growth is."""

import itertools
from typing import Any

import pytest

from outrider.contract.counters import GROWTH_LATENCY_BOUNDS, Counters
from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.messages import SetPolicy
from outrider.worker.speculation.local_sources import LocalShare, SourceRows
from outrider.worker.speculation.switch import Drafting
from outrider.worker.target.batch import TargetBatch
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.stats import GrowthLatencies, Stats
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
    pair.target.row_selector.account.predict = lambda sequences: 0.5
    pair.submit([1, 2, 3], COUNT)
    pair.run()
    assert counters(pair).resting_passes == COUNT - 1
    assert counters(pair).blind_passes == 0


def test_a_request_that_wants_no_draft_neither_rests_nor_is_blind() -> None:
    pair = Pair()
    pair.target.row_selector.account.predict = lambda sequences: 0.5
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
    assert pair.target.row_selector.account.present.scale == 1.0


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


def test_an_answer_that_its_text_may_end_is_left_to_the_server_to_count() -> None:
    pair = Pair()
    for request, ends_by_text in enumerate((False, True)):
        pair.submit([1, 2, 3], COUNT, request=request, ends_by_text=ends_by_text)
        pair.run(request)
        assert (counters(pair).generation_tokens, counters(pair).requests_finished) == (COUNT, 1)


DRAFT, SUFFIX = SOURCES.index(SourceKind.DRAFT), SOURCES.index(SourceKind.SUFFIX)
REPEATS = [5, 6, 7, 8, 9, 10] * 12


def give_sources(pair: Pair, *sources: SourceKind) -> None:
    version = pair.target.row_selector.policy.version + 1
    policy = PolicySettings(version=version, sources=sources)
    pair.target.receive(SetPolicy(policy), pair.now)


def seen_rows(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return a list to which each step's rows by source will be added, as they are observed."""
    found: list[list[int]] = []
    selector = pair.target.row_selector
    observe = type(selector).observe_sources

    def observed(self: RowSelector, step: SourceRows, *others: Any) -> None:
        found.append(step.rows)
        observe(self, step, *others)

    monkeypatch.setattr(type(selector), "observe_sources", observed)
    return found


def test_rows_of_drafts_alone_are_not_those_of_the_first_step_with_other_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    found = seen_rows(pair, monkeypatch)
    pair.submit([1, 2, 3], 200)
    pair.run()
    drafted = counters(pair).draft_rows
    assert drafted > 100
    give_sources(pair, SourceKind.DRAFT, SourceKind.SUFFIX)
    pair.submit(REPEATS, COUNT, request=2)
    pair.run(2)
    assert pair.text(2) == pair.expected(REPEATS, COUNT)
    by_source = counters(pair).source_rows
    assert sum(rows[DRAFT] for rows in found) <= by_source[DRAFT] - drafted
    assert sum(rows[SUFFIX] for rows in found) == by_source[SUFFIX] > 0


def test_rows_of_a_step_that_failed_are_not_those_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    give_sources(pair, SourceKind.DRAFT, SourceKind.SUFFIX)
    found = seen_rows(pair, monkeypatch)
    pair.submit(REPEATS, COUNT)
    stats = pair.target.stats
    count_step = Stats.count_step

    def fail(self: Stats, *step: Any) -> None:
        if stats.source_rows[SUFFIX]:
            raise ValueError
        count_step(self, *step)

    with monkeypatch.context() as broken:
        broken.setattr(Stats, "count_step", fail)
        while True:
            step = pair.target.next(pair.now, may_wait=False)
            assert isinstance(step, TargetBatch)
            pair.now += 0.01
            try:
                pair.target.settle(step, pair.target_runner.run(step), pair.now)
            except ValueError:
                pair.target.fail(step, "it broke", pair.now)
                break
    lost = counters(pair).source_rows[SUFFIX]
    assert lost > 0
    pair.submit(REPEATS, COUNT, request=2)
    pair.run(2)
    assert sum(rows[SUFFIX] for rows in found) == counters(pair).source_rows[SUFFIX] - lost > 0


def test_what_local_sources_bring_and_take_is_told_apart_from_the_drafts_gain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lends(self: RowSelector, *_: Any) -> None:
        self.local.share = LocalShare(plain=0.03, spent=0.01)

    pair = Pair()
    pair.submit([1, 2, 3], COUNT)
    pair.run()
    assert counters(pair).local_plain_seconds == counters(pair).local_spent_seconds == 0
    give_sources(pair, SourceKind.DRAFT, SourceKind.SUFFIX)
    monkeypatch.setattr(RowSelector, "observe_sources", lends)
    pair.target.row_selector.account.present.scale = 0.5
    before = counters(pair).steps
    pair.submit([4, 5, 6], COUNT, request=2)
    pair.run(2)
    decoding = counters(pair).steps - before - 1  # the first one is of the prompt
    assert counters(pair).local_plain_seconds == pytest.approx(decoding * 0.015)
    assert counters(pair).local_spent_seconds == pytest.approx(decoding * 0.01)


def test_a_policy_without_drafts_leaves_their_switch_and_its_budget_alone() -> None:
    pair = Pair()
    give_sources(pair, SourceKind.SUFFIX)
    selector = pair.target.row_selector
    switch = selector.switch
    for request in range(1, 8):
        pair.submit(REPEATS, 100, request)
        while pair.finished(request) is None:
            pair.turn(seconds=0.1)
            assert selector.choice is selector.planned_choice
    assert pair.now > 60
    assert selector.switch is switch
    assert switch.state is Drafting.ON
    load = selector.account.present
    assert load.budget.spare == load.budget.advance
    assert load.drafted.spent == 0.0, "no step was one of drafting"
    assert load.scale > 1.0, "all were such of plain decoding"


@pytest.mark.parametrize(("guesses", "hits", "told"), [(128, 6, 1), (128, 7, 0), (127, 0, 0)])
def test_a_draft_that_is_of_no_use_is_said_once(
    caplog: pytest.LogCaptureFixture, guesses: int, hits: int, told: int
) -> None:
    pair = Pair(draft_passes=0)
    pair.target.stats.counters.first_guesses = guesses
    pair.target.stats.counters.first_hits = hits
    for _ in range(2):
        pair.submit([1, 2, 3], 2)
        pair.run()
    assert caplog.text.count("of no use to its target") == told
