"""The way from on to off and back, window by window."""

import dataclasses
import itertools
from typing import Any

import pytest

from outrider.operator.control.break_even import BreakEven
from outrider.operator.control.memory import Phase
from outrider.operator.control.policy import decide
from outrider.operator.control.probes import GUARD, ProbeRecord, wait_seconds
from outrider.operator.control.reasons import LoopReason, PhaseChange
from outrider.operator.control.settings import ShrinkPolicy
from tests.unit.operator.control.made import (
    DISABLED,
    SETTINGS,
    START,
    STATIC,
    Service,
    inputs,
    memory,
    settings,
    window,
)

LOW: dict[str, Any] = {"gain": 96}
LIGHT: dict[str, Any] = {"gain": 100, "drafted": 0, "running": 1}
SILENT: dict[str, Any] = {"drafted": 49, "passes": 49}
QUEUE: dict[str, Any] = {"waiting": 9, "gain": 110}
PLAIN: dict[str, Any] = {"gain": 100, "drafted": 0}
COLOCATED = settings(managed=False, colocated=True)


@pytest.mark.parametrize(
    ("load", "cause", "because"),
    [
        (LOW, LoopReason.LOW_GAIN, "gain 96 %"),
        ({"gain": 104.9}, LoopReason.LOW_GAIN, "gain 105 %"),
        ({"gain": 100, "tokens": 2000}, LoopReason.LOW_GAIN, "gain 100 % ± 2"),
        ({"waiting": 9, "kv": 99, **LOW}, LoopReason.LOW_GAIN, "gain 96 %"),
        (
            {"declined": True, "gain": 100, "drafted": 3},
            LoopReason.LOW_GAIN,
            "targets turned drafting off by themselves",
        ),
    ],
)
def test_bad_windows_in_a_row_turn_drafting_off(
    load: dict[str, Any], cause: LoopReason, because: str
) -> None:
    goes_off(Service(memory()), load, cause, because)


@pytest.mark.parametrize(
    ("load", "cause", "because"),
    [
        (
            {"waiting": 5.1, "gain": 110},
            LoopReason.HIGH_QUEUE,
            "5.1 requests waiting a target",
        ),
        ({"waiting": 9, **SILENT}, LoopReason.HIGH_QUEUE, "9.0 requests waiting a target"),
        ({"kv": 80.1, "gain": 110}, LoopReason.HIGH_KV_USAGE, "KV 80 % full"),
        ({"kv": 90, "waiting": 9, **LOW}, LoopReason.HIGH_KV_USAGE, "KV 90 % full"),
    ],
)
def test_pressure_turns_off_a_draft_that_may_cause_it(
    load: dict[str, Any], cause: LoopReason, because: str
) -> None:
    goes_off(Service(memory(), COLOCATED), load, cause, because)


def goes_off(service: Service, load: dict[str, Any], cause: LoopReason, because: str) -> None:
    assert service.passes(**load).speculate
    decision = service.passes(**load)
    assert (decision.speculate, decision.reason) == (False, cause)
    assert [t.sentence for t in decision.transitions] == [f"drafting off: {because}"]


@pytest.mark.parametrize(
    "load",
    [
        {"gain": 105},
        {"waiting": 5, "gain": 110},
        {"kv": 80, "gain": 110},
        {"gain": 50, **SILENT},
        {"declined": True, **SILENT},
        {"waiting": 50, "kv": 99, "gain": 115},
        {"waiting": 50, "kv": 99, "gain": 106},
        {"waiting": 50, "kv": 99, **SILENT},
        {"gain": 100, "tokens": 140, "passes": 70, "drafted": 70},
    ],
    ids=[
        "at the gain",
        "at the queue",
        "at the KV",
        "few passes",
        "few declined",
        "pays anyway",
        "pressure that no draft causes",
        "pressure at unknown gain",
        "a loss that may be chance",
    ],
)
def test_drafting_stays_on_where_nothing_speaks_clearly_against_it(load: dict[str, Any]) -> None:
    service = Service(memory())
    decision = service.passes(20, **load)
    assert (decision.speculate, decision.max_rows, decision.reason) == (
        True,
        16,
        LoopReason.ACTIVE,
    )


