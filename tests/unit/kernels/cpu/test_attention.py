"""Attention over logical contexts: against plain numpy, and bit for bit wherever slots are."""

from dataclasses import dataclass

import numpy as np
import pytest

from outrider.kernels.cpu import reference
from outrider.kernels.cpu.attention import AttentionBuffers, Contexts, KVArrays, attend
from outrider.kernels.cpu.collectives import Span
from tests.pairwise import pairwise

BLOCK = 64
BLOCKS = 10
"""Blocks of the pool."""
IN_ORDER = np.arange(5, 10, dtype=np.int32)
SCATTERED = np.array([8, 9, 1, 6, 3], np.int32)
"""Two blocks side by side, as a tile of values may be, then none."""
ELSEWHERE = np.array([4, 0, 7, 2, 5], np.int32)


@dataclass
class Case:
    """Random queries over one layer's ten blocks; unused slots are NaN."""

    heads: int
    kv_heads: int
    size: int

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(0)
        slots = BLOCKS * BLOCK
        self.k_t = np.full((self.kv_heads, BLOCKS, self.size, BLOCK), np.nan, np.float32)
        self.v = np.full((self.kv_heads, slots, self.size), np.nan, np.float32)

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape, np.float32)

    def fill(
        self, table: np.ndarray, offsets: np.ndarray, keys: np.ndarray, values: np.ndarray
    ) -> None:
        """Puts keys and values [kv_heads, count, head_dim] where a sequence has its offsets."""
        slots = table[offsets // BLOCK] * BLOCK + offsets % BLOCK
        self.k_t[:, slots // BLOCK, :, slots % BLOCK] = keys.transpose(1, 0, 2)
        self.v[:, slots] = values

    def run(
        self,
        q: np.ndarray,
        tables: list[np.ndarray],
        sequence: list[int],
        prefix: list[int],
        chains: list[list[int]],
        window: int = 0,
    ) -> np.ndarray:
        """[rows, heads, head_dim]; `chains` are the rows' ancestors."""
        count = len(q)
        ancestors = np.zeros((count, max(1, *map(len, chains), 1)), np.int32)
        for row, chain in enumerate(chains):
            ancestors[row, : len(chain)] = chain
        out = np.full((count, self.heads * self.size), np.nan, np.float32)
        longest = len(tables[0]) * BLOCK
        work = np.full((count, self.heads // self.kv_heads, longest + 64), np.nan, np.float32)
        contexts = Contexts(
            np.array(sequence, np.int32),
            np.stack(tables),
            np.array(prefix, np.int32),
            ancestors,
            np.array(list(map(len, chains)), np.int32),
            window,
        )
        buffers = AttentionBuffers(q.reshape(count, -1), work, out)
        attend(
            buffers, KVArrays(self.k_t, self.v), contexts, Span(0, count), Span(0, self.kv_heads)
        )
        return out.reshape(count, self.heads, self.size)


TABLES = {"in order": IN_ORDER, "scattered": SCATTERED}
SHAPES = {
    "keys of their own": (4, 4, 8),
    "three heads together": (9, 3, 64),
    "five wide heads": (10, 2, 128),
    "six wide heads": (12, 2, 128),
    "seven heads, no power of two": (7, 1, 80),
    "thirteen heads": (13, 1, 64),
    "less than a vector": (6, 1, 5),
}
"""Heads, heads of keys and values, and their size."""


@pytest.mark.parametrize(
    ("shape", "window", "blocks"), pairwise(shape=SHAPES, window=[0, 1, 20, 70], blocks=TABLES)
)
def test_rows_equal_numpy(shape: str, window: int, blocks: str) -> None:
    (heads, kv_heads, size), table = SHAPES[shape], TABLES[blocks]
    case = Case(heads, kv_heads, size)
    prefixes = [1, 63, 64, 65, 150]
    chains = [[], [70], [200, 180, 256], [66], [190, 191, 192, 193]]
    used = np.unique([*range(150), *(offset for chain in chains for offset in chain)])
    keys, values = (case.normal(kv_heads, len(used), size) for _ in range(2))
    case.fill(table, used, keys, values)
    q = case.normal(len(prefixes), heads, size)
    found = case.run(q, [table], [0] * 5, prefixes, chains, window)
    for row, (prefix, chain) in enumerate(zip(prefixes, chains, strict=True)):
        context = np.array([*range(prefix), *chain], np.int32)
        expected = reference.attention(q[row], case.k_t, case.v, table, context, window)
        np.testing.assert_allclose(found[row], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("shape", "window", "blocks"),
    pairwise(shape=[(9, 3, 64), (5, 1, 80), (2, 2, 128)], window=[0, 40], blocks=TABLES),
)
def test_a_row_is_bit_equal_through_other_blocks_and_neighbours(
    shape: tuple[int, int, int], window: int, blocks: str
) -> None:
    (heads, kv_heads, size), table = shape, TABLES[blocks]
    case = Case(heads, kv_heads, size)
    length = 200
    keys, values = (case.normal(kv_heads, length, size) for _ in range(2))
    q = case.normal(9, heads, size)
    offsets = np.arange(length)
    case.fill(ELSEWHERE, offsets, keys, values)
    committed = case.run(q[:1], [ELSEWHERE], [0], [length], [[]], window)[0]
    for nodes in (1, 2, 17, 60):
        case = Case(heads, kv_heads, size)
        tree = length - nodes + case.random.permutation(120)[:nodes]
        case.fill(table, offsets[: length - nodes], keys[:, :-nodes], values[:, :-nodes])
        case.fill(table, tree, keys[:, -nodes:], values[:, -nodes:])
        chains = [tree.tolist()[:cut] for cut in (nodes, 0, nodes // 2, 1, nodes, 0, 1, 1, 1)]
        found = case.run(q, [table], [0] * 9, [length - nodes] * 9, chains, window)
        assert np.array_equal(found[0], committed)


def test_nodes_side_by_side_are_found_beyond_the_border_of_a_block() -> None:
    case = Case(4, 2, 16)
    keys, values = (case.normal(2, 130, 16) for _ in range(2))
    q = case.normal(1, 4, 16)
    case.fill(SCATTERED, np.arange(130), keys, values)
    committed = case.run(q, [SCATTERED], [0], [130], [[]])
    assert np.array_equal(case.run(q, [SCATTERED], [0], [60], [list(range(60, 130))]), committed)


def test_rows_of_other_sequences_do_not_touch_a_row() -> None:
    case = Case(4, 2, 16)
    tables = [ELSEWHERE, SCATTERED, ELSEWHERE[::-1].copy()]
    for table in (ELSEWHERE, SCATTERED):
        case.fill(table, np.arange(320), case.normal(2, 320, 16), case.normal(2, 320, 16))
    q = case.normal(5, 4, 16)
    prefix = [100, 7, 300, 64, 65]
    found = case.run(q, tables, [0, 1, 1, 2, 0], prefix, [[]] * 5)
    for row, number in enumerate([0, 1, 1, 2, 0]):
        alone = case.run(q[row : row + 1], [tables[number]], [0], prefix[row : row + 1], [[]])
        assert np.array_equal(found[row], alone[0])
