"""States of workers as samples, and states that no window is made of."""

import dataclasses
import math

import pytest

from outrider.contract.counters import Counters
from outrider.contract.settings import PolicySettings, Role
from outrider.contract.state import Link, LinkState, State
from outrider.operator.control.samples import CounterSample, DraftSample, TargetSample
from outrider.operator.workers.sample import is_plausible, sample


def state(role: Role = Role.TARGET, **counted: float) -> State:
    counters = Counters(**{"kv_slots": 10, "kv_slots_used": 4, **counted})  # type: ignore[arg-type]
    states = (LinkState.UP, LinkState.REFUSED)
    links = (Link(address="d", state=one, detail="", revision="", incarnation=1) for one in states)
    return State(
        role=role, model="m", revision="r", incarnation=1, ready=True, draining=False,
        policy=PolicySettings(), links=tuple(links), running=3, waiting=2, counters=counters,
        dtype="fp32", threads=1, step_seconds={}, drafting="on",
    )  # fmt: skip


def test_a_target_says_what_it_decoded_and_what_waits() -> None:
    found = state(plain_seconds=3.5, spent_seconds=2.5, passes=7, first_hits=2)
    counters = CounterSample(plain_seconds=3.5, spent_seconds=2.5, passes=7, first_hits=2)
    assert sample(found, "t", 5.0) == TargetSample(
        uid="t", at=5.0, counters=counters, waiting=2, running=3, kv_usage=0.4,
        links_up=1, links=2,
    )  # fmt: skip


def test_a_draft_says_its_sessions() -> None:
    expected = DraftSample(uid="d", at=5.0, sessions=3, kv_usage=0.4)
    assert sample(state(Role.DRAFT), "d", 5.0) == expected
    assert sample(state(Role.DRAFT, kv_slots=0, kv_slots_used=0), "d", 5.0).kv_usage == 0.0


@pytest.mark.parametrize(
    "counted",
    [{"plain_seconds": -1.0}, {"spent_seconds": math.nan}, {"tokens": math.inf}, {"kv_slots": 3}],
)
def test_a_state_with_a_number_that_cannot_be_is_not_plausible(counted: dict[str, float]) -> None:
    assert is_plausible(state())
    assert not is_plausible(state(**counted))


@pytest.mark.parametrize("word", ["", "resting"])
def test_only_a_target_has_to_say_whether_it_drafts_in_a_known_word(word: str) -> None:
    assert not is_plausible(dataclasses.replace(state(), drafting=word))
    assert is_plausible(dataclasses.replace(state(Role.DRAFT), drafting=word))
