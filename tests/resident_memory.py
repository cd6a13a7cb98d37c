"""Resident memory of a range of this process's addresses, as Linux counts it."""

import ctypes
import mmap


def resident_between(low: int, high: int) -> int:
    """Return the bytes of whole pages between two addresses that are in memory."""
    first = low // mmap.PAGESIZE * mmap.PAGESIZE
    pages = -(-(high - first) // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(high - first), found):
        raise OSError(ctypes.get_errno(), "mincore")
    return mmap.PAGESIZE * sum(page & 1 for page in found)
