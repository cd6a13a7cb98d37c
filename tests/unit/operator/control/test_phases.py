"""The way from on to off and back, window by window."""

import dataclasses
from typing import Any

import pytest

from outrider.operator.control.evidence import Evidence
from outrider.operator.control.memory import Phase
from outrider.operator.control.policy import decide
from outrider.operator.control.probes import GUARD, wait_seconds
from outrider.operator.control.reasons import LoopReason, PhaseChange
from outrider.operator.control.settings import WINDOWS, ControlSettings
from tests.unit.operator.control.made import (
    DISABLED,
    SETTINGS,
    START,
    STATIC,
    Service,
    inputs,
    lowered,
    memory,
    settings,
    window,
)

LOW: dict[str, Any] = {"gain": 96}
SILENT: dict[str, Any] = {"passes": 0}
PLAIN: dict[str, Any] = {"gain": 100}
STAYS = settings(min_replicas=2)
FIRST = SETTINGS.probe_interval_seconds


def test_gain_that_is_surely_low_lowers_the_ceiling_and_then_turns_drafting_off() -> None:
    service = Service(memory())
    assert service.passes(WINDOWS - 1, **LOW).max_rows == 16
    decision = service.passes(**LOW)
    assert (decision.speculate, decision.max_rows, decision.memory.version) == (True, 4, 8)
    assert service.passes(WINDOWS, **LOW).speculate, "the targets' answer, and eight windows more"
    decision = service.passes(**LOW)
    assert (decision.speculate, decision.reason) == (False, LoopReason.LOW_GAIN)
    assert [t.sentence for t in decision.transitions] == ["drafting off: gain 96 %"]
    assert decision.max_rows == 16, "a probe begins with the full ceiling"


def test_one_row_is_not_lowered() -> None:
    service = Service(memory(max_rows=1), settings(max_rows=1))
    assert not service.passes(WINDOWS, **LOW).speculate


def test_a_lowered_ceiling_that_pays_comes_back_after_the_probe_interval() -> None:
    service = Service(lowered(lowered_at=START + 1000))
    waits = FIRST // 15 // WINDOWS * WINDOWS
    assert service.passes(waits - WINDOWS, gain=130).max_rows == 4
    decision = service.passes(WINDOWS, gain=130)
    assert (decision.max_rows, decision.memory.phase) == (16, Phase.PROBING)
    again = service.passes(WINDOWS + 1, **LOW)
    assert (again.max_rows, again.memory.lowered_at) == (4, service.now)
    assert again.memory.evidence == decision.memory.evidence, "that of four rows holds"
    assert service.passes(waits + WINDOWS, gain=130).max_rows == 4, "it waits longer each time"
    service.passes(waits, gain=130)
    found = service.memory
    assert (found.phase, found.max_rows, found.failed) == (Phase.ON, 16, 0)


def test_a_lowered_ceiling_that_may_pay_by_chance_stays() -> None:
    service = Service(lowered())
    for gain in [60, 150] * 100:
        assert service.passes(gain=gain).max_rows == 4


@pytest.mark.parametrize("control", [STATIC, settings(min_replicas=2)], ids=["static", "stays"])
def test_a_ceiling_that_the_loop_may_not_lower_is_the_services_own(
    control: ControlSettings,
) -> None:
    assert Service(lowered(), control).passes(gain=90).max_rows == 16


@pytest.mark.parametrize("load", [{"gain": 103}, SILENT], ids=["at the threshold", "no work"])
def test_drafting_stays_on_where_nothing_speaks_clearly_against_it(load: dict[str, Any]) -> None:
    decision = Service(memory()).passes(40, **load)
    assert (decision.speculate, decision.reason) == (True, LoopReason.ACTIVE)


def test_a_loss_that_may_be_chance_is_looked_at_for_longer() -> None:
    service = Service(memory())
    for gain in [60, 138] * 20:
        assert service.passes(gain=gain).speculate
    for gain in [60, 132] * 50:
        service.passes(gain=gain)
    assert not service.memory.speculate


def test_what_was_gained_before_is_held_against_a_bad_hour() -> None:
    service = Service(memory())
    service.passes(240, gain=160)
    assert service.passes(240, gain=90).speculate
    assert not service.passes(960, gain=90).speculate


def test_a_window_counts_once_however_often_it_is_looked_at() -> None:
    service = Service(memory())
    once = service.passes(WINDOWS, gain=120)
    assert once.memory.evidence.windows == WINDOWS
    whole = window(service.now - 15, service.now)
    sight = inputs(window=whole, gains=service.gains)
    again = [decide(SETTINGS, once.memory, sight, service.now + n) for n in range(5)]
    assert {decision.memory for decision in again} == {once.memory}