def test_a_window_between_two_bad_ones_starts_the_count_again() -> None:
    service = Service(memory())
    for load in (LOW, {}, LOW, SILENT, LOW, {}):
        assert service.passes(**load).speculate


def test_a_window_counts_once_however_often_it_is_looked_at() -> None:
    service = Service(memory())
    once = service.passes(**LOW)
    sight = inputs(window=window(service.now - 15, service.now, **LOW))
    again = [decide(SETTINGS, once.memory, sight, service.now + n) for n in range(5)]
    assert {decision.memory for decision in again} == {once.memory}


def test_a_window_from_before_the_switch_was_acknowledged_says_nothing() -> None:
    late = memory(acknowledged_at=None, bad=1)
    first = decide(
        SETTINGS, late, inputs(window=window(START + 99, START + 114, **LOW)), START + 115
    )
    assert first.memory.acknowledged_at == START + 115
    assert first.speculate
    sight = inputs(window=window(START + 114, START + 129, **LOW))
    second = decide(SETTINGS, first.memory, sight, START + 130)
    assert second.speculate
    sight = inputs(window=window(START + 129, START + 144, **LOW))
    assert not decide(SETTINGS, second.memory, sight, START + 145).speculate


def test_a_colocated_draft_stays_on_at_the_thresholds_of_pressure() -> None:
    for load in ({"waiting": 5, "gain": 110}, {"kv": 80, "gain": 110}, {"kv": 99, "gain": 115}):
        assert Service(memory(), COLOCATED).passes(20, **load).speculate


def test_the_ceiling_halves_once_a_cool_down_while_gain_is_low() -> None:
    service = Service(memory())
    loads = [LOW, {"gain": 112}] * 4
    assert [service.passes(**load).max_rows for load in loads] == [8] * 4 + [4] * 4


def test_the_ceiling_stays_in_the_dead_band_and_without_evidence() -> None:
    service = Service(memory(ceiling=2))
    assert service.passes(5, **SILENT).max_rows == 2
    assert service.passes(5, gain=114).max_rows == 2
    assert service.passes(gain=115).max_rows == 4


def test_a_ceiling_that_was_lowered_is_raised_after_a_probes_interval() -> None:
    service = Service(memory())
    service.passes(**LOW)
    rows = [service.passes().max_rows for _ in range(21)]
    assert rows == [8] * 19 + [16] * 2


def test_a_ceiling_that_fails_again_and_again_is_raised_ever_more_rarely() -> None:
    service = Service(memory())
    raised: list[float] = []
    for _ in range(24 * 240):
        before = service.memory.max_rows
        gain = 103 if before == 16 else 120
        if service.passes(gain=gain).max_rows > before:
            raised.append(service.now)
    gaps = [later - earlier for earlier, later in itertools.pairwise(raised)]
    assert len(gaps) >= 4
    assert all(later >= 1.9 * earlier for earlier, later in itertools.pairwise(gaps))
    assert service.memory.speculate


def test_a_ceiling_that_stood_for_long_starts_the_count_again() -> None:
    service = Service(memory(lowered=3, raised_at=START - 10_000))
    assert service.passes(**LOW).memory.lowered == 1
    soon = Service(memory(lowered=3, raised_at=START + 900))
    assert soon.passes(**LOW).memory.lowered == 4


def test_no_switch_comes_before_the_cool_down() -> None:
    service = Service(memory(switched_at=START + 1000))
    decisions = [service.passes(**LOW).speculate for _ in range(4)]
    assert decisions == [True, True, True, False]


