"""Draft replicas: given back once nothing uses them, back before drafting is."""

import dataclasses
from typing import Any

import pytest

from outrider.operator.control.inputs import Decision
from outrider.operator.control.memory import LoopMemory, Phase
from outrider.operator.control.policy import decide
from outrider.operator.control.reasons import Hold, LoopReason
from outrider.operator.control.settings import ControlSettings, ShrinkPolicy
from tests.unit.operator.control.made import (
    DISABLED,
    START,
    Service,
    inputs,
    lowered,
    memory,
    settings,
    window,
)

SETTINGS = ControlSettings()
OFF = memory(Phase.OFF, cause=LoopReason.LOW_GAIN, because="gain 96 %")
PROPORTIONAL = settings(shrink=ShrinkPolicy.PROPORTIONAL, max_replicas=6)


def at(
    seconds: float, start: LoopMemory = OFF, control: ControlSettings = SETTINGS, **sight: Any
) -> Decision:
    """One pass so many seconds after the switch."""
    now = START + seconds
    whole = window(now - 15, now, gain=100)
    return decide(control, start, inputs(**{"window": whole, **sight}), now)


def test_drafts_stay_until_drafting_has_been_off_for_a_while() -> None:
    assert at(119).draft_replicas == 2
    assert at(120).draft_replicas == 0
    assert at(120).transitions[0].sentence == "scaled draft 2→0: drafting off for 120 s, gain 96 %"


UNTOLD = dataclasses.replace(OFF, acknowledged_at=None)


@pytest.mark.parametrize(
    ("start", "sight"),
    [
        (UNTOLD, {"acknowledged": OFF.version - 1}),
        (OFF, {"followed_by_all": 0}),
    ],
    ids=["no quorum", "one target is silent"],
)
def test_drafts_stay_while_a_target_may_still_draft_but_not_for_ever(
    start: LoopMemory, sight: dict[str, Any]
) -> None:
    control = settings(after_seconds=60)
    decision = at(119, start, control, **sight)
    assert (decision.draft_replicas, decision.hold) == (2, Hold.DRAINING)
    assert "drafts drain" in decision.sentence
    assert at(120, start, control, **sight).draft_replicas == 0


def test_drafts_without_work_wait_no_second_time() -> None:
    idle = dataclasses.replace(OFF, cause=LoopReason.IDLE, because="no work for 900 s")
    decision = at(15, idle)
    assert decision.draft_replicas == 0
    assert decision.transitions[0].sentence == (
        "scaled draft 2→0: drafting off for 15 s, no work for 900 s"
    )


def test_drafts_stay_while_they_hold_sessions_and_no_longer_than_is_reasonable() -> None:
    late = dataclasses.replace(OFF, acknowledged_at=START + 200)
    for sessions in (1, None):
        decision = at(229, late, sessions=sessions)
        assert (decision.draft_replicas, decision.hold) == (2, Hold.DRAINING)
        assert at(230, late, sessions=sessions).draft_replicas == 0
    assert at(229, late, sessions=0).draft_replicas == 0


def test_the_least_number_stays() -> None:
    assert at(120, control=settings(min_replicas=1)).draft_replicas == 1


def test_never_means_never() -> None:
    assert at(9999, control=settings(shrink=ShrinkPolicy.NEVER)).draft_replicas == 2


@pytest.mark.parametrize("start", [OFF, memory(Phase.WAKING, shrunk=True)])
def test_nothing_is_scaled_during_a_roll_out_or_while_replicas_are_pending(
    start: LoopMemory,
) -> None:
    was = at(1, start, rolling_out=True).draft_replicas
    for sight, hold in (
        ({"rolling_out": True}, Hold.ROLLOUT_IN_PROGRESS),
        ({"drafts_actual": 1}, Hold.REPLICAS_PENDING),
        ({"drafts_ready": 1}, Hold.REPLICAS_PENDING),
    ):
        decision = at(200, start, **sight)
        assert (decision.draft_replicas, decision.hold) == (was, hold)
    assert at(200, start).draft_replicas != was


def test_a_roll_out_that_failed_holds_nothing() -> None:
    beside_the_old_one = {"drafts_desired": 1, "drafts_actual": 2, "drafts_ready": 1}
    off = dataclasses.replace(OFF, grown=1)
    assert at(200, off, **beside_the_old_one).hold is Hold.REPLICAS_PENDING
    assert at(200, off, stopped=True, **beside_the_old_one).draft_replicas == 0


