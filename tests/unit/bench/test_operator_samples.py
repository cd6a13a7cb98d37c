"""What is said of passes from a histogram, and of a period from two samples."""

import math

from bench.operator_samples import quantile

WITHIN = {0.01: 10.0, 0.1: 98.0, 1.0: 99.0, math.inf: 100.0}


def test_a_quantile_is_the_upper_edge_of_its_bucket() -> None:
    assert quantile(WITHIN, 0.5) == 0.1
    assert quantile(WITHIN, 0.98) == 0.1
    assert quantile(WITHIN, 0.99) == 1.0


def test_a_quantile_beyond_all_edges_is_not_made_small() -> None:
    assert quantile(WITHIN, 0.995) == math.inf


def test_without_passes_there_is_no_quantile() -> None:
    assert quantile(dict.fromkeys(WITHIN, 0.0), 0.5) is None
