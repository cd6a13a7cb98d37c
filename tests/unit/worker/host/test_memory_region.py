"""Addresses that stay while their pages come and go."""

import mmap
import sys

import numpy as np
import pytest

from outrider.worker.host.memory_region import MemoryRegion, bytes_of
from tests.resident_memory import resident_between

PAGE = mmap.PAGESIZE


def test_arrays_of_a_region_are_zeros_on_lines_of_the_cache_and_do_not_overlap() -> None:
    shapes = [((3, 5), np.float32), ((7,), np.uint8), ((0, 4), np.float32), ((2, 2, 2), np.int32)]
    region = MemoryRegion(sum(bytes_of(shape, dtype) for shape, dtype in shapes))
    arrays = [region.array(shape, dtype) for shape, dtype in shapes]
    for number, (array, (shape, dtype)) in enumerate(zip(arrays, shapes, strict=True), start=1):
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.ctypes.data % 64 == 0 or not array.size
        assert not array.any()
        array[...] = number
    for number, array in enumerate(arrays, start=1):
        assert (array == number).all()


def test_more_than_a_region_holds_is_refused() -> None:
    region = MemoryRegion(100)
    region.array((PAGE // 4,), np.float32)
    with pytest.raises(ValueError, match=f"{PAGE + 64} bytes in a region of {PAGE}"):
        region.array((1,), np.float32)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for resident pages")
def test_only_whole_pages_under_an_array_go() -> None:
    region = MemoryRegion(4 * PAGE)
    array = region.array((4 * PAGE,), np.uint8)
    array[:] = 7
    start = array.ctypes.data
    region.release(array[100 : 3 * PAGE + 5])
    assert resident_between(start, start + 4 * PAGE) == 2 * PAGE
    assert (array[:PAGE] == 7).all()
    assert not array[PAGE : 3 * PAGE].any()
    assert (array[3 * PAGE :] == 7).all()
    region.release()
    assert resident_between(start, start + 4 * PAGE) <= 2 * PAGE, "those just read, as zeros"
    assert not array.any()


def test_an_array_of_elsewhere_is_refused() -> None:
    region = MemoryRegion(PAGE)
    with pytest.raises(ValueError, match="not a piece of the region"):
        region.release(np.zeros(64, np.uint8))
    with pytest.raises(ValueError, match="not a piece of the region"):
        region.release(region.array((8, 8), np.float32)[:, :4])
