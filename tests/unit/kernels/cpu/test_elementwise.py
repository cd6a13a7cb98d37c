"""Per-row kernels and moves of KV against plain numpy."""

import numpy as np
import pytest

from outrider.kernels.cpu import elementwise, reference
from outrider.kernels.cpu.attention import KVArrays
from outrider.kernels.cpu.collectives import Span
from outrider.kernels.cpu.elementwise import (
    GELU_TANH,
    SILU,
    Activations,
    GateCurve,
    NormSize,
    QKVWeights,
)
from outrider.kernels.cpu.numeric_kind import NumericKind
from tests.kv_arrays import keys_by_slot

KINDS = [NumericKind.FP32, NumericKind.BF16_AVX512, NumericKind.INT8_AVX512]
NO_BIAS = np.zeros(0, np.float32)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def blank(count: int, width: int, kind: NumericKind) -> tuple[np.ndarray, Activations]:
    """Work rows and scales of NaN, and activations."""
    work, scales = np.full((count, width), np.nan, np.float32), np.full(count, np.nan, np.float32)
    return work, Activations(np.zeros((count, width), kind.activation), scales)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "width"), [(17, 32), (64, 64), (576, 576)])
def test_norms_equal_numpy(kind: NumericKind, size: int, width: int) -> None:
    x = np.zeros((3, width), np.float32)
    x[:, :size] = 3 * normal(3, size)
    weight = np.zeros(width, np.float32)
    weight[:size] = 1 + normal(size, seed=1)
    work, out = blank(3, width, kind)
    over = NormSize(size, np.float32(1e-5))
    elementwise.norms(x, Span(0, 3), weight, over, work, out)
    expected = reference.rms_norm(x[:, :size].astype(np.float64), weight[:size], 1e-5)
    np.testing.assert_allclose(work[:, :size], expected, rtol=1e-5, atol=1e-6)
    wanted, wanted_scales = reference.activations(work, kind)
    np.testing.assert_allclose(out.scales, wanted_scales, rtol=1e-6)
    assert np.abs(out.values.astype(np.float64) - wanted).max() <= (kind is NumericKind.INT8_AVX512)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("curve", [SILU, GELU_TANH])
def test_gates_equal_numpy_far_from_zero_too(kind: NumericKind, curve: GateCurve) -> None:
    gates = 4 * normal(5, 192)
    gates[0, :4] = [-200, 200, -87, 88]
    work, out = blank(5, 96, kind)
    elementwise.gated(gates, Span(0, 5), curve, work, out)
    activation = reference.silu if curve is SILU else reference.gelu_tanh
    expected = reference.gated(gates, activation)
    np.testing.assert_allclose(
        work, expected, rtol=2e-6, atol=1e-6 if curve is GELU_TANH else 1e-30
    )
    wanted, _ = reference.activations(work, kind)
    assert np.abs(out.values.astype(np.float64) - wanted).max() <= (kind is NumericKind.INT8_AVX512)


def test_a_row_of_zeros_stays_zero_in_bytes() -> None:
    _, out = blank(1, 32, NumericKind.INT8_AVX512)
    elementwise.convert(np.zeros((1, 32), np.float32), Span(0, 1), out)
    assert (out.values == 128).all()
    assert out.scales[0] == 0


def test_bfloats_round_to_nearest_even() -> None:
    halfway = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF80FFFF] * 8, np.uint32)
    out = Activations(np.zeros((1, 32), np.uint16), np.zeros(1, np.float32))
    elementwise.convert(halfway.view(np.float32).reshape(1, 32), Span(0, 1), out)
    assert out.values[0, :4].tolist() == [0x3F80, 0x3F82, 0x3F81, 0xBF81]


def test_only_the_rows_asked_for_are_touched() -> None:
    residual = np.zeros((4, 32), np.float32)
    elementwise.add(residual, np.ones((4, 32), np.float32), Span(1, 3))
    assert residual.sum(axis=1).tolist() == [0, 32, 32, 0]


@pytest.mark.parametrize("family", ["plain", "bias", "head norms"])
def test_rows_are_rotated_and_placed(family: str) -> None:
    heads, kv_heads, size = 6, 2, 16
    width = (heads + 2 * kv_heads) * size
    table = normal(9, 2, size // 2, seed=4)
    qkv = normal(3, width)
    bias = normal(width, seed=5) if family == "bias" else NO_BIAS
    norms = [normal(size, seed=s) if family == "head norms" else NO_BIAS for s in (6, 7)]
    k_t = np.full((kv_heads, 2, size, 64), np.nan, np.float32)
    v = np.full((kv_heads, 128, size), np.nan, np.float32)
    positions, slots = np.array([4, 0, 8], np.int32), np.array([90, 2, 7], np.int32)
    given = qkv.copy()
    weights = QKVWeights(bias, *norms, np.float32(1e-6), table, heads, np.float32(0.3))
    elementwise.place_rows(qkv, weights, positions, slots, KVArrays(k_t, v), Span(0, 3))
    for row in range(3):
        x = given[row] + (bias if len(bias) else 0)
        q, k, value = np.split(x.reshape(-1, size), [heads, heads + kv_heads])
        if family == "head norms":
            q, k = (reference.rms_norm(a, n, 1e-6) for a, n in zip((q, k), norms, strict=True))
        q, k = (reference.rotated(a, table, positions[row]) for a in (q, k))
        found = qkv[row, : heads * size].reshape(heads, size)
        np.testing.assert_allclose(found, q * 0.3, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(keys_by_slot(k_t)[:, :, slots[row]], k, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(v[:, slots[row]], value)
    assert np.isnan(v).sum() == np.isnan(k_t).sum() == (128 - 3) * kv_heads * size


@pytest.mark.parametrize(
    ("sources", "destinations"),
    [
        ([7, 9], [3, 4]),
        ([4, 5, 6], [3, 4, 5]),
        ([3, 4, 5], [4, 5, 6]),
        ([1, 2], [2, 1]),
        ([70, 9, 127], [9, 64, 2]),
        ([], []),
    ],
)
def test_moves_read_everything_before_they_write(
    sources: list[int], destinations: list[int]
) -> None:
    random = np.random.default_rng(0)
    k_t = random.standard_normal((2, 3, 2, 8, 64), np.float32)
    v = random.standard_normal((2, 3, 128, 8), np.float32)
    keys = keys_by_slot(k_t)
    expected_k, expected_v = keys.copy(), v.copy()
    expected_k[..., destinations] = keys[..., sources]
    expected_v[:, :, destinations] = v[:, :, sources]
    moves = np.array(sources, np.int32), np.array(destinations, np.int32)
    for layer in range(2):
        for heads in (Span(0, 1), Span(1, 3)):
            elementwise.move_kv(KVArrays(k_t[layer], v[layer]), *moves, heads)
    np.testing.assert_array_equal(keys_by_slot(k_t), expected_k)
    np.testing.assert_array_equal(v, expected_v)