def test_a_window_from_before_the_switch_was_acknowledged_says_nothing() -> None:
    service = Service(lowered(acknowledged_at=None), acknowledged=0)
    service.passes(WINDOWS, **LOW)
    service.sight = {}
    service.passes(**LOW)
    assert service.passes(WINDOWS - 1, **LOW).speculate
    assert not service.passes(**LOW).speculate


@pytest.mark.parametrize("control", [STAYS, settings(managed=False, colocated=True)])
def test_where_nothing_would_be_given_back_the_targets_own_switch_decides(
    control: ControlSettings,
) -> None:
    service = Service(memory(), control)
    before = service.passes(gain=40).memory
    assert service.passes(100, gain=40).memory == before
    off = Service(memory(Phase.OFF, cause=LoopReason.LOW_GAIN), control)
    assert off.passes(2, gain=40).speculate


def test_no_switch_comes_before_the_last_one_was_judged() -> None:
    service = Service(lowered(switched_at=START + 1015))
    decisions = [service.passes(**LOW).speculate for _ in range(WINDOWS + 1)]
    assert decisions == [True] * WINDOWS + [False]


def off_for(seconds: float, **values: Any) -> Service:
    service = Service(memory(Phase.OFF, cause=LoopReason.LOW_GAIN, **values), SETTINGS)
    service.now = START + seconds
    return service


def test_after_low_gain_a_service_waits_for_a_probe() -> None:
    service = off_for(FIRST - 30)
    assert service.passes(**PLAIN).memory.phase is Phase.OFF
    decision = service.passes(**PLAIN)
    assert (decision.memory.phase, decision.reason) == (Phase.WAKING, LoopReason.PROBING)
    probe = service.passes(2, **PLAIN)
    assert (probe.memory.phase, probe.speculate, probe.max_rows) == (Phase.PROBING, True, 16)


def test_a_service_that_decodes_next_to_nothing_is_not_probed() -> None:
    service = off_for(10_000)
    assert service.passes(10, passes=49).memory.phase is Phase.OFF
    assert service.passes(**PLAIN).memory.phase is Phase.WAKING


def probed(**values: Any) -> Service:
    service = off_for(FIRST, **values)
    service.passes(3, **PLAIN)
    assert service.memory.phase is Phase.PROBING
    return service


def test_a_probe_that_surely_pays_leaves_drafting_on_with_what_it_showed() -> None:
    service = probed()
    decision = service.passes(WINDOWS, gain=115)
    found = decision.memory
    assert (found.phase, found.failed, found.evidence.windows) == (Phase.ON, 0, WINDOWS)
    sentence = decision.transitions[0].sentence
    assert sentence == "drafting stays on: a probe showed gain 115 %"


