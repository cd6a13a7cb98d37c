"""Compiled functions that compiled code calls by their address."""

from typing import NamedTuple

import numpy as np
import pytest

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


class Checks(NamedTuple):
    check: ByAddress


@njit(cache=False)
def check(number: int) -> int:
    if number < 0:
        raise ValueError("less than zero")
    return number


@njit(cache=False)
def check_both(checks: Handle[Checks], first: int, second: int) -> int:
    return checks.value.check(first) + checks.value.check(second)


def test_an_error_inside_is_raised_in_the_caller() -> None:
    checks = handle(Checks(ByAddress(check, 0)))
    assert check_both(checks, 1, 2) == 3
    with pytest.raises(ValueError, match="less than zero"):
        check_both(checks, 1, -2)
    assert check_both(checks, 3, 4) == 7
