"""Weights of four bits: what survives rounding, and where it lies."""

import numpy as np
import pytest

from outrider.kernels.cpu.int4_packing import GROUP, encode, group_bytes

BLOCK = 32


def on_grid(outputs: int, groups: int, size: float) -> np.ndarray:
    """A matrix as a Q4_1 file has it: half-precision scales and least values, 16 steps."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 16, (outputs, groups, GROUP)).astype(np.float32)
    codes[..., :2] = 0, 15
    scales = random.uniform(0.5, 1, (outputs, groups, 1)) * size
    least = random.uniform(-12, -4, (outputs, groups, 1)) * size
    step, start = (x.astype(np.float16).astype(np.float32) for x in (scales, least))
    return (step * codes + start).reshape(outputs, -1)


def decoded(matrix: np.ndarray) -> np.ndarray:
    coded = encode(matrix)
    return coded.decoded() * coded.row_scales[:, None]


@pytest.mark.parametrize("size", [1e-3, 1.0, 1000.0])
def test_what_was_four_bits_in_its_file_comes_back(size: float) -> None:
    matrix = on_grid(6, 3, size)
    assert np.abs(decoded(matrix) - matrix).max() <= 1e-6 * np.abs(matrix).max()


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_a_weight_moves_by_half_a_step_at_most(size: float) -> None:
    matrix = np.random.default_rng(0).standard_normal((5, 64), np.float32) * np.float32(size)
    matrix[:, :32] /= 1000  # groups of one output may differ in size
    groups = matrix.reshape(5, 2, GROUP)
    step = (groups.max(axis=2) - groups.min(axis=2)) / 15
    moved = np.abs(decoded(matrix) - matrix).reshape(groups.shape).max(axis=2)
    assert (moved <= 0.52 * step).all()


def test_equal_weights_and_none_come_back() -> None:
    matrix = np.zeros((3, GROUP), np.float32)
    matrix[1] = 0.75
    assert np.array_equal(decoded(matrix), matrix)


def test_the_stream_holds_a_group_of_a_block_in_one_run() -> None:
    random = np.random.default_rng(0)
    coded = encode(random.standard_normal((2 * BLOCK, 3 * GROUP), np.float32))
    stream = np.zeros(coded.stream_size, np.uint8)
    coded.write(stream, BLOCK)
    parts = stream.reshape(2, 3, group_bytes(BLOCK))
    output, group, number = 45, 2, 21
    part = parts[output // BLOCK, group]
    assert part[:64].view(np.float16)[output % BLOCK] == coded.scales[output, group]
    assert part[64:128].view(np.float16)[output % BLOCK] == coded.least[output, group]
    lines = part[128:].reshape(GROUP // 8, 2, 16, 4)
    byte = lines[number // 8, output % BLOCK // 16, output % 16, number % 4]
    assert (byte >> 4 * (number % 8 // 4)) & 15 == coded.codes[output, group, number]
