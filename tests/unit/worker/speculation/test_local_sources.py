"""Switches of sources that need no draft."""

import pytest

from outrider.contract.planning import PlannerKind
from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SOURCES, SourceKind
from outrider.worker.speculation.local_sources import (
    ADVANCE_SECONDS,
    EARNED_SHARE,
    HOST_SECONDS,
    REST_SECONDS,
    LocalSources,
    SourceSwitch,
)

SUFFIX = SOURCES.index(SourceKind.SUFFIX)
BOTH = PolicySettings(sources=SOURCES)


@pytest.mark.parametrize(
    ("policy", "on"),
    [
        (BOTH, 1 << SUFFIX),
        (PolicySettings(sources=(SourceKind.SUFFIX,)), 1 << SUFFIX),
        (PolicySettings(sources=(SourceKind.DRAFT,)), 0),
        (PolicySettings(sources=SOURCES, speculate=False), 0),
        (PolicySettings(sources=SOURCES, planner=PlannerKind.OFF), 0),
    ],
)
def test_a_policy_says_which_are_on(policy: PolicySettings, on: int) -> None:
    local = LocalSources()
    local.decide(policy, 0.0)
    assert local.on == on
    assert local.wanted == (on > 0)


def test_a_source_whose_rows_lose_rests_and_comes_back() -> None:
    local = LocalSources()
    switch = local.switches[SUFFIX]
    for _ in range(int(ADVANCE_SECONDS / 0.001) + 20):
        switch.observe(brought=0.0, cost=0.001, spent=0.004, now=10.0)
    local.decide(BOTH, 10.0)
    assert local.on == 0
    local.decide(BOTH, 10.0 + REST_SECONDS)
    assert local.on == 1 << SUFFIX


def test_a_source_costs_host_time_in_steps_in_which_it_may_propose_nodes() -> None:
    local = LocalSources()
    assert local.host_seconds(SUFFIX) == 0.0
    local.decide(BOTH, 0.0)
    assert local.host_seconds(SUFFIX) == HOST_SECONDS


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
