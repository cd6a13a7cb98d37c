import itertools

import pytest

from tests.pairwise import pairwise


@pytest.mark.parametrize("sizes", [(2, 3), (3, 3, 2), (5, 4, 2), (2, 2, 2, 2, 2)])
def test_every_pair_of_values_occurs_and_few_occur_again(sizes: tuple[int, ...]) -> None:
    rows = pairwise(**{f"factor {at}": range(size) for at, size in enumerate(sizes)})
    for one, other in itertools.combinations(range(len(sizes)), 2):
        assert len({(row[one], row[other]) for row in rows}) == sizes[one] * sizes[other]
    small, large = sorted(sizes)[-2:]
    assert small * large <= len(rows) <= 1.5 * small * large
