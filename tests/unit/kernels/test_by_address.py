"""Compiled functions that compiled code calls by their address."""

from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.by_address import ByAddress
from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle, handle


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


class Pieces(NamedTuple):
    add: ByAddress


@njit(cache=False)
def add(pair: Handle[Pair], times: int) -> tuple[float, bool]:
    pair.value.second[:] += times * pair.value.first
    return pair.value.second.sum(), times > 1


@njit(cache=False)
def add_twice(pieces: Handle[Pieces], pair: Handle[Pair]) -> float:
    total, several = pieces.value.add(pair, 1)
    more, _ = pieces.value.add(pair, 3 if several else 2)
    return total + more


def test_code_that_calls_by_address_takes_what_is_compiled() -> None:
    sums = np.zeros(3)
    pair = handle(Pair(np.ones(3), sums))
    pieces = handle(Pieces(ByAddress(add, pair, 0)))
    assert len(add.overloads) == 1
    assert add_twice(pieces, pair) == 3.0 + 9.0
    assert sums.tolist() == [3.0, 3.0, 3.0]
    assert len(add.overloads) == 1
