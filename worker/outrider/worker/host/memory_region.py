"""Region of this process's memory: a range of addresses that is kept, over pages that are not.

Pages come as they are first written and go by `release`; addresses stay, so that compiled code may
keep them. Leaves what lies in a region, and when it is released, to its owner.
"""

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64
"""Arrays start on a cache line."""
PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
HUGE_BYTES = 1 << 22
"""Arrays from which on numpy asks for huge pages, too."""


class MemoryRegion:
    """Zeros at `size` bytes of addresses, of which arrays are cut one after the other."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        """Bytes: whole pages."""
        self._map = mmap.mmap(-1, max(self.size, mmap.PAGESIZE), flags=PRIVATE)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        """[size] all of it; a view."""
        self._used = 0

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Cut the next array off; it starts on a cache line. Raises `ValueError` where there is no
        room."""
        size = bytes_of(shape, dtype)
        start, self._used = self._used, self._used + size
        if self._used > self.size:
            raise ValueError(f"{self._used} bytes in a region of {self.size}")
        array: NDArray[Any] = self.bytes[start : start + size].view(dtype)
        return array[: _count(shape)].reshape(shape)

    def use_huge_pages(self, array: NDArray[Any] | None = None) -> None:
        """Ask for huge pages under an array of this region, or all, if it is as large as those for
        which numpy does; a system may not have them."""
        begin, length = self._pages(array)
        if length >= HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE, begin, length)

    def release(self, array: NDArray[Any] | None = None) -> None:
        """Give back the whole pages under an array of this region, or all; they read as zeros then.

        Where a system cannot, nothing changes: what was written stays, and is written over.
        """
        begin, length = self._pages(array)
        if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, begin, length)

    def _pages(self, array: NDArray[Any] | None) -> tuple[int, int]:
        """Return the first byte and the size of the whole pages under an array, or of all."""
        first, size = (0, self.size) if array is None else self._place(array)
        begin = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        return begin, (first + size) // mmap.PAGESIZE * mmap.PAGESIZE - begin

    def _place(self, array: NDArray[Any]) -> tuple[int, int]:
        """Return the first byte of a contiguous array in this region, and its size."""
        first = array.ctypes.data - self.bytes.ctypes.data
        if not array.flags.c_contiguous or not 0 <= first <= self.size - array.nbytes:
            raise ValueError("this array is not a piece of the region")
        return first, array.nbytes


def bytes_of(shape: tuple[int, ...], dtype: Any) -> int:
    """Return the bytes that an array takes of a region."""
    return -(-_count(shape) * int(np.dtype(dtype).itemsize) // LINE) * LINE


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
