"""Writes of the status: percentages of speculation wait, other changes do not."""

from typing import Any

import pytest

from outrider.operator.status import differs_in_facts

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
