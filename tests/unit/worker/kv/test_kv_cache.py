"""Moves of KV in host memory: queued, joined, and run by whoever reads or writes next."""

import mmap
import sys

import numpy as np
import pytest

from outrider.worker.kv.kv_cache import HostKVCache
from tests.kv_arrays import keys_by_slot
from tests.resident_memory import resident_between

SHAPE = (2, 3, 8)
"""Layers, key heads, numbers of one head."""


def noisy() -> HostKVCache:
    """Return a cache of two blocks, filled with noise."""
    kv_cache = HostKVCache(SHAPE, blocks=2, longest=128)
    random = np.random.default_rng(0)
    kv_cache.k_t[:] = random.standard_normal(kv_cache.k_t.shape, np.float32)
    kv_cache.v[:] = random.standard_normal(kv_cache.v.shape, np.float32)
    return kv_cache


@pytest.mark.parametrize("seed", range(5))
def test_queued_moves_are_what_they_would_be_one_after_the_other(seed: int) -> None:
    kv_cache, random = noisy(), np.random.default_rng(seed)
    keys, values = keys_by_slot(kv_cache.k_t), kv_cache.v.copy()
    for count in (1, 5, 20, 3):
        sources, destinations = (random.permutation(24)[:count].astype(np.int32) for _ in "sd")
        kv_cache.move_slots(sources, destinations)
        keys[..., destinations] = keys[..., sources]
        values[:, :, destinations] = values[:, :, sources]
    kv_cache.run_moves()
    np.testing.assert_array_equal(keys_by_slot(kv_cache.k_t), keys)
    np.testing.assert_array_equal(kv_cache.v, values)


def test_moves_are_taken_once_and_those_that_change_nothing_never() -> None:
    kv_cache = noisy()
    there = np.array([3, 4], np.int32)
    kv_cache.move_slots(np.array([3, 9], np.int32), there)
    sources, destinations = kv_cache.queued()
    assert (sources.tolist(), destinations.tolist()) == ([9], [4])
    assert [len(slots) for slots in kv_cache.queued()] == [0, 0]


def resident(kv_cache: HostKVCache) -> int:
    """Return the bytes of memory that keys and values have, by what the system says."""
    low, high = (
        min(x.ctypes.data for x in (kv_cache.k_t, kv_cache.v)),
        max(x.ctypes.data + x.nbytes for x in (kv_cache.k_t, kv_cache.v)),
    )
    return resident_between(low, high)


PAGES = (2, 1, 16)
"""Layers, key heads, numbers of one head: a block of keys is a page."""


COUNTS_PAGES = pytest.mark.skipif(
    sys.platform != "linux" or mmap.PAGESIZE != 4096,
    reason="asks Linux for resident pages, of which a block of keys is one",
)


@COUNTS_PAGES
def test_memory_comes_with_blocks_that_are_written_and_goes_with_their_slab() -> None:
    kv_cache = HostKVCache(PAGES, blocks=4, longest=256, most=12)
    each = 2 * 2 * 64 * 16 * 4
    assert resident(kv_cache) == 0
    addresses = kv_cache.k_t.ctypes.data, kv_cache.v.ctypes.data
    kv_cache.expand(8)
    assert resident(kv_cache) == 0, "room for more is addresses alone"
    kv_cache.k_t[:, :, 2:10] = 1
    kv_cache.v[:, :, 2 * 64 : 10 * 64] = 1
    assert resident(kv_cache) == 8 * each
    assert kv_cache.contract(8) is not None
    assert resident(kv_cache) == 2 * each
    assert not kv_cache.k_t[:, :, 4:].any()
    assert (kv_cache.k_t.ctypes.data, kv_cache.v.ctypes.data) == addresses


@COUNTS_PAGES
def test_warming_up_touches_each_block_of_a_longest_sequence_and_no_more() -> None:
    kv_cache = HostKVCache(PAGES, blocks=9, longest=256, most=12)
    kv_cache.warm_up()
    assert resident(kv_cache) == 4 * 2 * 2 * 64 * 16 * 4
    assert not kv_cache.k_t.any()
    assert not kv_cache.v.any()


def test_what_lies_in_a_slab_that_goes_is_moved_with_the_moves_that_wait() -> None:
    kv_cache = HostKVCache(SHAPE, blocks=2, longest=128, most=4)
    kv_cache.expand(2)
    random = np.random.default_rng(0)
    kv_cache.k_t[:] = random.standard_normal(kv_cache.k_t.shape, np.float32)
    kv_cache.v[:] = random.standard_normal(kv_cache.v.shape, np.float32)
    low, high = (kv_cache.admit(np.zeros(0, np.int32), 128) for _ in "lh")
    assert low is not None
    assert high is not None
    expected = [x[..., high.slots(ALL)] for x in (keys_by_slot(kv_cache.k_t), values(kv_cache))]
    kv_cache.move(high, np.array([100, 7], np.int32), np.array([3, 64], np.int32))
    for both in expected:
        both[..., [3, 64]] = both[..., [100, 7]]
    kv_cache.free(low)
    moves = kv_cache.contract(2)
    assert moves is not None
    assert len(moves.sources) == 2
    assert high.slots(ALL).max() < 128
    np.testing.assert_array_equal(keys_by_slot(kv_cache.k_t)[..., high.slots(ALL)], expected[0])
    np.testing.assert_array_equal(values(kv_cache)[..., high.slots(ALL)], expected[1])


ALL = np.arange(128, dtype=np.int32)


def values(kv_cache: HostKVCache) -> np.ndarray:
    """Return values [layers, key heads, numbers, slots]."""
    return kv_cache.v.swapaxes(2, 3).copy()


def test_a_cache_grows_no_further_than_its_addresses() -> None:
    with pytest.raises(ValueError, match="5 blocks: there are addresses for 4"):
        HostKVCache(SHAPE, blocks=2, longest=128, most=4).expand(3)
