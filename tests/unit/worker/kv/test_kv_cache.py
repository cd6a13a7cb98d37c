"""Moves of KV in host memory: queued, joined, and run by whoever reads or writes next."""

import numpy as np
import pytest

from outrider.worker.kv.kv_cache import HostKVCache

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
    keys, values = kv_cache.k_t.copy(), kv_cache.v.copy()
    for count in (1, 5, 20, 3):
        sources, destinations = (random.permutation(24)[:count].astype(np.int32) for _ in "sd")
        kv_cache.move_slots(sources, destinations)
        keys[..., destinations] = keys[..., sources]
        values[:, :, destinations] = values[:, :, sources]
    kv_cache.run_moves()
    np.testing.assert_array_equal(kv_cache.k_t, keys)
    np.testing.assert_array_equal(kv_cache.v, values)


def test_moves_are_taken_once_and_those_that_change_nothing_never() -> None:
    kv_cache = noisy()
    there = np.array([3, 4], np.int32)
    kv_cache.move_slots(np.array([3, 9], np.int32), there)
    sources, destinations = kv_cache.queued()
    assert (sources.tolist(), destinations.tolist()) == ([9], [4])
    assert [len(slots) for slots in kv_cache.queued()] == [0, 0]