@pytest.mark.parametrize("load", [QUEUE, {"kv": 85, "gain": 110}])
def test_after_pressure_drafting_comes_back_with_one_row_once_it_was_quiet(
    load: dict[str, Any],
) -> None:
    service = Service(memory(), COLOCATED)
    service.passes(2, **load)
    assert not service.passes(10, waiting=3, kv=75, **PLAIN).speculate
    service.passes(3, **PLAIN)
    assert not service.passes(waiting=2, **PLAIN).speculate
    waking = service.passes(4, waiting=1, **PLAIN)
    assert (waking.memory.phase, waking.reason) == (Phase.WAKING, LoopReason.DRAFT_STARTING)
    back = service.passes(**PLAIN)
    assert (back.speculate, back.max_rows, back.memory.phase) == (True, 1, Phase.ON)
    assert [service.passes().max_rows for _ in range(6)] == [1, 2, 4, 8, 16, 16]


def test_pressure_that_returns_while_drafts_wake_ends_the_waking() -> None:
    service = Service(memory(Phase.WAKING, cause=LoopReason.HIGH_QUEUE, bad=1), COLOCATED)
    decision = service.passes(waiting=9, **PLAIN)
    assert (decision.memory.phase, decision.reason) == (Phase.OFF, LoopReason.HIGH_QUEUE)
    assert not any(d.speculate for d in service.decided)


def off_for(seconds: float, **values: Any) -> Service:
    service = Service(memory(Phase.OFF, cause=LoopReason.LOW_GAIN, ceiling=1, **values), SETTINGS)
    service.now = START + seconds
    return service


def test_after_low_gain_a_quiet_service_waits_for_a_probe() -> None:
    service = off_for(0)
    assert service.passes(19, **PLAIN).memory.phase is Phase.OFF
    decision = service.passes(**PLAIN)
    assert (decision.memory.phase, decision.reason) == (Phase.WAKING, LoopReason.PROBING)
    probe = service.passes(2, **PLAIN)
    assert (probe.memory.phase, probe.speculate, probe.max_rows) == (Phase.PROBING, True, 1)


def test_a_service_that_decodes_nothing_is_not_probed() -> None:
    service = off_for(10_000)
    assert service.passes(10, **SILENT).memory.phase is Phase.OFF
    assert service.passes(**PLAIN).memory.phase is Phase.WAKING


def test_a_probe_that_pays_in_enough_windows_leaves_drafting_on() -> None:
    service = off_for(1200, records=(ProbeRecord(failed=2, gain_percent=100),))
    service.passes(2, **LIGHT)
    rows = [service.passes(gain=115, running=1).max_rows for _ in range(5)]
    assert rows == [1, 4, 16, 16, 16]
    decision = service.decided[-1]
    assert decision.memory.phase is Phase.ON
    assert decision.transitions[0].sentence == "drafting stays on at 16 rows: it pays again"


def test_a_probe_that_does_not_lose_is_judged_at_its_full_ceiling() -> None:
    service = off_for(300)
    service.passes(3, **PLAIN)
    assert [service.passes(gain=110).max_rows for _ in range(3)] == [4, 16, 16]
    assert service.passes(gain=110).memory.phase is Phase.OFF


def test_a_probe_whose_lower_ceiling_paid_goes_back_to_it() -> None:
    service = off_for(300)
    service.passes(2, **PLAIN)
    assert [service.passes(gain=120).max_rows for _ in range(3)] == [1, 4, 16]
    back = service.passes(gain=103)
    assert (back.memory.phase, back.max_rows) == (Phase.PROBING, 4)
    decision = service.passes(4, gain=120)
    assert (decision.memory.phase, decision.max_rows) == (Phase.ON, 4)


@pytest.mark.parametrize("load", [{"gain": 99}, {"declined": True, "drafted": 2}])
def test_a_probe_that_loses_ends_after_the_cool_down(load: dict[str, Any]) -> None:
    service = off_for(300)
    service.passes(2, **LIGHT)
    phases = [service.passes(running=1, **load).memory.phase for _ in range(4)]
    assert phases == [Phase.PROBING] * 3 + [Phase.OFF]
    assert service.memory.cause is LoopReason.LOW_GAIN
    assert service.memory.records[0].failed == 1


