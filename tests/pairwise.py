"""Few rows of a table of factors: each pair of values of two factors occurs at least once."""

import itertools
from collections.abc import Collection, Sequence
from typing import Any


def pairwise(**factors: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return rows with one value of each factor, for `pytest.mark.parametrize`: the same each time.

    Two factors have no smaller table than their product.
    """
    values = [list(factor) for factor in factors.values()]
    rows = list(itertools.product(*(range(len(factor)) for factor in values)))
    return [tuple(own[at] for own, at in zip(values, row, strict=True)) for row in covering(rows)]


def covering(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return those of `rows` that have each pair of values of two columns.

    Each is the first that has the most pairs which no row before it has.
    """
    pairs = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(pairs[row] & missing))
        missing -= pairs[best]
        chosen.append(best)
    return chosen
