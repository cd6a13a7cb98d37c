"""What drafting should gain at a load at which nothing was measured."""

import math

import numpy as np

from outrider.contract.settings import PolicySettings
from outrider.worker.costs.step_costs import StepCosts
from outrider.worker.target.selection import ENOUGH_GUESSES, RowSelector

DEAR_ROWS = StepCosts((1, 64), (1, 2), np.array([[[0.01, 0.64], [0.01, 0.64]]]))


def test_acceptance_that_is_only_assumed_says_nothing_against_drafting() -> None:
    selector = RowSelector.start(DEAR_ROWS, PolicySettings(), 64)
    assert selector.predicted_gain(1) == math.inf
    selector.enter(1, 0.0)
    selector.decide_drafting()
    assert selector.wants_any_drafts


def test_guesses_that_were_seen_do() -> None:
    selector = RowSelector.start(DEAR_ROWS, PolicySettings(), 64)
    selector.average.curves.first.trials[0] = ENOUGH_GUESSES
    assert selector.predicted_gain(1) == 1.0
    selector.enter(1, 0.0)
    selector.decide_drafting()
    assert not selector.wants_any_drafts
