"""Switches of sources that need no draft."""

import numpy as np
import pytest

from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.speculation.local_sources import (
    ADVANCE_SECONDS,
    EARNED_SHARE,
    HOST_SECONDS,
    NO_ROWS,
    NOTHING_LENT,
    REST_SECONDS,
    LocalSources,
    SourceRows,
    SourceSwitch,
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
        (PolicySettings(sources=SOURCES, speculate=False), 0),
    ],
)
def test_a_policy_says_which_are_on(policy: PolicySettings, on: int) -> None:
    local = LocalSources()
    local.decide(policy, 0.0)
    assert local.on == on
    assert local.wanted == on


def test_a_source_whose_rows_lose_rests_and_comes_back() -> None:
    local = LocalSources()
    switch = local.switches[SUFFIX]
    for _ in range(int(ADVANCE_SECONDS / 0.001) + 20):
        switch.observe(brought=0.0, cost=0.001, spent=0.004, now=10.0)
    local.decide(BOTH, 10.0)
    assert local.on == 0
    local.decide(BOTH, 10.0 + REST_SECONDS)
    assert local.on == 1 << SUFFIX


COSTS = np.array([0.005, 0.006, 0.008, 0.009])
"""Seconds of a pass with 0 to 3 node rows."""


def spare_after(step: SourceRows, policy: PolicySettings) -> float:
    """Return what the text may lose after a step that took no time of anything else."""
    local = LocalSources()
    local.decide(policy, 0.0)
    local.observe(step, COSTS, each=0.004, scale=0.5, spent=0.0, now=1.0)
    return local.switches[SUFFIX].spare


def test_a_source_costs_host_time_in_steps_in_which_it_may_propose_nodes() -> None:
    assert spare_after(NO_ROWS, BOTH) == pytest.approx(ADVANCE_SECONDS - HOST_SECONDS)
    assert spare_after(NO_ROWS, PolicySettings()) == ADVANCE_SECONDS


def test_rows_cost_what_they_add_to_their_step_and_bring_plain_decoding_for_their_tokens() -> None:
    """One of three rows is the text's, and was accepted; half the costs' time is plain's."""
    step = SourceRows(rows_of(2, 1), rows_of(0, 1), total=3)
    assert spare_after(step, BOTH) == pytest.approx(
        ADVANCE_SECONDS - HOST_SECONDS - 0.001 + min(0.5 * 0.004, 0.001 + HOST_SECONDS)
    )
    local = LocalSources()
    local.decide(BOTH, 0.0)
    local.observe(step, COSTS, each=0.004, scale=0.5, spent=0.0, now=1.0)
    assert local.lent == pytest.approx((0.004, 0.001))
    local.observe(NO_ROWS, COSTS, each=0.004, scale=0.5, spent=0.0, now=1.0)
    assert local.lent == NOTHING_LENT


def test_a_rest_begins_and_ends_with_a_step() -> None:
    local, now = LocalSources(), 10.0
    local.decide(BOTH, now)
    dear = SourceRows(rows_of(0, 3), rows_of(0, 0), total=3)
    while local.on:
        local.observe(dear, COSTS, 0.004, 1.0, 0.0, now)
    for later, on in ((REST_SECONDS - 0.1, 0), (REST_SECONDS, 1 << SUFFIX)):
        local.observe(NO_ROWS, COSTS, 0.004, 1.0, 0.0, now + later)
        assert local.on == on


def test_each_rest_is_longer() -> None:
    switch = SourceSwitch()
    switch.observe(0.0, 2 * ADVANCE_SECONDS, 1.0, now=0.0)
    first = switch.rests_until
    switch.observe(0.0, 2 * ADVANCE_SECONDS, 1.0, now=0.0)
    assert switch.rests_until == 2 * first


def rest_of(switch: SourceSwitch) -> float:
    """Let a source lose, and return the length of its rest."""
    switch.observe(0.0, 2 * ADVANCE_SECONDS, 1.0, now=0.0)
    return switch.rests_until


@pytest.mark.parametrize(("earned", "shorter"), [(1.1, True), (0.9, False)])
def test_rests_are_short_again_once_its_rows_have_earned_the_advance(
    earned: float, shorter: bool
) -> None:
    switch = SourceSwitch()
    longest = [rest_of(switch) for _ in range(4)][-1]
    for _ in range(10):
        switch.observe(earned * ADVANCE_SECONDS / 10 + 0.01, 0.01, 0.02, now=0.0)
    assert rest_of(switch) == (REST_SECONDS if shorter else 2 * longest)


def test_time_alone_does_not_shorten_rests() -> None:
    switch = SourceSwitch()
    longest = [rest_of(switch) for _ in range(4)][-1]
    for _ in range(1000):
        switch.observe(brought=0.0, cost=0.0, spent=1.0, now=0.0)
    assert rest_of(switch) == 2 * longest


def test_a_source_that_loses_no_more_than_its_share_stays() -> None:
    switch = SourceSwitch()
    for _ in range(100_000):
        switch.observe(brought=0.0, cost=0.9 * EARNED_SHARE, spent=1.0, now=0.0)
    assert switch.rests_until == 0.0


def test_a_source_that_wins_and_loses_in_turn_stays() -> None:
    switch = SourceSwitch()
    for _ in range(100_000):
        switch.observe(brought=0.0, cost=0.001, spent=0.005, now=0.0)
        switch.observe(brought=0.004, cost=0.001, spent=0.005, now=0.0)
    assert switch.rests_until == 0.0
