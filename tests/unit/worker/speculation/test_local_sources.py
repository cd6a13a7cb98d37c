"""Switches of sources that need no draft."""

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import POLICY_SOURCES, SOURCES, SourceKind
from outrider.worker.speculation.local_sources import (
    ADVANCE_TOKENS,
    EARNED_SHARE,
    HOST_SECONDS,
    NO_ROWS,
    NO_SHARE,
    LocalSources,
    SourceRows,
)

SUFFIX = SOURCES.index(SourceKind.SUFFIX)
BOTH = PolicySettings(sources=(SourceKind.DRAFT, SourceKind.SUFFIX))


def rows_of(draft: int, suffix: int) -> list[int]:
    """Return node rows in the order of `SOURCES`."""
    by_source = {SourceKind.DRAFT: draft, SourceKind.SUFFIX: suffix}
    return [by_source.get(kind, 0) for kind in SOURCES]


@pytest.mark.parametrize(
    ("policy", "on"),
    [
        (BOTH, 1 << SUFFIX),
        (PolicySettings(sources=(SourceKind.SUFFIX,)), 1 << SUFFIX),
        (PolicySettings(sources=(SourceKind.DRAFT,)), 0),
        (PolicySettings(sources=POLICY_SOURCES, speculate=False), 0),
    ],
)
def test_a_policy_says_which_are_on(policy: PolicySettings, on: int) -> None:
    local = LocalSources()
    local.decide(policy)
    assert local.on == on
    assert local.wanted == on


COSTS = np.array([0.005, 0.006, 0.008, 0.009])
"""Seconds of a pass with 0 to 3 node rows."""
TOKEN = 0.5 * 0.004
"""Seconds of a token of plain decoding."""
ADVANCE = ADVANCE_TOKENS * TOKEN


def spare_after(step: SourceRows, policy: PolicySettings) -> float:
    """Return what the text may lose, in seconds, after a step that took no time of anything
    else."""
    local = LocalSources()
    local.decide(policy)
    local.observe(step, COSTS, each=0.004, scale=0.5, spent=0.0)
    return local.budgets[SUFFIX].spare * TOKEN


def test_a_source_costs_host_time_in_steps_in_which_it_may_propose_nodes() -> None:
    assert spare_after(NO_ROWS, BOTH) == pytest.approx(ADVANCE - HOST_SECONDS)
    assert spare_after(NO_ROWS, PolicySettings()) == ADVANCE


def test_rows_cost_what_they_add_to_their_step_and_bring_plain_decoding_for_their_tokens() -> None:
    """One of three rows is the text's, and was accepted; half the costs' time is plain's."""
    step = SourceRows(rows_of(2, 1), rows_of(0, 1), total=3)
    assert spare_after(step, BOTH) == pytest.approx(
        ADVANCE - HOST_SECONDS - 0.001 + min(TOKEN, 0.001 + HOST_SECONDS)
    )
    local = LocalSources()
    local.decide(BOTH)
    local.observe(step, COSTS, each=0.004, scale=0.5, spent=0.0)
    assert local.share == pytest.approx((0.004, 0.001))
    local.observe(NO_ROWS, COSTS, each=0.004, scale=0.5, spent=0.0)
    assert local.share == NO_SHARE


def test_a_source_whose_rows_lose_rests_and_comes_back() -> None:
    local = LocalSources()
    local.decide(BOTH)
    dear = SourceRows(rows_of(0, 3), rows_of(0, 0), total=3)
    while local.on:
        local.observe(dear, COSTS, 0.004, 1.0, 0.0)
    local.decide(BOTH)
    assert local.on == 0
    for spent, on in ((0.4, 0), (0.2, 1 << SUFFIX)):
        local.observe(NO_ROWS, COSTS, 0.004, 1.0, spent * 0.004 * ADVANCE_TOKENS / EARNED_SHARE)
        assert local.on == on


@pytest.mark.parametrize("seconds", [0.003, 0.06])
def test_what_a_source_may_lose_is_the_same_in_tokens_for_a_model_of_any_size(
    seconds: float,
) -> None:
    local = LocalSources()
    local.decide(BOTH)
    costs, steps = seconds * COSTS / COSTS[0], 0
    dear = SourceRows(rows_of(0, 3), rows_of(0, 0), total=3)
    while local.on:
        local.observe(dear, costs, seconds, 1.0, 0.0)
        steps += 1
    assert steps == pytest.approx(ADVANCE_TOKENS / (costs[3] - costs[0]) * seconds, rel=0.05)


def test_a_source_that_loses_no_more_than_its_share_stays() -> None:
    local = LocalSources()
    local.decide(BOTH)
    for _ in range(100_000):
        local.observe(NO_ROWS, COSTS, 0.004, 1.0, 1.1 * HOST_SECONDS / EARNED_SHARE)
    assert local.on == 1 << SUFFIX


def test_a_source_that_wins_and_loses_in_turn_stays() -> None:
    local = LocalSources()
    local.decide(BOTH)
    for accepted in (0, 3) * 10_000:
        step = SourceRows(rows_of(0, 3), rows_of(0, accepted), total=3)
        local.observe(step, COSTS, 0.004, 1.0, 0.005)
    assert local.on == 1 << SUFFIX
