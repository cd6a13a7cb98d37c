"""What a serial draft may spend: the price of a row of both models, and chunks of catching up."""

import math

import numpy as np
import pytest

from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.launch.serial import row_seconds
from tests.unit.worker.one_process import OneProcess


def costs(one: float, more: float) -> StepCosts:
    """Passes of one row take `one`, each further row `more`, whatever their context."""
    rows = (1, 2, 4, 8, 16)
    seconds = one + more * (np.array(rows, np.float64) - 1)
    return StepCosts(rows, (128, 512), np.array([[seconds, seconds]]))


def test_a_further_row_of_the_draft_is_priced_by_its_step_costs() -> None:
    assert row_seconds(costs(0.010, 0.002)) == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("seconds", "price"),
    [(0.0, 0.5), (0.0005, 0.75), (0.01, 1.0), (-0.001, 1e-6)],
)
def test_a_leaf_has_to_be_likely_enough_for_a_row_of_both_models(
    seconds: float, price: float
) -> None:
    serial = OneProcess(running=1).serial
    selector = serial.target.row_selector
    rate = selector.plain_rate = 500.0
    selector._costs.scaled = np.array([0.0, 0.5 / rate])  # half a token a node row
    found = serial._least_score(seconds)
    assert math.exp(found) == pytest.approx(price)
