"""Rows of one sequence, and of several in one pass."""

import numpy as np
import pytest

from outrider.worker.kv.block_pool import BlockPool, BlockTable
from outrider.worker.model.rows import joined, prompt_rows, tree_rows


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.fixture
def block_tables() -> tuple[BlockTable, BlockTable]:
    """Of two blocks and of one, in a pool where others came first."""
    kv_cache = BlockPool(4, 256)
    found = [kv_cache.admit(ints(), room) for room in (64, 128, 64)]
    assert found[1] is not None
    assert found[2] is not None
    return found[1], found[2]


def test_rows_are_written_where_their_region_has_their_offsets(
    block_tables: tuple[BlockTable, BlockTable],
) -> None:
    rows = prompt_rows(ints(5, 6, 7), 62, block_tables[0], wants_output=True)
    assert rows.slots.tolist() == [126, 127, 128]
    assert rows.positions.tolist() == [62, 63, 64]
    assert rows.prefix.tolist() == [63, 64, 65]
    assert rows.outputs.tolist() == [2]
    assert rows.tables.tolist() == [[1, 2]]


def test_several_sequences_rows_keep_what_they_see(
    block_tables: tuple[BlockTable, BlockTable],
) -> None:
    prompt = prompt_rows(ints(1, 2), 10, block_tables[1], wants_output=True)
    chunk = prompt_rows(ints(3), 0, block_tables[1], wants_output=False)
    ancestors = np.array([[0, 0, 0], [65, 66, 0]], np.int32)
    tree = tree_rows(ints(8, 9), ints(64, 66), block_tables[0], ints(65, 65), ancestors, ints(0, 2))
    rows = joined([prompt, tree, chunk])
    assert rows.count == 5
    assert rows.tokens.tolist() == [1, 2, 8, 9, 3]
    assert rows.sequence.tolist() == [0, 0, 1, 1, 2]
    assert rows.tables.tolist() == [[3, 0], [1, 2], [3, 0]]
    assert rows.outputs.tolist() == [1, 2, 3]
    assert rows.slots.tolist() == [202, 203, 128, 130, 192]
    assert rows.prefix.tolist() == [11, 12, 65, 65, 1]
    assert rows.ancestors.tolist() == [[0] * 3, [0] * 3, [0] * 3, [65, 66, 0], [0] * 3]
    assert rows.depth.tolist() == [0, 0, 0, 2, 0]
    arrays = set(rows.__slots__) - {"by_library"}
    for name in arrays:
        array = getattr(rows, name)
        assert array.dtype == np.int32, name
        assert array.flags.c_contiguous, name


def test_one_sequence_s_rows_are_a_pass_as_they_are(
    block_tables: tuple[BlockTable, BlockTable],
) -> None:
    rows = prompt_rows(ints(1, 2), 10, block_tables[1], wants_output=True)
    assert joined([rows]) is rows


def test_joined_passes_can_be_joined(block_tables: tuple[BlockTable, BlockTable]) -> None:
    parts = [prompt_rows(ints(n), n, block_tables[n % 2], wants_output=True) for n in range(4)]
    flat = joined(parts)
    nested = joined([joined(parts[:2]), joined(parts[2:])])
    for name in flat.__slots__:
        assert np.array_equal(getattr(flat, name), getattr(nested, name)), name
