"""Buckets: sizes that passes are padded to, so that few CUDA graphs serve all of them."""

import bisect

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
"""Rows of a pass, or rows with outputs."""
MOVES = (64, 512)
"""KV slots moved before a pass."""


def bucket(count: int, sizes: tuple[int, ...]) -> int:
    """Return the smallest size that holds `count`; raises `ValueError` where none does."""
    at = bisect.bisect_left(sizes, count)
    if at == len(sizes):
        raise ValueError(f"{count}: at most {sizes[-1]} fit")
    return sizes[at]


def up_to(most: int) -> tuple[int, ...]:
    """Return the row buckets of a model whose passes have at most `most` rows."""
    return (*(size for size in ROWS if size < most), most)


def group_bucket(groups: int, rows: int) -> int:
    """Return the groups of a pass of `rows` rows: a power of two, but no more than rows."""
    return min(rows, 1 << max(0, groups - 1).bit_length())
