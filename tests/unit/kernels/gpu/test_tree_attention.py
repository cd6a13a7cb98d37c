import numpy as np
import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.attention import tree_attention_reference
from outrider.kernels.gpu.attention_inputs import groups_of, make_scratch
from tests.context_rows import Pool, Row, make_pool
from tests.gpu_device import HALF
from tests.kernel_outputs import assert_close, normal, unwritten

SHAPES = [(4, 2, 32, 0), (3, 1, 64, 100), (9, 1, 16, 0)]
"""Heads, key heads, head_dim, window: groups of 2, 3 and 9 heads."""


def expected(pool: Pool, q: Tensor, rows: list[Row], window: int) -> Tensor:
    device = str(q.device)
    out = unwritten(*q.shape, dtype=q.dtype, device=device)
    scratch = make_scratch(len(rows), q.shape[1], pool.k.shape[0], q.shape[2], device, pool.splits)
    context = pool.context(rows)
    tree_attention_reference(q, pool.k, pool.v, context, 0.3, window, out, scratch)
    return out


def verify_rows(prefix: int, line: int = 0) -> list[Row]:
    """A root and a tree below it, written behind the prefix in an order of its own."""
    root, b, a, a2, a3 = range(prefix, prefix + 5)
    chains = [(root,), (root, a), (root, b), (root, a, a2), (root, a, a2, a3)]
    return [Row(prefix, chain, line) for chain in chains]


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "window"), SHAPES)
def test_trees_prompts_and_plain_rows_see_their_contexts(
    heads: int, kv_heads: int, head_dim: int, window: int, dtype: torch.dtype, device: str
) -> None:
    pool = make_pool(heads, kv_heads, head_dim, dtype, device)
    pool.fill(0, 300, seed=1)
    pool.fill(1, 70, seed=3)
    rows = [*verify_rows(295), Row(70, (), 1), Row(1, (), 1), Row(2, (), 1), Row(0, (), 1)]
    q = normal(len(rows), heads, head_dim, dtype=dtype, device=device, seed=5)
    out = pool.attend(q, rows, window)
    assert_close(out[:-1], expected(pool, q[:-1], rows[:-1], window))
    assert not out[-1].any(), "a padded row is zero"


def test_leaves_of_a_draft_see_a_rectangle(dtype: torch.dtype, device: str) -> None:
    pool = make_pool(4, 2, 32, dtype, device)
    pool.fill(0, 260, seed=1)
    leaves = [Row(200, (200, 203, 240 + i)) for i in range(3)] + [
        Row(200, (251,)),
        Row(200, (255,)),
    ]
    q = normal(5, 4, 32, dtype=dtype, device=device)
    assert_close(pool.attend(q, leaves), expected(pool, q, leaves, 0))


@pytest.mark.parametrize(
    ("prefix", "window", "dtype_name"),
    [(60, 0, "float16"), (124, 0, "float32"), (189, 0, "float16"), (380, 90, "float16")],
)
def test_an_accepted_row_has_the_bits_of_plain_decoding(
    prefix: int, window: int, dtype_name: str, device: str
) -> None:
    """Prefixes at which the path crosses a tile, the first split, twice the size of splits."""
    dtype = getattr(torch, dtype_name)
    pool = make_pool(4, 1, 32, dtype, device)
    pool.fill(0, prefix + 5, seed=1)
    rows = verify_rows(prefix)
    q = normal(5, 4, 32, dtype=dtype, device=device, seed=5)
    out = pool.attend(q, rows, window)
    plain = make_pool(4, 1, 32, dtype, device, seed=1)
    plain.fill(1, prefix + 5, seed=1)
    accepted = [0, 1, 3, 4]
    for position, row in enumerate(accepted, prefix):
        offset = rows[row].nodes[-1]
        slot = int(pool.tables[0, offset // 64]) * 64 + offset % 64
        plain.put(1, position, pool.k[:, slot], pool.v[:, slot])
        alone = plain.attend(q[row : row + 1], [Row(position + 1, (), 1)], window)
        assert torch.equal(alone[0], out[row])


def test_a_row_has_the_same_bits_beside_any_others(dtype: torch.dtype, device: str) -> None:
    pool = make_pool(3, 1, 32, dtype, device)
    pool.fill(0, 270, seed=1)
    pool.fill(1, 200, seed=3)
    rows = [*verify_rows(250), *verify_rows(190, 1)]
    q = normal(len(rows), 3, 32, dtype=dtype, device=device)
    out = pool.attend(q, rows)
    order = [7, 4, 0, 2]
    assert torch.equal(pool.attend(q[order], [rows[i] for i in order]), out[order])


@pytest.mark.parametrize("dtype", [HALF], indirect=True)
def test_long_contexts_of_a_real_model_are_cut_into_the_splits_of_a_gpu(
    dtype: torch.dtype, device: str
) -> None:
    """Llama-3-8B's heads: a group of 16 rows, of which half have 30 splits and half 15, as their
    lengths are on both sides of what 31 splits of a block hold; and a node of a tree."""
    pool = make_pool(32, 8, 128, dtype, device, most=34, splits=None)
    pool.fill(0, 1992, seed=1)
    pool.fill(1, 2105, seed=3)
    rows = [*(Row(length) for length in range(1977, 1993)), Row(2100, (2100, 2104), 1)]
    q = normal(len(rows), 32, 128, dtype=dtype, device=device)
    out = pool.attend(q, rows)
    assert_close(out, expected(pool, q, rows, 0))
    for i in (7, 16):
        assert torch.equal(pool.attend(q[i : i + 1], [rows[i]])[0], out[i])


def test_groups_hold_rows_of_one_sequence_and_nearly_one_length() -> None:
    sequence = np.array([0, 0, 0, 1, 1, 1, 1], np.int32)
    lengths = np.array([9, 10, 11, 100, 163, 164, 100], np.int32)
    assert groups_of(sequence, lengths, 2).tolist() == [[0, 2], [2, 1], [3, 2], [5, 1], [6, 1]]
    assert groups_of(sequence[:0], lengths[:0], 2).shape == (0, 2)


def test_what_does_not_fit_is_named(device: str) -> None:
    pool = make_pool(4, 2, 32, torch.float32, device)
    rows = [Row(1)]
    with pytest.raises(ValueError, match="head_dim: 48"):
        pool.attend(torch.zeros(1, 4, 48, device=device), rows)
    with pytest.raises(ValueError, match="heads: 5"):
        pool.attend(torch.zeros(1, 5, 32, device=device), rows)
    with pytest.raises(ValueError, match="k: wanted"):
        pool.attend(torch.zeros(1, 4, 32, dtype=torch.float16, device=device), rows)
    with pytest.raises(ValueError, match="sequence: 1 rows, wanted 2"):
        pool.attend(torch.zeros(2, 4, 32, device=device), rows)
