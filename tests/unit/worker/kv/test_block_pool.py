"""Whose blocks of KV are whose: sharing, eviction and counts, one rule at a time."""

import numpy as np
import pytest

from outrider.worker.kv.block_pool import BLOCK, BlockPool, BlockTable

A, B, C = 1, 2, 3
"""Tokens that fill blocks."""


def text(*blocks: int, more: int = 1) -> np.ndarray:
    """A block of each token, then `more` single tokens."""
    return np.array([*np.repeat(blocks, BLOCK), *[9] * more], np.int32)


def admit(
    pool: BlockPool, tokens: np.ndarray, room: int | None = None, library_tokens: int = 0
) -> BlockTable:
    block_table = pool.admit(tokens, room or len(tokens), library_tokens)
    assert block_table is not None
    return block_table


def leave(pool: BlockPool, tokens: np.ndarray, library_tokens: int = 0) -> None:
    """A sequence that ran through its tokens and went."""
    block_table = admit(pool, tokens, library_tokens=library_tokens)
    pool.publish(block_table, tokens, len(tokens))
    pool.free(block_table)


def cached(pool: BlockPool, tokens: np.ndarray, library_tokens: int = 0) -> int:
    """How many of the tokens have KV, asked by a sequence that goes at once."""
    block_table = admit(pool, tokens, library_tokens=library_tokens)
    pool.free(block_table)
    return block_table.cached


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (text(A, more=0), 0),  # the root's row has to run
        (text(A), 64),
        (text(A, B, more=0), 64),
        (text(A, B), 128),
        (text(A, B, C), 128),
        (text(A, C), 64),
        (text(B, B), 0),
        (text(more=0), 0),
    ],
)
def test_whole_blocks_of_the_same_beginning_are_found(tokens: np.ndarray, found: int) -> None:
    pool = BlockPool(8, 256)
    leave(pool, text(A, B))
    assert cached(pool, tokens) == found
    figures = pool.usage
    assert (figures.hits, figures.queries) == (found, 129 + len(tokens))


def test_only_what_has_been_computed_is_found() -> None:
    pool = BlockPool(8, 256)
    block_table = admit(pool, text(A, B))
    pool.publish(block_table, text(A, B), 127)
    assert cached(pool, text(A, B)) == 64
    pool.publish(block_table, text(A, B), 128)
    assert cached(pool, text(A, B)) == 128


def test_a_sequence_shares_blocks_with_one_that_still_runs() -> None:
    pool = BlockPool(8, 256)
    first = admit(pool, text(A, B))
    pool.publish(first, text(A, B), 128)
    second = admit(pool, text(A, B))
    assert second.table[:2].tolist() == first.table[:2].tolist()
    assert second.table[2] != first.table[2]
    assert pool.used == 4
    pool.free(first)
    assert pool.used == 3
    pool.free(second)
    assert (pool.used, pool.usage.cached, pool.usage.free) == (0, 2, 6)


def test_what_two_computed_side_by_side_is_kept_once() -> None:
    pool = BlockPool(8, 256)
    first, second = admit(pool, text(A, B)), admit(pool, text(A, C))
    before = second.table
    kept = before.tolist()
    pool.publish(first, text(A, B), 129)
    pool.publish(second, text(A, C), 129)
    assert second.table[0] == first.table[0]
    assert second.table[1:].tolist() == kept[1:]
    assert before.tolist() == kept, "rows made before keep their table"
    assert pool.used == 5
    pool.free(first)
    assert pool.used == 3, "the second refers to it too"
    assert cached(pool, text(A, C)) == 128


def test_the_longest_unused_is_evicted_first() -> None:
    pool = BlockPool(4, 256)
    for token in (A, B, C):
        leave(pool, text(token, more=0))
    assert cached(pool, text(A)) == 64  # used again: now B is the oldest
    leave(pool, text(more=65))
    assert pool.usage.evictions == 1
    assert [cached(pool, text(token)) for token in (C, A, B)] == [64, 64, 0]


