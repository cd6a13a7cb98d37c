"""Few rows of a table of factors: each pair of values of two factors occurs at least once."""

import itertools
from collections.abc import Collection
from typing import Any


def pairwise(**factors: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return rows with one value of each factor, for `pytest.mark.parametrize`: the same each time.

    Each is the first row of the product that has the most pairs which no row before it has. Two
    factors have no smaller table than their product.
    """
    values = [list(factor) for factor in factors.values()]
    product = list(itertools.product(*(range(len(factor)) for factor in values)))
    pairs = {row: set(itertools.combinations(enumerate(row), 2)) for row in product}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        best = max(product, key=lambda row: len(pairs[row] & missing))
        missing -= pairs[best]
        chosen.append(tuple(own[at] for own, at in zip(values, best, strict=True)))
    return chosen