def test_a_probe_without_passes_stays_a_probe_until_it_has_shown_nothing_for_long() -> None:
    service = off_for(300)
    service.passes(2, **PLAIN)
    decision = service.passes(50, gain=50, **SILENT)
    assert (decision.memory.phase, decision.reason) == (Phase.PROBING, LoopReason.PROBING)
    decision = service.passes(10, gain=50, **SILENT)
    assert (decision.memory.phase, decision.memory.records[2].failed) == (Phase.OFF, 1)


@pytest.mark.parametrize("failed", [0, 1, 2, 3, 9])
def test_each_probe_that_fails_doubles_the_time_to_the_next_without_end(failed: int) -> None:
    seconds, records = 300 * 2**failed, (ProbeRecord(failed=failed, gain_percent=110),)
    early, due = off_for(seconds - 30, records=records), off_for(seconds, records=records)
    assert early.passes(**LIGHT).memory.phase is Phase.OFF
    assert due.passes(**LIGHT).memory.phase is Phase.WAKING


def test_what_failed_under_one_load_counts_under_that_load_alone() -> None:
    failed = (ProbeRecord(), ProbeRecord(), ProbeRecord(failed=5))
    for running, phase in ((3, Phase.WAKING), (4, Phase.OFF), (7, Phase.OFF), (8, Phase.WAKING)):
        service = off_for(300, records=failed)
        assert service.passes(running=running, **PLAIN).memory.phase is phase


@pytest.mark.parametrize(("seconds", "failed"), [(599, 4), (600, 0)])
def test_drafting_that_lasted_forgets_the_probes_that_failed(seconds: float, failed: int) -> None:
    start = memory(records=(ProbeRecord(failed=3),), switched_at=START + 1030 - seconds)
    service = Service(start)
    service.passes(2, running=1, **LOW)
    assert service.memory.records == (ProbeRecord(failed=failed, gain_percent=96),)


def test_a_probe_is_priced_by_its_hardware_its_start_and_what_it_is_expected_to_lose() -> None:
    pays = BreakEven(off_below=133, on_above=143, share=1 / 3)
    known = ProbeRecord(gain_percent=105)
    assert wait_seconds(SETTINGS, BreakEven(105, 115), ProbeRecord(gain_percent=104), 50) == 300
    assert wait_seconds(SETTINGS, pays, known, 0) == pytest.approx(60 * 0.28 / GUARD)
    assert wait_seconds(SETTINGS, pays, known, 300) == pytest.approx((60 * 0.28 + 100) / GUARD)
    assert wait_seconds(SETTINGS, pays, ProbeRecord(), 300) == pytest.approx(100 / GUARD)


def test_the_time_that_drafts_take_to_start_is_measured() -> None:
    service = off_for(300, shrunk=True)
    service.drafts = 0
    service.passes(**PLAIN)
    service.sight = {"links_up": 0}
    service.passes(4, **PLAIN)
    service.sight = {}
    assert service.passes(**PLAIN).memory.start_seconds == 75


def test_a_service_off_by_pressure_that_never_ends_is_probed_too() -> None:
    service = Service(memory(Phase.OFF, cause=LoopReason.HIGH_QUEUE, ceiling=1), COLOCATED)
    service.now = START + 300
    service.passes(waiting=50, **PLAIN)
    assert service.memory.phase is Phase.WAKING
    decision = service.passes(12, waiting=50, gain=130)
    assert (decision.memory.phase, decision.max_rows) == (Phase.ON, 16)


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


def test_drafting_does_not_come_back_in_a_window_under_pressure() -> None:
    service = Service(memory(Phase.WAKING), COLOCATED)
    assert not service.passes(waiting=9, **PLAIN).speculate
    assert service.passes(**PLAIN).speculate