def test_a_probe_that_may_pay_by_chance_fails() -> None:
    service = probed()
    for gain in [70, 150] * (WINDOWS // 2):
        service.passes(gain=gain)
    assert (service.memory.phase, service.memory.failed) == (Phase.OFF, 1)
    assert service.memory.because == "a probe showed gain 110 % ± 15"


def test_a_written_gain_to_come_back_is_what_a_probe_has_to_show() -> None:
    service = probed()
    service.settings = settings(gain_above_percent=120)
    assert service.passes(WINDOWS, gain=115).memory.phase is Phase.OFF


def test_a_probe_without_work_ends_when_it_has_shown_nothing_for_long() -> None:
    service = probed()
    decision = service.passes(58, **SILENT)
    assert (decision.memory.phase, decision.reason) == (Phase.PROBING, LoopReason.PROBING)
    decision = service.passes(4, **SILENT)
    assert (decision.memory.phase, decision.memory.failed) == (Phase.OFF, 1)


def test_drafts_of_a_probe_that_failed_are_given_back_at_once() -> None:
    service = probed()
    assert service.passes(WINDOWS + 1, **LOW).draft_replicas == 0


def test_each_probe_that_fails_makes_the_wait_longer_until_probes_cost_next_to_nothing() -> None:
    waits = [wait_seconds(SETTINGS, failed, 60) for failed in range(9)]
    assert waits[:3] == pytest.approx([FIRST, 1.6 * FIRST, 1.6**2 * FIRST])
    assert waits[-1] == waits[-2] == pytest.approx((60 + 8 * 15) / GUARD)
    assert wait_seconds(SETTINGS, 1 << 62, 600) == pytest.approx((600 + 8 * 15) / GUARD)
    early, due = off_for(1.6 * FIRST - 30, failed=1), off_for(1.6 * FIRST, failed=1)
    assert early.passes(**PLAIN).memory.phase is Phase.OFF
    assert due.passes(**PLAIN).memory.phase is Phase.WAKING


@pytest.mark.parametrize(("running", "phase"), [(4, Phase.OFF), (3, Phase.WAKING)])
def test_what_failed_under_twice_the_load_delays_no_probe(running: float, phase: Phase) -> None:
    service = off_for(WINDOWS * 15, failed=5, least_load=8.0)
    assert service.passes(running=running, **PLAIN).memory.phase is phase


def test_a_probe_that_fails_under_less_load_is_not_followed_by_another_at_once() -> None:
    service = off_for(WINDOWS * 15, least_load=8.0)
    service.passes(3, running=3, **PLAIN)
    assert service.memory.phase is Phase.PROBING
    assert service.passes(WINDOWS, running=30, **LOW).memory.least_load == 3
    assert service.passes(30, running=3, **PLAIN).memory.phase is Phase.OFF


def test_the_time_that_drafts_take_to_start_is_measured() -> None:
    service = off_for(FIRST, shrunk=True)
    service.drafts = 0
    service.passes(**PLAIN)
    service.sight = {"links_up": 0}
    service.passes(4, **PLAIN)
    service.sight = {}
    assert service.passes(**PLAIN).memory.start_seconds == 75


def test_another_subject_makes_what_was_learned_void_and_a_probe_due() -> None:
    learned = {"failed": 5, "least_load": 1.0, "start_seconds": 60.0}
    service = off_for(200, subject="a", **learned)
    service.sight = {"subject": "a"}
    assert service.passes(**PLAIN).memory.phase is Phase.OFF
    service.sight = {"subject": "b", "rolling_out": True}
    found = service.passes(2, **PLAIN).memory
    assert (found.phase, found.probe_due, found.subject) == (Phase.OFF, True, "b")
    assert (found.failed, found.least_load, found.start_seconds) == (0, None, None)
    service.sight = {"subject": "b"}
    found = service.passes(**PLAIN).memory
    assert (found.phase, found.for_probe, found.probe_due) == (Phase.WAKING, True, False)


def test_a_subject_that_was_not_known_yet_and_one_of_drafting_that_is_on_ask_for_no_probe() -> None:
    service = off_for(200, failed=5)
    service.sight = {"subject": "a"}
    assert (service.passes(**PLAIN).memory.failed, service.memory.probe_due) == (5, False)
    service = Service(memory(subject="a"), SETTINGS, subject="a")
    service.passes(WINDOWS, gain=120)
    service.sight = {"subject": "b"}
    found = service.passes(gain=120).memory
    assert (found.phase, found.evidence, found.probe_due) == (Phase.ON, Evidence(), False)


def test_drafting_waits_for_links_and_says_so_when_they_do_not_come() -> None:
    service = Service(memory(Phase.WAKING), SETTINGS, links_up=0)
    service.now, service.memory = START, memory(Phase.WAKING, switched_at=START - 100)
    reasons = [service.passes(**PLAIN).reason for _ in range(9)]
    assert reasons == [LoopReason.DRAFT_STARTING] * 7 + [LoopReason.DRAFT_LOST] * 2
    assert not any(d.speculate for d in service.decided)
    service.sight = {}
    assert service.passes(**PLAIN).reason is LoopReason.ACTIVE


def test_drafting_waits_for_drafts_that_are_still_to_come() -> None:
    some = {"drafts_ready": 1, "links_up": 1, "links_expected": 1}
    service = Service(memory(Phase.WAKING, switched_at=START - 100), SETTINGS, **some)
    service.now = START
    assert not service.passes(7, **PLAIN).speculate


def test_after_a_while_the_drafts_that_are_linked_are_enough() -> None:
    service = Service(memory(Phase.WAKING, switched_at=START - 100), SETTINGS, links_up=1)
    service.now = START
    on = [service.passes(**PLAIN).speculate for _ in range(9)]
    assert on == [False] * 7 + [True] * 2


def test_a_draft_lost_while_drafting_is_on_changes_nothing_but_the_reason() -> None:
    service = Service(memory(), SETTINGS, links_up=0, drafts_ready=0, gains=())
    before = service.memory
    decision = service.passes(20, gain=100)
    assert decision.reason is LoopReason.DRAFT_LOST
    assert decision.memory == before
    assert decision.draft_replicas == 2


def test_a_colocated_draft_needs_no_link() -> None:
    control = settings(managed=False, colocated=True)
    service = Service(memory(Phase.WAKING, switched_at=START), control, links_up=0)
    decision = service.passes()
    assert (decision.speculate, decision.reason) == (True, LoopReason.ACTIVE)
    assert decision.draft_replicas is None


def test_disabled_turns_drafting_off_at_once_and_adaptive_brings_it_back() -> None:
    service = Service(memory(switched_at=START + 1000), DISABLED)
    decision = service.passes()
    assert (decision.speculate, decision.reason) == (False, LoopReason.DISABLED_BY_USER)
    assert service.passes(12).draft_replicas == 0
    service.settings = SETTINGS
    assert service.passes().draft_replicas == 2
    assert service.passes(2).speculate


def test_drafting_that_is_disabled_is_off_for_the_reason_of_the_settings() -> None:
    settled = dataclasses.replace(DISABLED, draftless="the service has no draft")
    service = Service(memory(), settled)
    assert [t.sentence for t in service.passes().transitions] == [
        "drafting off: the service has no draft"
    ]
    decision = service.passes()
    assert (decision.reason, decision.sentence) == (
        LoopReason.NO_DRAFT,
        "the service has no draft",
    )
    service.settings = DISABLED
    decision = service.passes()
    assert (decision.transitions, decision.reason) == ((), LoopReason.DISABLED_BY_USER)
    assert "speculation.mode is Disabled" in decision.sentence


def test_disabled_works_blind() -> None:
    service = Service(memory(), DISABLED, window=None, sessions=None)
    decision = service.passes(30)
    assert (decision.speculate, decision.draft_replicas) == (False, 0)
    assert decision.reason is LoopReason.DISABLED_BY_USER


@pytest.mark.parametrize("start", list(Phase))
def test_static_is_on_whatever_is_measured(start: Phase) -> None:
    service = Service(memory(start), STATIC)
    for load in (LOW, SILENT):
        decision = service.passes(12, **load)
        assert (decision.speculate, decision.max_rows) == (True, 16)
        assert decision.reason is LoopReason.ACTIVE
    assert decision.draft_replicas == 2


def test_a_new_ceiling_in_the_service_is_pushed_at_once() -> None:
    service = Service(memory())
    service.settings = settings(max_rows=8)
    assert service.passes().max_rows == 8
    assert service.memory.version == 8


def test_a_change_of_anything_else_that_targets_are_told_raises_the_version() -> None:
    service = Service(memory(), SETTINGS, others="drafts a b")
    assert service.passes().memory.version == 8
    assert service.passes(3).memory.version == 8
    service.sight = {"others": "drafts a"}
    assert service.passes().memory.version == 9


def test_blindness_holds_everything_and_says_so() -> None:
    for phase in Phase:
        before = memory(phase, busy=1)
        service = Service(before, SETTINGS, window=None, sessions=None)
        decision = service.passes(200)
        assert decision.reason is LoopReason.METRICS_UNAVAILABLE
        assert (decision.memory, decision.draft_replicas) == (before, 2)
        assert decision.sentence.endswith("metrics missing, so all stays as it is")


def test_an_old_window_is_blindness() -> None:
    now = START + 1000
    old = inputs(window=window(now - 76, now - 61, **LOW))
    assert decide(SETTINGS, memory(), old, now).reason is LoopReason.METRICS_UNAVAILABLE
    fresh = inputs(window=window(now - 75, now - 60, **LOW))
    assert decide(SETTINGS, memory(), fresh, now).reason is LoopReason.ACTIVE


def test_a_loop_that_has_only_begun_to_look_holds_without_alarm() -> None:
    decision = Service(memory(), SETTINGS, window=None, starting=True).passes(3)
    assert (decision.reason, decision.speculate) == (LoopReason.ACTIVE, True)


def test_memory_is_stored_once_in_eight_windows_and_not_at_rest() -> None:
    service = Service(memory())
    stored = {service.passes(gain=120).memory for _ in range(4 * WINDOWS)}
    assert len(stored) == 5
    for start in (memory(), memory(Phase.OFF, cause=LoopReason.LOW_GAIN, shrunk=True)):
        service = Service(start, SETTINGS)
        service.drafts = 0 if start.shrunk else 2
        service.passes(3, **SILENT)
        before = service.memory
        assert service.passes(10, **SILENT).memory == before


def test_events_tell_the_whole_way_with_numbers() -> None:
    service = Service(lowered())
    service.passes(WINDOWS, **LOW)
    service.passes(FIRST // 15 + 2, **PLAIN)
    service.passes(WINDOWS, gain=140)
    told = [t for decision in service.decided for t in decision.transitions]
    assert [t.change for t in told] == [
        PhaseChange.DRAFTING_OFF,
        PhaseChange.DRAFTS_SCALED,
        PhaseChange.DRAFTS_WAKING,
        PhaseChange.DRAFTS_SCALED,
        PhaseChange.PROBE_STARTED,
        PhaseChange.DRAFTING_ON,
    ]
    assert [t.sentence for t in told] == [
        "drafting off: gain 96 %",
        "scaled draft 2→0: drafting off for 120 s, gain 96 %",
        "waking drafts to probe: drafting off for 2400 s, gain 96 %",
        "scaled draft 0→2: drafting is to come back",
        "probing: drafts are linked",
        "drafting stays on: a probe showed gain 140 %",
    ]
    assert service.decided[0].sentence == (
        "drafting on at 4 rows; gain 96 %, 0.0 requests waiting a target, KV 10 % full"
    )
