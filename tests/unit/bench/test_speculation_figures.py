"""Figures of `bench.speculation`: ratios of what was asked, shares of what was counted."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.sides.services import Answer, Counts
from bench.speculation.figures import (
    Latency,
    Measured,
    all_ratios,
    latency,
    over,
    quantile,
    same_text,
    sum_up,
)
from outrider.client import Counters
from outrider.contract.counters import GROWTH_LATENCY_BOUNDS

COSTS = {1: 0.004, 9: 0.008}
TOKENS = 10


def answer(seconds: float, **changes: Any) -> Answer:
    fields: dict[str, Any] = {
        "token_ids": tuple(range(TOKENS + 1)),
        "tokens": TOKENS,
        "seconds": seconds,
        "passes": 5,
        "draft_rows": 20,
        "accepted_rows": 5,
        "wait_seconds": 0.0,
        "plain_seconds": 0.04,
    }
    return Answer(**(fields | changes))


def counters(**changes: Any) -> Counters:
    return dataclasses.replace(
        Counters(passes=10, steps=20, blind_passes=4, resting_passes=1, host_seconds=0.004),
        **changes,
    )


def measured(seconds: float, *, counts: bool = True, **changes: Any) -> Measured:
    """Two repetitions of two prompts, the second of which takes twice the time."""
    run = [answer(seconds, **changes), answer(2 * seconds, **changes)]
    drafts = (Counters(passes=40, host_seconds=0.002),)
    return Measured([run, run], [Counts(counters(), drafts)] * 2 if counts else [])


@pytest.fixture
def modes() -> dict[str, Any]:
    """Plain decoding, two processes twice as fast, and an earlier commit half as fast as each."""
    sides = {
        "plain 2": measured(0.04, passes=TOKENS, draft_rows=0),
        "Separate": measured(0.02),
        "pinned plain 1": measured(0.08, counts=False),
        "pinned Separate": measured(0.04, counts=False, token_ids=(1,)),
    }
    costs = dict.fromkeys(sides, COSTS)
    bases = {"plain": "plain 2", "pinned_plain": "pinned plain 1"}
    return sum_up({"greedy": sides, "temperature 0.8": sides}, costs, bases)


def test_ratios_are_to_this_builds_plain_decoding_and_to_the_pinned_commits(
    modes: dict[str, Any],
) -> None:
    bases = {"plain": "plain 2", "pinned_plain": "pinned plain 1"}
    ratios = all_ratios(modes, bases, {"Separate": "pinned Separate"})
    assert ratios["Separate_vs_plain"] == ratios["Separate_vs_plain_greedy"] == pytest.approx(2)
    assert ratios["Separate_vs_pinned_plain"] == pytest.approx(4)
    assert ratios["Separate_vs_pinned_Separate"] == pytest.approx(2)
    assert ratios["plain_vs_pinned_plain"] == pytest.approx(2)


def test_without_a_pinned_commit_there_are_no_ratios_to_it(modes: dict[str, Any]) -> None:
    ratios = all_ratios(modes, {"plain": "plain 2"}, {"Separate": ""})
    assert ratios.keys() == {
        "Separate_vs_plain",
        *(f"Separate_vs_plain_{mode}" for mode in ("greedy", "temperature_0.8")),
        *(f"Separate_share_of_ceiling_{mode}" for mode in ("greedy", "temperature_0.8")),
    }


def test_texts_of_this_build_are_compared_apart_from_the_pinned_commits(
    modes: dict[str, Any],
) -> None:
    assert modes["greedy"]["same_text"] == 1
    assert modes["greedy"]["same_text_as_pinned"] == 0
    runs = measured(1.0).answers
    other = [[answer(1.0), answer(1.0, token_ids=(7,))], *runs[1:]]
    assert same_text([runs, other]) == 0.75


def test_a_ceiling_is_what_step_costs_allow_and_only_of_sides_of_this_build(
    modes: dict[str, Any],
) -> None:
    greedy = modes["greedy"]
    assert greedy["ceiling_tokens_per_second"].keys() == {"plain 2", "Separate"}
    assert greedy["ceiling_tokens_per_second"]["plain 2"] == pytest.approx(1 / 0.004)
    assert greedy["ceiling_tokens_per_second"]["Separate"] == pytest.approx(2 / 0.006)
    assert greedy["share_of_ceiling"]["Separate"] == pytest.approx(20 / 0.06 / (2 / 0.006))


def test_a_side_without_counters_has_no_shares(modes: dict[str, Any]) -> None:
    assert modes["greedy"]["sides"]["pinned Separate"]["counted"] is None
    found = modes["greedy"]["sides"]["Separate"]["counted"]
    assert (found["blind_share"], found["resting_share"]) == (0.4, 0.1)
    assert found["host_ms_per_pass"] == pytest.approx(0.2)
    assert found["draft_host_ms_per_pass"] == pytest.approx(0.05)
    assert found["draft_passes_per_pass"] == 4
    assert found["growth_latency"] is None
    json.dumps(modes)


def test_a_mean_over_prompts_weighs_short_and_long_answers_alike() -> None:
    base = Measured([[answer(1.0), answer(100.0)]])
    other = Measured([[answer(0.25), answer(100.0)]])
    assert over({"a": base.answers, "b": other.answers}, "a")["b"] == pytest.approx(2.0)


def test_what_was_counted_since_then_is_a_difference() -> None:
    before = Counts(Counters(passes=3, host_seconds=1.0), (Counters(passes=1),))
    after = Counts(Counters(passes=5, host_seconds=1.5), (Counters(passes=4),))
    found = after.since(before)
    assert (found.target.passes, found.target.host_seconds) == (2, 0.5)
    assert [draft.passes for draft in found.drafts] == [3]


@given(st.lists(st.integers(0, len(GROWTH_LATENCY_BOUNDS) - 1), min_size=1), st.data())
def test_a_quantile_lies_in_the_bucket_of_its_value(
    buckets: list[int], data: st.DataObject
) -> None:
    counts = [buckets.count(n) for n in range(len(GROWTH_LATENCY_BOUNDS) + 1)]
    place = data.draw(st.integers(1, len(buckets)))
    bucket = sorted(buckets)[place - 1]
    found = quantile(counts, (place - 0.5) / len(buckets))
    low = (0.0, *GROWTH_LATENCY_BOUNDS)[bucket]
    assert low < found < GROWTH_LATENCY_BOUNDS[bucket]


def test_latencies_beyond_all_buckets_count_as_the_last_bound() -> None:
    counts = [0] * len(GROWTH_LATENCY_BOUNDS) + [3]
    assert latency(counts) == Latency(1e3, 1e3, 3)
    assert latency([0] * len(counts)) is None
