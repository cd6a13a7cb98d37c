"""Clocks of stages: one machine's are left as they are, others are brought to the leader's."""

import numpy as np
from numpy.typing import NDArray

from outrider.worker.pipeline.segment_log import FORGET_SECONDS, StageClocks

AHEAD = np.array([1000.0, -50.0])


def visits(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> NDArray[np.float64]:
    return np.array([[3, *first], [2, *second]])


TRUE = visits((1.1, 1.2, 1.5), (1.6, 1.6, 2.0))
"""Each link takes 0.1 s of a segment that leaves at 1.0 and is back at 2.1."""


def shifted(true: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same by clocks that do not agree."""
    seen = true.copy()
    seen[:, 1:] += AHEAD[:, None]
    return seen


def test_clocks_that_agree_are_believed_however_links_differ() -> None:
    uneven = visits((1.0, 1.0, 1.5), (1.9, 1.9, 2.0))
    assert (StageClocks().aligned(uneven, 1.0, 2.1) == uneven).all()


def test_clocks_that_differ_are_brought_to_the_leaders() -> None:
    found = StageClocks().aligned(shifted(TRUE), 1.0, 2.1)
    assert np.allclose(found, TRUE)


def test_a_segment_that_waited_for_links_does_not_move_the_clocks() -> None:
    clocks = StageClocks()
    clocks.aligned(shifted(TRUE), 1.0, 2.1)
    late = TRUE + np.array([0.0, 3.0, 3.0, 3.0])
    late[1, 1:] += 0.7  # the link between the two was slow
    assert np.allclose(clocks.aligned(shifted(late), 4.0, 5.8), late)


def test_a_faster_segment_is_a_better_measure() -> None:
    clocks = StageClocks()
    slow = TRUE.copy()
    slow[1, 1:] += 0.6
    clocks.aligned(shifted(slow), 1.0, 2.7)
    assert np.allclose(clocks.aligned(shifted(TRUE), 1.0, 2.1), TRUE)


def test_clocks_that_drift_are_measured_anew() -> None:
    clocks = StageClocks()
    clocks.aligned(shifted(TRUE), 1.0, 2.1)
    pause = FORGET_SECONDS + 1.0
    later = TRUE + np.array([0.0, pause, pause, pause])
    later[1, 1:] += 0.03  # slower than the first, and still the best of late
    drifted = shifted(later)
    drifted[1, 1:] += 0.05
    found = clocks.aligned(drifted, 1.0 + pause, 2.13 + pause)
    assert np.abs(found - later)[:, 1:].max() < 0.03
