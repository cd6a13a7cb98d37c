from dataclasses import replace

import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.heads import HeadParts, RowPlaces, write_heads, write_heads_reference
from outrider.kernels.gpu.projection import project, project_reference
from outrider.kernels.gpu.tiling import plan
from outrider.kernels.gpu.weights import WeightFormat, Weights
from tests.gpu_device import DTYPES
from tests.kernel_outputs import assert_close, normal, unwritten
from tests.linear_layers import assert_rows_are_independent, layer, scratch_for
from tests.pairwise import pairwise

HEADS, KV_HEADS, SLOTS = 3, 2, 80


def table(head_dim: int, device: str) -> Tensor:
    """Rotary table of 64 positions."""
    frequencies = 100.0 ** -(torch.arange(head_dim // 2) / (head_dim // 2))
    angles = torch.outer(torch.arange(64.0), frequencies)
    return torch.stack((angles.cos(), angles.sin()), 1).to(device)


def parts(head_dim: int, *, bias: bool, norms: bool, dtype: torch.dtype, device: str) -> HeadParts:
    """Bias and norms of a layer, as far as its family has them."""
    outputs = (HEADS + 2 * KV_HEADS) * head_dim
    q_norm, k_norm = (normal(head_dim, dtype=dtype, device=device, seed=i) for i in (3, 4))
    return HeadParts(
        normal(outputs, dtype=dtype, device=device, seed=5) if bias else None,
        q_norm if norms else None,
        k_norm if norms else None,
        1e-5,
    )


def places(rows: int, device: str) -> RowPlaces:
    """Rows at scattered slots; that of every fourth is not to be written."""
    slots = torch.randperm(SLOTS, generator=torch.Generator().manual_seed(6))[:rows].int()
    slots[1::4] = -1
    return RowPlaces((torch.arange(rows) * 3 % 64).int().to(device), slots.to(device))


def outputs_for(
    rows: int, head_dim: int, dtype: torch.dtype, device: str
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, of which keys lie by slot and values by head: strides are free."""
    q = unwritten(rows, HEADS, head_dim, dtype=dtype, device=device)
    k = unwritten(SLOTS, KV_HEADS, head_dim, dtype=dtype, device=device).transpose(0, 1)
    v = unwritten(KV_HEADS, SLOTS, head_dim, dtype=dtype, device=device)
    return q, k, v


def run(
    kernel: object,
    x: Tensor,
    weights: Weights,
    of_heads: HeadParts,
    where: RowPlaces,
    head_dim: int,
    splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as the kernel left them."""
    device = str(x.device)
    q, k, v = outputs_for(len(x), head_dim, x.dtype, device)
    cut = plan(weights, head_dim // 2, splits)
    assert splits in (None, cut.splits)
    scratch = scratch_for(len(x), cut, device)
    turns = table(head_dim, device)
    kernel(x, weights, of_heads, turns, where, q, k, v, scratch, cut)  # type: ignore[operator]
    assert not scratch.arrivals.any()
    return q, k, v


CASES = {
    "plain": (1, 64, 1, False, False),
    "bias": (5, 32, 2, True, False),
    "norms": (17, 64, 2, False, True),
}
"""Rows, head_dim, splits, and whether heads have a bias, and norms."""


@pytest.mark.parametrize(
    ("kind", "case", "dtype"),
    pairwise(kind=WeightFormat, case=CASES, dtype=DTYPES),
    indirect=["dtype"],
)
def test_heads_are_turned_and_written_to_their_slots(
    kind: WeightFormat, case: str, dtype: torch.dtype, device: str
) -> None:
    rows, head_dim, splits, bias, norms = CASES[case]
    weights = layer(kind, (HEADS + 2 * KV_HEADS) * head_dim, 512, dtype, device)
    x = normal(rows, 512, dtype=dtype, device=device)
    of_heads = parts(head_dim, bias=bias, norms=norms, dtype=dtype, device=device)
    where = places(rows, device)
    results = run(project, x, weights, of_heads, where, head_dim, splits)
    wanted = run(project_reference, x, weights, of_heads, where, head_dim)
    for result, expected in zip(results, wanted, strict=True):
        assert torch.equal(result.isnan(), expected.isnan())
        assert_close(result.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("case", CASES)
def test_heads_of_a_product_in_memory_are_written_alike(
    case: str, dtype: torch.dtype, device: str
) -> None:
    rows, head_dim, _, bias, norms = CASES[case]
    x = normal(rows, (HEADS + 2 * KV_HEADS) * head_dim, dtype=dtype, device=device)
    of_heads = parts(head_dim, bias=bias, norms=norms, dtype=dtype, device=device)
    where, turns = places(rows, device), table(head_dim, device)
    results = []
    for kernel in (write_heads, write_heads_reference):
        q, k, v = outputs_for(rows, head_dim, dtype, device)
        kernel(x, of_heads, turns, where, q, k, v)
        results.append((q, k, v))
    for result, expected in zip(*results, strict=True):
        assert torch.equal(result.isnan(), expected.isnan())
        assert_close(result.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("kind", list(WeightFormat), ids=str)
def test_a_row_has_the_same_bits_whatever_runs_beside_it(
    kind: WeightFormat, dtype: torch.dtype, device: str
) -> None:
    weights = layer(kind, (HEADS + 2 * KV_HEADS) * 32, 512, dtype, device)
    of_heads = parts(32, bias=False, norms=True, dtype=dtype, device=device)
    one = torch.full((70,), 5, dtype=torch.int32, device=device)
    slots = torch.arange(70, dtype=torch.int32, device=device)

    def rows(x: Tensor) -> Tensor:
        where = RowPlaces(one[: len(x)], slots[: len(x)])
        q, k, v = run(project, x, weights, of_heads, where, 32, 2)
        written = torch.cat((k[:, : len(x)], v[:, : len(x)])).transpose(0, 1)
        return torch.cat((q, written), 1)

    x = normal(70, 512, dtype=dtype, device=device) / 8
    assert_rows_are_independent(rows, x)


def test_what_does_not_fit_is_named(device: str) -> None:
    weights = layer(WeightFormat.PLAIN, (HEADS + 2 * KV_HEADS) * 32, 128, torch.float32, device)
    x = torch.ones(2, 128, device=device)
    where = places(2, device)
    with pytest.raises(ValueError, match=r"outputs: 224, wanted \(3 \+ 2 \* 2\) \* 64"):
        run(project, x, weights, HeadParts(), where, 64)
    with pytest.raises(ValueError, match="head_dim: 48, wanted a power of two"):
        run(project, x, weights, HeadParts(), where, 48)
    with pytest.raises(ValueError, match="q_norm and k_norm: wanted both"):
        run(project, x, weights, HeadParts(q_norm=torch.ones(32)), where, 32)
    with pytest.raises(
        ValueError, match=r"slots: torch.int64 \(2,\), wanted contiguous torch.int32 \(2,\)"
    ):
        run(project, x, weights, HeadParts(), replace(where, slots=where.slots.long()), 32)
