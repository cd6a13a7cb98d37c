"""A service without work gives its drafts back, and gets them again when there is work."""

from typing import Any

import pytest

from outrider.operator.control.memory import Phase
from outrider.operator.control.reasons import LoopReason, PhaseChange
from outrider.operator.control.settings import (
    WINDOWS,
    ControlSettings,
    ShrinkPolicy,
    SpeculationMode,
)
from tests.unit.operator.control.made import START, Service, memory, settings

SETTINGS = ControlSettings()
BUSY: dict[str, Any] = {"gain": 100}
NONE: dict[str, Any] = {"passes": 0, "running": 0, "quiet_since": START + 1000}
"""Windows of a service that has had no work since the first pass."""


def idle(control: ControlSettings = SETTINGS, phase: Phase = Phase.ON, **values: Any) -> Service:
    """A service after its last window before it has had no work for `idle_seconds`, 900."""
    service = Service(memory(phase, **values), control)
    service.passes(59, **NONE)
    return service


def test_after_the_stated_time_drafting_goes_off_and_all_drafts_are_given_back() -> None:
    service = idle()
    assert (service.memory.speculate, service.drafts) == (True, 2)
    decision = service.passes(**NONE)
    assert (decision.speculate, decision.reason) == (False, LoopReason.IDLE)
    assert decision.transitions[0].sentence == "drafting off: no work for 900 s"
    assert service.passes(2, **NONE).draft_replicas == 0


def test_proportional_drafts_go_to_none_too() -> None:
    service = idle(settings(shrink=ShrinkPolicy.PROPORTIONAL))
    assert service.drafts == 1
    assert service.passes(3, **NONE).draft_replicas == 0


@pytest.mark.parametrize(
    "control",
    [
        settings(idle_seconds=0),
        settings(shrink=ShrinkPolicy.NEVER),
        settings(managed=False),
        settings(mode=SpeculationMode.STATIC),
    ],
    ids=["never idle", "never shrinks", "not managed", "static"],
)
def test_drafts_that_would_not_be_given_back_stay_on(control: ControlSettings) -> None:
    assert idle(control).passes(200, **NONE).speculate


def test_a_target_that_does_not_answer_may_have_work() -> None:
    service = idle()
    assert service.passes(200, **NONE, silent=1).speculate
    assert not service.passes(**NONE).speculate


def test_work_in_between_starts_the_time_anew() -> None:
    service = idle()
    service.passes(gain=130)
    assert service.memory.idle_since is None
    again = {**NONE, "quiet_since": service.now}
    assert service.passes(59, **again).speculate
    assert not service.passes(**again).speculate


def unused(control: ControlSettings = SETTINGS) -> Service:
    """A service whose target has decoded plainly for nearly 900 s, after hours of gain."""
    service = Service(memory(), control)
    service.passes(240, gain=160)
    service.used = False
    service.passes(63, gain=100, running=32)
    return service


def test_drafts_that_no_target_uses_are_given_back_though_there_is_work() -> None:
    service = unused()
    assert (service.memory.speculate, service.drafts) == (True, 2)
    decision = service.passes(gain=100, running=32)
    assert (decision.speculate, decision.reason) == (False, LoopReason.LOW_GAIN)
    assert decision.transitions[0].sentence == "drafting off: no target has used drafts for 960 s"
    assert service.passes(2, gain=100, running=32).draft_replicas == 0


def test_drafts_that_were_not_used_are_probed_once_half_as_many_requests_run() -> None:
    service = unused()
    service.passes(30, gain=100, running=32)
    assert service.passes(gain=100, running=16).memory.phase is Phase.OFF
    assert service.passes(gain=100, running=15).memory.phase is Phase.WAKING


@pytest.mark.parametrize(
    "control",
    [settings(idle_seconds=0), settings(min_replicas=2)],
    ids=["never idle", "nothing is given back"],
)
def test_drafts_that_are_not_used_stay_where_they_are_not_to_go(control: ControlSettings) -> None:
    assert unused(control).passes(WINDOWS, gain=100, running=32).speculate


def test_a_silent_target_may_use_drafts() -> None:
    assert unused().passes(2 * WINDOWS, gain=100, silent=1).speculate


def test_use_in_between_starts_the_time_anew() -> None:
    service = unused()
    service.used = True
    service.passes(gain=100)
    service.used = False
    assert service.memory.unused_since is None
    assert service.passes(63, gain=100).speculate


def test_short_gaps_between_requests_are_not_written_down() -> None:
    service = Service(memory())
    before = service.passes(gain=130).memory
    for _ in range(5):
        gap = {**NONE, "quiet_since": service.now}
        assert service.passes(WINDOWS - 1, **gap).memory == before
        assert service.passes(gain=130).memory.idle_since is None


def test_an_idle_time_that_was_written_down_outlives_a_restart() -> None:
    service = idle()
    anew = {**NONE, "quiet_since": service.now}
    assert not service.passes(**anew).speculate


def test_drafts_come_back_once_there_is_work() -> None:
    service = idle()
    service.passes(10, **NONE)
    assert service.passes(WINDOWS - 1, **BUSY).memory.phase is Phase.OFF
    waking = service.passes(**BUSY)
    assert waking.draft_replicas == 2
    change, sentence = waking.transitions[0].change, waking.transitions[0].sentence
    assert change is PhaseChange.DRAFTS_WAKING
    assert sentence == "waking drafts to draft again: there is work again in 8 windows"
    back = service.passes(**BUSY)
    assert (back.speculate, back.memory.phase) == (True, Phase.ON)


def test_bursts_that_are_soon_over_bring_drafts_back_ever_later() -> None:
    start = memory(Phase.OFF, cause=LoopReason.IDLE, failed=1)
    service = Service(start)
    wait = round(1.6 * SETTINGS.probe_interval_seconds)
    service.now = START + wait - 15 * WINDOWS
    assert service.passes(WINDOWS - 1, **BUSY).memory.phase is Phase.OFF
    assert service.passes(**BUSY).memory.phase is Phase.WAKING


@pytest.mark.parametrize(("busy", "failed"), [(890, 3), (910, 0)])
def test_work_that_lasted_ends_the_count_of_short_stays(busy: float, failed: int) -> None:
    service = idle(failed=2, switched_at=START + 1000 - busy)
    assert service.passes(**NONE).memory.failed == failed


def test_a_probe_without_work_ends_as_one_that_failed() -> None:
    for phase, values in ((Phase.PROBING, {}), (Phase.WAKING, {"for_probe": True})):
        service = idle(SETTINGS, phase, cause=LoopReason.LOW_GAIN, **values)
        service.memory = memory(phase, idle_since=START + 1000, cause=LoopReason.LOW_GAIN, **values)
        if phase is Phase.WAKING:
            service.sight = {"links_up": 0}
        decision = service.passes(**NONE)
        assert (decision.memory.phase, decision.reason) == (Phase.OFF, LoopReason.LOW_GAIN)
        assert decision.memory.failed == 1


def test_low_gain_is_not_forgotten_while_there_is_no_work() -> None:
    service = Service(memory(Phase.OFF, cause=LoopReason.LOW_GAIN))
    assert service.passes(500, **NONE).reason is LoopReason.LOW_GAIN