def test_a_beginning_is_evicted_after_what_follows_it() -> None:
    pool = BlockPool(4, 256)
    leave(pool, text(A, B, C, more=0))
    pool.free(admit(pool, text(), 3 * BLOCK))
    assert pool.usage.evictions == 2
    assert cached(pool, text(A, B, C)) == 64


def test_blocks_in_use_are_never_evicted() -> None:
    pool = BlockPool(4, 256)
    leave(pool, text(A, B, more=0))
    holder = admit(pool, text(A), 65)
    assert pool.admit(text(C), 3 * BLOCK) is None
    assert cached(pool, text(C, more=0)) == 0
    pool.free(holder)
    assert cached(pool, text(A, B)) == 128


def test_a_refusal_changes_nothing() -> None:
    pool = BlockPool(4, 320)
    leave(pool, text(A, B, more=0))
    block_table = admit(pool, text(C), 2 * BLOCK)
    figures, table = pool.usage, block_table.table.tolist()
    assert pool.admit(text(B), 3 * BLOCK) is None
    assert pool.admit(text(A, B), 5 * BLOCK) is None
    assert not pool.extend(block_table, 5 * BLOCK)
    assert pool.usage == figures
    assert block_table.table.tolist() == table
    assert cached(pool, text(A, B, more=0)) == 64


def test_without_a_prefix_cache_nothing_is_found_or_kept() -> None:
    pool = BlockPool(4, 256, prefix_cache=False)
    leave(pool, text(A, B))
    assert cached(pool, text(A, B)) == 0
    assert pool.usage.free == 4
    assert (pool.usage.queries, pool.usage.hits) == (0, 0)


def test_other_tokens_with_the_same_digest_are_not_taken_for_these() -> None:
    pool = BlockPool(8, 256, digest=lambda before, tokens: b"the same")
    leave(pool, text(A))
    leave(pool, text(B))
    assert cached(pool, text(B)) == 0
    assert cached(pool, text(A)) == 64
    assert cached(pool, text(A, A)) == 64, "the same tokens after others are not the same"
    assert pool.usage.cached == 1


def test_blocks_of_the_library_and_of_the_kernels_are_never_taken_for_each_other() -> None:
    pool, tokens = BlockPool(8, 256), text(A, B)
    leave(pool, tokens, library_tokens=len(tokens))
    assert (cached(pool, tokens), cached(pool, tokens, library_tokens=len(tokens))) == (0, 128)
    leave(pool, tokens)
    assert (cached(pool, tokens), cached(pool, tokens, library_tokens=len(tokens))) == (128, 128)
    assert pool.usage.cached == 4


@pytest.mark.parametrize(
    ("library_tokens", "found"), [(0, 0), (99, 64), (100, 128), (101, 64), (129, 64)]
)
def test_a_block_that_a_prompt_ends_in_is_found_for_the_same_prompt_alone(
    library_tokens: int, found: int
) -> None:
    pool = BlockPool(10, 256)
    below = admit(pool, text(more=2 * BLOCK))
    leave(pool, text(A, B), library_tokens=100)
    pool.free(below)
    assert pool.contract(8) is not None  # blocks move, and stay what they are
    pool.expand(8)
    assert pool.lacking(text(A, B), 192, library_tokens) == 3  # cached ones are idle
    assert cached(pool, text(A, B), library_tokens) == found


def test_a_digest_stands_for_all_tokens_before_it() -> None:
    seen: list[bytes] = []

    def digest(before: bytes, tokens: bytes) -> bytes:
        seen.append(before)
        return before + b"+"

    leave(BlockPool(4, 256, digest=digest), text(A, B))
    assert set(seen) == {b"", b"+"}


