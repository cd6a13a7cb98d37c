"""Break-even by hardware, and what is a quorum."""

from typing import Any

import pytest

from outrider.operator.control.break_even import break_even
from outrider.operator.control.memory import Phase
from outrider.operator.control.reasons import LoopReason
from outrider.operator.control.samples import agreed_version, is_quorum
from outrider.operator.control.settings import WINDOWS, ControlSettings, ShrinkPolicy
from tests.unit.operator.control.made import Service, lowered, memory, settings

TWO_BY_SIX: dict[str, Any] = {"draft_gpus": 2, "target_gpus": 6}


@pytest.mark.parametrize(
    ("control", "drafts", "targets", "expected"),
    [
        (settings(**TWO_BY_SIX), 1, 1, (133, 133)),
        (settings(**TWO_BY_SIX), 1, 2, (117, 117)),
        (settings(**TWO_BY_SIX), 2, 1, (167, 167)),
        (settings(**TWO_BY_SIX, min_replicas=1), 2, 1, (133, 133)),
        (settings(draft_gpus=1, target_gpus=64), 1, 1, (103, 103)),
        (settings(), 4, 1, (103, 103)),
        (settings(**TWO_BY_SIX), 1, 0, (103, 103)),
        (settings(**TWO_BY_SIX, shrink=ShrinkPolicy.NEVER), 1, 1, (103, 103)),
        (settings(**TWO_BY_SIX, managed=False), 1, 1, (103, 103)),
        (settings(**TWO_BY_SIX, gain_below_percent=90), 1, 1, (90, 90)),
        (settings(**TWO_BY_SIX, gain_above_percent=120), 1, 1, (119, 120)),
        (settings(**TWO_BY_SIX, gain_above_percent=200), 1, 1, (133, 200)),
    ],
    ids=[
        "2 beside 6",
        "2 beside 12",
        "4 beside 6",
        "one stays anyway",
        "hardly any",
        "no GPUs",
        "no target yet",
        "never given back",
        "another owner",
        "off is written",
        "on is written, and lower",
        "on is written, and higher",
    ],
)
def test_break_even_is_what_pays_for_the_drafts_that_are_given_back(
    control: ControlSettings, drafts: int, targets: int, expected: tuple[int, int]
) -> None:
    found = break_even(control, drafts, targets)
    assert (found.off_below, found.on_above) == expected


@pytest.mark.parametrize(
    ("prices", "percent"),
    [((1, 12), 108), ((4, 12), 133), ((1, 0), 133), ((0, 12), 133), ((6, 12), 150)],
)
def test_prices_that_both_have_count_instead_of_gpus(
    prices: tuple[float, float], percent: int
) -> None:
    control = settings(**TWO_BY_SIX, draft_price=prices[0], target_price=prices[1])
    assert break_even(control, 1, 1).off_below == percent


def test_drafts_that_are_kept_say_what_they_cost_and_bring_a_day() -> None:
    priced = settings(**TWO_BY_SIX, draft_price=2, target_price=12)
    said = Service(memory(grown=1), priced).passes(30, gain=150).sentence
    assert "drafts that can be given back cost 48.00 a day and bring 144.00, " in said
    assert "cost" not in Service(memory(grown=1), settings(**TWO_BY_SIX)).passes(30).sentence


def test_drafts_that_are_given_back_say_what_they_cost_and_brought_a_day() -> None:
    priced = settings(**TWO_BY_SIX, draft_price=2, target_price=6)
    decision = Service(lowered(grown=1), priced).passes(WINDOWS, gain=110)
    (said, *_) = [change.sentence for change in decision.transitions]
    assert said.startswith("drafting off: gain 110 %, ")
    assert said.endswith("; drafts that can be given back cost 48.00 a day and bring 14.40")


def test_a_gain_of_105_does_not_pay_for_2_gpus_beside_6() -> None:
    service = Service(lowered(grown=1), settings(**TWO_BY_SIX))
    decision = service.passes(WINDOWS, gain=105)
    assert (decision.memory.phase, decision.reason) == (Phase.OFF, LoopReason.LOW_GAIN)
    assert decision.transitions[0].sentence == "drafting off: gain 105 %, 133 % pays"
    assert Service(memory(grown=1), settings(**TWO_BY_SIX)).passes(30, gain=133).speculate


@pytest.mark.parametrize(
    ("some", "every", "expected"),
    [(0, 0, False), (0, 1, False), (1, 1, True), (1, 2, True), (1, 3, False), (2, 3, True)],
)
def test_half_of_the_targets_is_a_quorum(some: int, every: int, expected: bool) -> None:
    assert is_quorum(some, every) is expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [([], 0), ([7], 7), ([7, 0], 7), ([7, 6, 0], 6), ([7, 7, 0, 0], 7), ([7, 6, 6, 6], 6)],
)
def test_a_version_is_agreed_on_once_a_quorum_follows_it(
    versions: list[int], expected: int
) -> None:
    assert agreed_version(versions) == expected
