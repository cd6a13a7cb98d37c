"""Attention over logical contexts: against plain numpy, and bit for bit wherever slots are."""

from dataclasses import dataclass

import numpy as np
import pytest

from outrider.kernels import reference
from outrider.kernels.attention import attend

REGION = 320


@dataclass
class Case:
    """Random queries over one layer's pool of two regions; unused slots are NaN."""

    heads: int
    kv_heads: int
    size: int

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(0)
        slots = 2 * REGION + 16
        self.k_t = np.full((self.kv_heads, self.size, slots), np.nan, np.float32)
        self.v = np.full((self.kv_heads, slots, self.size), np.nan, np.float32)

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape, np.float32)

    def fill(self, slots: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
        """Puts keys and values [kv_heads, count, head_dim] into slots."""
        self.k_t[:, :, slots] = keys.transpose(0, 2, 1)
        self.v[:, slots] = values

    def run(
        self, q: np.ndarray, base: int, prefix: list[int], chains: list[list[int]], window: int = 0
    ) -> np.ndarray:
        """[rows, heads, head_dim]; `chains` are the rows' ancestors."""
        count = len(q)
        ancestors = np.zeros((count, max(1, *map(len, chains), 1)), np.int32)
        for row, chain in enumerate(chains):
            ancestors[row, : len(chain)] = chain
        out = np.full((count, self.heads * self.size), np.nan, np.float32)
        work = np.full((count, self.heads // self.kv_heads, REGION + 64), np.nan, np.float32)
        attend(
            q.reshape(count, -1), self.k_t, self.v, np.full(count, base, np.int32),
            np.array(prefix, np.int32), ancestors, np.array(list(map(len, chains)), np.int32),
            window, work, out, 0, count, self.heads,
        )  # fmt: skip
        return out.reshape(count, self.heads, self.size)


SHAPES = [(1, 1, 16), (9, 3, 64), (4, 4, 8), (7, 1, 80), (10, 2, 128), (6, 1, 5)]


@pytest.mark.parametrize("window", [0, 1, 20, 70])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), SHAPES)
def test_rows_equal_numpy(heads: int, kv_heads: int, size: int, window: int) -> None:
    case = Case(heads, kv_heads, size)
    base, prefixes = REGION, [1, 63, 64, 65, 150]
    chains = [[], [REGION + 70], [REGION + 200, REGION + 180, REGION + 256], [REGION + 66], []]
    used = np.unique([*range(base, base + 150), *(slot for chain in chains for slot in chain)])
    case.fill(used, case.normal(kv_heads, len(used), size), case.normal(kv_heads, len(used), size))
    q = case.normal(len(prefixes), heads, size)
    found = case.run(q, base, prefixes, chains, window)
    for row, (prefix, chain) in enumerate(zip(prefixes, chains, strict=True)):
        context = np.array([*range(base, base + prefix), *chain], np.int32)
        expected = reference.attention(q[row], case.k_t, case.v, context, window)
        np.testing.assert_allclose(found[row], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(9, 3, 64), (5, 1, 80), (2, 2, 128)])
def test_a_row_is_bit_equal_through_other_slots_and_neighbours(
    heads: int, kv_heads: int, size: int, window: int
) -> None:
    case = Case(heads, kv_heads, size)
    length = 133
    keys, values = (case.normal(kv_heads, length, size) for _ in range(2))
    q = case.normal(9, heads, size)
    slots = np.arange(length)
    case.fill(slots, keys, values)
    committed = case.run(q[:1], 0, [length], [[]], window)[0]
    for nodes in (1, 2, 17, 60):
        tree = REGION + length - nodes + case.random.permutation(120)[:nodes]
        case.fill(REGION + slots[: length - nodes], keys[:, :-nodes], values[:, :-nodes])
        case.fill(tree, keys[:, -nodes:], values[:, -nodes:])
        chains = [tree.tolist()[:cut] for cut in (nodes, 0, nodes // 2, 1, nodes, 0, 1, 1, 1)]
        found = case.run(q, REGION, [length - nodes] * 9, chains, window)
        assert np.array_equal(found[0], committed)


def test_rows_of_other_sequences_do_not_touch_a_row() -> None:
    case = Case(4, 2, 16)
    slots = np.arange(2 * REGION)
    case.fill(slots, case.normal(2, len(slots), 16), case.normal(2, len(slots), 16))
    q = case.normal(3, 4, 16)
    alone = case.run(q[:1], 0, [100], [[]])[0]
    ancestors, work = np.zeros((3, 1), np.int32), np.full((3, 2, REGION + 64), np.nan, np.float32)
    out = np.full((3, 64), np.nan, np.float32)
    bases, prefix = np.array([0, REGION, 0], np.int32), np.array([100, 7, 300], np.int32)
    none = np.zeros(3, np.int32)
    attend(
        q.reshape(3, -1), case.k_t, case.v, bases, prefix, ancestors, none, 0, work, out, 0, 3, 4
    )
    assert np.array_equal(out[0].reshape(4, 16), alone)