def test_drafts_that_never_fit_are_given_back_in_the_end() -> None:
    off = dataclasses.replace(OFF, cause=LoopReason.DISABLED_BY_USER)
    assert at(719, off, DISABLED, drafts_ready=0).draft_replicas == 2
    assert at(720, off, DISABLED, drafts_ready=0).draft_replicas == 0


def test_contested_replicas_are_left_alone_and_taken_over_as_they_are() -> None:
    contested = at(9999, contested=True, drafts_desired=3)
    assert (contested.draft_replicas, contested.hold) == (None, Hold.REPLICAS_CONTESTED)
    after = at(1, contested.memory, drafts_desired=3, drafts_actual=3, drafts_ready=3)
    assert (after.draft_replicas, after.hold) == (3, None)


@pytest.mark.parametrize("phase", list(Phase))
def test_replicas_that_are_not_the_loops_are_never_touched(phase: Phase) -> None:
    decision = at(9999, memory(phase), settings(managed=False), drafts_desired=9)
    assert decision.draft_replicas is None


@pytest.mark.parametrize(
    ("phase", "desired", "expected"),
    [
        (Phase.ON, None, 1),
        (Phase.ON, 3, 3),
        (Phase.ON, 0, 1),
        (Phase.ON, 9, 4),
        (Phase.OFF, 0, 0),
        (Phase.OFF, 2, 2),
    ],
)
def test_the_number_is_taken_over_as_it_is_found(
    phase: Phase, desired: int | None, expected: int
) -> None:
    counts = {"drafts_actual": desired or 0, "drafts_ready": desired or 0}
    start = memory(phase, grown=None, cause=LoopReason.LOW_GAIN)
    assert at(1, start, drafts_desired=desired, **counts).draft_replicas == expected


def test_what_was_given_back_comes_back_in_full_before_drafting_does() -> None:
    shrunk = dataclasses.replace(OFF, shrunk=True, grown=3)
    service = Service(shrunk, SETTINGS)
    service.drafts, service.now = 0, START + 2400
    first = service.passes(gain=100)
    assert (first.draft_replicas, first.speculate) == (3, False)
    assert service.passes(2).speculate


def test_new_limits_of_the_service_hold_at_once() -> None:
    now = START + 1000
    decision = decide(settings(max_replicas=1), memory(), inputs(), now)
    assert decision.draft_replicas == 1
    assert decision.transitions[0].sentence == "scaled draft 2→1: the service allows 0 to 1"


def test_disabled_gives_drafts_back() -> None:
    assert Service(memory(), DISABLED).passes(12).draft_replicas == 0


@pytest.mark.parametrize(
    ("running", "expected"),
    [(16, 2), (17, 2), (18, 3), (25, 4), (99, 6), (15, 2), (0, 2)],
)
def test_replicas_grow_with_sessions_beyond_a_tenth(running: int, expected: int) -> None:
    assert Service(memory(), PROPORTIONAL).passes(running=running).draft_replicas == expected


def test_replicas_shrink_with_sessions_only_after_a_while_without_more() -> None:
    service = Service(memory(grown=4), PROPORTIONAL)
    service.drafts = 4
    assert [service.passes(running=9).draft_replicas for _ in range(8)] == [4] * 8
    assert service.passes(running=32).draft_replicas == 4
    assert [service.passes(running=9).draft_replicas for _ in range(9)] == [4] * 8 + [2]
    assert service.passes(20, running=0).draft_replicas == 1


def test_replicas_stay_until_sessions_can_have_come_back() -> None:
    control = settings(shrink=ShrinkPolicy.PROPORTIONAL, after_seconds=0)
    fresh = memory(acknowledged_at=None)
    assert at(99, fresh, control, acknowledged=fresh.version - 1).draft_replicas == 2
    assert at(99, fresh, control).draft_replicas == 1


def test_sessions_on_drafts_count_where_they_are_more_than_what_runs() -> None:
    assert Service(memory(), PROPORTIONAL, sessions=30).passes(running=1).draft_replicas == 4


def test_how_long_fewer_would_have_done_is_forgotten_while_drafting_is_off() -> None:
    service = Service(lowered(fewer_since=START + 900), PROPORTIONAL)
    service.passes(8, gain=90, running=0)
    assert (service.memory.phase, service.memory.fewer_since) == (Phase.OFF, None)