def test_the_window_that_ends_a_probe_counts_no_more() -> None:
    service = Service(memory(Phase.PROBING, ceiling=2, good=3), SETTINGS)
    once = service.passes()
    assert (once.memory.phase, once.max_rows) == (Phase.ON, 8)
    sight = inputs(window=window(service.now - 15, service.now))
    assert decide(SETTINGS, once.memory, sight, service.now).max_rows == 8


def test_after_a_while_the_drafts_that_are_linked_are_enough() -> None:
    service = Service(memory(Phase.WAKING, switched_at=START - 100), SETTINGS, links_up=1)
    service.now = START
    on = [service.passes(**PLAIN).speculate for _ in range(9)]
    assert on == [False] * 7 + [True] * 2


def test_a_draft_lost_while_drafting_is_on_changes_nothing_but_the_reason() -> None:
    service = Service(memory(), SETTINGS, links_up=0, drafts_ready=0)
    before = service.memory
    decision = service.passes(20, drafted=0, gain=100)
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
    decision = service.passes(2)
    assert (decision.speculate, decision.max_rows) == (True, 1)


def test_drafting_that_is_disabled_is_off_for_the_reason_of_the_settings() -> None:
    settled = dataclasses.replace(DISABLED, disabled_because="the service has no draft")
    service = Service(memory(), settled)
    assert [t.sentence for t in service.passes().transitions] == [
        "drafting off: the service has no draft"
    ]
    service.settings = DISABLED
    decision = service.passes()
    assert decision.transitions == ()
    assert "speculation.mode is Disabled" in decision.sentence


def test_disabled_works_blind() -> None:
    service = Service(memory(), DISABLED, window=None, sessions=None)
    decision = service.passes(30)
    assert (decision.speculate, decision.draft_replicas) == (False, 0)
    assert decision.reason is LoopReason.DISABLED_BY_USER


@pytest.mark.parametrize("start", list(Phase))
def test_static_is_on_at_its_ceiling_whatever_is_measured(start: Phase) -> None:
    service = Service(memory(start, ceiling=1), STATIC)
    for load in (LOW, QUEUE, {"kv": 99}, SILENT):
        decision = service.passes(5, **load)
        assert (decision.speculate, decision.max_rows) == (True, 16)
        assert decision.reason is LoopReason.ACTIVE
    assert decision.draft_replicas == 2


def test_a_new_ceiling_in_the_service_is_pushed_at_once() -> None:
    service = Service(memory())
    service.settings = settings(max_rows=8)
    assert service.passes().max_rows == 8
    service.settings = settings(max_rows=32)
    assert service.passes(**SILENT).max_rows == 32


def test_a_change_of_anything_else_that_targets_are_told_raises_the_version() -> None:
    service = Service(memory(), SETTINGS, others="drafts a b")
    assert service.passes().memory.version == 8
    assert service.passes(3).memory.version == 8
    service.sight = {"others": "drafts a"}
    assert service.passes().memory.version == 9


def test_blindness_holds_everything_and_says_so() -> None:
    for phase in Phase:
        before = memory(phase, bad=1, good=1)
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


def test_a_service_at_rest_changes_no_memory() -> None:
    for start in (
        memory(),
        memory(Phase.OFF, cause=LoopReason.LOW_GAIN, ceiling=1, shrunk=True),
    ):
        service = Service(start, SETTINGS)
        service.drafts = 0 if start.shrunk else 2
        service.passes(3)
        before = service.memory
        assert service.passes(10, **SILENT).memory == before


def test_events_tell_the_whole_way_with_numbers() -> None:
    service = Service(memory(), settings(shrink=ShrinkPolicy.WHEN_DISABLED))
    service.passes(2, **LOW)
    service.passes(25, **PLAIN)
    service.passes(8, gain=140)
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
        "waking drafts to probe: drafting off for 300 s, gain 96 %",
        "scaled draft 0→2: drafting is to come back",
        "probing at 1 row: drafts are linked",
        "drafting stays on at 16 rows: it pays again",
    ]
    assert service.decided[0].sentence == (
        "drafting on at 8 rows; gain 96 %, 0.0 requests waiting a target, KV 10 % full"
    )
