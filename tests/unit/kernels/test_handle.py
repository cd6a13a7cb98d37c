"""Handles of NamedTuples."""

import gc
import sys
from typing import NamedTuple

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import _make_cached, handle


class Counts(NamedTuple):
    """Two arrays and a number, nested as the product's are."""

    totals: np.ndarray
    step: int


class Tables(NamedTuple):
    counts: Counts
    names: np.ndarray


@njit(cache=False)
def _count(tables, times):
    counts = tables.value.counts
    counts.totals[:] += times * counts.step
    return len(tables.value.names)


def test_classes_that_only_tests_know_leave_no_trace_on_disk():
    """A worker could not import them, and so not read what is kept for its own classes."""
    kept = _make_cached.stats.cache_misses.total()
    handle(Tables(Counts(np.zeros(3, np.int64), 2), np.zeros(5, np.int32)))
    assert _make_cached.stats.cache_misses.total() == kept
    assert not [s for s in _make_cached.signatures if __name__ in str(s[0].instance_class)]


def test_compiled_code_writes_into_the_arrays_themselves():
    totals = np.zeros(3, np.int64)
    tables = handle(Tables(Counts(totals, 2), np.zeros(5, np.int32)))
    assert _count(tables, 10) == 5
    assert _count(tables, 1) == 5
    np.testing.assert_array_equal(totals, [22, 22, 22])


def test_a_handle_keeps_its_arrays_alive_and_frees_them_with_itself():
    totals = np.zeros(3, np.int64)
    before = sys.getrefcount(totals)
    tables = handle(Tables(Counts(totals, 1), np.zeros(1, np.int32)))
    assert sys.getrefcount(totals) > before
    assert _count(tables, 7) == 1
    del tables
    gc.collect()
    assert sys.getrefcount(totals) == before
    np.testing.assert_array_equal(totals, [7, 7, 7])
