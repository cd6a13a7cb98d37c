"""Writes of the status: percentages of speculation wait, other changes do not."""

import datetime
from typing import Any

import pytest

from outrider.operator.certificates.authority import Authorities
from outrider.operator.spec.status import MAX_ADVICE
from outrider.operator.status.content import differs_in_facts
from tests.unit.operator.one_service import START, OneService

OLD: dict[str, Any] = {
    "observedGeneration": 1,
    "conditions": [{"type": "Ready", "status": "True"}],
    "speculation": {"maxRows": 16, "gainPercent": 130, "hitPercent": 70},
}


@pytest.mark.parametrize(
    "speculation",
    [
        {"maxRows": 16, "gainPercent": 145, "hitPercent": 65},
        {"maxRows": 16, "gainPercent": 130},
        {"maxRows": 16},
    ],
)
def test_other_figures_alone_can_wait(speculation: dict[str, int]) -> None:
    assert not differs_in_facts({**OLD, "speculation": speculation}, OLD)


@pytest.mark.parametrize(
    "change",
    [
        {"observedGeneration": 2},
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"speculation": {"maxRows": 12, "gainPercent": 130, "hitPercent": 70}},
    ],
)
def test_anything_else_cannot_wait(change: dict[str, Any]) -> None:
    assert differs_in_facts({**OLD, **change}, OLD)


def test_the_first_status_cannot_wait() -> None:
    assert differs_in_facts(OLD, {})


@pytest.mark.parametrize("certified", [False, True])
def test_a_service_whose_workers_nothing_guards_is_told_so(certified: bool) -> None:
    start = datetime.datetime.fromtimestamp(START, datetime.UTC)
    authorities = Authorities().renewed(start)
    service = OneService(authorities=(lambda: authorities) if certified else None)
    service.rest(1)
    service.edit(lambda spec: spec.update(networkPolicy={"mode": "Disabled"}))
    service.rest(1)
    told = [one for one in service.raw["status"].get("advice", ()) if "networkPolicy" in one]
    assert len(told) == (0 if certified else 1)


def test_a_status_without_advice_says_so() -> None:
    """The definition's default is an empty list: left out, each pass would find a difference."""
    service = OneService()
    service.rest(1)
    assert service.raw["status"]["advice"] == []


def test_advice_beyond_what_a_status_holds_is_no_event_of_each_pass() -> None:
    service = OneService()
    newer = {f"newer{number}": 1 for number in range(MAX_ADVICE + 4)}
    service.edit(lambda spec: spec["target"].update(newer))
    service.rest(4)
    notes = [note for reason, note in service.cluster.events if reason == "Advice"]
    assert len(notes) == len(set(notes)) == MAX_ADVICE
    assert service.raw["status"]["advice"] == notes
