"""Shared memory of the ranks of one machine, for all-reduce without a system call.

An anonymous file that rank 0 makes and the others inherit; it is gone with the last of them. Leaves
the sums to `outrider.kernels`.
"""

import mmap
import os
import sys
from typing import Self

import numpy as np

from outrider.kernels.cpu.collectives import SharedSums

MARK = 16 * 8
"""Bytes of one rank's mark: two cache lines of its own."""


class RankMemory:
    """One rank's view of the memory of all."""

    def __init__(self, buffer: mmap.mmap | bytearray, rank: int, ranks: int) -> None:
        """`buffer`: zeros of `size_of` bytes when the first rank begins."""
        marks = MARK * ranks
        whole = np.frombuffer(buffer, np.uint8)
        self._marks = whole[:marks].view(np.int64)
        self._slots = whole[marks:].view(np.float32).reshape(2, ranks, -1)
        self._rank = rank
        self._turn = 1

    @classmethod
    def of(cls, descriptor: int, rank: int, ranks: int) -> Self:
        """Map an open file."""
        return cls(mmap.mmap(descriptor, 0), rank, ranks)

    def next(self, sums: int) -> SharedSums:
        """Return what a pass of `sums` all-reduces works with; all ranks ask for the same."""
        self._turn += sums
        return SharedSums(self._slots, self._marks, self._rank, self._turn - sums)


def size_of(ranks: int, floats: int) -> int:
    """Return the bytes for parts of up to `floats` floats, a multiple of 16."""
    return ranks * (MARK + 2 * 4 * floats)


def create(ranks: int, floats: int) -> int | None:
    """Open a file of zeros; None where the system has none without a name."""
    if sys.platform != "linux":
        return None
    descriptor = os.memfd_create("outrider-ranks")
    os.ftruncate(descriptor, size_of(ranks, floats))
    return descriptor
