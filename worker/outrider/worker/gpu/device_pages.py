"""Memory of a device by pages: addresses that stay, over pages that come and go.

CUDA graphs keep the addresses that they were captured with, so what moves is the memory behind
them (cuMemAddressReserve and cuMemMap of the CUDA driver). A page that one region gives up waits
for another one: what was had at start never has to be asked for again. Leaves when memory moves to
`launch.memory_lender`.
"""

import ctypes
from typing import Any, Protocol

import torch
from torch import Tensor

Handle = int
PINNED, ON_DEVICE, READ_WRITE = 1, 1, 3
SUPPORTED = 102
"""The driver's attribute that says whether a device manages virtual memory."""


class NoPages(RuntimeError):
    """The device has no pages to give, or cannot map them; the message says why."""


class PageDriver(Protocol):
    """A device's virtual memory; all calls raise `NoPages`."""

    device: str
    """Torch's name of the device."""
    page: int
    """Bytes of a page."""

    def reserve(self, size: int) -> int:
        """Return the first of `size` bytes of addresses that nothing else gets."""

    def create(self) -> Handle:
        """Return a page of memory, which has no address yet."""

    def map(self, address: int, handle: Handle) -> None:
        """Give a page an address."""

    def unmap(self, address: int) -> None:
        """Take a page's address away; the page keeps what it holds."""

    def view(self, address: int, size: int) -> Tensor:
        """Return addresses, the first of which has a page, as uint8 [size]."""

    def settle(self) -> None:
        """Wait until the device has done all that it was asked to."""


class DevicePages:
    """Pages of one device that regions give to each other."""

    def __init__(self, driver: PageDriver) -> None:
        self.driver = driver
        self._spare: list[Handle] = []

    @property
    def page(self) -> int:
        """Bytes of a page."""
        return self.driver.page

    def take(self) -> Handle:
        """Return a page that was given up, or a new one; raises `NoPages`."""
        return self._spare.pop() if self._spare else self.driver.create()

    def give(self, handle: Handle) -> None:
        """Keep a page for the next region that wants one."""
        self._spare.append(handle)


class DeviceRegion:
    """Addresses of `size` bytes, each page of which has memory or none."""

    def __init__(self, pages: DevicePages, size: int) -> None:
        self.pages = pages
        self.size = -(-size // pages.page) * pages.page
        """Bytes: whole pages."""
        self._first = pages.driver.reserve(self.size)
        self._mapped: dict[int, Handle] = {}
        """Memory by page."""

    @property
    def mapped_pages(self) -> int:
        """Pages that have memory."""
        return len(self._mapped)

    def map(self, begin: int, end: int) -> None:
        """Give memory to every page of bytes `begin` to `end` - 1 that has none.

        It holds what its last owner wrote. Raises `NoPages`, and nothing has changed.
        """
        page, added = self.pages.page, list[int]()
        try:
            for number in range(begin // page, -(-end // page)):
                if number not in self._mapped:
                    self._map(number)
                    added.append(number)
        except NoPages:
            for number in added:
                self.unmap(number * page, (number + 1) * page)
            raise

    def unmap(self, begin: int, end: int) -> None:
        """Give up the memory of the whole pages within bytes `begin` to `end` - 1; the device must
        not be using them."""
        page = self.pages.page
        for number in range(-(-begin // page), end // page):
            if (handle := self._mapped.pop(number, None)) is not None:
                self.pages.driver.unmap(self._first + number * page)
                self.pages.give(handle)

    def _map(self, number: int) -> None:
        handle = self.pages.take()
        try:
            self.pages.driver.map(self._first + number * self.pages.page, handle)
        except NoPages:
            self.pages.give(handle)
            raise
        self._mapped[number] = handle

    def view(self) -> Tensor:
        """Return all of it as uint8 [size]; the first page must have memory."""
        return self.pages.driver.view(self._first, self.size)


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("kind", ctypes.c_int), ("device", ctypes.c_int))


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handle_kinds", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class CudaDriver:
    """The CUDA driver's virtual memory of one device."""

    def __init__(self, device: str) -> None:
        """Raises `NoPages` for a device that has none."""
        torch.cuda.set_device(device)
        torch.cuda.synchronize(device)  # makes the context that the driver works in
        self.device, index = device, torch.cuda.current_device()
        try:
            self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoPages(f"the CUDA driver's library cannot be loaded: {error}") from error
        ordinal, supported, page = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        self._call("cuDeviceGet", ctypes.byref(ordinal), index)
        self._call("cuDeviceGetAttribute", ctypes.byref(supported), SUPPORTED, ordinal)
        if not supported.value:
            raise NoPages(f"{device} does not manage virtual memory")
        location = Location(ON_DEVICE, ordinal.value)
        self._properties = AllocationProperties(kind=PINNED, location=location)
        self._access = Access(location, READ_WRITE)
        named = ctypes.byref(self._properties)
        self._call("cuMemGetAllocationGranularity", ctypes.byref(page), named, 0)
        self.page = page.value

    def reserve(self, size: int) -> int:
        """Return the first of `size` bytes of addresses."""
        first = ctypes.c_uint64()
        none = ctypes.c_uint64(0)
        self._call("cuMemAddressReserve", ctypes.byref(first), _size(size), _size(0), none, none)
        return first.value

    def create(self) -> Handle:
        """Return a page of memory."""
        handle = ctypes.c_uint64()
        named = ctypes.byref(self._properties)
        try:
            self._create(handle, named)
        except NoPages:
            torch.cuda.empty_cache()  # torch keeps what it has freed
            self._create(handle, named)
        return handle.value

    def map(self, address: int, handle: Handle) -> None:
        """Give a page an address."""
        at, size, none = ctypes.c_uint64(address), _size(self.page), ctypes.c_uint64(0)
        self._call("cuMemMap", at, size, _size(0), ctypes.c_uint64(handle), none)
        try:
            self._call("cuMemSetAccess", at, size, ctypes.byref(self._access), _size(1))
        except NoPages:
            self.unmap(address)
            raise

    def unmap(self, address: int) -> None:
        """Take a page's address away."""
        self._call("cuMemUnmap", ctypes.c_uint64(address), _size(self.page))

    def view(self, address: int, size: int) -> Tensor:
        """Return addresses as a tensor."""
        return torch.as_tensor(CudaArray(address, size), device=self.device)

    def settle(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize(self.device)

    def _create(self, handle: ctypes.c_uint64, named: Any) -> None:
        none = ctypes.c_uint64(0)
        self._call("cuMemCreate", ctypes.byref(handle), _size(self.page), named, none)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            words = ctypes.c_char_p()
            self._cuda.cuGetErrorName(status, ctypes.byref(words))
            raise NoPages(f"{name}: {(words.value or b'?').decode()}")


class CudaArray:
    """Addresses as torch takes them from others."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def pages_of(device: str) -> DevicePages:
    """Return the pages of a device; raises `NoPages` where it has none."""
    if not device.startswith("cuda"):
        raise NoPages("the interpreter maps no memory")
    return DevicePages(CudaDriver(device))


def _size(count: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(count)
