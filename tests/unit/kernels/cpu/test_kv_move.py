"""Moves of keys and values between slots."""

import numpy as np
import pytest

from outrider.kernels.cpu.kv_move import move


@pytest.mark.parametrize(
    ("sources", "destinations"),
    [([7, 9], [3, 4]), ([4, 5, 6], [3, 4, 5]), ([3, 4, 5], [4, 5, 6]), ([1, 2], [2, 1]), ([], [])],
)
def test_moves_read_everything_before_they_write(
    sources: list[int], destinations: list[int]
) -> None:
    random = np.random.default_rng(0)
    k_t = random.standard_normal((2, 3, 8, 12), np.float32)
    v = random.standard_normal((2, 3, 12, 8), np.float32)
    expected_k, expected_v = k_t.copy(), v.copy()
    expected_k[..., destinations] = k_t[..., sources]
    expected_v[:, :, destinations] = v[:, :, sources]
    move(k_t, v, np.array(sources, np.int32), np.array(destinations, np.int32))
    np.testing.assert_array_equal(k_t, expected_k)
    np.testing.assert_array_equal(v, expected_v)
