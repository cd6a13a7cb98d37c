"""Memory after a restart, and texts that cannot be read."""

import pytest

from outrider.contract.settings import MAX_POLICY_VERSION
from outrider.operator.control.evidence import Evidence
from outrider.operator.control.memory import (
    Phase,
    PolicyInForce,
    UnreadableMemory,
    loads,
    new_memory,
)
from outrider.operator.control.policy import decide, recall
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.settings import (
    ControlSettings,
)
from tests.unit.operator.control.made import START, Service, inputs, memory

SETTINGS = ControlSettings()
FULL = memory(
    Phase.OFF,
    cause=LoopReason.LOW_GAIN,
    because="gain 96 %",
    evidence=Evidence(480.0, 7200.5, 1.25, 0.125),
    fewer_since=START + 0.125,
    failed=3,
    least_load=1.5,
    subject="0123456789",
    idle_since=START + 0.25,
    lowered_at=START + 0.5,
    unused_since=START + 0.75,
    start_seconds=41.5,
    others="a b",
    busy=1,
)


def test_memory_survives_json() -> None:
    for one in (FULL, memory(), new_memory(SETTINGS, START, None)):
        assert loads(one.dumps()) == one


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "the text"),
        ("[]", "the text"),
        ("{}", "version"),
        (FULL.dumps().replace('"format":3', '"format":2'), "format"),
        (FULL.dumps().replace('"version":7', '"version":"7"'), "version"),
        (FULL.dumps().replace('"version":7', '"version":-7'), "version"),
        (FULL.dumps().replace('"phase":"Off"', '"phase":"Asleep"'), "phase"),
        (FULL.dumps().replace('"busy":1', '"busy":true'), "busy"),
        (FULL.dumps().replace('"busy":1', '"bad":1'), "bad"),
        (FULL.dumps().replace("1000000.0", "NaN"), "entered_at"),
        (FULL.dumps()[:-9], "the text"),
    ],
)
def test_a_memory_that_cannot_be_read_says_where(text: str, where: str) -> None:
    with pytest.raises(UnreadableMemory, match=f"memory: {where}: "):
        loads(text)


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize("text", [None, "garbage"])
def test_without_a_memory_the_present_setting_is_held(text: str | None, speculate: bool) -> None:
    in_force = PolicyInForce(version=41, speculate=speculate, max_rows=16)
    start, problem = recall(text, SETTINGS, START, in_force)
    assert (problem is None) == (text is None)
    service = Service(start, SETTINGS)
    decision = service.passes(2, gain=100)
    assert (decision.memory.version, decision.speculate) == (41, speculate)


def test_another_ceiling_than_the_services_own_is_replaced() -> None:
    start, _ = recall(None, SETTINGS, START, PolicyInForce(version=3, speculate=True, max_rows=64))
    decision = Service(start, SETTINGS).passes()
    assert (decision.memory.version, decision.max_rows) == (4, 16)


def test_a_lowered_ceiling_is_held_without_a_memory() -> None:
    start, _ = recall(None, SETTINGS, START, PolicyInForce(version=3, speculate=True, max_rows=4))
    decision = Service(start, SETTINGS).passes()
    assert (decision.memory.version, decision.max_rows) == (3, 4)


def test_a_new_service_drafts_with_its_full_ceiling_as_soon_as_it_is_linked() -> None:
    start, problem = recall(None, SETTINGS, START, None)
    service = Service(start, SETTINGS, window=None, starting=True, links_up=0)
    service.now, service.drafts = START, None
    first = service.passes()
    assert (problem, first.speculate, first.draft_replicas) == (None, False, 1)
    assert first.reason is LoopReason.DRAFT_STARTING
    service.sight = {}
    linked = service.passes()
    assert (linked.speculate, linked.max_rows, linked.memory.version) == (True, 16, 2)


def test_a_version_behind_the_targets_is_raised_above_theirs() -> None:
    in_force = PolicyInForce(version=90, speculate=True, max_rows=16)
    start, _ = recall(FULL.dumps(), SETTINGS, START, in_force)
    assert (start.version, start.acknowledged_at) == (91, None)
    same, _ = recall(
        FULL.dumps(), SETTINGS, START, PolicyInForce(version=7, speculate=True, max_rows=16)
    )
    assert same == FULL


def test_a_clock_that_was_put_back_delays_nothing_for_ever() -> None:
    ahead = START + 86_400
    start = memory(entered_at=ahead, switched_at=ahead, counted_until=ahead, acknowledged_at=ahead)
    service = Service(start)
    service.passes(20, gain=90)
    assert service.memory.phase is Phase.OFF


def test_any_time_in_memory_is_at_most_now() -> None:
    start = memory(entered_at=START + 9, fewer_since=START + 9)
    found = decide(SETTINGS, start, inputs(), START + 5).memory
    assert (found.entered_at, found.fewer_since) == (START + 5, START + 5)
    assert found.switched_at == START


def test_no_version_of_a_target_leads_beyond_what_targets_take() -> None:
    in_force = PolicyInForce(version=MAX_POLICY_VERSION, speculate=True, max_rows=4)
    found, _ = recall(None, SETTINGS, START, in_force)
    assert found.version == MAX_POLICY_VERSION
    older, _ = recall(memory(Phase.ON, version=3).dumps(), SETTINGS, START, in_force)
    assert older.version == MAX_POLICY_VERSION
