"""Arrays in files: mapped where that costs passes nothing, else in memory."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from outrider.worker.checkpoints.array_file import (
    DATA,
    HUGE,
    INDEX,
    Damaged,
    huge_file_bytes,
    read_arrays,
    write_arrays,
)

ARRAYS = {
    "bytes": np.arange(77, dtype=np.uint8),
    "none": np.zeros((2, 0), np.float32),
    "floats": np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4),
    "columns": np.arange(12, dtype=np.int32).reshape(3, 4).T,
    "large": np.arange(HUGE // 2, dtype=np.int32),
}
ROLLUP = "00400000-7fff [rollup]\nRss: 4 kB\nFilePmdMapped: %d kB\n"


def pages(folder: Path, setting: str) -> tuple[Path, Path]:
    """A system that maps no file in huge pages; `setting`: what it says of memory."""
    (folder / "process").write_text(ROLLUP % 0)
    (folder / "system").write_text(setting)
    return folder / "process", folder / "system"


def is_mapped(array: np.ndarray) -> bool:
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap)


def test_arrays_come_back_on_cache_lines(tmp_path: Path) -> None:
    write_arrays(tmp_path, ARRAYS)
    found = read_arrays(tmp_path)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
        assert found[name].ctypes.data % 64 == 0


@pytest.mark.parametrize(
    ("system", "mapped"),
    [
        ("always [madvise] never", False),
        ("[always] madvise never", False),
        ("always madvise [never]", True),
    ],
)
def test_small_pages_are_mapped_where_memory_has_no_others(
    tmp_path: Path, system: str, mapped: bool
) -> None:
    write_arrays(tmp_path, ARRAYS)
    found = read_arrays(tmp_path, *pages(tmp_path, system))
    assert is_mapped(found["floats"]) is mapped
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array)
        assert found[name].flags.writeable


def test_what_is_smaller_than_a_huge_page_is_mapped(tmp_path: Path) -> None:
    write_arrays(tmp_path, {"floats": ARRAYS["floats"]})
    found = read_arrays(tmp_path, *pages(tmp_path, "[always] madvise never"))
    assert is_mapped(found["floats"])


def test_a_system_that_says_nothing_has_no_huge_pages_of_files(tmp_path: Path) -> None:
    assert huge_file_bytes(tmp_path / "none") == 0
    assert huge_file_bytes() >= 0
    (tmp_path / "process").write_text(ROLLUP % 4096)
    assert huge_file_bytes(tmp_path / "process") == 4 << 20


def test_other_contents_are_damage(tmp_path: Path) -> None:
    write_arrays(tmp_path, ARRAYS)
    data = bytearray((tmp_path / DATA).read_bytes())
    data[-200] ^= 1
    (tmp_path / DATA).write_bytes(data)
    with pytest.raises(Damaged, match="changed"):
        read_arrays(tmp_path)


@pytest.mark.parametrize("name", [DATA, INDEX])
def test_a_disk_that_gets_full_is_named_by_the_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as full:
        write_arrays(tmp_path, {} if name == INDEX else ARRAYS)
    assert full.value.filename == str(tmp_path / name)