def test_published_blocks_cannot_be_written() -> None:
    pool = BlockPool(4, 256)
    block_table = admit(pool, text(A))
    offsets = np.array([63, 64], np.int32)
    assert block_table.writable(offsets).tolist() == block_table.slots(offsets).tolist()
    pool.publish(block_table, text(A), 64)
    assert block_table.writable(offsets[1:]).tolist() == [64 * int(block_table.table[1])]
    with pytest.raises(ValueError, match="offsets 63 to 64 may not be written: those from 64 to"):
        block_table.writable(offsets)
    with pytest.raises(ValueError, match="offsets 128 to 128 may not be written"):
        block_table.writable(np.array([128], np.int32))


def test_a_region_that_was_freed_is_refused() -> None:
    pool = BlockPool(4, 256)
    block_table = admit(pool, text(A))
    pool.free(block_table)
    with pytest.raises(ValueError, match="this block table was freed"):
        pool.free(block_table)
    with pytest.raises(ValueError, match="this block table was freed"):
        pool.extend(block_table, 256)
    assert pool.usage.free == 4


def test_more_than_the_longest_sequence_is_refused() -> None:
    pool = BlockPool(8, 200)
    assert pool.longest == 256
    with pytest.raises(ValueError, match="room for 257 offsets: a sequence may have 256"):
        pool.admit(text(A), 257)
    block_table = admit(pool, text(A))
    with pytest.raises(ValueError, match="room for 300 offsets"):
        pool.extend(block_table, 300)
    with pytest.raises(ValueError, match="256 tokens computed, of 65, in 128 offsets"):
        pool.publish(block_table, text(A), 256)


def test_a_slab_more_moves_nothing_and_is_used_last() -> None:
    pool = BlockPool(2, 256)
    first = admit(pool, text(more=1))
    kept = first.table
    pool.expand(2)
    assert first.table is kept
    assert (pool.blocks, pool.available) == (4, 3)
    assert admit(pool, text(more=65)).table.tolist() == [1, 2]


def test_live_blocks_of_a_slab_that_goes_get_free_ones_and_tables_follow() -> None:
    pool = BlockPool(4, 256)
    low, high = admit(pool, text(more=65)), admit(pool, text(more=65))
    pool.free(low)
    before = high.table
    moves = pool.contract(2)
    assert moves is not None
    assert (moves.sources.tolist(), moves.destinations.tolist()) == ([2, 3], [0, 1])
    assert high.table.tolist() == [0, 1]
    assert before.tolist() == [2, 3], "rows made before keep their table"
    assert (pool.blocks, pool.available) == (2, 0)


def test_a_slab_whose_blocks_are_needed_stays() -> None:
    pool = BlockPool(5, 256)
    leave(pool, text(A, more=0))
    block_table = admit(pool, text(more=129))
    figures, table = pool.usage, block_table.table.tolist()
    assert pool.contract(3) is None
    assert (pool.usage, block_table.table.tolist()) == (figures, table)
    assert cached(pool, text(A)) == 64


def test_prefixes_move_with_a_slab_and_only_those_without_room_are_given_up() -> None:
    pool = BlockPool(10, 512)
    below = admit(pool, text(more=5 * BLOCK))
    leave(pool, text(A, B, more=0))
    leave(pool, text(C, more=0))
    pool.free(below)
    moves = pool.contract(5)
    assert moves is not None
    assert (moves.sources.tolist(), moves.destinations.tolist()) == ([5, 6, 7], [0, 1, 2])
    assert cached(pool, text(A, B)) == 128
    assert cached(pool, text(C)) == 64
    assert pool.usage.evictions == 0
    assert pool.contract(3) is not None
    assert pool.usage.evictions == 1
    assert cached(pool, text(A)) == 64, "what follows a beginning is evicted before it"


def test_a_pool_can_shrink_to_nothing_and_grow_again() -> None:
    pool = BlockPool(4, 256)
    leave(pool, text(A, B))
    assert pool.contract(4) is not None
    assert pool.admit(text(A), 65) is None
    assert (pool.usage.cached, pool.usage.evictions) == (0, 2)
    pool.expand(4)
    assert cached(pool, text(A, B)) == 0
