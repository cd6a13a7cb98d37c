"""A device's virtual memory in host memory: pages of a file, and addresses that fault without one.

Tests on a CPU use it where a GPU has the CUDA driver's; reading what has no page ends the process.
"""

import ctypes
import mmap
import os

import torch
from torch import Tensor

from outrider.worker.gpu.device_pages import DevicePages, NoPages

NO_ACCESS = 0
FIXED = 0x10
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)


class HostDriver:
    """Pages of host memory, `most` of them."""

    device = "cpu"

    def __init__(self, page: int = 1 << 16, most: int = 1 << 20) -> None:
        self.page, self.most = page, most
        self._file = os.memfd_create("pages")
        self.created = 0
        self._mapped: dict[int, int] = {}
        """Page by address: the CUDA driver, too, maps no address and no page twice here."""

    def reserve(self, size: int) -> int:
        found = LIBC.mmap(None, size, NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        assert found not in (None, ctypes.c_void_p(-1).value)
        return int(found)

    def create(self) -> int:
        if self.created == self.most:
            raise NoPages("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY")
        self.created += 1
        os.ftruncate(self._file, self.created * self.page)
        return self.created - 1

    def map(self, address: int, handle: int) -> None:
        assert address not in self._mapped
        assert handle not in self._mapped.values()
        self._mapped[address] = handle
        access = mmap.PROT_READ | mmap.PROT_WRITE
        kind, start = mmap.MAP_SHARED | FIXED, handle * self.page
        assert LIBC.mmap(address, self.page, access, kind, self._file, start) == address

    def unmap(self, address: int) -> None:
        del self._mapped[address]
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FIXED
        assert LIBC.mmap(address, self.page, NO_ACCESS, kind, -1, 0) == address

    def view(self, address: int, size: int) -> Tensor:
        return torch.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype=torch.uint8)

    def settle(self) -> None:
        """Nothing is under way."""


def pages(device: str, most: int = 1 << 20) -> DevicePages:
    """Pages of the device under test."""
    if device == "cpu":
        return DevicePages(HostDriver(most=most))
    from outrider.worker.gpu.device_pages import CudaDriver

    return DevicePages(CudaDriver(device))
