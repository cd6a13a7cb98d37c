"""A folder of arrays that processes map: one file of all bytes, one that says what they are.

Their pages are shared, and huge where the system has such for files: passes over pages of 4 KiB
take 13 % longer (Zen 4, one row of the demo's target), so that elsewhere arrays are read into
memory, whose pages are huge.
"""

import json
import math
import mmap
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract.files import naming, write_text
from outrider.kernels.cpu.packing import aligned, padded

DATA, INDEX = "arrays", "index.json"
LINE = 64
"""Arrays start on a cache line."""
HUGE = 2 << 20
MAPPED_HUGE = 0.5
"""Share of the bytes that are to be in huge pages."""


ROLLUP = Path("/proc/self/smaps_rollup")
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""What Linux says of huge pages: of this process's, and of memory's."""


class Damaged(OSError):
    """Files that do not hold what was written."""


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays into a folder. Raises `OSError`."""
    places: dict[str, Any] = {}
    with naming(folder / DATA), (folder / DATA).open("wb") as file:
        for name, array in arrays.items():
            places[name] = file.tell(), array.dtype.str, array.shape
            file.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
            file.write(bytes(padded(array.nbytes, LINE) - array.nbytes))
        file.write(bytes(LINE))  # a file without bytes cannot be mapped
        file.flush()
        _forget(file.fileno())
    index = {"arrays": places, "sum": _sum(_mapped(folder / DATA))}
    write_text(folder / INDEX, json.dumps(index))


def read_arrays(
    folder: Path, rollup: Path = ROLLUP, setting: Path = SETTING
) -> dict[str, NDArray[Any]]:
    """Return what `write_arrays` wrote; writing to it changes no file.

    Raises `Damaged`, also where the contents are not those that were written, and `OSError`.
    """
    before = huge_file_bytes(rollup)
    data = _mapped(folder / DATA)
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if index["sum"] != _sum(data):  # reads, and so maps, all of it
            raise Damaged("its contents have changed")
        arrays = {name: _array(data, *place) for name, place in index["arrays"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(repr(error)) from error
    wanted = MAPPED_HUGE * (len(data) // HUGE * HUGE)
    memory_is_huge = "[never]" not in _text(setting)
    if memory_is_huge and huge_file_bytes(rollup) - before < wanted:
        return {name: _copied(array) for name, array in arrays.items()}
    return arrays


def huge_file_bytes(rollup: Path = ROLLUP) -> int:
    """Return the bytes of files that this process has mapped in huge pages; 0 if nobody says."""
    found = [line for line in _text(rollup).splitlines() if line.startswith("FilePmdMapped:")]
    return 1024 * int(found[0].split()[1]) if found else 0


def _forget(file: int) -> None:
    """Have the system write a file and drop its pages: as they are read again, they are huge."""
    os.fsync(file)
    if sys.platform == "linux":
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def _mapped(file: Path) -> NDArray[np.uint8]:
    """Map a file; its array is writable, for in compiled code that is a type of its own."""
    with file.open("rb") as opened:
        pages = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)


def _array(data: NDArray[np.uint8], begin: int, dtype: str, shape: list[int]) -> NDArray[Any]:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return data[begin : begin + size].view(dtype).reshape(shape)


def _copied(array: NDArray[Any]) -> NDArray[Any]:
    copy = aligned(array.shape, array.dtype.type)
    copy[...] = array
    return copy


def _sum(data: NDArray[np.uint8]) -> int:
    """Return the sum of the words, which takes no longer than reading them."""
    return int(data[: len(data) // 8 * 8].view(np.uint64).sum(dtype=np.uint64))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
