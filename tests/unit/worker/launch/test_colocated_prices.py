"""What a colocated draft may spend: the price of a row of both models, and the time of a prompt."""

import math

import numpy as np
import pytest

from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.launch.colocated import row_seconds
from outrider.worker.target.selection import RowSelector
from tests.unit.worker.colocated_pair import ColocatedPair
from tests.unit.worker.pair import DRAFT_SECONDS

PROMPT = list(range(2, 62))


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
    colocated = ColocatedPair(running=1).colocated
    selector = colocated.target.row_selector
    rate = selector.plain_rate = 500.0
    selector._costs.scaled = np.array([0.0, 0.5 / rate])  # half a token a node row
    found = colocated._least_score(seconds)
    assert math.exp(found) == pytest.approx(price)


@pytest.mark.parametrize(
    ("answer", "row_seconds", "drafts"),
    [(100, 0.001, True), (4, 0.001, False), (100, 0.01, False)],
)
def test_a_draft_computes_a_prompt_that_the_answer_can_pay_for(
    answer: int, row_seconds: float, drafts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowSelector, "may_try", lambda *_: False)
    pair = ColocatedPair(running=1, noise=0.1, draft_costs=costs(DRAFT_SECONDS, row_seconds))
    pair.submit(PROMPT, answer)
    pair.run()
    assert pair.text() == pair.expected(PROMPT, answer)
    assert (pair.target.stats.counters.drafting_seconds > 0) == drafts


def test_time_that_a_draft_takes_for_a_prompt_is_no_loss() -> None:
    pair = ColocatedPair(running=1, draft_costs=costs(DRAFT_SECONDS, 0.0))
    pair.submit(PROMPT, 100)
    for _ in range(4):
        pair.turn()
    assert pair.target.row_selector.account.present.invested == pytest.approx(DRAFT_SECONDS)
    assert pair.target.stats.counters.drafting_seconds > DRAFT_SECONDS
