"""Step costs: straight lines between what was measured."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.costs.step_costs import StepCosts

COSTS = StepCosts((1, 2, 4), (100, 200), np.array([[[1.0, 2.0, 3.0], [2.0, 3.0, 5.0]]]))


@pytest.mark.parametrize(
    ("rows", "context", "seconds"),
    [
        (1, 100, 1.0),
        (3, 100, 2.5),
        (3, 150, 3.25),
        (6, 100, 4.0),  # past the table: the slope from 2 to 4 rows
        (1, 300, 3.0),
        (1, 1, 1.0),  # as the shorter context
    ],
)
def test_seconds_follow_straight_lines(rows: int, context: int, seconds: float) -> None:
    assert COSTS.seconds(rows, context) == pytest.approx(seconds)


def test_a_curve_counts_the_root_and_up_to_max_rows_nodes() -> None:
    curve = COSTS.curve(4, 130)
    assert curve.shape == (5,)
    assert curve.tolist() == pytest.approx([COSTS.seconds(n, 130) for n in range(1, 6)])


@given(
    st.lists(st.floats(1e-4, 1.0), min_size=24, max_size=24),
    st.integers(1, 3000),
    st.integers(1, 100),
    st.integers(1, 40),
)
def test_more_of_anything_never_costs_less(
    raw: list[float], context: int, rows: int, sequences: int
) -> None:
    table = np.array(raw).reshape(3, 2, 4)
    costs = StepCosts.smoothed((1, 2, 8, 16), (128, 512), table, (1, 4, 16))
    curve = costs.curve(rows, context, sequences, sequences)
    assert (np.diff(curve) >= -1e-12).all()
    assert (curve > 0).all()
    assert (costs.curve(rows, context, sequences + 1, sequences) >= curve - 1e-12).all()
    assert (costs.curve(rows, context + 1, sequences, sequences) >= curve - 1e-12).all()


def test_a_pass_of_more_sequences_lies_on_the_line_between_batches() -> None:
    measured = np.array([[[1.0, 2.0], [1.0, 2.0]], [[3.0, 6.0], [3.0, 6.0]]])
    costs = StepCosts((4, 8), (100, 200), measured, (1, 3))
    assert costs.seconds(4, 100, 2) == pytest.approx(2.0)
    assert costs.seconds(8, 100, 3) == pytest.approx(6.0)
    assert costs.seconds(8, 100, 5) == pytest.approx(10.0)


def test_a_disturbed_measurement_raises_no_other() -> None:
    raw = np.array([[[1.0, 9.0, 2.0, 3.0], [1.5, 2.0, 9.0, 4.0]]])
    costs = StepCosts.smoothed((1, 2, 8, 16), (128, 512), raw)
    assert costs.table() == {1: 1.0, 2: 2.0, 8: 2.0, 16: 3.0}
    assert costs.seconds(8, 512) < 4.5


def test_costs_survive_json() -> None:
    copy = StepCosts.from_json(json.loads(json.dumps(COSTS.to_json())))
    assert copy.batches == (1,)
    assert copy.seconds(3, 170) == COSTS.seconds(3, 170)
    assert copy.table() == {1: 1.0, 2: 2.0, 4: 3.0}


def test_prefill_rows_cost_what_they_add_without_logits() -> None:
    measured = np.array([[[2.0, 4.0], [2.0, 4.0]]])
    costs = StepCosts((1, 3), (100, 200), measured, prefill_share=0.75)
    assert costs.prefill_curve(2, 100, 1).tolist() == pytest.approx([2.0, 2.75, 3.5])
    assert costs.curve(2, 100).tolist() == pytest.approx([2.0, 3.0, 4.0])
